"""The NFA: partial matches of one key, event by event."""
