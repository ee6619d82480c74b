"""Operators: one file for each kind. They run on one key group, a batch at a time, on columns; no Spark."""
