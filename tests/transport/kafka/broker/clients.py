"""Plain clients of confluent-kafka, as somebody writes them who has never heard of Tidewheel."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE = 60


def made_topic(address: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """A topic that nobody else has."""
    name = f"topic-{uuid.uuid4()}"
    new = NewTopic(name, partitions, config=dict(config or {}))
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})  # its answers end with it
    client.create_topics([new])[name].result(PATIENCE)
    return name


def produce(address: str, topic: str, values: Sequence[bytes], *, timeout: float = PATIENCE) -> list[KafkaError]:
    """Write records to all replicas; returns the errors of those that were not taken."""
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "log_level": 0,  # a broker that is down is what some tests are about
            "acks": "all",
            "message.max.bytes": 10 << 20,
            "delivery.timeout.ms": int(timeout * 1_000),
        }
    )
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(timeout + 5) == 0
    return errors


def consume(address: str, topic: str, count: int) -> list[bytes]:
    """The first so many committed records of a topic, as a consumer group reads them."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "log_level": 0,  # a broker that is down is what some tests are about
            "group.id": str(uuid.uuid4()),
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 10 << 20,
        }
    )
    try:
        consumer.subscribe([topic])
        found = consumer.consume(count, timeout=PATIENCE)
    finally:
        consumer.close()
    assert [message.error() for message in found if message.error()] == []
    return [message.value() for message in found]
