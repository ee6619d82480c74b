"""Killed at any moment, the log in a SQLite file has all that was acknowledged, and nothing twice."""

from __future__ import annotations

import sqlite3
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.transport import log_workers
from tests.transport.log_reader import offsets, read, values
from tests.transport.run_and_kill import run_and_kill
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Retention
from tidewheel.transport.open_log import open_log

KILLS = 25


def check_file(path: Path) -> None:
    """The file is sound, and its tables agree with one another."""
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute(
            "SELECT count(*) FROM block LEFT JOIN payload ON payload.id = block.payload "
            "WHERE payload.id IS NULL OR length(data) <> size"
        ).fetchone() == (0,)
        assert connection.execute(
            "SELECT count(*) FROM payload WHERE id NOT IN (SELECT payload FROM block)"
        ).fetchone() == (0,)
        assert connection.execute(
            "SELECT count(*) FROM block WHERE topic NOT IN (SELECT id FROM topic)"
        ).fetchone() == (0,)
        # Of a topic that is being deleted (its name is null already) some blocks may be gone.
        assert connection.execute(
            "SELECT count(*) FROM partition WHERE topic IN (SELECT id FROM topic WHERE name IS NOT NULL) AND "
            "(count, size) <> (SELECT coalesce(sum(count), 0), coalesce(sum(size), 0) FROM block "
            "WHERE block.topic = partition.topic AND block.partition = partition.number)"
        ).fetchone() == (0,)
    connection.close()


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice(tmp_path: Path, processes: ForkServerContext) -> None:
    path = tmp_path / "city.tw"
    certain = -1
    for kill in range(KILLS):
        certain = max(certain, run_and_kill(processes, log_workers.append_until_killed, path, kill))
        if not path.exists():
            continue
        with open_log(path) as log:
            writer = log.producer("writer", fence=False)
            assert writer.sequence in (certain, certain + 1), "one append may be there that was not acknowledged"
            assert writer.state == (b"%d" % writer.sequence if writer.sequence >= 0 else b"")
            certain = writer.sequence
    assert certain > KILLS
    check_file(path)
    with open_log(path) as log:
        numbers = [tuple(map(int, value.split())) for value in values(read(log, "numbers"))]
        assert numbers == sorted(set(numbers)), "in order, none twice"
        assert [sequence for sequence, number in numbers if number == 0] == list(range(certain + 1)), "none missing"
        assert offsets(read(log, "numbers")) == list(range(len(numbers)))
        whole: dict[int, int] = {}
        for sequence, number in numbers:
            assert number == whole.get(sequence, -1) + 1
            whole[sequence] = number
        assert log.topic_info("copies").count == len(numbers) + certain + 1, "every append reached both topics"


def latest(log: Log, topic: str) -> dict[bytes, bytes]:
    """The last value of each key."""
    return {
        key: value
        for partition in range(log.topic_info(topic).partitions)
        for batch in read(log, topic, partition)
        for key, value in zip(*(batch.records.column(name).to_pylist() for name in ("key", "value")), strict=True)
    }


@pytest.mark.slow
def test_killed_during_maintenance_the_log_is_right(tmp_path: Path, processes: ForkServerContext) -> None:
    path = tmp_path / "city.tw"
    with open_log(path) as log:
        log.create_topic("latest", partitions=2, compact=True)
        log.create_topic("recent", retention=Retention(size=20_000))
    certain = -1
    for kill in range(KILLS):
        certain = max(certain, run_and_kill(processes, log_workers.maintain_until_killed, path, 1_000 + kill))
        check_file(path)
        with open_log(path) as log:
            last = log.producer("writer", fence=False).sequence
            assert last in (certain, certain + 1)
            certain = last
            if last >= 0:
                assert latest(log, "latest") == latest(log, "history")
                recent = read(log, "recent")
                assert offsets(recent) == list(range(log.position("recent", 0, "earliest"), last + 1))
    assert certain > KILLS
    with open_log(path) as log:
        log.maintain()
        assert log.topic_info("recent").size <= 20_000
        assert log.topic_info("latest").count <= 20 + 2 * 10, "one record a key, and the newest block of each partition"
    check_file(path)
