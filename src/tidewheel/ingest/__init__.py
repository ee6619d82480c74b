"""Ingestion: connectors bring messages in, processors turn them into events, a pipeline takes them to the log.

These are the names for connectors and processors of your own; `docs/extending.md` has one of each.
"""

from tidewheel.ingest.connector import Connector, Deliver, Delivered, run_all
from tidewheel.ingest.json_rows import JsonProcessor
from tidewheel.ingest.message import Message
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.ingest.processor import Dead, Processed, Processor, joined

__all__ = [
    "Connector",
    "Dead",
    "Deliver",
    "Delivered",
    "JsonProcessor",
    "Message",
    "Pipeline",
    "Processed",
    "Processor",
    "joined",
    "run_all",
]
