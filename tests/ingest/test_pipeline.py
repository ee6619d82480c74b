"""Messages through a pipeline: each is a record, filtered, or dead, and the log's account of them is always true."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.support.ingest_support import NumberProcessor, dead_letters, eventually, number, numbers_in, values
from tidewheel.errors import DefinitionError, FencedError, LogError
from tidewheel.ingest.connector import Deliver, run_all
from tidewheel.ingest.message import Message
from tidewheel.ingest.pipeline import Pipeline, Reports, read_reports
from tidewheel.ingest.processor import Processed
from tidewheel.transport.events.event_pb2 import IngestReport
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Batch, records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.sqlite.log import SqliteLog

MALFORMED = Message("numbers/x", b"\xff\x00 not JSON", 5)
SKIPPED = Message("numbers/x", b'{"skip": "deadrun"}', 6)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "city.tw") as opened:
        yield opened


def assert_account_is_true(log: Log) -> None:
    """What the log says it holds is what it holds, and every message received is somewhere."""
    reports = read_reports(log)
    counts = {topic.name: topic.count for topic in log.topics()}
    for report in reports:
        assert report.received == sum([*report.topics.values(), *report.filtered.values(), *report.dead.values()]), (
            f"{report.source} does not add up"
        )
    for topic in ("input.even", "input.odd"):
        assert sum(report.topics[topic] for report in reports) == counts.get(topic, 0)
    assert sum(sum(report.dead.values()) for report in reports) == counts.get("dead.numbers", 0)


def test_every_message_is_a_record_or_filtered_or_dead(log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    delivered = pipeline([number(1), MALFORMED, number(2), SKIPPED, number(3)])
    assert delivered.topics == {"input.odd": 2, "input.even": 1}
    assert delivered.filtered == {"deadrun": 1}
    assert delivered.dead == {"no-number": 1}
    assert numbers_in(log) == [1, 2, 3]
    assert pipeline.report() == read_reports(log)[0]
    assert pipeline.report().received == 5
    assert_account_is_true(log)


def test_dead_letters_hold_the_raw_bytes_and_why(log: Log) -> None:
    Pipeline(log, NumberProcessor())([MALFORMED])
    (letter,) = dead_letters(log)
    assert letter.raw == MALFORMED.payload
    assert letter.topic == "numbers/x"
    assert letter.source == "numbers"
    assert letter.received_at.ToMicroseconds() == 5
    assert "no number" in letter.reason


@given(topic=st.text(), payload=st.binary(), received_at=st.integers(-(2**63), 2**63 - 1))
def test_anything_can_become_a_dead_letter(topic: str, payload: bytes, received_at: int) -> None:
    message = Message(topic + "\ud800", b"\xff" + payload, received_at)
    batch = Pipeline._dead_letters(_PIPELINE, NumberProcessor().process([message]).dead)
    assert batch.num_rows == 1


class _Named:
    _processor = NumberProcessor()


_PIPELINE: Pipeline = _Named()  # type: ignore[assignment]


def test_totals_and_state_go_on_in_the_next_process(tmp_path: Path) -> None:
    for run in range(3):
        with open_log(tmp_path / "city.tw") as log:
            pipeline = Pipeline(log, NumberProcessor())
            assert pipeline.report().received == 2 * run
            assert pipeline.state == (b"run %d" % (run - 1) if run else b"")
            pipeline([number(run), MALFORMED], repeated=run, state=b"run %d" % run)
            pipeline([])
            assert_account_is_true(log)
    assert pipeline.report().repeated == 0 + 1 + 2
    assert pipeline.report().dead == {"no-number": 3}


def test_nothing_to_deliver_writes_nothing(log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    before = log.topics()
    pipeline([])
    assert log.topics() == before


def test_a_state_alone_is_kept(log: Log) -> None:
    Pipeline(log, NumberProcessor())([], state=b"a note")
    assert Pipeline(log, NumberProcessor()).state == b"a note"


def test_a_second_pipeline_of_the_same_source_takes_over(log: Log) -> None:
    first = Pipeline(log, NumberProcessor())
    first([number(1)])
    second = Pipeline(log, NumberProcessor())
    with pytest.raises(FencedError):
        first([number(2)])
    second([number(3)])
    with pytest.raises(FencedError):
        first([number(4)])
    assert numbers_in(log) == [1, 3]
    assert second.report().received == 2


class Broken(NumberProcessor):
    """Fails in some way at every message whose number ends in 7."""

    def __init__(self, how: str) -> None:
        self.how = how

    def process(self, messages: Sequence[Message]) -> Processed:
        good = [message for message in messages if b"7," not in message.payload]
        processed = super().process(good)
        if len(good) == len(messages):
            return processed
        if self.how == "raises":
            raise ZeroDivisionError("a bug")
        if self.how == "loses":
            return processed
        if self.how == "doubles":
            return Processed(processed.topics, {"twice": 2 * (len(messages) - len(good))}, processed.dead)
        if self.how == "less than nothing":
            return Processed(processed.topics, {"a": -1, "b": 1 + len(messages) - len(good)}, processed.dead)
        bad = {
            "wrong topic": {"no such/topic": records([b"x"])},
            "reserved topic": {"ingested.numbers": records([b"x"])},
            "wrong columns": {"input.odd": pa.RecordBatch.from_pydict({"a": [1]})},
            "null value": {
                "input.odd": records(pa.array([None], pa.binary())),
            },
        }[self.how]
        return Processed({**processed.topics, **bad}, processed.filtered, processed.dead)


@pytest.mark.parametrize(
    "how",
    [
        "raises",
        "loses",
        "doubles",
        "less than nothing",
        "wrong topic",
        "reserved topic",
        "wrong columns",
        "null value",
    ],
)
def test_a_processor_that_fails_loses_no_message(log: Log, how: str) -> None:
    pipeline = Pipeline(log, Broken(how))
    delivered = pipeline([*map(number, range(30)), SKIPPED])
    assert numbers_in(log) == [n for n in range(30) if n % 10 != 7]
    assert delivered.dead == {"processor-failed": 3}
    letters = dead_letters(log)
    assert [letter.raw for letter in letters] == [number(n).payload for n in (7, 17, 27)]
    assert all("processor numbers failed" in letter.reason for letter in letters)
    assert delivered.filtered == {"deadrun": 1}
    assert_account_is_true(log)


def test_order_is_kept_when_a_batch_is_taken_apart(log: Log) -> None:
    Pipeline(log, Broken("raises"))([number(n) for n in range(60)])
    alone = Pipeline(log, NumberProcessor(), source="alone")
    before = values(log, "input.even")
    alone([number(n) for n in range(0, 60, 2)])
    assert values(log, "input.even") == [*before, *before]


def test_processed_events_are_taken_if_they_add_up(log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    processed = NumberProcessor().process([number(1), SKIPPED])
    assert pipeline.deliver_processed(processed, received=2).topics == {"input.odd": 1}
    with pytest.raises(DefinitionError, match="accounts for 2 of 3"):
        pipeline.deliver_processed(processed, received=3)
    assert pipeline.report().received == 2
    assert_account_is_true(log)


def test_a_log_that_cannot_be_written_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.transport.sqlite.transactions.BUSY_SECONDS", 0)
    log = open_log(tmp_path / "city.tw")
    pipeline = Pipeline(log, NumberProcessor())
    lock = sqlite3.connect(tmp_path / "city.tw", isolation_level=None, check_same_thread=False)
    lock.execute("BEGIN IMMEDIATE")
    threading.Timer(0.3, lock.execute, ["ROLLBACK"]).start()
    pipeline([number(1)])
    assert numbers_in(log) == [1]
    assert_account_is_true(log)
    lock.close()


def test_a_delivery_fails_when_patience_ends_and_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewheel.transport.sqlite.transactions.BUSY_SECONDS", 0)
    log = open_log(tmp_path / "city.tw")
    pipeline = Pipeline(log, NumberProcessor(), patience=0)
    lock = sqlite3.connect(tmp_path / "city.tw", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    with pytest.raises(LogError, match="locked"):
        pipeline([number(1)], state=b"one")
    lock.execute("ROLLBACK")
    assert pipeline.state == b""
    pipeline([number(1)], state=b"one")
    assert numbers_in(log) == [1]
    assert pipeline.report().received == 1
    lock.close()


def test_after_an_append_that_failed_but_was_done_the_log_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path / "city.tw")
    pipeline = Pipeline(log, NumberProcessor(), patience=0)
    append = pipeline._producer.append

    def done_but_not_acknowledged(*arguments: object, **options: object) -> None:
        append(*arguments, **options)  # type: ignore[arg-type]
        raise LogError("the line went dead")

    monkeypatch.setattr(pipeline._producer, "append", done_but_not_acknowledged)
    with pytest.raises(LogError, match="line went dead"):
        pipeline([number(1)], state=b"one")
    monkeypatch.setattr(pipeline._producer, "append", append)
    assert pipeline.state == b"one"
    pipeline([number(2)])
    assert pipeline.report().received == 2
    assert_account_is_true(log)


def test_retries_of_one_delivery_are_one_append(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    append = pipeline._producer.append
    attempts = []

    def acknowledged_the_third_time(*arguments: object, **options: object) -> object:
        receipt = append(*arguments, **options)  # type: ignore[arg-type]
        attempts.append(receipt.duplicate)
        if len(attempts) < 3:
            raise LogError("the line went dead")
        return receipt

    monkeypatch.setattr(pipeline._producer, "append", acknowledged_the_third_time)
    pipeline([number(1)])
    assert attempts == [False, True, True]
    assert numbers_in(log) == [1]
    assert_account_is_true(log)


CHILD = """
import sys
from tests.support.ingest_support import *
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.transport.open_log import open_log

