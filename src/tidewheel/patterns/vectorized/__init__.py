"""Patterns on columns: what needs no NFA is decided for all keys of a batch at once."""
