"""The model: the semantics of stream analytics, in pure Python; depends on neither Spark nor the log."""