pipeline = Pipeline(open_log(sys.argv[1]), NumberProcessor(), source=sys.argv[2])
first, last = int(sys.argv[3]), int(sys.argv[4])
n = int(pipeline.state or first)
while n < last:
    size = min(1 + n % 13, last - n)
    extra = [Message("numbers/x", b"?", 1)] * (n % 3) + [Message("numbers/x", b'{"skip": "rule"}', 1)] * (n % 2)
    pipeline([*map(number, range(n, n + size)), *extra], state=b"%d" % (n + size))
    n += size
"""


def child(log: Log, source: str, first: int, last: int) -> subprocess.Popen[bytes]:
    arguments = [log.address, source, str(first), str(last)]
    return subprocess.Popen([sys.executable, "-c", CHILD, *arguments], cwd=ROOT)


def written(log: Log) -> int:
    return sum(topic.count for topic in log.topics() if topic.name.startswith("input."))


@pytest.mark.slow
def test_the_account_is_true_after_every_kill(log: Log) -> None:
    chance = random.Random(3)
    last = 1_000_000
    for _ in range(12):
        process = child(log, "main", 0, last)
        wanted = written(log) + chance.randrange(1, 600)
        eventually(lambda wanted=wanted: written(log) >= wanted, "the child delivers")  # type: ignore[misc]
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert_account_is_true(log)
    there = numbers_in(log)
    assert there == list(range(len(there)))
    process = child(log, "main", 0, len(there) + 100)
    assert process.wait(60) == 0
    assert numbers_in(log) == list(range(len(there) + 100))
    assert_account_is_true(log)


@pytest.mark.slow
def test_processes_ingest_side_by_side(log: Log) -> None:
    children = [child(log, f"part-{part}", part * 2_000, (part + 1) * 2_000) for part in range(3)]
    assert [each.wait(120) for each in children] == [0, 0, 0]
    assert numbers_in(log) == list(range(6_000))
    assert [report.source for report in read_reports(log)] == [f"numbers:part-{part}" for part in range(3)]
    assert_account_is_true(log)


class Listed:
    """A connector that delivers what it is given, then fails or ends or waits to be stopped."""

    def __init__(self, name: str, messages: Sequence[Message], *, then: str) -> None:
        self.name = name
        self.messages = messages
        self.then = then

    def run(self, deliver: Deliver, stop: threading.Event) -> None:
        deliver(self.messages)
        if self.then == "fail":
            raise OSError("the cable is out")
        if self.then == "wait":
            assert stop.wait(60)
            deliver(self.messages)


def test_connectors_run_side_by_side_and_one_failure_is_reported(log: Log) -> None:
    stop = threading.Event()
    lasting = Listed("lasting", [number(1)], then="wait")
    failing = Listed("failing", [number(2)], then="fail")
    ending = Listed("ending", [number(3)], then="end")
    connectors = [lasting, failing, ending]
    failures: list[object] = []
    runner = threading.Thread(
        target=lambda: failures.extend(
            run_all([(each, Pipeline(log, NumberProcessor(), source=each.name)) for each in connectors], stop)
        )
    )
    runner.start()
    eventually(lambda: numbers_in(log) == [1, 2, 3], "all three deliver")
    assert runner.is_alive(), "the failure of one must not stop the others"
    stop.set()
    runner.join(60)
    assert [(connector.name, str(error)) for connector, error in failures] == [("failing", "the cable is out")]
    assert numbers_in(log) == [1, 1, 2, 3]


def test_what_is_no_report_is_left_out(log: Log) -> None:
    log.append("ingested.job", records([b"not an event", b"{}"], keys=[b"a", b"b"]))
    Pipeline(log, NumberProcessor())([number(1)])
    assert [type(report) for report in read_reports(log)] == [IngestReport]


class CountingLog(SqliteLog):
    """Counts the records of each topic that are read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.seen: Counter[str] = Counter()

    def read(self, topic: str, partition: int, start: int, **options: Any) -> Iterator[Batch]:
        for batch in super().read(topic, partition, start, **options):
            self.seen[topic] += batch.records.num_rows
            yield batch


def test_reports_are_read_on_from_where_they_were_read(log: Log) -> None:
    pipeline = Pipeline(log, NumberProcessor())
    log.append("metrics.job", records([b"a batch of a job"] * 100))
    for n in range(10):
        pipeline([number(n)])
    with CountingLog(Path(log.address)) as watched:
        reports = Reports(watched)
        assert [report.received for report in reports()] == [10]
        assert watched.seen == {"ingested.numbers": 10}, "what jobs report is left alone, however much it is"
        assert [report.received for report in reports()] == [10]
        pipeline([number(10)])
        assert [report.received for report in reports()] == [11]
        assert watched.seen == {"ingested.numbers": 11}


def test_reports_follow_a_topic_that_is_deleted_and_made_anew(log: Log) -> None:
    reports = Reports(log)
    pipeline = Pipeline(log, NumberProcessor())
    pipeline([number(1)])
    assert [report.received for report in reports()] == [1]
    log.delete_topic(pipeline.account_topic)
    assert reports() == []
    pipeline([number(2)])
    assert [report.received for report in read_reports(log)] == [2]
