"""A Kafka cluster on this machine, without Docker, for development and tests."""
