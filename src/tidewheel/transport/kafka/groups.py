"""Consumer groups of a log on Kafka: Kafka's own, so that its tools show them.

A position within a block is kept as the block's offset and, beside it, the place within. The topic's identity is beside
it, too: positions mean nothing in another topic of the same name.
"""

from __future__ import annotations

from tidewheel.errors import DefinitionError
from tidewheel.transport.kafka.client import REQUEST_SECONDS, Clients, patiently, results_of
from tidewheel.transport.kafka.records import kafka_offset, log_offset
from tidewheel.transport.kafka.topics import KafkaTopic, Topics
from tidewheel.transport.log.log_types import Partition, Positions
from tidewheel.transport.log.validation import check_group

__all__ = ["Groups"]


class Groups:
    """The positions of consumer groups."""

    def __init__(self, clients: Clients, topics: Topics) -> None:
        self._clients = clients
        self._topics = topics
        self._prefix = clients.address.prefix

    def commit(self, group: str, positions: Positions) -> None:
        """Commit the positions of a group."""
        from confluent_kafka import KafkaException, TopicPartition

        check_group(group)
        topics = {name: self._topics.get(name) for name in dict.fromkeys(topic for topic, _ in positions)}
        offsets = []
        for (name, partition), position in positions.items():
            topic = topics[name]
            topic.check_partition(partition)
            if position < 0:
                raise DefinitionError(f"a position is 0 or more, got {position} for {name!r} partition {partition}")
            at = kafka_offset(topic.format, position)
            within = position - log_offset(topic.format, at)
            offsets.append(TopicPartition(topic.full_name, partition, at, f"{topic.id}:{within}"))
        if not offsets:
            return

        def attempt() -> None:
            consumer = self._clients.group(self._prefix + group)
            try:
                for place in consumer.commit(offsets=offsets, asynchronous=False):
                    if place.error is not None:
                        raise KafkaException(place.error)
            finally:
                consumer.close()

        patiently(self._clients, f"commit the positions of group {group!r}", attempt)

    def committed(self, group: str) -> dict[Partition, int]:
        """The positions of a group; empty if it never committed."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        (found,) = patiently(
            self._clients,
            f"read the positions of group {group!r}",
            lambda: results_of(
                self._clients.admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(self._prefix + group)], request_timeout=REQUEST_SECONDS
                )
            ),
        )
        places = [each for each in found.topic_partitions if each.offset >= 0 and each.topic.startswith(self._prefix)]
        topics = self._topics.find(each.topic.removeprefix(self._prefix) for each in places)
        positions: dict[Partition, int] = {}
        for each in places:
            topic = topics.get(each.topic.removeprefix(self._prefix))
            if topic is not None and (within := _within(topic, each.metadata)) is not None:
                positions[topic.name, each.partition] = log_offset(topic.format, each.offset) + within
        return dict(sorted(positions.items()))

    def names(self) -> list[str]:
        """The groups that have committed."""
        found = patiently(
            self._clients,
            "list the consumer groups",
            lambda: self._clients.admin.list_consumer_groups(request_timeout=REQUEST_SECONDS).result(),
        )
        return sorted(
            each.group_id.removeprefix(self._prefix) for each in found.valid if each.group_id.startswith(self._prefix)
        )

    def forget(self, group: str) -> None:
        """Remove a group's positions."""
        from confluent_kafka import KafkaError, KafkaException

        def attempt() -> None:
            try:
                results_of(
                    self._clients.admin.delete_consumer_groups([self._prefix + group], request_timeout=REQUEST_SECONDS)
                )
            except KafkaException as error:
                if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise

        patiently(self._clients, f"forget group {group!r}", attempt)


def _within(topic: KafkaTopic, metadata: str | None) -> int | None:
    """The place within a block; None if the position was committed in another topic of the same name."""
    identity, _, within = (metadata or "").rpartition(":")
    if not identity:
        return 0  # somebody else committed it, with Kafka's own tools perhaps
    return int(within) if identity == topic.id and within.isdecimal() else None
