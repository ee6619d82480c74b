"""Ingestion: connectors bring messages in, processors turn them into events, a pipeline takes them to the log; lookups
ask about events outside the stream.

These are the names for connectors, processors and lookups of your own; `docs/extending.md` and `docs/lookups.md` have
one of each.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tidewheel.ingest.connector import Connector, Deliver, Delivered, run_all
from tidewheel.ingest.message import Message
from tidewheel.ingest.pipeline import Pipeline, Reports, adds_up
from tidewheel.ingest.processor import Dead, Processed, Processor, joined
from tidewheel.ingest.processors.json_rows import JsonProcessor
from tidewheel.transport.events.event_pb2 import IngestReport

if TYPE_CHECKING:
    from tidewheel.ingest.http.connector import HttpConnector
    from tidewheel.ingest.http.limits import HttpLimits
    from tidewheel.ingest.lookup import Limits, LookupWorker, Provider, ProviderError
    from tidewheel.ingest.lookup import Report as LookupReport
    from tidewheel.ingest.lookup.http_client import HttpResponse, check_url, post
    from tidewheel.ingest.mqtt.client import Broker
    from tidewheel.ingest.mqtt.publisher import MqttPublisher
    from tidewheel.ingest.replay.pacer import Pacer
    from tidewheel.model.process.lookup import Key

__all__ = [
    "Broker",
    "Connector",
    "Dead",
    "Deliver",
    "Delivered",
    "HttpConnector",
    "HttpLimits",
    "HttpResponse",
    "IngestReport",
    "JsonProcessor",
    "Key",
    "Limits",
    "LookupReport",
    "LookupWorker",
    "Message",
    "MqttPublisher",
    "Pacer",
    "Pipeline",
    "Processed",
    "Processor",
    "Provider",
    "ProviderError",
    "Reports",
    "adds_up",
    "check_url",
    "joined",
    "post",
    "run_all",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports


# What a processor does not need: HTTP and MQTT, whose packages may not be installed.
_HOMES = {
    "Broker": "ingest.mqtt.client",
    "HttpConnector": "ingest.http.connector",
    "HttpLimits": "ingest.http.limits",
    "HttpResponse": "ingest.lookup.http_client",
    "Key": "model.process.lookup",
    "Limits": "ingest.lookup",
    "LookupReport": "ingest.lookup",
    "LookupWorker": "ingest.lookup",
    "MqttPublisher": "ingest.mqtt.publisher",
    "Pacer": "ingest.replay.pacer",
    "Provider": "ingest.lookup",
    "ProviderError": "ingest.lookup",
    "check_url": "ingest.lookup.http_client",
    "post": "ingest.lookup.http_client",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # A report of a pipeline and one of a lookup worker have the same name at home.
    own = "Report" if name == "LookupReport" else name
    return getattr(importlib.import_module(f"tidewheel.{_HOMES[name]}"), own)
