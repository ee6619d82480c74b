"""Shared parts of window operators: assignment to slices, partial aggregates, triggers and panes in columns."""
