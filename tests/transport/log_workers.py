"""What the processes do that tests of the log start."""

from __future__ import annotations

import os
import random
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tidewheel.errors import LogError
from tidewheel.transport.log.consumer import Consumer
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.sqlite import database

RECORDS_PER_APPEND = 20


def append_one(address: str, topic: str, value: bytes) -> None:
    with open_log(address) as log:
        log.append(topic, records([value]))


def open_and_report(address: str, pipe: Connection) -> None:
    pipe.recv()  # so that all begin at once
    try:
        with open_log(address) as log:
            pipe.send(log.identity)
    except Exception as error:
        pipe.send(repr(error))


def write_numbers(address: str, name: str, appends: int) -> None:
    """Append numbered records under a name, to a topic with keys and to one without."""
    database._CHECKPOINT_BYTES = 500_000  # so that all of them write over the journal, again and again
    choose = random.Random(name)
    with open_log(address) as log:
        producer = log.producer(name)
        for start in range(0, appends * RECORDS_PER_APPEND, RECORDS_PER_APPEND):
            values = [f"{name} {number}".encode() for number in range(start, start + RECORDS_PER_APPEND)]
            keys = [choose.choice([b"a", b"b", b"c", b"d"]) for _ in values]
            producer.append({"keyed": records(values, keys=keys), "plain": records(values)})


def follow(address: str, topic: str, count: int, pipe: Connection) -> None:
    """Follow a topic until so many records have come, or none for long; tell them by partition."""
    seen: dict[int, list[bytes]] = {}
    with open_log(address) as log:
        consumer = Consumer(log, topic, start_from="earliest")
        while sum(map(len, seen.values())) < count and (batches := consumer.poll(timeout=60)):
            for batch in batches:
                seen.setdefault(batch.partition, []).extend(batch.records.column("value").to_pylist())
    pipe.send(seen)


def append_until_killed(path: str, seed: int, pipe: Connection) -> None:
    """Append numbers to two topics, from where the last process was killed; tell each as soon as it is certain."""
    database._CHECKPOINT_BYTES = 100_000  # so that many kills fall into one
    choose = random.Random(seed)
    with open_log(path) as log:
        producer = log.producer("writer")
        while True:
            sequence = producer.sequence + 1
            values = [b"%d %d" % (sequence, number) for number in range(choose.randint(1, 30))]
            padding = choose.randbytes(choose.randint(0, 20_000))
            producer.append({"numbers": records(values), "copies": records([*values, padding])}, state=b"%d" % sequence)
            pipe.send(sequence)


def maintain_until_killed(path: str, seed: int, pipe: Connection) -> None:
    """Append to a compacted topic (and the same to one that is not), to one with retention and to one that comes and
    goes, and maintain the log all the while."""
    database._CHECKPOINT_BYTES = 100_000
    choose = random.Random(seed)
    with open_log(path) as log:
        producer = log.producer("writer")
        while True:
            sequence = producer.sequence + 1
            keys = [b"%d" % choose.randrange(20) for _ in range(10)]
            state = records([b"%d" % sequence] * len(keys), keys=keys)
            producer.append(
                {
                    "latest": state,
                    "history": state,
                    "recent": records([choose.randbytes(3_000)]),
                    "fleeting": records([b"x" * 100]),
                },
                state=b"%d" % sequence,
            )
            pipe.send(sequence)
            if sequence % 5 == 0:
                log.delete_topic("fleeting")
            if sequence % 3 == 0:
                log.maintain()


def append_in_fork(log_in_parent: object, topic: str) -> int:
    """Fork, append in the child with the parent's log object, and give the child's exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            log_in_parent.append(topic, records([b"from the child"]))  # type: ignore[attr-defined]
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def everything(path: Path) -> dict[Any, Any]:
    """All that a log tells of itself and of its records."""
    with open_log(path, create=False) as log:
        found: dict[Any, Any] = {
            "identity": log.identity,
            "groups": {name: log.committed(name) for name in log.groups()},
        }
        for info in log.topics():
            found[info.name] = info
            for number, first in enumerate(info.first_offsets):
                found[info.name, number] = [
                    (batch.type, batch.records.to_pydict()) for batch in log.read(info.name, number, first)
                ]
                found[info.name, number, "blocks"] = log.blocks(info.name, number, first)
        producer = log.producer("importer", fence=False)
        found["producer"] = (producer.sequence, producer.state)
        return found


def read_flipped(path: Path, flips: list[int], folder: Path) -> None:
    """Read a log once for each of these bits flipped, and write down what came of it."""
    data, right = path.read_bytes(), everything(path)
    for bit in flips:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        broken = folder / f"{bit}.tw"
        broken.write_bytes(flipped)
        try:
            outcome = "right" if everything(broken) == right else "wrong"
        except LogError as error:
            outcome = f"reported: {type(error).__name__}"
        except BaseException as error:
            outcome = f"raw: {error!r}"
        with open(folder / "outcomes", "a", encoding="utf-8") as file:
            file.write(f"{bit} {outcome}\n")
        broken.unlink()
