"""Skip records that cannot be read since the log's file is damaged: each stretch is one dead letter."""

from __future__ import annotations

from contextlib import suppress

from tidewheel.errors import DamagedBlockError, DataLossError, MalformedError, TopicNotFoundError, UnknownTypeError
from tidewheel.model.time import Instant
from tidewheel.topic_names import dead
from tidewheel.transport.events.codec import decode, encode, pack, unpack
from tidewheel.transport.events.event_pb2 import DeadLetter
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Partition, records

__all__ = ["DamageCount", "note_damage", "pass_over"]


def pass_over(damaged: DamagedBlockError) -> None:
    """Ignore damage, where only headers are read: reading the records reports it."""


def note_damage(log: Log, group: str, damaged: DamagedBlockError, *, clock: Instant) -> None:
    """Write the dead letter of a damaged stretch to `dead.<group>`, once for all readers."""
    topic = dead(group)
    letter = DeadLetter(
        source=group,
        reason=f"damaged: partition {damaged.partition}, offsets {damaged.first_offset} to {damaged.next_offset - 1}: "
        f"{damaged.reason}",
        topic=damaged.topic,
        count=damaged.next_offset - damaged.first_offset,
    )
    log.ensure_topic(topic)
    ids = f"{log.topic_info(topic).id}:{log.topic_info(damaged.topic).id}"
    place = f"{ids}:{damaged.partition}:{damaged.first_offset}-{damaged.next_offset}"
    event = encode(pack(letter, event_time=clock, ingestion_time=clock))
    log.producer(f"{topic}:damaged:{place}", fence=False).append(
        {topic: records([event], event_times=[clock])}, sequence=0
    )


class DamageCount:
    """Counts the records that a group has skipped since this object was made."""

    def __init__(self, log: Log, group: str) -> None:
        self._log = log
        self._topic = dead(group)
        self._at: dict[Partition, int] = {}
        with suppress(TopicNotFoundError):
            for number, end in enumerate(log.topic_info(self._topic).next_offsets):
                self._at[self._topic, number] = end
        self._count = 0

    def __call__(self) -> int:
        """Return the number of records skipped so far."""
        with suppress(TopicNotFoundError, DataLossError):
            for number, end in enumerate(self._log.topic_info(self._topic).next_offsets):
                start = self._at.get((self._topic, number), 0)
                if start < end:
                    self._at[self._topic, number] = end
                    for batch in self._log.read(self._topic, number, start, end=end, on_damage=pass_over):
                        self._count += sum(_lost(value) for value in batch.records.column("value").to_pylist())
        return self._count


def _lost(value: bytes) -> int:
    try:
        letter = unpack(decode(value))
    except (MalformedError, UnknownTypeError):
        return 0
    return letter.count if isinstance(letter, DeadLetter) else 0
