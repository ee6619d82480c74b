"""Operators that recognize something in the events of each key: patterns, patterns that change, MATCH_RECOGNIZE."""
