"""Backups: save a log and the checkpoints of its jobs at one moment, and restore them."""
