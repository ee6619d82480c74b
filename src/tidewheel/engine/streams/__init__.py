"""The user's objects: streams, keyed and windowed streams, and results."""
