"""The engine: the model on Spark, and Spark's way in and out of the log."""
