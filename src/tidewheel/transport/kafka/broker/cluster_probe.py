"""Asking a local cluster whether it is ready, as its clients would."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tidewheel.errors import SetupError

try:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
except ImportError as error:
    raise SetupError("Kafka needs the package confluent-kafka; get it with: pip install 'tidewheel[kafka]'") from error

__all__ = ["Answer", "ClusterProbe"]

_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a broker knows of its cluster: its id, the numbers of the brokers that are up, and users' topics."""

    cluster_id: str
    brokers: frozenset[int]
    topics: int


class ClusterProbe:
    """A client that asks at some addresses. That nobody answers is what it finds out, so it does not log it."""

    def __init__(self, addresses: Sequence[str]) -> None:
        servers = ",".join(addresses)
        self._client = AdminClient(
            {"bootstrap.servers": servers, "reconnect.backoff.max.ms": 200, "log_level": 0}, logger=_SILENT
        )

    def ask(self, *, timeout: float) -> Answer | None:
        """What the cluster tells within so many seconds; None if there is no answer."""
        try:
            told = self._client.list_topics(timeout=timeout)
        except KafkaException:
            return None
        topics = [name for name in told.topics if not name.startswith("__")]
        return Answer(str(told.cluster_id), frozenset(told.brokers), len(topics))
