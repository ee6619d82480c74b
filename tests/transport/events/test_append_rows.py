"""Rows of any table become events of a type that the log keeps, and that grows with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tidewheel.errors import DefinitionError
from tidewheel.transport.events import codec, event_pb2
from tidewheel.transport.events.codec import decode_columns
from tidewheel.transport.events.event_pb2 import DeadLetter
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.events.row_type import row_type
from tidewheel.transport.events.rows import event_times, time_of
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.types import load_types

TOPIC = "input.order"
TYPE = "tidewheel.results.Input_Order"
NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "shop.tw") as opened:
        yield opened


def read(log: Log, topic: str = TOPIC, kind: str = TYPE) -> pl.DataFrame:
    """What a program finds that knows nothing but the log."""
    registry = TypeRegistry()
    registry.register(event_pb2)
    load_types(log, registry)
    values = [
        batch.records.column("value")
        for partition in range(log.topic_info(topic).partitions)
        for batch in log.read(topic, partition, 0)
    ]
    decoded = decode_columns(kind, pa.concat_arrays(values), registry=registry)
    assert not decoded.errors
    return pl.DataFrame(pl.from_arrow(decoded.columns))


def keys(log: Log) -> list[bytes]:
    return [key for batch in log.read(TOPIC, 0, 0) for key in batch.records.column("key").to_pylist()]


COLUMNS: dict[str, list[Any]] = {
    "user": ["anna", "ben"],
    "amount": [12.5, None],
    "items": [3, 4],
    "ts": [NOON, NOON + timedelta(seconds=1)],
}
DICTS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]


@pytest.mark.parametrize(
    "rows",
    [
        DICTS,
        pl.DataFrame(COLUMNS),
        pd.DataFrame(COLUMNS, index=[7, 8]),
        pa.table(COLUMNS),
        pa.RecordBatch.from_pydict(COLUMNS),
        pl.DataFrame(COLUMNS).with_columns(pl.col("user").cast(pl.Categorical)),
        pd.DataFrame(COLUMNS).astype({"user": "category"}),
    ],
    ids=["dicts", "polars", "pandas", "table", "batch", "polars categories", "pandas categories"],
)
def test_rows_of_every_kind_become_events(log: Log, rows: Any) -> None:
    log.append_rows(TOPIC, rows, time="ts", key=("user", "items"))
    found = read(log)
    assert found.select(*COLUMNS).rows() == [("anna", 12.5, 3, NOON), ("ben", None, 4, NOON + timedelta(seconds=1))]
    assert found["event_time"].equals(found["ts"])
    assert found["ingestion_time"].null_count() == 0
    assert keys(log) == [b"anna/3", b"ben/4"]
    (batch,) = log.read(TOPIC, 0, 0)
    assert batch.type == TYPE


def test_a_new_column_is_null_in_older_rows_and_a_missing_one_in_newer(log: Log) -> None:
    log.append_rows(TOPIC, [{"user": "anna", "event_time": NOON}], time="event_time")
    log.append_rows(TOPIC, [{"city": "Helsinki", "event_time": NOON, "nothing": None}], time="event_time")
    log.append_rows(TOPIC, [{"user": "ben", "event_time": NOON}], time="event_time")
    assert read(log).select("user", "city").rows() == [("anna", None), (None, "Helsinki"), ("ben", None)]
    assert read(log).columns == ["event_time", "ingestion_time", "user", "city"]


@pytest.mark.parametrize(
    ("before", "after", "values", "then"),
    [
        (pa.int32(), pa.int64(), [-5, 2**40], pl.Int64),
        (pa.uint32(), pa.uint64(), [5, 2**63], pl.UInt64),
        (pa.uint32(), pa.int64(), [2**32 - 1, -(2**40)], pl.Int64),
        (pa.int64(), pa.int16(), [2**40, -5], pl.Int64),
        (pa.float64(), pa.float32(), [0.1, 0.5], pl.Float64),
        (pa.float64(), pa.int64(), [0.1, 2.0**53], pl.Float64),
    ],
    ids=str,
)
def test_numbers_are_widened_without_loss(
    log: Log, before: pa.DataType, after: pa.DataType, values: list[Any], then: Any
) -> None:
    for kind, value in zip((before, after), values, strict=True):
        log.append_rows(TOPIC, pa.table({"x": pa.array([value], kind), "ts": [NOON]}), time="ts")
    assert read(log)["x"].to_list() == values
    assert read(log).schema["x"] == then


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (5, 5.5, r"input\.order: .*column 'x' is of another type \(int64, not double\).*cast the column"),
        (5, "five", r"\(int64, not string\)"),
        ("five", 5, r"\(string, not int64\)"),
        (5, [5], r"\(int64, not a list of int64\)"),
        ({"a": 1}, {"a": "1"}, r"input\.order\.x: .*'a'"),
        ({"a": 1}, 1, r"\(x, not int64\)"),
        (0.5, 2**53 + 1, r"'x' must be double, got int64"),
        (True, 1, r"\(bool, not int64\)"),
    ],
    ids=str,
)
def test_another_type_is_refused_in_words_and_nothing_is_appended(
    log: Log, before: Any, after: Any, reason: str
) -> None:
    log.append_rows(TOPIC, [{"x": before, "ts": NOON}], time="ts")
    with pytest.raises(DefinitionError, match=reason):
        log.append_rows(TOPIC, [{"x": after, "new": 1, "ts": NOON}], time="ts")
    assert read(log)["x"].to_list() == [before] if not isinstance(before, dict) else len(read(log)) == 1


def test_lists_and_structs_are_kept_and_grow(log: Log) -> None:
    log.append_rows(TOPIC, [{"at": {"lat": 60.2}, "tags": ["a", "b"], "ts": NOON}], time="ts")
    log.append_rows(TOPIC, [{"at": {"lon": 24.9, "near": [{"stop": 7}]}, "tags": None, "ts": NOON}], time="ts")
    log.append_rows(TOPIC, [{"at": None, "ts": NOON}, {"at": {"near": None}, "tags": [], "ts": NOON}], time="ts")
    assert read(log).select("at", "tags").rows() == [
        ({"lat": 60.2, "lon": None, "near": []}, ["a", "b"]),
        ({"lat": None, "lon": 24.9, "near": [{"stop": 7}]}, []),
        (None, []),
        ({"lat": None, "lon": None, "near": []}, []),
    ]


SECOND = 1769860800
NUMBERS = {"s": SECOND, "ms": SECOND * 10**3, "us": SECOND * 10**6, "ns": SECOND * 10**9}


@pytest.mark.parametrize(
    "given",
    [
        NOON,
        NOON.replace(tzinfo=None),
        NOON.astimezone(timezone(timedelta(hours=-5))),
        "2026-01-31T12:00:00Z",
        "2026-01-31 14:00:00.000+02:00",
        1769860800.0,
        *NUMBERS.values(),
    ],
    ids=str,
)
def test_times_are_taken_when_they_can_be_no_other(log: Log, given: Any) -> None:
    log.append_rows(TOPIC, [{"ts": given}], time="ts")
    assert read(log)["event_time"].to_list() == [NOON]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"ts": "2026-01-31T12:00:00"}], "names no time zone"),
        ([{"ts": "yesterday"}], "no ISO text"),
        ([{"ts": "2026-01-31"}], "names no time zone"),
        ([{"ts": 12}], "could be of several units"),
        ([{"ts": 0.5}], "could be of several units"),
        ([{"ts": NUMBERS["s"]}, {"ts": NUMBERS["ms"]}], "one unit and some like another"),
        ([{"ts": True}], "must be a timestamp, got bool"),
        ([{"ts": date(2026, 1, 31)}], "must be a timestamp, got date32"),
        ([{"ts": NOON}, {"ts": None}], "of 1 rows is missing, as of row 1"),
        ([{"x": 1}], "time names a column 'ts' that is not there; there are x"),
        ([{"ts": NOON, "event_time": NOON}], "column event_time beside 'ts'"),
        ([{"ts": NOON, "_key": 1}], "'_key' is what reading the log calls"),
        ([{"ts": NOON, "ingestion_time": 1}], "ingestion_time is when an event came"),
        ([{"ts": NOON, "price": Decimal(1)}], r"input\.order\.price: decimal.* has no counterpart in protobuf; cast"),
        ([{"ts": NOON, "user name": 1}], "'user name' cannot be a field"),
        ([{"ts": NOON, "x": [1, None]}], "'x' has lists with nulls"),
        ([{"ts": NOON, "x": [[1]]}], "has no counterpart"),
        ([{"ts": NOON, "x": 1}, {"ts": NOON, "x": "a"}], "the column 'x' has values of several types"),
        ([{"ts": NOON, "x": 2**70}], "the column 'x' has values"),
        ([{"ts": NOON, 1: 2}], "name of a column must be text"),
        ([{"ts": NOON, "user": 1, "User": 2}], "'user' and 'User' differ only in case and underscores"),
        ([{"ts": NOON, "aB": 1, "a_b": 2}], "'aB' and 'a_b' differ only"),
        ([{"ts": NOON, "x": {"a": 1, "A": 2}}], r"input\.order\.X: the columns 'a' and 'A'"),
        ("rows", "got str"),
        (pl.LazyFrame({"ts": [NOON]}), r"rows\.collect\(\)"),
    ],
)
def test_what_cannot_be_appended_is_refused_in_words(log: Log, rows: Any, reason: str) -> None:
    with pytest.raises(DefinitionError, match=reason):
        log.append_rows(TOPIC, rows, time="ts")
    assert TOPIC not in [info.name for info in log.topics()] or log.topic_info(TOPIC).count == 0


def test_a_column_that_is_too_like_another_does_not_spoil_the_topic(log: Log) -> None:
    log.append_rows(TOPIC, [{"ts": NOON, "user": "anna"}], time="ts")
    with pytest.raises(DefinitionError, match="'user' and 'USER' differ only"):
        log.append_rows(TOPIC, [{"ts": NOON, "USER": "ben"}], time="ts")
    log.append_rows(TOPIC, [{"ts": NOON, "user": "cid"}], time="ts")
    assert read(log)["user"].to_list() == ["anna", "cid"]


def test_a_key_that_is_not_there_is_refused(log: Log) -> None:
    with pytest.raises(DefinitionError, match="key names a column 'user' that is not there; there are ts"):
        log.append_rows(TOPIC, [{"ts": NOON}], time="ts", key="user")


def test_nothing_is_appended_for_nothing(log: Log) -> None:
    assert log.append_rows(TOPIC, [], time="ts").next_offsets == {}
    log.append_rows(TOPIC, pl.DataFrame({"ts": [NOON]}).clear(), time="ts")
    assert log.topic_info(TOPIC).count == 0


def test_a_repeated_append_is_done_once(log: Log) -> None:
    rows = [{"ts": NOON, "user": "anna"}]
    receipts = [log.append_rows(TOPIC, rows, time="ts", producer="till", sequence=7) for _ in range(3)]
    assert [receipt.duplicate for receipt in receipts] == [False, True, True]
    assert len(read(log)) == 1
    with pytest.raises(DefinitionError, match="belong together"):
        log.append_rows(TOPIC, rows, time="ts", producer="till")


def test_a_topic_that_is_made_anew_may_have_other_columns(log: Log) -> None:
    log.append_rows(TOPIC, [{"x": 1, "ts": NOON}], time="ts")
    log.delete_topic(TOPIC)
    assert row_type(log, TOPIC) is None
    log.append_rows(TOPIC, [{"x": "one", "ts": NOON}], time="ts")
    assert read(log)["x"].to_list() == ["one"]


def test_rows_fill_the_type_of_the_events_that_are_there(log: Log) -> None:
    log.append("letters", records([codec.encode(codec.pack(DeadLetter(reason="old"), event_time=1))]))
    log.append_rows("letters", [{"reason": "new", "event_time": NOON}], time="event_time")
    assert read(log, "letters", "tidewheel.v1.DeadLetter")["reason"].to_list() == ["old", "new"]
    with pytest.raises(DefinitionError, match=r"letters holds events of tidewheel\.v1\.DeadLetter.* no field 'x'"):
        log.append_rows("letters", [{"x": 1, "event_time": NOON}], time="event_time")


def test_writers_that_add_columns_at_once_come_to_one_type(log: Log) -> None:
    """Each of them adds columns that the others do not know; what each wrote is read as it was written."""
    writers, rounds = 4, 5
    barrier = threading.Barrier(writers)
    failures: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            with open_log(log.address) as own:
                for number in range(rounds):
                    barrier.wait()
                    row = {"writer": writer, f"of_{writer}_{number}": f"{writer}/{number}", "ts": NOON}
                    own.append_rows(TOPIC, [row], time="ts")
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    found = read(log)
    reported = sorted(
        (name, row[name])
        for row in found.to_dicts()
        for name in row
        if name.startswith("of_") and row[name] is not None
    )
    assert reported == sorted(
        (f"of_{writer}_{number}", f"{writer}/{number}") for writer in range(writers) for number in range(rounds)
    )


def test_a_number_is_no_time_of_two_units() -> None:
    """Ranges of the units do not touch: the largest of one is below the smallest of the next."""
    assert {time_of(number) for number in NUMBERS.values()} == {time_of("2026-01-31T12:00:00Z")}
    for number in (10**9 - 1, 10**10, 10**12 - 1, 10**13, 10**15 - 1, 10**16, 10**18 - 1, -(10**9), float("nan")):
        with pytest.raises(ValueError, match="several units"):
            time_of(number)
    assert event_times(pa.array([10**9, 10**10 - 1]), name="t").cast(pa.int64()).to_pylist() == [10**15, 10**16 - 10**6]
