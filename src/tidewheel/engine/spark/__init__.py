"""Spark's environment: Java, workers, Arrow schemas, local files."""
