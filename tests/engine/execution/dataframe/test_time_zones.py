"""Streams over DataFrames in sessions of any time zone: instants are the same, and hours are those of UTC."""

from __future__ import annotations

import os
from datetime import datetime, timezone

import polars as pl
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.engine.spark.arrow_schema import in_utc

ZONES = ["Etc/UTC", "Europe/Berlin", "America/New_York"]
CHANGE = datetime(2026, 10, 25, 1, tzinfo=timezone.utc)
"""When Berlin's clocks go back from three to two."""
FILES = [[-90, -50, -10], [-10, 5, 20], [40, 45, 200], [201]]
"""Minutes around it, file by file: two are there twice, a pair is five minutes apart, and time moves on at the end."""
SCHEMA = "at TIMESTAMP, number BIGINT, seen STRUCT<first: TIMESTAMP, all: ARRAY<TIMESTAMP>>"


def moments(minutes: list[int]) -> pl.Series:
    begin = int(CHANGE.timestamp() * 1_000_000)
    return pl.Series("at", [begin + each * 60_000_000 for each in minutes], pl.Int64).cast(pl.Datetime("us", "UTC"))


@pytest.fixture
def rows(tmp_path):
    for number, minutes in enumerate(FILES):
        path = tmp_path / "rows" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        frame = pl.DataFrame({"at": moments(minutes), "number": minutes})
        seen = pl.struct(pl.col("at").alias("first"), pl.concat_list("at").alias("all")).alias("seen")
        frame.with_columns(seen).write_parquet(path)
        os.utime(path, (1_760_000_000 + number, 1_760_000_000 + number))  # Spark reads them in this order
    return str(tmp_path / "rows")


def asked(stream: tw.Stream) -> dict[str, tw.Result]:
    """Each keeps rows, or instants, in its state; one asks for the hour."""
    pair = tw.pattern("one").next("other").within("6 min")
    hours = stream.with_columns(hour=pl.col("at").dt.hour()).key_by("hour").window(tw.windows.tumbling("1 h"))
    return {
        "repeats": stream.deduplicate("number", horizon="2 h"),
        "pairs": stream.match(
            pair, measures={"begin": tw.measures.first("one.at"), "end": tw.measures.last("other.at")}
        ),
        "hours": hours.aggregate(n=tw.agg.count(), newest=tw.agg.max("at")),
    }


@pytest.fixture
def in_zone(spark):
    """Sets the time zone of the session for one test."""
    before = spark.conf.get("spark.sql.session.timeZone")
    yield lambda zone: spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.session.timeZone", before)


def check(found: dict[str, pl.DataFrame]) -> None:
    repeats = found["repeats"].sort("number")
    assert repeats["number"].to_list() == [-90, -50, -10, 5, 20, 40, 45]
    assert repeats["at"].cast(pl.Int64).to_list() == moments(repeats["number"].to_list()).cast(pl.Int64).to_list()
    assert repeats["seen"].struct.field("first").to_list() == repeats["at"].to_list()
    assert repeats["seen"].struct.field("all").explode().to_list() == repeats["at"].to_list()
    pairs = found["pairs"].select(pl.col("begin", "end").cast(pl.Int64)).sort("begin").rows()
    one, same, first, second = moments([-10, -10, 40, 45]).cast(pl.Int64).to_list()
    assert pairs == [(one, same), (first, second)]
    assert dict(found["hours"].select("hour", "n").rows()) == {23: 1, 0: 3, 1: 4}
    assert found["hours"]["newest"].max().timestamp() == CHANGE.timestamp() + 45 * 60


@pytest.mark.long
@pytest.mark.parametrize("zone", ZONES)
def test_a_streaming_frame_gives_the_same_in_every_zone(spark, rows, in_zone, tmp_path, zone):
    in_zone(zone)
    queries = {}
    for name in ("repeats", "pairs", "hours"):
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(rows)
        result = asked(tw.stream(frame, time="at", watermark=tw.watermarks.bounded("30 min", future=None)))[name]
        writer = result.df(key_groups=1).where("output = 'results'").writeStream.format("memory").queryName(name)
        writer = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        queries[name] = writer.start()
    found = {}
    for name, query in queries.items():
        query.awaitTermination()
        found[name] = pl.DataFrame(pl.from_arrow(spark.table(name).toArrow()))
        spark.catalog.dropTempView(name)
    check(found)


@pytest.mark.long
@pytest.mark.parametrize("zone", ZONES)
def test_a_static_frame_gives_the_same_in_every_zone(spark, rows, in_zone, zone):
    in_zone(zone)
    frame = spark.read.schema(SCHEMA).parquet(rows).where("number < 200")
    results = asked(tw.stream(frame, time="at"))
    check(
        {
            name: pl.DataFrame(pl.from_arrow(result.df(key_groups=1).where("output = 'results'").toArrow()))
            for name, result in results.items()
        }
    )


@pytest.mark.parametrize("zone", ZONES)
def test_a_statement_gives_the_same_in_every_zone(spark, rows, in_zone, zone):
    in_zone(zone)
    frame = spark.read.schema(SCHEMA).parquet(rows)
    found = tw.sql(
        """
        SELECT * FROM events MATCH_RECOGNIZE (
            ORDER BY at
            MEASURES FIRST(A.at) AS begin, LAST(B.at) AS end, HOUR(FIRST(A.at)) AS hour
            PATTERN (A B) WITHIN INTERVAL '6' MINUTE
            DEFINE B AS number > 0)
        """,
        events=frame,
    )
    one, other, last, end = moments([40, 45, 200, 201]).cast(pl.Int64).to_list()
    got = pl.DataFrame(pl.from_arrow(found.toArrow())).sort("begin")
    assert got.select(pl.col("begin", "end").cast(pl.Int64)).rows() == [(one, other), (last, end)]
    assert got["hour"].to_list() == [1, 4]


def test_instants_are_in_utc_wherever_they_are():
    zone = pa.timestamp("us", "Europe/Berlin")
    schema = pa.schema(
        [
            ("at", zone),
            ("plain", pa.timestamp("us")),
            ("deep", pa.struct([("list", pa.list_(zone)), ("map", pa.map_(pa.string(), zone))])),
        ]
    )
    given = pa.RecordBatch.from_pylist(
        [{"at": CHANGE, "plain": None, "deep": {"list": [CHANGE], "map": [("x", CHANGE)]}}], schema
    )
    found = in_utc(given)
    assert "Berlin" not in str(found.schema)
    assert found.schema.field("plain").type == pa.timestamp("us")
    row = found.to_pylist()[0]
    assert (row["at"], row["deep"]["list"], row["deep"]["map"]) == (CHANGE, [CHANGE], [("x", CHANGE)])
    assert in_utc(found) is found, "what is in UTC is left alone"
