"""The live public transport of Helsinki: messages, simulator, jobs."""
