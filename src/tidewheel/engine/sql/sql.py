"""SQL statements with MATCH_RECOGNIZE; everything else in them is Spark's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import overload

import polars as pl
from pyspark.sql import DataFrame, SparkSession

from tidewheel.engine.execution.input import LogInput
from tidewheel.engine.execution.session import session
from tidewheel.engine.operators.operator import LATE, METRICS
from tidewheel.engine.operators.patterns.match_recognize import LIMIT, ROW_TIME, MatchRecognize, time_of
from tidewheel.engine.operators.patterns.recognizer import DROPPED, EVENT_TIME
from tidewheel.engine.spark.temp_views import query
from tidewheel.engine.sql.match_recognize_dataframe import check_keys, recognized_rows
from tidewheel.engine.streams.result import Result
from tidewheel.engine.streams.stages import append_stage
from tidewheel.engine.streams.stream import Stream
from tidewheel.errors import DefinitionError, StatementError
from tidewheel.match_recognize import ClauseMatcher, Statement, has_match_recognize, parse
from tidewheel.match_recognize.syntax.projection import Projection, read_projection
from tidewheel.model.watermarks import Strategy

__all__ = ["sql"]

_OUTPUTS = ("output", LATE, METRICS, DROPPED)


@overload
def sql(
    statement: str,
    /,
    *,
    spark: SparkSession | None = None,
    watermark: Strategy | None = None,
    limit: int = LIMIT,
    **tables: DataFrame,
) -> DataFrame: ...


@overload
def sql(
    statement: str, /, *, spark: None = None, watermark: None = None, limit: int = LIMIT, **tables: Stream
) -> Result: ...


def sql(
    statement: str,
    /,
    *,
    spark: SparkSession | None = None,
    watermark: Strategy | None = None,
    limit: int = LIMIT,
    **tables: DataFrame | Stream,
) -> DataFrame | Result:
    """Run a statement that may contain MATCH_RECOGNIZE over the given tables and those that the session knows.

    Over DataFrames, streaming or static, it gives a plain DataFrame: the clauses are run here, everything else by Spark
    SQL. How many rows were late or given up is among the observed metrics of a streaming query's progress. Over a
    `Stream` it gives a `Result`, with these rows in the outputs `late` and `dropped`.

    Args:
        statement: The statement.
        spark: The session; by default that of the DataFrames.
        watermark: How late rows of a streaming DataFrame may come; by default `watermarks.bounded("10 min")`.
        limit: An attempt to match that takes more rows than this is given up.
        tables: The tables by name, all DataFrames or all streams.

    >>> import tempfile
    >>> import tidewheel as tw
    >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
    >>> row = {"event_time": "2026-01-31T12:00:00Z", "operator": 1, "vehicle": 7, "speed": 12.5, "acc": 0.1}
    >>> _ = log.append_rows("input.position", [row], time="event_time")
    >>> positions = tw.stream(log, "input.position")
    >>> stops = tw.sql('''
    ...     SELECT * FROM positions MATCH_RECOGNIZE (
    ...         PARTITION BY operator, vehicle ORDER BY event_time
    ...         MEASURES FIRST(F.speed) - LAST(S.speed) AS drop
    ...         PATTERN (F B+ S) WITHIN INTERVAL '10' SECOND
    ...         DEFINE F AS speed >= 10, B AS acc < 0, S AS speed < 1)''', positions=positions)
    >>> list(stops.schema)
    ['operator', 'vehicle', 'drop', 'event_time']
    """
    streams = {name: table for name, table in tables.items() if isinstance(table, Stream)}
    frames = {name: table for name, table in tables.items() if isinstance(table, DataFrame)}
    for name, table in tables.items():
        if name not in streams and name not in frames:
            raise DefinitionError(f"sql: {name} must be a DataFrame or a Stream, got {table!r}")
    if not has_match_recognize(statement):
        if streams:
            raise DefinitionError(
                f"sql: {next(iter(streams))} is a stream, and a statement without MATCH_RECOGNIZE is for Spark; "
                "give it a DataFrame"
            )
        return query(_session(spark, frames), statement, frames)
    parsed = parse(statement)
    if streams:
        if watermark is not None:
            raise DefinitionError("sql: a stream has its watermark already; say it where the stream is made")
        if frames:
            raise DefinitionError(
                f"sql: {next(iter(frames))} is a DataFrame and {next(iter(streams))} a stream; a statement over a "
                "stream reads nothing else. Join them before, or give DataFrames only"
            )
        return _over_stream(parsed, streams, limit)
    return _over_frames(parsed, _session(spark, frames), frames, watermark, limit)


def _session(spark: SparkSession | None, frames: Mapping[str, DataFrame]) -> SparkSession:
    found = spark
    for name, frame in frames.items():
        if found is not None and frame.sparkSession is not found:
            raise DefinitionError(f"sql: {name} is a DataFrame of another session; use one session for a statement")
        found = frame.sparkSession
    return session(found or SparkSession.getActiveSession())


def _over_frames(
    statement: Statement,
    spark: SparkSession,
    frames: Mapping[str, DataFrame],
    watermark: Strategy | None,
    limit: int,
) -> DataFrame:
    tables = dict(frames)
    streaming: list[str] = []
    for recognition in statement.recognitions:
        rows = query(spark, recognition.query, tables)
        if rows.isStreaming:
            if earlier := [name for name in streaming if name in recognition.query]:
                start, end = recognition.clause.span
                raise StatementError(
                    f"on a stream, one MATCH_RECOGNIZE cannot read what another gives ({earlier[0]}): Spark has one "
                    "watermark for both. Chain streams: one = sql(…, rows=tidewheel.stream(…)), then sql(…, one=one)",
                    text=statement.text,
                    start=start,
                    end=end,
                )
            streaming.append(recognition.name)
        tables[recognition.name] = recognized_rows(rows, recognition.clause, watermark=watermark, limit=limit)
    return query(spark, statement.outer, tables)


def _over_stream(statement: Statement, streams: Mapping[str, Stream], limit: int) -> Result:
    projection = read_projection(statement)
    found = {name.lower(): stream for name, stream in streams.items()}.get(projection.table.lower())
    clause = statement.clause
    if found is None:
        start = statement.text.find(projection.table)
        raise StatementError(
            f"there is no stream {projection.table}, only {', '.join(streams)}",
            text=statement.text,
            start=start,
            end=start + len(projection.table),
        )
    schema = dict(found.schema)
    endless = isinstance(found.input, LogInput) or found.input.frame.isStreaming
    time = time_of(clause, schema, endless=endless)
    if time not in _times(found):
        start, end = clause.order_by[0].column.span
        raise StatementError(
            f"a stream's rows are in the order of its time: write ORDER BY {EVENT_TIME}, or make a stream with "
            f"{time} as its time",
            text=statement.text,
            start=start,
            end=end,
        )
    matcher = ClauseMatcher(clause, schema)
    check_keys(clause, matcher, schema)
    matched = MatchRecognize(clause, schema, _selected(projection, matcher.schema), limit)
    return append_stage(found, matcher.partition_by, matched)


def _times(stream: Stream) -> set[str]:
    """The columns that have the stream's time in them."""
    own = stream.input.time_column
    made = [expression for op in stream.ops[1:] for expression in op.exprs if isinstance(expression, pl.Expr)]
    changed = any(one.meta.output_name(raise_if_undetermined=False) == own for one in made)
    return {EVENT_TIME} if stream.stages or changed else {EVENT_TIME, own}


def _selected(projection: Projection, columns: Mapping[str, pl.DataType]) -> tuple[tuple[str, str], ...]:
    """The columns that come out. The time of a result is `event_time`, so the rows' own has another name."""
    selected = tuple((column, ROW_TIME if name == EVENT_TIME else name) for column, name in projection.of(columns))
    names = [name for _, name in selected]
    for name in names:
        if name in _OUTPUTS or name.startswith("__") or names.count(name) > 1:
            raise DefinitionError(f"sql: a result cannot have a column {name!r} here; give it another name with AS")
    return selected
