"""Recordings: writing them, reading them, and replaying them at any speed."""
