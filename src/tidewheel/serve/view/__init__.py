"""The current view of results: following topics, what is shown now, its history, and who sees what of it."""
