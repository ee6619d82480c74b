"""What is needed of Spark itself: Java, workers, Arrow schemas, local files."""
