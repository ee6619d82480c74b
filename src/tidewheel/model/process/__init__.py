"""Process functions and functions built on them: per key, in event-time order, on columns."""
