"""The embedded log: one SQLite file, no server."""
