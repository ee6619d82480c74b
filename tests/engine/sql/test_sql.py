"""Statements with MATCH_RECOGNIZE on Spark: the same rows from a table, from a stream in batches, and from a log."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal

import polars as pl
import pytest
from pyspark.errors import AnalysisException

import tidewheel as tw
from tests.engine.orders import read
from tests.engine.sql.sql_cases import (
    BATCHES,
    EMERGENCY_STOP,
    SECOND,
    START,
    STOPS,
    TOPIC,
    drained,
    files,
    put,
    sorted_rows,
    table,
)
from tidewheel.errors import DefinitionError, StatementError

pytestmark = pytest.mark.long

MARK = tw.watermarks.bounded("4 s", future=None)
STOPS_IN_ORDER = sorted(STOPS, key=repr)
CLAUSE = "MATCH_RECOGNIZE (PARTITION BY operator, vehicle ORDER BY event_time {} DEFINE A AS speed >= 10, B AS acc < 0)"


def at(second: float) -> datetime:
    """As Spark shows it."""
    return (datetime.fromtimestamp(START // SECOND, timezone.utc) + timedelta(seconds=second)).replace(tzinfo=None)


@pytest.fixture(scope="module")
def positions(spark):
    return table(spark).cache()


class TestTheSameRows:
    def test_from_a_table(self, positions):
        found = tw.sql(EMERGENCY_STOP, positions=positions)
        assert found.schema.simpleString() == "struct<operator:bigint,vehicle:string,drop:double>"
        assert sorted_rows(found) == STOPS_IN_ORDER

    def test_from_a_stream_of_batches_out_of_order_whose_late_rows_are_counted(self, spark, tmp_path):
        late = [(1, "a", 1, 12.0, 0.0), (1, "a", None, 12.0, 0.0), (1, "z", 61, 1.0, 0.0)]
        frame = files(spark, tmp_path / "rows", [*BATCHES, late])
        found = tw.sql(EMERGENCY_STOP, positions=frame, watermark=MARK)
        assert found.schema.simpleString() == "struct<operator:bigint,vehicle:string,drop:double>"
        rows, counts = drained(found, "stops_of_files", tmp_path)
        assert rows == STOPS_IN_ORDER
        assert counts == {"results": 4, "late": 2, "dropped": 0}

    def test_from_the_log_into_topics_beside_another_job(self, spark, log, tmp_path):
        put(log, [*BATCHES, [(1, "a", 1, 12.0, 0.0), (1, "z", 61, 1.0, 0.0)]])
        stream = tw.stream(log, TOPIC, watermark=MARK)
        stops = tw.sql(EMERGENCY_STOP, positions=stream).named("stops")
        counts = stream.window(tw.windows.global_()).aggregate(n=tw.agg.count()).named("counts")
        run = tw.run(
            stops, counts, log=log, checkpoint=tmp_path / "run", spark=spark, available_now=True, key_groups=2,
            max_events_per_batch=1,
        )  # fmt: skip
        run.wait()
        assert not run.failed
        found = read(log, "analytics.stops")
        assert sorted(found.select("operator", "vehicle", "drop").rows(), key=repr) == STOPS_IN_ORDER
        # A match is of the time of its last row.
        assert sorted(found.filter(pl.col("vehicle") == "c")["event_time"]) == [at(33).replace(tzinfo=timezone.utc)]
        late = read(log, "late.stops")
        assert late.select("vehicle", "speed", "late_reason").rows() == [("a", 12.0, "too late")]


class TestStatements:
    def test_all_rows_with_the_rows_own_time_and_the_outer_statement(self, positions):
        clause = CLAUSE.format("MEASURES CLASSIFIER() AS c, MATCH_NUMBER() AS n ALL ROWS PER MATCH PATTERN (A B+)")
        found = tw.sql(f"SELECT * FROM positions {clause} AS m WHERE m.operator IS NULL", positions=positions)
        assert found.columns == ["operator", "vehicle", "event_time", "c", "n", "speed", "acc"]
        assert sorted_rows(found) == [
            (None, "a", at(3), "A", 1, 11.0, 0.0),
            (None, "a", at(4), "B", 1, 5.0, -6.0),
            (None, "a", at(5), "B", 1, 0.0, -5.0),
        ]
        total = tw.sql(f"SELECT c, count(*) AS rows FROM positions {clause} GROUP BY c ORDER BY c", positions=positions)
        assert [tuple(row) for row in total.collect()] == [("A", 5), ("B", 11)]

    def test_several_and_nested_clauses_with_and_the_sessions_own_tables(self, spark, positions):
        positions.createOrReplaceTempView("known_positions")
        one = CLAUSE.format("MEASURES FIRST(speed) AS speed, LAST(event_time) AS event_time, 0.0 AS acc PATTERN (A B)")
        statement = f"""
            WITH fast AS (SELECT * FROM known_positions WHERE operator = 1), stops AS (SELECT * FROM fast {one})
            SELECT n, other FROM stops
            MATCH_RECOGNIZE (ORDER BY event_time MEASURES count(*) AS n PATTERN (A+) DEFINE A AS speed > 10) AS m
            CROSS JOIN (SELECT count(*) AS other FROM fast {one})"""
        try:
            assert sorted_rows(tw.sql(statement)) == [(2, 3)]
        finally:
            spark.catalog.dropTempView("known_positions")

    def test_types_and_names_are_kept(self, spark):
        rows = [(Decimal("1.50"), {"x": 1}, [1, 2], datetime(2026, 1, 1).date(), ("n",), b"b", True, -0.0, 7)]
        schema = (
            "`price in €` DECIMAL(9,2), late MAP<STRING,INT>, output ARRAY<INT>, day DATE, deep STRUCT<x: STRING>, "
            "raw BINARY, ok BOOLEAN, event_time DOUBLE, small SMALLINT"
        )
        frame = spark.createDataFrame(rows, schema)
        found = tw.sql(
            """SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY deep, `price in €` MEASURES sum(`price in €`) AS total,
            LAST(deep.x) AS x ALL ROWS PER MATCH PATTERN (A) DEFINE A AS ok)""",
            t=frame,
        )
        types = dict(found.dtypes)
        assert {name: types[name] for name in frame.columns} == dict(frame.dtypes)
        assert types["x"] == "string"
        [row] = found.collect()
        assert (row["price in €"], row["late"], row["x"]) == (Decimal("1.50"), {"x": 1}, "n")

    def test_nothing_in_gives_nothing_out(self, positions):
        assert sorted_rows(tw.sql(EMERGENCY_STOP, positions=positions.limit(0))) == []

    def test_ordinary_sql_is_sparks(self, spark, positions):
        assert tw.sql("SELECT 1 AS x", spark=spark).collect()[0].x == 1
        text = "SELECT 'MATCH_RECOGNIZE (' AS x, count(*) AS n FROM positions -- the end"
        assert [tuple(row) for row in tw.sql(text, positions=positions).collect()] == [("MATCH_RECOGNIZE (", 17)]
        ordered = tw.sql("(SELECT speed FROM positions ORDER BY speed DESC LIMIT 2);", positions=positions)
        assert [row.speed for row in ordered.collect()] == [20.0, 12.0]
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            tw.sql("SELECT * FROM nowhere", spark=spark)
        with pytest.raises(DefinitionError, match=r"begins with 'CACHE'.*createOrReplaceTempView"):
            tw.sql("CACHE TABLE x AS SELECT * FROM positions", positions=positions)

    def test_nobodys_view_is_touched(self, spark, positions):
        spark.range(3).createOrReplaceTempView("positions")
        spark.range(4).createOrReplaceTempView("match_recognize_1")
        try:
            before = sorted(one.name for one in spark.catalog.listTables())
            found = tw.sql(EMERGENCY_STOP, positions=positions)
            with pytest.raises(StatementError):
                tw.sql(EMERGENCY_STOP.replace("acc <", "acceleration <"), positions=positions)
            with pytest.raises(AnalysisException):
                tw.sql(EMERGENCY_STOP.replace("SELECT *", "SELECT nothing"), positions=positions)
            assert sorted(one.name for one in spark.catalog.listTables()) == before
            assert (spark.table("positions").count(), spark.table("match_recognize_1").count()) == (3, 4)
            assert found.count() == 4
        finally:
            spark.catalog.dropTempView("positions")
            spark.catalog.dropTempView("match_recognize_1")


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("acc <", "brake <", r"there is no column brake, only .*at line \d+, column \d+"),
            ("PARTITION BY operator", "PARTITION BY owner", "PARTITION BY: there is no column owner"),
            ("FIRST(F.speed)", "FIRST(X.speed)", "X is neither a variable of PATTERN nor a column"),
            ("'10' SECOND", "'0' SECOND", "WITHIN must be longer than nothing"),
            ("ORDER BY event_time", "ORDER BY speed", "WITHIN needs a time first in ORDER BY"),
        ],
    )
    def test_what_makes_no_sense(self, positions, old, new, message):
        with pytest.raises(StatementError, match=message):
            tw.sql(EMERGENCY_STOP.replace(old, new), positions=positions)

    def test_a_statement_cut_anywhere(self, positions):
        whole = EMERGENCY_STOP.strip()
        begin = whole.index("MATCH_RECOGNIZE") + len("MATCH_RECOGNIZE")
        for end in range(begin, len(whole), 7):
            with pytest.raises(StatementError, match="at line"):
                tw.sql(whole[:end], positions=positions)

    def test_tables_that_are_none(self, spark, positions):
        with pytest.raises(DefinitionError, match="positions must be a DataFrame or a Stream, got 'rows'"):
            tw.sql(EMERGENCY_STOP, positions="rows")
        with pytest.raises(DefinitionError, match="another session"):
            tw.sql(EMERGENCY_STOP, positions=positions, spark=spark.newSession())
        with pytest.raises(DefinitionError, match="two columns speed"):
            tw.sql(EMERGENCY_STOP.replace("positions", "(SELECT *, 1 AS speed FROM positions)"), positions=positions)

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("ORDER BY event_time", "ORDER BY event_time DESC", "WITHIN needs a time first.*descending"),
            (
                "ORDER BY event_time",
                "ORDER BY event_time, speed DESC",
                "further columns .* ascending.*line 3, column 61",
            ),
            (
                "PATTERN (F B+ S) WITHIN INTERVAL '10' SECOND",
                "PATTERN (F B+ S$)",
                "a stream has none.*line 6, column 24",
            ),
            ("ORDER BY event_time", "", "WITHIN needs ORDER BY"),
        ],
    )
    def test_what_cannot_be_decided_on_a_stream(self, spark, old, new, message):
        frame = spark.readStream.format("rate").load().selectExpr(
            "value AS operator", "'a' AS vehicle", "timestamp AS event_time", "1D AS speed", "1D AS acc"
        )  # fmt: skip
        with pytest.raises(StatementError, match=message):
            tw.sql(EMERGENCY_STOP.replace(old, new), positions=frame)

    def test_orders_that_a_stream_does_not_have(self, spark):
        frame = spark.readStream.format("rate").load()
        clause = "SELECT * FROM t MATCH_RECOGNIZE ({} MEASURES value AS v PATTERN (A) DEFINE A AS value > 1)"
        with pytest.raises(StatementError, match="write ORDER BY with it"):
            tw.sql(clause.format(""), t=frame)
        with pytest.raises(StatementError, match="begins with a timestamp; value is Int64"):
            tw.sql(clause.format("ORDER BY value"), t=frame)
        with pytest.raises(StatementError, match="time goes on"):
            tw.sql(clause.format("ORDER BY timestamp DESC"), t=frame)
        inner = clause.format("ORDER BY timestamp").replace("value AS v", "value AS v, timestamp AS at")
        nested = f"SELECT * FROM ({inner}) MATCH_RECOGNIZE (ORDER BY at MEASURES v AS w PATTERN (A) DEFINE A AS v > 1)"
        with pytest.raises(StatementError, match=r"what another gives \(match_recognize_1\).*Chain streams"):
            tw.sql(nested, t=frame)


class TestStreams:
    @pytest.fixture
    def stream(self, log):
        put(log)
        return tw.stream(log, TOPIC, watermark=MARK)

    def test_columns_are_chosen_and_named(self, stream):
        clause = CLAUSE.format("MEASURES LAST(speed) AS s ALL ROWS PER MATCH PATTERN (A B+)")
        named = tw.sql(f"SELECT m.vehicle, s AS slowest, event_time FROM positions p {clause} AS m", positions=stream)
        assert list(named.schema) == ["vehicle", "slowest", "row_time", "event_time"]
        assert "vehicle" in tw.sql(f"SELECT * FROM Positions {clause}", positions=stream).schema
        assert "MATCH_RECOGNIZE (PARTITION BY operator, vehicle" in named.explain()
        assert "at most 100,000" in named.explain()

    @pytest.mark.parametrize(
        ("statement", "message"),
        [
            ("SELECT s + 1 FROM positions {}", "this is no column.*in MEASURES.*column 8"),
            ("SELECT s FROM positions {} AS m WHERE s > 1", "(?s)a DataFrame in place of the stream.*WHERE"),
            ("SELECT DISTINCT vehicle, s FROM positions {}", "this is no column|there is no column DISTINCT"),
            ("SELECT t FROM positions {}", "there is no column t, only operator, vehicle, s"),
            ("SELECT s, s FROM positions {}", "two columns are called s"),
            ("SELECT s FROM (SELECT * FROM positions) {}", "where stream is a name"),
            ("SELECT s FROM others {}", "there is no stream others, only positions"),
            ("WITH x AS (SELECT 1) SELECT s FROM positions {}", "no WITH|SELECT columns FROM"),
            ("SELECT s AS late FROM positions {}", "cannot have a column 'late'"),
        ],
    )
    def test_what_a_stream_cannot_carry_is_refused(self, stream, statement, message):
        clause = CLAUSE.format("MEASURES LAST(speed) AS s PATTERN (A B+)")
        with pytest.raises(DefinitionError, match=message):
            tw.sql(statement.format(clause), positions=stream)

    def test_tables_of_two_kinds_and_other_times_are_refused(self, stream, positions):
        with pytest.raises(DefinitionError, match="reads nothing else"):
            tw.sql(EMERGENCY_STOP, positions=stream, others=positions)
        with pytest.raises(DefinitionError, match="watermark already"):
            tw.sql(EMERGENCY_STOP, positions=stream, watermark=MARK)
        with pytest.raises(DefinitionError, match="is for Spark"):
            tw.sql("SELECT * FROM positions", positions=stream)
        moved = stream.with_columns(arrived=pl.col("event_time") + pl.duration(seconds=1))
        with pytest.raises(StatementError, match="write ORDER BY event_time"):
            tw.sql(EMERGENCY_STOP.replace("ORDER BY event_time", "ORDER BY arrived"), positions=moved)

    def test_results_are_in_time_for_what_follows(self, spark, log, tmp_path):
        """B+ is decided by a row that comes when the watermark has long passed the match."""
        later = [[(1, "a", 61, 1.0, 0.0), (1, "c", 61, 1.0, 0.0)], [(1, "z", 70, 1.0, 0.0)], [(1, "z", 999, 1.0, 0.0)]]
        put(log, [*BATCHES, *later])
        clause = CLAUSE.format("MEASURES LAST(event_time) AS last PATTERN (A B+)")
        stops = tw.sql(f"SELECT * FROM p {clause}", p=tw.stream(log, TOPIC, watermark=MARK))
        hourly = stops.window(tw.windows.tumbling("1 h")).aggregate(n=tw.agg.count(), last=tw.agg.max("last"))
        run = hourly.start(
            results=log.topic("analytics.n"), outputs={"late_2": log.topic("late_2.n")},
            checkpoint=tmp_path / "n", spark=spark, available_now=True, max_events_per_batch=1, key_groups=2,
        )  # fmt: skip
        run.wait()
        assert read(log, "late_2.n").height == 0
        assert read(log, "analytics.n").select("n", "last").rows() == [(2, at(33).replace(tzinfo=timezone.utc))]

    def test_a_table_through_a_stream_has_all_outputs_by_name(self, positions):
        stops = tw.sql(EMERGENCY_STOP, positions=tw.stream(positions, time="event_time"))
        rows = stops.df(key_groups=2).where("output = 'results'").select("operator", "vehicle", "drop")
        assert sorted_rows(rows) == STOPS_IN_ORDER


class TestTheLimit:
    ENDLESS = """SELECT * FROM p MATCH_RECOGNIZE (
        PARTITION BY vehicle ORDER BY event_time MEASURES count(*) AS n PATTERN (A+) DEFINE A AS speed > 0)"""

    def test_an_attempt_without_end_is_given_up_and_reported_and_the_rest_goes_on(self, spark, tmp_path):
        run = [(1, "endless", second, 1.0, 0.0) for second in range(25)]
        other = [(1, "short", 1, 1.0, 0.0), (1, "short", 2, 0.0, 0.0)]
        frame = files(spark, tmp_path / "rows", [other, run[:9], run[9:20], run[20:], [(1, "z", 99, 0.0, 0.0)]])
        rows, counts = drained(tw.sql(self.ENDLESS, p=frame, watermark=MARK, limit=10), "endless", tmp_path)
        assert rows == [("short", 1)]
        assert counts == {"results": 1, "late": 0, "dropped": 20}

    def test_a_limit_of_nothing_is_refused(self, spark):
        frame = (
            spark.readStream.format("rate").load().selectExpr("timestamp AS event_time", "'a' AS vehicle", "1 AS speed")
        )
        with pytest.raises(DefinitionError, match="at least 1 row, got 0"):
            tw.sql(self.ENDLESS, p=frame, limit=0)
