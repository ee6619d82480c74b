"""Event patterns: which events, in what order, make a match; no Spark, no log."""
