"""Backtracking search for the preferred match, and matching batch by batch with state between."""
