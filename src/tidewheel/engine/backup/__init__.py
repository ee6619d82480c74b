"""Backups: a log and the checkpoints of its jobs as they were at one moment, and putting them back."""
