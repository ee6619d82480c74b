"""Tidewheel's internal topics, and the final table of a topic of results."""
