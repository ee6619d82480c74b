"""What Tidewheel keeps beside a checkpoint of Spark: what it was made for, and which batches were written."""
