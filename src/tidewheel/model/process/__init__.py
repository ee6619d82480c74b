"""Process functions and what is built of them: per key, in event-time order, on columns."""
