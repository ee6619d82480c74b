"""The current view of results: following topics, what is shown now, its history, and what each client sees of it."""
