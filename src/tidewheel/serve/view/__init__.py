"""The current view of results: following topics, the current items, their history, and each client's part of it."""
