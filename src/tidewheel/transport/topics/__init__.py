"""Topics that Tidewheel keeps for itself, and what a topic of results comes to."""
