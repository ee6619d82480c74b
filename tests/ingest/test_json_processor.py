"""JSON objects become rows of a topic; what cannot is a dead letter that says why."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.ingest_support import dead_letters, values
from tidewheel.errors import DefinitionError
from tidewheel.ingest.message import Message
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.ingest.processor import LogProcessor, Processor
from tidewheel.ingest.processors.json_rows import JsonProcessor
from tidewheel.transport.events import codec
from tidewheel.transport.events.codec import decode_columns
from tidewheel.transport.events.event_pb2 import DeadLetter
from tidewheel.transport.events.row_type import row_type
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log

TOPIC = "input.order"
TS = "2026-01-31T12:00:00Z"
ARRIVED = 1_769_860_805_000_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "shop.tw") as opened:
        yield opened


def pipeline(log: Log, **options: Any) -> Pipeline:
    return Pipeline(log, JsonProcessor(**{"topic": TOPIC, "time": "ts", **options}))


def sent(*objects: Any) -> list[Message]:
    return [
        Message("http", each if isinstance(each, bytes) else json.dumps(each).encode(), ARRIVED) for each in objects
    ]


def order(**fields: Any) -> dict[str, Any]:
    return {"ts": TS, **fields}


def read(log: Log) -> pl.DataFrame:
    kind = row_type(log, TOPIC)
    assert kind is not None
    decoded = decode_columns(kind.name, pa.array(values(log, TOPIC), pa.binary()), registry=kind.registry)
    assert not decoded.errors
    return pl.DataFrame(pl.from_arrow(decoded.columns))


def test_objects_become_rows_and_new_fields_columns(log: Log) -> None:
    deliver = pipeline(log, key=("user", "n"))
    deliver(sent(order(user="anna", n=1, amount=12.5), order(user="ben", vip=True, amount=3)))
    deliver(sent(order(user=None, n=7, at={"lat": 60.2, "tags": ["a"]}, gone=None)))
    deliver(sent(order(n=8, at={"lon": 24.9, "near": [{"stop": 1}, {"name": "x"}]})))
    found = read(log)
    assert found["event_time"].dt.epoch("us").to_list() == [ARRIVED - 5_000_000] * 4
    assert found["ingestion_time"].dt.epoch("us").to_list() == [ARRIVED] * 4
    assert found.select("user", "n", "amount", "vip").rows() == [
        ("anna", 1, 12.5, None), ("ben", None, 3.0, True), (None, 7, None, None), (None, 8, None, None),
    ]  # fmt: skip
    assert found["at"].to_list()[2:] == [
        {"lat": 60.2, "tags": ["a"], "lon": None, "near": []},
        {"lat": None, "tags": [], "lon": 24.9, "near": [{"stop": 1, "name": None}, {"stop": None, "name": "x"}]},
    ]
    assert "gone" not in found.columns
    keys = [key for batch in log.read(TOPIC, 0, 0) for key in batch.records["key"].to_pylist()]
    assert keys == [b"anna/1", b"ben/", b"/7", b"/8"]
    assert {batch.type for batch in log.read(TOPIC, 0, 0)} == {"tidewheel.results.Input_Order"}


BAD = [
    (b"{", "bad-json", "not JSON"),
    (b"\xff", "bad-json", "not JSON"),
    (b"[1]", "bad-json", 'an object is wanted, like {"user": "anna"}, got a list'),
    (b"[" * 100_000, "bad-json", "not JSON"),
    ({"user": "anna"}, "bad-time", "the time 'ts' is missing"),
    ({"ts": None}, "bad-time", "the time 'ts' is missing"),
    ({"ts": "2026-01-31T12:00:00"}, "bad-time", "names no time zone"),
    ({"ts": "soon"}, "bad-time", "no ISO text"),
    ({"ts": 17}, "bad-time", "could be of several units"),
    ({"ts": True}, "bad-time", "a time is ISO text or a number"),
    (order(n="one"), "bad-type", "n is an int64 in the log, got 'one'"),
    (order(n=1.5), "bad-type", "n is an int64 in the log, got 1.5; where fractions may come, .* --field n=double"),
    (order(n=2**63), "bad-type", "n is an int64 in the log, got 9223372036854775808"),
    (order(new=2**64), "bad-type", "new is too large .*; send it as text"),
    (order(user=1), "bad-type", "user is a string in the log, got 1"),
    (order(user={"name": "anna"}), "bad-type", "user is a string in the log, got an object"),
    (order(user=["anna"]), "bad-type", "user is a string in the log, got a list"),
    (order(tags="a"), "bad-type", "tags is a list in the log, got 'a'"),
    (order(tags=[1]), "bad-type", r"tags\[\] is a string in the log, got 1"),
    (order(at=1), "bad-type", "at is an object in the log, got 1"),
    (order(at={"lat": "north"}), "bad-type", r"at\.lat is a double in the log, got 'north'"),
    (order(at={"lat": 10**400}), "bad-type", r"at\.lat is a double in the log, got 1000"),
    (order(tags=["a", None]), "bad-field", "tags is a list with null in it"),
    (order(new=[[1]]), "bad-field", "new is a list with a list in it"),
    (order(**{"user-id": 1}), "bad-field", "'user-id' cannot be a column; use letters, digits and _"),
    (order(at={"": 1}), "bad-field", "'' of at cannot be a column"),
    (order(event_time=TS), "bad-field", "'event_time' is what reading the log calls a column of its own"),
    (order(_key=1), "bad-field", "'_key' is what reading the log calls"),
    (order(n={"x": 1}), "bad-type", "'n' is a part of the key"),
    (order(new=[1, "a"]), "bad-type", r"new\[\] is an int64 in the log, got 'a'"),
    (order(new=[2**53 + 1, 0.5]), "bad-type", r"new\[\] is a double in the log, got 9007199254740993"),
]


def deep(levels: int) -> dict[str, Any]:
    return {"x": deep(levels - 1)} if levels else {"x": 1}


def test_each_bad_line_is_a_dead_letter_with_its_reason_and_its_bytes(log: Log) -> None:
    deliver = pipeline(log, key="n")
    deliver(sent(order(user="anna", n=1, tags=["a"], at={"lat": 1.5})))
    columns = read(log).columns
    bad = sent(*(payload for payload, _, _ in BAD), order(new=deep(30)))
    delivered = deliver([*bad, *sent(order(user="ben", n=2))])
    assert delivered.topics == {TOPIC: 1}
    letters = {letter.raw: letter.reason for letter in dead_letters(log, "json")}
    assert letters.keys() == {message.payload for message in bad}
    for message, (_, _, reason) in zip(bad, BAD, strict=False):
        assert re.search(reason, letters[message.payload]), letters[message.payload]
    assert "nested too deep" in letters[bad[-1].payload]
    kinds = [kind for _, kind, _ in BAD] + ["bad-field"]
    assert delivered.dead == {kind: kinds.count(kind) for kind in kinds}
    report = deliver.report()
    assert report.received == sum(report.topics.values()) + sum(report.dead.values()) == len(bad) + 2
    assert read(log).columns == columns, "what is dead adds no columns"


def test_a_bad_line_does_not_decide_the_type_of_a_column(log: Log) -> None:
    deliver = pipeline(log)
    deliver(sent({"n": "text, but without a time"}, order(n=1)))
    assert read(log)["n"].to_list() == [1]


def test_declared_fields_have_their_types_from_the_start(log: Log) -> None:
    declared = {"amount": "double", "due": "timestamp", "code": "string"}
    deliver = pipeline(log, fields=declared)
    assert deliver(sent(order(amount=5, due="2026-02-01T00:00:00+02:00"), order(amount=0.5, code=7))).dead == {
        "bad-type": 1
    }
    found = read(log)
    assert found["amount"].to_list() == [5.0]
    assert found["due"].dt.to_string("iso:strict").to_list() == ["2026-01-31T22:00:00.000000+00:00"]
    pipeline(log, fields=declared, max_fields=100)
    with pytest.raises(DefinitionError, match=r"column 'amount' is of another type \(double, not string\)"):
        pipeline(log, fields={"amount": "string"})
    with pytest.raises(DefinitionError, match="'amount' must be bool, int, double, string, timestamp, got 'float'"):
        pipeline(log, fields={"amount": "float"})


def test_rows_and_objects_share_a_topic(log: Log) -> None:
    rows = pl.DataFrame({"ts": [TS], "n": pl.Series([1], dtype=pl.Int32), "x": pl.Series([0.5], dtype=pl.Float32)})
    log.append_rows(TOPIC, rows, time="ts")
    deliver = pipeline(log)
    assert deliver(sent(order(n=2, x=0.25), order(n=2**40), order(x=0.1))).dead == {"bad-type": 1}
    log.append_rows(TOPIC, [{"ts": TS, "city": "Turku"}], time="ts")
    assert deliver(sent(order(city=7), order(city="Oulu", n=3))).dead == {"bad-type": 1}
    assert read(log).select("n", "x", "city").rows() == [
        (1, 0.5, None), (2, 0.25, None), (2**40, None, None), (None, None, "Turku"), (3, None, "Oulu"),
    ]  # fmt: skip


def test_a_topic_that_is_made_anew_begins_anew(log: Log) -> None:
    deliver = pipeline(log)
    deliver(sent(order(n=1)))
    log.delete_topic(TOPIC)
    assert deliver(sent(order(n="one"))).topics == {TOPIC: 1}
    assert read(log)["n"].to_list() == ["one"]


def test_columns_are_limited(log: Log) -> None:
    deliver = pipeline(log, max_fields=4)
    delivered = deliver(sent(order(a=1, b={"c": 1}), order(d=1), order(a=2)))
    assert (delivered.topics, delivered.dead) == ({TOPIC: 2}, {"bad-field": 1})
    assert delivered.reasons == ("input.order would have 5 columns; at most 4 are made",)


def test_a_field_that_is_too_like_another_does_not_spoil_the_topic(log: Log) -> None:
    deliver = pipeline(log)
    delivered = deliver(sent(order(a=1), order(A=2), order(a=3)))
    assert (delivered.topics, delivered.dead) == ({TOPIC: 2}, {"bad-type": 1})
    assert "'a' and 'A' differ only in case and underscores" in delivered.reasons[0]
    assert deliver(sent(order(a=4))).topics == {TOPIC: 1}
    assert read(log)["a"].to_list() == [1, 3, 4]


def test_a_type_of_somebody_s_own_is_filled_and_not_grown(log: Log) -> None:
    log.append(TOPIC, records([codec.encode(codec.pack(DeadLetter(reason="x"), event_time=1))]))
    delivered = pipeline(log, time="event_time")(
        sent({"event_time": TS, "reason": "a"}, {"event_time": TS, "user": "b"}, {"event_time": TS, "reason": "c"})
    )
    assert (delivered.topics, delivered.dead) == ({TOPIC: 2}, {"bad-type": 1})
    assert "DeadLetter, which has no field 'user'" in delivered.reasons[0]
    assert read(log)["reason"].to_list() == ["x", "a", "c"]


def test_it_is_a_processor_that_needs_the_log() -> None:
    made = JsonProcessor(topic=TOPIC, time="ts")
    assert isinstance(made, Processor)
    assert isinstance(made, LogProcessor)
    assert made.subscriptions == ("tidewheel/input.order",)
    with pytest.raises(DefinitionError, match="attach"):
        made.process([])
    for options in ({"topic": "a b"}, {"subscriptions": "a"}):
        with pytest.raises(DefinitionError):
            JsonProcessor(**{"topic": TOPIC, "time": "ts", **options})


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_-", max_size=3), inner, max_size=3),
)
OBJECTS = st.dictionaries(st.sampled_from(["ts", "a", "b", "c", "a_b", "aB", "A"]), VALUES, max_size=4)


@settings(max_examples=75, deadline=None)
@example(batches=[[{"ts": TS, "a": 0.5}, {"ts": TS, "a": 2**55}, {"ts": TS, "a": 2**55 + 1}]])
@example(batches=[[{"ts": TS, "a": [2**53 + 1, 0.5]}, {"ts": TS, "a": [2**55, 0.5]}]])
@given(
    batches=st.lists(
        st.lists(OBJECTS.map(lambda each: {"ts": TS, **each}) | st.binary(max_size=8), max_size=6), max_size=3
    )
)
def test_whatever_comes_is_a_row_that_can_be_read_again_or_a_dead_letter(tmp_path_factory: Any, batches: Any) -> None:
    with open_log(tmp_path_factory.mktemp("json") / "shop.tw") as log:
        deliver = pipeline(log)
        expected = []
        for batch in batches:
            before = len(values(log, TOPIC))
            delivered = deliver(sent(*batch))
            assert "processor-failed" not in delivered.dead, delivered.reasons
            dead = {letter.raw for letter in dead_letters(log, "json")}
            expected += [each for each in batch if sent(each)[0].payload not in dead]
            assert len(values(log, TOPIC)) - before == sum(delivered.topics.values())
        if expected and row_type(log, TOPIC) is not None:
            for row, given_row in zip(read(log).to_dicts(), expected, strict=True):
                for name, value in given_row.items():
                    if isinstance(value, (bool, int, float, str)):
                        assert row[name] == value
