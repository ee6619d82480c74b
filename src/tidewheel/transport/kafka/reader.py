"""Reading partitions of Kafka from one offset to another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tidewheel.errors import DamagedBlockError, DataLossError, LogError, MalformedError
from tidewheel.transport.kafka.client import TIMEOUT_SECONDS, TRANSACTION_SECONDS, Clients, errors_explained
from tidewheel.transport.kafka.records import decode_block, decode_events, kafka_offset, log_offset
from tidewheel.transport.kafka.topics import KafkaTopic
from tidewheel.transport.log.log_types import Batch, OnDamage

__all__ = ["messages", "read_records"]

_AT_ONCE = 10_000


def read_records(
    clients: Clients,
    topic: KafkaTopic,
    partition: int,
    start: int,
    end: int,
    *,
    limit: int | None = None,
    on_damage: OnDamage | None = None,
) -> Iterator[Batch]:
    """The records of a partition from offset `start` on and before `end`, at most `limit` of them."""
    form = topic.format
    left = end - start if limit is None else limit
    if start >= end or left <= 0:
        return
    last = kafka_offset(form, end - 1) + 1
    for found in messages(clients, (topic.full_name, partition), kafka_offset(form, start), last):
        for batch in _decode(topic, partition, found, on_damage):
            offsets = batch.records.column("offset").to_numpy()
            first, after = np.searchsorted(offsets, [start, end]).tolist()
            count = min(after - first, left)
            if count > 0:
                left -= count
                yield Batch(topic.name, partition, batch.records.slice(first, count), batch.type)
            if left <= 0:
                return


def _decode(topic: KafkaTopic, partition: int, found: list[Any], on_damage: OnDamage | None) -> Iterator[Batch]:
    if topic.format == "events":
        yield Batch(topic.name, partition, decode_events(found))
        return
    for message in found:
        try:
            records, kind, _ = decode_block(message)
        except MalformedError as error:
            at = message.offset()
            damaged = DamagedBlockError(
                topic.name, partition, log_offset("blocks", at), log_offset("blocks", at + 1), str(error)
            )
            if on_damage is None:
                raise damaged from error
            on_damage(damaged)
            continue
        yield Batch(topic.name, partition, records, kind)


def messages(clients: Clients, part: tuple[str, int], start: int, end: int) -> Iterator[list[Any]]:
    """Kafka's records of a partition that are committed, from offset `start` on and before `end`."""
    from confluent_kafka import KafkaError, KafkaException

    doing = f"read {part[0]!r} partition {part[1]}"
    position = start
    with errors_explained(clients, doing), clients.reader({part: position}) as reader:
        waiting_since = time.monotonic()
        while position < end:
            first = reader.poll(1.0)
            found = []
            for message in [] if first is None else [first, *reader.consume(_AT_ONCE, 0)]:
                error = message.error()
                if error is None:
                    if message.offset() < end:
                        found.append(message)
                    position = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = max(position, message.offset())
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise DataLossError(
                        f"{part[0]!r} partition {part[1]}: the records at offset {position} of Kafka have left by "
                        f"retention while they were read ({error.str()}). Give the topic a longer retention"
                    )
                elif error.fatal() or not error.retriable():
                    raise KafkaException(error)
            if found:
                yield found
                waiting_since = time.monotonic()
            elif time.monotonic() - waiting_since > TIMEOUT_SECONDS + TRANSACTION_SECONDS:
                raise LogError(
                    f"cannot {doing}: nothing comes from the Kafka at {clients.address.servers} "
                    f"({clients.why() or 'a writer has begun to append and does not end'})"
                )
