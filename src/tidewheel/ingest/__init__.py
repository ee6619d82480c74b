"""Ingestion: connectors bring messages in, processors turn them into events, a pipeline takes them to the log."""
