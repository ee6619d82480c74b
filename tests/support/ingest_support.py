"""A processor small enough to see through, and what the ingestion tests share."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Dead, Processed
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import DeadLetter, Punctuation
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records


class NumberProcessor:
    """Payload `{"n": 7}` goes to `input.even` or `input.odd`; `{"skip": "rule"}` is filtered; all else is dead."""

    name = "numbers"
    subscriptions = ("numbers/#",)
    types = (Punctuation,)

    def process(self, messages: Sequence[Message]) -> Processed:
        topics: dict[str, list[tuple[bytes, int]]] = {}
        filtered: Counter[str] = Counter()
        dead = []
        for message in messages:
            try:
                fields = json.loads(message.payload)
                if "skip" in fields:
                    filtered[fields["skip"]] += 1
                    continue
                number = int(fields["n"])
            except (ValueError, TypeError, KeyError) as error:
                dead.append(Dead(message, "no-number", f"no number: {error}"))
                continue
            value = codec.encode(codec.pack(Punctuation(epoch=str(number)), event_time=message.received_at))
            topics.setdefault("input.odd" if number % 2 else "input.even", []).append((value, message.received_at))
        return Processed(
            {
                topic: records([value for value, _ in some], event_times=[at for _, at in some])
                for topic, some in topics.items()
            },
            filtered,
            dead,
        )


def number(n: int, *, topic: str = "numbers/x", padding: int = 0) -> Message:
    return Message(topic, json.dumps({"n": n, "padding": "x" * padding}).encode(), 1_700_000_000_000_000 + n)


def values(log: Log, topic: str) -> list[bytes]:
    """All the values of a topic, in order."""
    if topic not in {each.name for each in log.topics()}:
        return []
    found = []
    for partition in range(log.topic_info(topic).partitions):
        for batch in log.read(topic, partition, log.position(topic, partition, "earliest")):
            found += batch.records.column("value").to_pylist()
    return found


def numbers_in(log: Log) -> list[int]:
    """The numbers that the log has, sorted; one that is there twice is twice in the list."""
    found = []
    for topic in ("input.even", "input.odd"):
        for value in values(log, topic):
            message: Any = codec.unpack(codec.decode(value))
            found.append(int(message.epoch))
    return sorted(found)


def dead_letters(log: Log, processor: str = "numbers") -> list[DeadLetter]:
    found = []
    for value in values(log, f"dead.{processor}"):
        letter = codec.unpack(codec.decode(value))
        assert isinstance(letter, DeadLetter)
        found.append(letter)
    return found


def eventually(condition: Callable[[], bool], what: str, timeout: float = 240) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s in vain: {what}"
        time.sleep(0.02)
