"""The topics of a log on Kafka: their names there, how they are made, and what the cluster knows of them.

Each topic has a companion with its index (see `topic_index`), in as many partitions. The companion's name tells the
format, too, so that everybody finds out both with one question. A topic without a companion was made by others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from tidewheel.errors import DefinitionError, LogError
from tidewheel.model.time import Duration, duration
from tidewheel.topic_names import check_topic_name
from tidewheel.transport.kafka.address import TopicFormat
from tidewheel.transport.kafka.client import (
    RECORD_BYTES,
    REQUEST_SECONDS,
    TIMEOUT_SECONDS,
    Clients,
    errors_explained,
    patiently,
    results_of,
)
from tidewheel.transport.log.log_types import Retention
from tidewheel.transport.log.validation import check_topic, topic_not_found

__all__ = ["KafkaTopic", "Topics"]

_INTERNAL = "__tidewheel."
_PAUSE_SECONDS = 0.02
_SEGMENT_BYTES = 16 << 20
_INDEX_LONGER: Duration = duration("7 d")


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic as the cluster knows it.

    Args:
        name: Its name in the log.
        full_name: Its name in Kafka, with the log's prefix.
        id: Its identity in Kafka: it is never used again.
        partitions: How many it has.
        format: How it holds records.
        index: The full name of its index; None for a topic that others made.
        index_id: The identity of the index.
    """

    name: str
    full_name: str
    id: str
    partitions: int
    format: TopicFormat
    index: str | None = None
    index_id: str | None = None

    def check_partition(self, partition: int) -> None:
        """Refuse a partition that it does not have."""
        if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < self.partitions:
            raise LogError(f"topic {self.name!r} has partitions 0 to {self.partitions - 1}, got {partition!r}")


