"""`tidewheel kafka`: a Kafka on this machine, for development."""
