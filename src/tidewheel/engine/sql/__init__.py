"""SQL over streams: MATCH_RECOGNIZE, and everything else by Spark."""