class Topics:
    """Makes, describes and deletes the topics of a log."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._prefix = clients.address.prefix

    def names(self) -> list[str]:
        """The names of all topics of the log, in order."""
        known = self._all()
        return sorted(
            name.removeprefix(self._prefix)
            for name in known  # without a prefix those that other logs keep for themselves are seen, too
            if name.startswith(self._prefix) and _INTERNAL not in name and not _of_kafka(name)
        )

    def find(self, names: Iterable[str]) -> dict[str, KafkaTopic]:
        """Those of these topics that exist."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        wanted = list(dict.fromkeys(names))
        asked = {name: [self._full(name), *self._companions(name)] for name in wanted}
        if not asked:
            return {}
        collection = TopicCollection([name for each in asked.values() for name in each])

        def attempt() -> dict[str, Any]:
            answers = {}
            futures = self._clients.admin.describe_topics(collection, request_timeout=REQUEST_SECONDS)
            for name, future in futures.items():
                try:
                    answers[name] = future.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
            return answers

        described = patiently(self._clients, "describe topics", attempt)
        found = {}
        for name, (full, *companions) in asked.items():
            if full in described:
                index = next((each for each in companions if each in described), None)
                if index is not None and len(described[index].partitions) < len(described[full].partitions):
                    self._widen(index, len(described[full].partitions))
                found[name] = KafkaTopic(
                    name=name,
                    full_name=full,
                    id=str(described[full].topic_id),
                    partitions=len(described[full].partitions),
                    format="events" if index is None else get_args(TopicFormat)[companions.index(index)],
                    index=index,
                    index_id=None if index is None else str(described[index].topic_id),
                )
        return found

    def get(self, name: str) -> KafkaTopic:
        """A topic; `TopicNotFoundError` lists those that exist."""
        found = self.find([name]) if isinstance(name, str) and name else {}
        if name not in found:
            raise topic_not_found(name, self.names())
        return found[name]

    def create(
        self, name: str, *, partitions: int = 1, retention: Retention | None = None, compact: bool = False
    ) -> KafkaTopic:
        """Create a topic and its index, or change the retention and compaction of one that exists."""
        retention = retention or Retention()
        check_topic(name, partitions=partitions, retention=retention)
        check_topic_name(self._full(name))
        known = self.find([name]).get(name)
        if known is not None:
            self._change(known, retention, compact=compact)
            return known
        form: TopicFormat = "events" if compact else self._clients.address.format
        companion = self._companions(name)[get_args(TopicFormat).index(form)]
        # First the index: so whoever sees the topic knows how to read it.
        self._make(companion, partitions, _index_settings(retention))
        self._make(self._full(name), partitions, _settings(retention, compact=compact))
        return self._until(name, there=True)[name]

    def internal(self, name: str, *, partitions: int, create: bool) -> KafkaTopic:
        """A compacted topic that the log keeps for itself; it is made if it is missing."""
        own = _INTERNAL + name
        if own not in (found := self.find([own])):
            if not create:
                raise LogError(
                    f"there is no log at {self._clients.address.text}: the Kafka answers, but no log was ever opened "
                    "under that prefix. Check the prefix, or open it with create=True"
                )
            settings = {**_settings(Retention(), compact=True), "segment.bytes": str(_SEGMENT_BYTES)}
            self._make(self._full(own), partitions, settings)
            found = self._until(own, there=True)
        return found[own]

    def delete(self, name: str) -> None:
        """Delete a topic, and its index first: no topic that is made later may find the entries of this one."""
        topic = self.get(name)
        for full in (topic.index, topic.full_name):
            if full is not None:
                with errors_explained(self._clients, f"delete topic {name!r}"):
                    results_of(self._clients.admin.delete_topics([full], request_timeout=TIMEOUT_SECONDS))
        self._until(name, there=False)

    def settings(self, topics: Sequence[KafkaTopic]) -> list[tuple[Retention, bool]]:
        """The retention of topics, and whether they are compacted."""
        from confluent_kafka.admin import ConfigResource

        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic.full_name) for topic in topics]
        if not resources:
            return []
        found = patiently(
            self._clients,
            "read the settings of topics",
            lambda: results_of(self._clients.admin.describe_configs(resources, request_timeout=REQUEST_SECONDS)),
            settled=True,
        )
        return [
            (
                Retention(
                    age=None if (age := int(each["retention.ms"].value)) < 0 else age * 1_000,
                    size=None if (size := int(each["retention.bytes"].value)) < 0 else size,
                ),
                "compact" in each["cleanup.policy"].value,
            )
            for each in found
        ]

    def _all(self) -> set[str]:
        """The full names of all topics of the cluster."""
        return patiently(
            self._clients,
            "list the topics",
            lambda: set(self._clients.admin.list_topics(timeout=REQUEST_SECONDS).topics),
        )

    def _full(self, name: str) -> str:
        return self._prefix + name

    def _companions(self, name: str) -> list[str]:
        return [self._full(f"{_INTERNAL}{form}.{name}") for form in get_args(TopicFormat)]

    def _make(self, full: str, partitions: int, settings: dict[str, str]) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        replication = self._clients.address.replication or -1
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            new = NewTopic(full, num_partitions=partitions, replication_factor=replication, config=settings)
            (future,) = self._clients.admin.create_topics([new], request_timeout=TIMEOUT_SECONDS).values()
            with errors_explained(self._clients, f"create topic {full!r}"):
                try:
                    future.result(timeout=TIMEOUT_SECONDS + 5)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
                    # Another process was faster; or it is being deleted, and will be gone in a moment.
                    if full not in self._all():
                        if time.monotonic() > deadline:
                            raise
                        time.sleep(_PAUSE_SECONDS)
                        continue
                return

    def _widen(self, index: str, partitions: int) -> None:
        """Give an index as many partitions as its topic has got by Kafka's own tools."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewPartitions

        (future,) = self._clients.admin.create_partitions([NewPartitions(index, partitions)]).values()
        with errors_explained(self._clients, f"add partitions to {index!r}"):
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_PARTITIONS:  # another process was faster
                    raise

    def _change(self, topic: KafkaTopic, retention: Retention, *, compact: bool) -> None:
        if compact and topic.format == "blocks":
            raise DefinitionError(
                f"topic {topic.name!r} holds blocks of many records, which Kafka cannot compact: create it with "
                "compact=True, or open the log with ?format=events when it is created"
            )
        wanted = [(topic.full_name, _settings(retention, compact=compact))]
        if topic.index is not None:
            wanted.append((topic.index, _index_settings(retention)))
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        resources = [
            ConfigResource(
                ConfigResource.Type.TOPIC,
                full,
                incremental_configs=[
                    ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                    for name, value in settings.items()
                ],
            )
            for full, settings in wanted
        ]
        patiently(
            self._clients,
            f"change topic {topic.name!r}",
            lambda: results_of(
                self._clients.admin.incremental_alter_configs(resources, request_timeout=REQUEST_SECONDS)
            ),
        )

    def _until(self, name: str, *, there: bool) -> dict[str, KafkaTopic]:
        """Wait until all of the cluster knows that a topic was made or deleted."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (name in (found := self.find([name]))) != there:
            if time.monotonic() > deadline:
                raise LogError(f"the Kafka at {self._clients.address.servers} does not finish its work on {name!r}")
            time.sleep(_PAUSE_SECONDS)
        return found


def _settings(retention: Retention, *, compact: bool) -> dict[str, str]:
    bounded = retention.age is not None or retention.size is not None
    return {
        "cleanup.policy": "compact,delete" if compact and bounded else "compact" if compact else "delete",
        "retention.ms": str(_millis(retention.age)),
        "retention.bytes": str(-1 if retention.size is None else retention.size),
        "max.message.bytes": str(RECORD_BYTES + (1 << 16)),
    }


def _index_settings(retention: Retention) -> dict[str, str]:
    # Longer than the data, which leave by segments of their own; what is behind their beginning is passed over. Not by
    # size, which says nothing of the data's.
    longer = None if retention.age is None else 2 * retention.age + _INDEX_LONGER
    return {"cleanup.policy": "delete", "retention.ms": str(_millis(longer)), "retention.bytes": "-1"}


def _millis(age: int | None) -> int:
    return -1 if age is None else -(-age // 1_000)


def _of_kafka(full: str) -> bool:
    return full in ("__consumer_offsets", "__transaction_state", "__share_group_state")
