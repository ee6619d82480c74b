"""Event patterns: what combinations of events mean, in pure Python; knows neither Spark nor the log."""
