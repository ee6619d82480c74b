"""Patterns from a topic, on Spark: added, replaced and removed while a job runs."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone

import polars as pl
import pytest

import tidewheel as tw
from tests.engine.orders import INPUT, put, read, rows
from tidewheel.errors import DefinitionError
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import DeadLetter, PatternDefinition
from tidewheel.transport.log.log_types import records

pytestmark = pytest.mark.long

CONTROL = "control.patterns"
UP = tw.pattern("low", pl.col("amount") < 3).followed_by("high", pl.col("amount") > 7)
DOWN = tw.pattern("high", pl.col("amount") > 7).followed_by("low", pl.col("amount") < 3).within("10 s")
SHOWN = ["country", "pattern", "version", "match_start", "match_end"]


def second(number: float) -> datetime:
    return datetime.fromtimestamp(number, timezone.utc)


def found(log):
    return tw.stream(log, INPUT, watermark=tw.watermarks.bounded("1 s", future=None)).key_by("country").match_from(
        log.topic(CONTROL)
    )  # fmt: skip


def start(log, tmp_path, spark, **options):
    return found(log).start(
        **{
            "results": log.topic("analytics.found"),
            "outputs": {"timed_out": log.topic("timed.out"), "dropped": log.topic("dropped")},
            "late": log.topic("late"),
            "checkpoint": tmp_path / "found",
            "spark": spark,
            "max_events_per_batch": 3,
            "available_now": True,
            **options,
        }
    )


def finish(log, tmp_path, spark, **options):
    run = start(log, tmp_path, spark, **options)
    run.wait()
    return run


def send(log, value: bytes) -> None:
    log.append(CONTROL, records([value]))


def definition(**fields) -> bytes:
    return codec.encode(codec.pack(PatternDefinition(**fields), event_time=1))


def dead(log, topic: str) -> list[tuple[str, str, bytes]]:
    found = []
    for batch in log.read(topic, 0, 0):
        for value in batch.records.column("value").to_pylist():
            letter = codec.unpack(codec.decode(value))
            assert isinstance(letter, DeadLetter)
            found.append((letter.topic, letter.reason, letter.raw))
    return found


@pytest.fixture
def registry(log):
    return tw.PatternRegistry(log.topic(CONTROL))


def test_patterns_are_added_replaced_and_removed_between_runs(spark, log, registry, tmp_path):
    put(log, (1, "fi", 1), (2, "fi", 9), (5, "fi", 1))  # nobody asks yet, and the last one waits for the watermark
    finish(log, tmp_path, spark)
    assert rows(log, "analytics.found", SHOWN) == []

    assert registry.put("up", UP, measures={"to": tw.measures.last("high.amount"), "n": tw.measures.count()}) == 1
    put(log, (6, "fi", 8), (7, "se", 1), (9, "se", 5))
    finish(log, tmp_path, spark)
    assert rows(log, "analytics.found", SHOWN) == [("fi", "up", 1, second(5), second(6))]
    assert json.loads(read(log, "analytics.found")["measures"][0]) == {"to": 8, "n": 2}

    assert registry.put("up", DOWN) == 2
    assert registry.put("big", tw.pattern("big", pl.col("amount") > 50)) == 3
    put(log, (10, "se", 9), (11, "fi", 70), (12, "fi", 2))
    put(log, (14, "se", 5))
    finish(log, tmp_path, spark)
    assert rows(log, "dropped", [*SHOWN, "stage", "reason"]) == [
        ("se", "up", 1, second(7), second(7), "low", "replaced by version 2")
    ]
    assert sorted(rows(log, "analytics.found", SHOWN)[1:]) == [
        ("fi", "big", 3, second(11), second(11)),
        ("fi", "up", 2, second(11), second(12)),
    ]

    assert registry.remove("up") == 4
    put(log, (15, "se", 1), (30, "fi", 5), (32, "fi", 60))
    put(log, (40, "fi", 1))
    finish(log, tmp_path, spark)
    assert rows(log, "dropped", ["country", "reason"])[1:] == [("se", "removed by version 4")]
    assert rows(log, "analytics.found", SHOWN)[3:] == [("fi", "big", 3, second(32), second(32))]
    assert rows(log, "timed.out", SHOWN) == []
    assert [(entry.name, entry.version) for entry in registry.list()] == [("big", 3)]


def test_an_idle_topic_of_patterns_neither_holds_back_nor_moves_the_watermark(spark, log, registry, tmp_path):
    registry.put("down", DOWN)  # its event time is now, decades after the orders
    put(log, (1, "fi", 9), (2, "se", 1))
    run = finish(log, tmp_path, spark)
    assert run.progress().watermark == 1_000_000
    put(log, (30, "se", 1), (0.5, "fi", 1))
    run = finish(log, tmp_path, spark)
    assert run.progress().watermark == 29_000_000
    assert rows(log, "timed.out", ["country", "pattern", "event_time"]) == [("fi", "down", second(11))]
    assert rows(log, "late", ["country", "late_reason"]) == [("fi", "too late")]


def test_a_job_that_begins_with_what_is_new_knows_the_patterns_all_the_same(spark, log, registry, tmp_path):
    registry.put("up", UP)
    put(log, (1, "fi", 1), (2, "fi", 9))
    finish(log, tmp_path, spark, start_from="latest")
    put(log, (3, "fi", 2), (4, "fi", 8), (9, "fi", 5))
    finish(log, tmp_path, spark, start_from="latest")
    assert rows(log, "analytics.found", SHOWN) == [("fi", "up", 1, second(3), second(4))]


def test_malformed_definitions_are_dead_letters_and_the_job_goes_on(spark, log, registry, tmp_path):
    registry.put("up", UP)
    bad = [
        b"what is this",
        definition(name="a b", version=2, definition="{}"),
        definition(name="x", version=2, definition='{"version": 9}'),
        definition(name="x", version=2),
        codec.encode(codec.pack(DeadLetter(reason="stray"), event_time=1)),
    ]
    for value in bad:
        send(log, value)
    registry.put("odd", tw.pattern("a", pl.col("speed") > 3))
    put(log, (1, "fi", 1), (2, "fi", 9), (9, "fi", 5))
    finish(log, tmp_path, spark, max_events_per_batch=100)
    assert rows(log, "analytics.found", SHOWN) == [("fi", "up", 1, second(1), second(2))]
    letters = dead(log, "dead.found")
    assert [raw for _, _, raw in letters[:5]] == bad
    assert {topic for topic, _, _ in letters} == {CONTROL}
    reasons = [reason for _, reason, _ in letters]
    assert "a pattern's name is" in reasons[1]
    assert "pattern x, version 2: a pattern of version 9, this Tidewheel reads 1" in reasons[2]
    assert "either a definition" in reasons[3]
    assert "expected tidewheel.v1.PatternDefinition" in reasons[4]
    assert "odd, version 2: pattern: events have no column 'speed'; they have" in reasons[5]
    assert len(letters) == 6
    registry.put("odd", DOWN)
    put(log, (10, "fi", 9), (11, "fi", 1), (20, "fi", 5))
    finish(log, tmp_path, spark)
    assert ("fi", "odd", 3, second(10), second(11)) in rows(log, "analytics.found", SHOWN)
    assert len(dead(log, "dead.found")) == 6


def test_patterns_change_while_a_job_runs(spark, log, registry, tmp_path):
    put(log, (0, "fi", 5))
    run = start(log, tmp_path, spark, available_now=False)

    def done() -> None:
        """Until all that was sent is worked off."""
        while run.progress().lag:
            assert run.active, "the job ended"
            time.sleep(0.05)

    def matches() -> list[tuple[object, ...]]:
        return rows(log, "analytics.found", SHOWN)

    try:
        registry.put("up", UP)
        done()
        put(log, (1, "fi", 1), (2, "fi", 9), (3, "fi", 2), (9, "fi", 5))
        done()
        assert matches() == [("fi", "up", 1, second(1), second(2))]
        registry.put("up", DOWN)
        done()
        put(log, (10, "fi", 9), (11, "fi", 1), (20, "fi", 5))
        done()
        registry.remove("up")
        done()
        put(log, (21, "fi", 9), (22, "fi", 1), (40, "fi", 5))
        done()
    finally:
        run.stop()
    assert matches() == [("fi", "up", 1, second(1), second(2)), ("fi", "up", 2, second(10), second(11))]
    assert rows(log, "dropped", ["version", "match_start", "reason"]) == [(1, second(3), "replaced by version 2")]


def test_beside_other_jobs_and_after_a_window(spark, log, registry, tmp_path):
    registry.put(
        "many", tw.pattern("few", pl.col("n") == 1).next("many", pl.col("n") > 1), measures={"n": tw.measures.last("n")}
    )
    tw.PatternRegistry(log.topic("other")).put("up", UP, measures={"where": tw.measures.last("country")})
    put(log, (1, "fi", 1), (2, "se", 1), (3, "se", 9))
    orders = tw.stream(log, INPUT, watermark=tw.watermarks.bounded("1 s", future=None))
    counted = orders.key_by("country").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
    growing = counted.key_by("country").match_from(log.topic(CONTROL)).named("growing")
    jobs = (growing, counted.named("counted"), orders.match_from(log.topic("other")).named("other"))
    put(log, (11, "fi", 1), (12, "fi", 1), (13, "se", 1))
    put(log, (40, "fi", 1), (41, "fi", 1))
    run = tw.run(*jobs, log=log, checkpoint=tmp_path / "all", spark=spark, available_now=True, max_events_per_batch=4)
    run.wait()
    assert run.failed == {}
    assert rows(log, "analytics.growing", ["country", "pattern", "measures"]) == [("fi", "many", '{"n":2}')]
    assert rows(log, "analytics.counted", ["n"]).count((2,)) == 2
    assert set(rows(log, "analytics.other", ["pattern", "measures"])) == {("up", '{"where":"se"}')}
    # The definition for one job makes no sense to the other, whose topic is another: no dead letters.
    assert "dead.jobs" not in [info.name for info in log.topics()]


def test_as_a_dataframe(spark, log, registry, tmp_path):
    registry.put("up", UP)
    put(log, (1, "fi", 1), (2, "fi", 9), (9, "fi", 5))
    query = (
        found(log)
        .df(spark=spark)
        .writeStream.format("memory")
        .queryName("found_frame")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    shown = spark.sql("SELECT country, pattern, version FROM found_frame WHERE output = 'results'").collect()
    assert [tuple(row) for row in shown] == [("fi", "up", 1)]


def test_what_makes_no_sense_is_refused_when_defined(spark, log, registry, tmp_path):
    orders = tw.stream(log, INPUT, type="tidewheel.v1.DeadLetter").key_by("source")
    with pytest.raises(DefinitionError, match=r'expected a topic like log.topic\("control.patterns"\), got \'x\''):
        orders.match_from("x")
    with pytest.raises(DefinitionError, match="patterns need a topic of their own"):
        orders.match_from(log.topic(INPUT))
    with tw.open_log(tmp_path / "other.tw") as other, pytest.raises(DefinitionError, match="of another log"):
        orders.match_from(other.topic(CONTROL))
    frame = spark.createDataFrame([(datetime(2026, 1, 1), 1)], "at timestamp, x int")
    with pytest.raises(DefinitionError, match="of another log"):
        tw.stream(frame, time="at").key_by("x").match_from(log.topic(CONTROL))
    result = orders.match_from(log.topic(CONTROL))
    assert "the patterns that the topic control.patterns defines" in result.explain()


def test_a_registry_refuses_what_makes_no_sense(log, registry):
    with pytest.raises(DefinitionError, match=r"there is no pattern 'up' in control\.patterns; there are: none"):
        registry.remove("up")
    with pytest.raises(DefinitionError, match="a pattern's name is"):
        registry.put("a b", UP)
    with pytest.raises(DefinitionError, match="expected a topic"):
        tw.PatternRegistry(CONTROL)
    with pytest.raises(DefinitionError, match="expected a pattern"):
        registry.put("up", "UP")
    assert registry.put("up", UP) == 1
    assert registry.put("up", UP) == 1, "it is there already"
    assert log.topic_info(CONTROL).count == 1
    send(log, definition(name="up", version=7, definition="{}"))
    assert [entry.version for entry in registry.list()] == [1]
    send(log, definition(name="other", version=20, removed=True))
    assert registry.remove("up") == 21
    assert registry.put("up", UP) == 22
    (entry,) = registry.list()
    assert (entry.name, entry.version, entry.pattern, dict(entry.measures)) == ("up", 22, UP, {})


def test_of_two_who_write_at_once_each_gets_a_version(log, registry, monkeypatch):
    other = tw.PatternRegistry(log.topic(CONTROL))
    producer = type(log).producer
    raced = []

    def overtaken(self, name, *, fence=True):
        opened = producer(self, name, fence=fence)
        if not raced:
            raced.append(True)
            assert other.put("theirs", DOWN) == 1
        return opened

    monkeypatch.setattr(type(log), "producer", overtaken)
    assert registry.put("ours", UP) == 2
    assert [(entry.name, entry.version) for entry in registry.list()] == [("ours", 2), ("theirs", 1)]
