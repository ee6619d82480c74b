"""Tidewheel's own files beside a Spark checkpoint: which job it belongs to, and which batches were written."""
