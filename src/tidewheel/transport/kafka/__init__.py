"""The distributed log: topics of a Kafka cluster."""
