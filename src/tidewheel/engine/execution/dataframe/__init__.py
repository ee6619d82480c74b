"""Results over DataFrames: their columns, sinks, and Spark's watermark."""
