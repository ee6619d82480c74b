"""Streams: a lazy description of what is computed (what), where in event time, when, and how refinements relate."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl
from google.protobuf.message import Message
from pyspark.sql import DataFrame

from tidewheel.engine.display import stream_html, summary
from tidewheel.engine.each_row import EachRow
from tidewheel.engine.flow import Flow, RowOp, Stage
from tidewheel.engine.html import counted
from tidewheel.engine.input import FrameInput, LogInput
from tidewheel.engine.looked_up import LookedUp
from tidewheel.engine.match_book import BookMatch
from tidewheel.engine.matched import Matched, PatternMatch
from tidewheel.engine.windowed_stream import WindowedStream, unretracted
from tidewheel.errors import DefinitionError, DefinitionWarning
from tidewheel.model.deduplicate import deduplicate
from tidewheel.model.lookup import Lookup
from tidewheel.model.previous import previous
from tidewheel.model.process import DataType, Process, ProcessFunction, StateColumn
from tidewheel.model.repeats import Repeats
from tidewheel.model.retractable import WEIGHT
from tidewheel.model.rowwise import check_rowwise
from tidewheel.model.time import duration
from tidewheel.model.watermarks import Strategy, bounded
from tidewheel.model.windowing import Timestamp, Windowing
from tidewheel.model.windows import Windows
from tidewheel.patterns.matcher import Matcher
from tidewheel.patterns.pattern import Pattern
from tidewheel.transport.log import Log, Topic

if TYPE_CHECKING:
    from tidewheel.engine.result import Result

__all__ = ["KeyedStream", "Stream", "stream", "after_ops"]

_TIME = "event_time"
_NONE_RETRACTED = (
    "a row retracts an earlier one (its retraction is true), but the stream was made with retracting=False; leave "
    "that out, and use windows, which follow retractions, on a new checkpoint"
)
_S = TypeVar("_S", bound="Stream")


def stream(
    source: Log | DataFrame,
    topic: str | Sequence[str] | None = None,
    *,
    type: str | type[Message] | None = None,
    time: str | None = None,
    watermark: Strategy | str | timedelta | None = None,
    lookups: Log | None = None,
    retracting: bool | None = None,
) -> Stream:
    """A stream over topics of a log, or over any DataFrame with a column of event times.

    `watermark` says how far event time has come: `watermarks.bounded("1 s")` unless told otherwise (10 min over a
    DataFrame); a duration alone, such as "10 minutes", is that of `bounded`. A streaming DataFrame that has a watermark
    of Spark's keeps it: leave it out there. `time` names the DataFrame's time column; for a log it may be
    `ingestion_time` or `arrival`, whose watermark is that of the log's clock (for `ingestion_time` a second behind it).
    `type` is the message type, which a topic that holds events tells by itself. `lookups` is the log that has the
    answers for `lookup` over a DataFrame.

    Rows with a boolean column `retraction`, as all results of windows have it, may retract earlier ones. Windows
    follow that, and what cannot is refused. `retracting=False` says that none of them does: then everything may follow,
    and a row that is a retraction all the same is an error.

    >>> import tempfile
    >>> from tidewheel.apps.transit.transit_pb2 import VehiclePosition
    >>> from tidewheel.transport.log import open_log
    >>> log = open_log(tempfile.mkdtemp() + "/city.tw")
    >>> positions = stream(log, "input.vehicle-position", type=VehiclePosition)
    >>> fast = positions.filter(pl.col("speed") > 20).select("vehicle", kmh=pl.col("speed") * 3.6)
    >>> list(fast.schema)
    ['event_time', 'vehicle', 'kmh']
    """
    if isinstance(watermark, str | timedelta):
        watermark = bounded(watermark)
    elif not isinstance(watermark, Strategy | None):
        raise DefinitionError(
            f'stream: watermark must be a duration, such as "10 min", or one of tidewheel.watermarks, got {watermark!r}'
        )
    if not isinstance(time, str | None):
        raise DefinitionError(f'stream: time is the name of a column, such as time="ts", got {time!r}')
    if isinstance(source, DataFrame):
        if topic is not None or type is not None:
            raise DefinitionError("stream: topic and type are for a log; a DataFrame has its columns")
        given: LogInput | FrameInput = FrameInput.of(source, time=time, watermark=watermark, lookups=lookups)
    elif isinstance(source, Log):
        if lookups is not None:
            raise DefinitionError("stream: lookups is for a DataFrame; a log has its answers in topics of its own")
        given = LogInput.of(source, topic or (), type=type, time=time or _TIME, watermark=watermark)
    else:
        raise DefinitionError(f"stream: expected a log (open_log(...)) or a DataFrame, got {source!r}")
    schema = given.schema()
    ops: tuple[RowOp, ...] = ()
    if given.time_column != _TIME:
        if _TIME in schema and isinstance(given, FrameInput):
            raise DefinitionError(
                f"stream: the time is that of {time!r}, which a stream calls {_TIME!r}, and there is another column "
                f'of that name, which would be lost. Rename it, like df.withColumnRenamed("{_TIME}", "sent_at"), or '
                f"drop it; or say time={_TIME!r} if that is the time"
            )
        ops = (RowOp("with_columns", (pl.col(given.time_column).alias(_TIME),)),)
    # Results of another query that retracts results say so in each row.
    said = schema.get("retraction") == pl.Boolean
    if retracting and not said:
        raise DefinitionError(
            "stream: retracting=True, but there is no boolean column retraction that would say which rows retract "
            f"others; there are {', '.join(schema)}"
        )
    if said and retracting is False:
        ops += (RowOp("refuse", (pl.col("retraction"),), _NONE_RETRACTED),)
    return Stream(given, (), ops, after_ops(ops, schema), said if retracting is None else retracting)


@dataclass(frozen=True, repr=False)
class Stream:
    """Rows with an event time. Every method gives a new stream; nothing runs until a result is started.

    >>> import tempfile
    >>> import tidewheel as tw
    >>> from tidewheel.apps.transit.transit_pb2 import VehiclePosition
    >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
    >>> positions = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    >>> moving = positions.filter(pl.col("speed") > 0).with_columns(kmh=pl.col("speed") * 3.6).select("vehicle", "kmh")
    >>> list(moving.schema)
    ['event_time', 'vehicle', 'kmh']
    >>> list(moving.key_by("vehicle").window(tw.windows.tumbling("10 s")).aggregate(kmh=tw.agg.mean("kmh")).schema)[:4]
    ['vehicle', 'window_start', 'window_end', 'kmh']
    """

    input: LogInput | FrameInput
    stages: tuple[Stage, ...]
    ops: tuple[RowOp, ...]
    schema: Mapping[str, pl.DataType]
    retracting: bool = False

    def with_columns(self: _S, *exprs: pl.Expr, **named: Any) -> _S:
        """Add columns, each a polars expression over the row."""
        _check_expressions("with_columns", exprs)
        return self._with(RowOp("with_columns", (*exprs, *_named("with_columns", named))))

    def filter(self: _S, *conditions: pl.Expr) -> _S:
        """Keep the rows for which all conditions hold."""
        _check_expressions("filter", conditions)
        return self._with(RowOp("filter", conditions))

    def skip(self: _S, **reasons: pl.Expr) -> _S:
        """Leave out the rows for which a condition holds, and count them in `metrics` by the condition's name; a row
        for which several hold is counted by the first.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> from tidewheel.apps.transit.transit_pb2 import VehiclePosition
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> positions = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
        >>> positions.skip(deadrun=pl.col("journey") == "deadrun", nowhere=pl.col("lat").is_null()).ops
        (skip(deadrun=...), skip(nowhere=...))
        """
        if not reasons:
            raise DefinitionError('skip: give a condition by name, like skip(nowhere=pl.col("lat").is_null())')
        _check_expressions("skip", reasons.values())
        skipping = self
        for reason, condition in reasons.items():
            skipping = skipping._with(RowOp("skip", (condition,), reason))
        return skipping

    def select(self: _S, *columns: str | pl.Expr, **named: Any) -> _S:
        """Keep these columns; the event time stays."""
        chosen = [pl.col(column) if isinstance(column, str) else column for column in columns]
        _check_expressions("select", chosen)
        names = [column.meta.output_name(raise_if_undetermined=False) for column in chosen]
        needed = [_TIME, "retraction"] if self.retracting else [_TIME]
        kept = [pl.col(name) for name in needed if name not in names and name not in named]
        return self._with(RowOp("select", (*kept, *chosen, *_named("select", named))))

    def key_by(self, *columns: str, **named: pl.Expr) -> KeyedStream:
        """Say what the rows are about: columns by name, or new ones made by expressions."""
        made = self.with_columns(**named) if named else self
        keys = (*columns, *named)
        if not keys:
            raise DefinitionError(
                'key_by: name at least one column, like key_by("vehicle"); without a key, leave it out'
            )
        for name in keys:
            if not isinstance(name, str):
                raise DefinitionError(
                    "key_by: name columns by text, and give expressions a name, like "
                    f'key_by("vehicle", line=pl.col("route").str.head(4)); got {name!r}'
                )
            if name not in made.schema:
                raise DefinitionError(f"key_by: there is no column {name!r}; there are {', '.join(made.schema)}")
        if len(set(keys)) < len(keys):
            raise DefinitionError(f"key_by: {keys} names a column twice")
        return KeyedStream(made, keys)

    def window(
        self, windows: Windows, *, lateness: str | timedelta = "0 s", timestamp: Timestamp = "end"
    ) -> WindowedStream:
        """Where in event time results are computed, here over all rows together; see `KeyedStream.window`.

        >>> import tidewheel as tw
        >>> from tidewheel.testing import Script
        >>> rows = Script().add(at="12:00:01", v=3).add(at="12:00:04", v=5).end()
        >>> panes = rows.run(lambda events: events.window(tw.windows.tumbling("10 s")).aggregate(most=tw.agg.max("v")))
        >>> panes[0]["most"]
        5
        """
        return KeyedStream(self, ()).window(windows, lateness=lateness, timestamp=timestamp)

    def each_row(self) -> Result:
        """Every row as a result; see `KeyedStream.each_row`.

        >>> from tidewheel.testing import Script
        >>> Script().add(at="12:00:01", v=3).run(lambda events: events.with_columns(twice=pl.col("v") * 2).each_row())
        [row(at='12:00:01', v=3, twice=6)]
        """
        return KeyedStream(self, ()).each_row()

    def match(self, pattern: Pattern, *, measures: Mapping[str, pl.Expr] | None = None, limit: int = 10_000) -> Result:
        """Find a pattern in all rows together; see `KeyedStream.match`.

        >>> import tidewheel as tw
        >>> from tidewheel.testing import Script
        >>> rows = Script().add(at="12:00:01", v=3).add(at="12:00:02", v=5).end()
        >>> rise = tw.pattern("low", pl.col("v") < 4).next("high", pl.col("v") > 4)
        >>> found = rows.run(lambda events: events.match(rise, measures={"by": tw.last("high.v") - tw.first("low.v")}))
        >>> found[0]["by"]
        2
        """
        return KeyedStream(self, ()).match(pattern, measures=measures, limit=limit)

    def match_from(self, topic: Topic, *, limit: int = 10_000) -> Result:
        """Find the patterns that a topic defines in all rows together; see `KeyedStream.match_from`.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> from tidewheel.apps.transit.transit_pb2 import VehiclePosition
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> positions = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
        >>> list(positions.match_from(log.topic("control.patterns")).schema)
        ['pattern', 'version', 'match_start', 'match_end', 'measures', 'event_time']
        """
        return KeyedStream(self, ()).match_from(topic, limit=limit)

    def deduplicate(self, *columns: str, horizon: str | timedelta) -> Result:
        """Keep the first of rows that are equal in these columns, within the horizon; the others go to the output
        `duplicates`.

        The first is that of the lowest event time, so rows wait until the watermark has passed them, and those behind
        it are late. With `event_time` among the columns, equal rows have the same time and the first is the one that
        came first: rows are passed on as they come, also if they are up to the horizon behind the watermark.

        >>> from tidewheel.testing import Script
        >>> rows = Script().add(at="12:00:01", v=3).add(at="12:00:02", v=3).add(at="12:02:00", v=3).end()
        >>> found = rows.run(lambda events: events.deduplicate("v", horizon="1 min"))
        >>> found, found.outputs["duplicates"]
        ([row(at='12:00:01', v=3), row(at='12:02:00', v=3)], [row(at='12:00:02', v=3)])
        """
        return KeyedStream(self, ()).deduplicate(*columns, horizon=horizon)

    def lookup(self, lookup: Lookup, *, timeout: str | timedelta = "5 s", keep: str | timedelta = "1 d") -> Result:
        """Add to each row what was looked up about its key outside the stream, and written into the lookup's topic.

        A row goes on with the answer as soon as there is one. When the watermark is `timeout` past it, it goes on
        without: the answer's columns are null, and the output `failed` has it, too, with the reason. No row is too late
        here; windows that follow want a lateness of at least `timeout`. Answers are kept for `keep` of event time.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> from tidewheel.apps.transit.transit_pb2 import VehiclePosition
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> depot = tw.Lookup("depot", keys={"operator": pl.Int32, "vehicle": pl.Int32}, returns={"depot": pl.String})
        >>> positions = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
        >>> list(positions.select("operator", "vehicle", "speed").lookup(depot).schema)
        ['event_time', 'operator', 'vehicle', 'speed', 'depot']
        """
        if not isinstance(lookup, Lookup):
            raise DefinitionError(f"lookup: expected a tidewheel.Lookup, got {lookup!r}")
        if any(isinstance(stage.what, LookedUp) for stage in self.stages):
            raise DefinitionError(f"lookup {lookup.name}: there is a lookup before it; a stream can have one")
        what = LookedUp(
            lookup,
            duration(timeout, what="timeout of a lookup", bare=False),
            duration(keep, what="keep", bare=False),
            dict(self.schema),
        )
        if not isinstance(self.input, LogInput):
            what = replace(what, known=self.input.outcomes(what))
        elif lookup.topic in self.input.topics:
            raise DefinitionError(f"lookup {lookup.name}: {lookup.topic!r} holds the rows; answers need another topic")
        return KeyedStream(self, what.keys)._staged(what)

    def _with(self: _S, op: RowOp) -> _S:
        schema = after_ops((op,), self.schema)
        for expression in op.exprs:
            if isinstance(expression, pl.Expr):
                check_rowwise(expression, what=op.kind)
        return replace(self, ops=(*self.ops, op), schema=schema)

    def __repr__(self) -> str:
        return summary("Stream", self.input, self.schema, _steps(self))

    def _repr_html_(self) -> str:
        return stream_html("Stream", self.input, _flow(self), self.schema)


@dataclass(frozen=True, repr=False)
class KeyedStream:
    """A stream whose rows are about something: results are per key.

    >>> import tidewheel as tw
    >>> from tidewheel.testing import Script
    >>> rows = Script().add(at="12:00:01", key="a", v=3).add(at="12:00:02", key="a", v=3)
    >>> rows = rows.add(at="12:00:03", key="b", v=5).end()
    >>> ten = tw.windows.tumbling("10 s")
    >>> counted = rows.run(lambda events: events.key_by("key").window(ten).aggregate(n=tw.agg.count()))
    >>> [(pane["key"], pane["n"]) for pane in counted]
    [('a', 2), ('b', 1)]
    >>> rows.run(lambda events: events.key_by("key").previous("v"))[1]
    row(at='12:00:02', key='a', v=3, previous_v=3)
    >>> rows.run(lambda events: events.key_by("key").deduplicate("v", horizon="1 min")).outputs["duplicates"]
    [row(at='12:00:02', key='a', v=3)]
    """

    stream: Stream
    keys: tuple[str, ...]

    def window(
        self, windows: Windows, *, lateness: str | timedelta = "0 s", timestamp: Timestamp = "end"
    ) -> WindowedStream:
        """Where in event time results are computed. Rows that come up to `lateness` after the watermark has passed
        their window still change its result; those that come later go to the output `late`. `timestamp`: the event
        time of a result is the window's last instant, or that of its earliest or latest row."""
        return WindowedStream(self, windows, duration(lateness, what="lateness", bare=False), timestamp)

    def each_row(self) -> Result:
        """Every row as a result, in the batch that reads it: for what is said of each row by itself, without windows
        or state. None is late. Rows of one key stay in their order.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> from tidewheel.apps.transit.transit_pb2 import VehiclePosition
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> positions = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
        >>> fast = positions.filter(pl.col("speed") > 20).select("vehicle", "speed").key_by("vehicle").each_row()
        >>> list(fast.schema)
        ['event_time', 'vehicle', 'speed']
        """
        return self._staged(EachRow())

    def process(
        self,
        function: ProcessFunction,
        *,
        state: Mapping[str, StateColumn] | None = None,
        ttl: str | timedelta | None = None,
        output: Mapping[str, DataType] | None = None,
        streams: Sequence[str] = (),
    ) -> Result:
        """Anything else, per key and in event-time order: see `Process`.

        >>> from tidewheel.testing import Script
        >>> def running_total(events, state, clock):
        ...     before = events.join(state, on="key", how="left")["total"].fill_null(0)
        ...     so_far = events.with_columns(total=before + pl.col("v").cum_sum().over("key"))
        ...     return so_far, so_far.group_by("key", maintain_order=True).agg(pl.col("total").last())
        >>> rows = Script().add(at="12:00:01", key="a", v=3).watermark("12:00:02")
        >>> rows = rows.add(at="12:00:02", key="a", v=4).end()
        >>> totals = rows.run(lambda events: events.key_by("key").process(running_total, state={"total": pl.Int64}))
        >>> [row["total"] for row in totals]
        [3, 7]
        """
        process = Process(
            function,
            keys=self.keys,
            state=state or {},
            ttl=None if ttl is None else duration(ttl, what="ttl", bare=False),
            output=output,
            streams=tuple(streams),
        )
        return self._staged(process)

    def deduplicate(self, *columns: str, horizon: str | timedelta) -> Result:
        """Keep the first of rows that are equal in the keys and these columns; see `Stream.deduplicate`. Rows of a key
        that have one event time stay in the order in which they came."""
        there = self.stream.schema
        for name in columns:
            if name not in there:
                raise DefinitionError(f"deduplicate: there is no column {name!r}; there are {', '.join(there)}")
        same = tuple(dict.fromkeys((*self.keys, *columns)))
        micros = duration(horizon, what="horizon of deduplicate", bare=False)
        if _TIME not in same and self.stream.input.time_column in columns and not self.stream.stages:
            self._warn_of_time(columns)
        if _TIME in same:
            return replace(self, keys=self.keys or same)._staged(Repeats(same, micros))
        return replace(self, keys=same)._staged(deduplicate(*same, horizon=micros))

    def _warn_of_time(self, columns: Sequence[str]) -> None:
        column = self.stream.input.time_column
        better = ", ".join(repr(_TIME if name == column else name) for name in columns)
        warnings.warn(
            f"deduplicate: {column!r} is the time column, which a stream calls {_TIME!r}. By {column!r} rows are held "
            "back until the watermark has passed them, and late ones are lost to whatever follows; if rows are equal "
            f"that have the same time, say deduplicate({better}, horizon=...), which passes them on at once",
            DefinitionWarning,
            stacklevel=4 if inspect.stack(0)[2].function == "deduplicate" else 3,
        )

    def previous(
        self,
        *columns: str,
        prefix: str = "previous_",
        ttl: str | timedelta | None = None,
        lateness: str | timedelta = "0 s",
    ) -> Result:
        """Add to each row the columns of the row before it of the same key; null if that was longer ago than `ttl`.

        A row that comes up to `lateness` after the watermark has passed it takes its place between those that were
        there: the row after it is retracted (`retraction`) and comes again with what the late one had.
        """
        made = previous(
            columns,
            keys=self.keys,
            schema=self.stream.schema,
            prefix=prefix,
            ttl=None if ttl is None else duration(ttl, what="ttl", bare=False),
            lateness=duration(lateness, what="lateness", bare=False),
        )
        return self._staged(made)

    def match(self, pattern: Pattern, *, measures: Mapping[str, pl.Expr] | None = None, limit: int = 10_000) -> Result:
        """Find a pattern in each key's rows, in event-time order. Results are its matches: the keys, `match_start`,
        `match_end` and the measures. Partial matches that ran out of time go to the output `timed_out`; those beyond
        `limit` for one key to `dropped`, the oldest first.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> from tidewheel.apps.transit.transit_pb2 import VehiclePosition
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> positions = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
        >>> hard_stop = (
        ...     tw.pattern("fast", pl.col("speed") >= 10)
        ...     .next("braking", pl.col("acc") < 0).one_or_more().consecutive().greedy()
        ...     .next("standing", pl.col("speed") < 1)
        ...     .within("10 s")
        ...     .after_match("skip past last")
        ... )
        >>> stops = positions.key_by("operator", "vehicle").match(
        ...     hard_stop, measures={"drop": tw.first("fast.speed") - tw.last("standing.speed")}
        ... )
        >>> list(stops.schema)
        ['operator', 'vehicle', 'match_start', 'match_end', 'drop', 'event_time']
        """
        schema = dict(self.stream.schema)
        matcher = Matcher(pattern, keys=self.keys, measures=measures, limit=limit)
        return self._staged(PatternMatch(matcher, schema))

    def match_from(self, topic: Topic, *, limit: int = 10_000) -> Result:
        """Find the patterns that a topic of the same log defines, now and while the job runs: see `PatternBook`, which
        writes them. Results are the matches of all of them: the keys, `pattern`, `version`, `match_start`, `match_end`
        and `measures` as JSON. The outputs `timed_out` and `dropped` are as of `match`; what a pattern had open when it
        was replaced or removed is in `dropped`. Definitions that make no sense are dead letters.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> from tidewheel.apps.transit.transit_pb2 import VehiclePosition
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> positions = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
        >>> found = positions.key_by("operator", "vehicle").match_from(log.topic("control.patterns"))
        >>> list(found.schema)
        ['operator', 'vehicle', 'pattern', 'version', 'match_start', 'match_end', 'measures', 'event_time']
        """
        source = self.stream.input
        if not isinstance(topic, Topic):
            raise DefinitionError(f'match_from: expected a topic like log.topic("control.patterns"), got {topic!r}')
        if not isinstance(source, LogInput) or source.log.identity != topic.log.identity:
            raise DefinitionError(
                f"match_from: the stream reads {source!r}, but {topic!r} is of another log; patterns come from a topic "
                "of the log that the events come from"
            )
        if topic.name in source.topics:
            raise DefinitionError(f"match_from: {topic.name!r} holds the events; patterns need a topic of their own")
        return self._staged(BookMatch(topic.name, self.keys, dict(self.stream.schema), limit))

    def _staged(self, what: Windowing | Process | Matched | Repeats | EachRow | LookedUp) -> Result:
        from tidewheel.engine.result import Result, result_schema

        source = self.stream
        before = source.stages[-1].what if source.stages else None
        if isinstance(before, Windowing) and before.timestamp != "end":
            raise DefinitionError(
                f'window(timestamp="{before.timestamp}"): results of that time would be late for what follows; '
                'use timestamp="end" in front of another stage'
            )
        if not isinstance(what, (Windowing, EachRow)) and source.retracting:
            kind = "a pattern" if isinstance(what, Matched) else "a process function"
            kind = "a lookup" if isinstance(what, LookedUp) else kind
            raise DefinitionError(
                f"{what!r}: the rows before it may be retracted, which {kind} cannot follow; {unretracted(source)}"
            )
        if any(op.kind == "apart" for op in source.ops):
            raise DefinitionError(f"{what!r}: results were set apart before it; call apart on the last result")
        stage = Stage(source.ops, self.keys, what, dict(source.schema))
        twice = {name for before in source.stages for name in before.streams} & {*stage.streams}
        if twice:
            raise DefinitionError(
                f"{what!r}: a stage before it has an output {min(twice)!r}, too; give it another name"
            )
        retracting = what.retracts if isinstance(what, (Windowing, Process)) else source.retracting
        schema = result_schema(stage)
        return Result(source.input, (*source.stages, stage), (), schema, retracting)

    def __repr__(self) -> str:
        source = self.stream
        return summary("KeyedStream", source.input, source.schema, _steps(source), self._key_by())

    def _repr_html_(self) -> str:
        return self._html("KeyedStream")

    def _key_by(self) -> str:
        return f"key_by({', '.join(self.keys)})" if self.keys else ""

    def _html(self, kind: str, *more: str) -> str:
        source = self.stream
        said = [text for text in (self._key_by(), *more) if text]
        return stream_html(kind, source.input, _flow(source), source.schema, said)


def _flow(of: Stream) -> Flow:
    """What has been said so far."""
    return Flow("stream", of.input.topics, of.stages, None, of.ops)


def _steps(of: Stream) -> str:
    count = len(of.stages) + len(of.ops)
    return counted(count, "step") if count else ""


def _check_expressions(what: str, given: Iterable[Any]) -> None:
    """Refuse what is no polars expression, in words for who knows Spark's."""
    for each in given:
        if isinstance(each, str):
            raise DefinitionError(
                f'{what}: {each!r} is text, and a polars expression is wanted, like pl.col("amount") > 5; one that is '
                f"written in SQL is pl.sql_expr({each!r})"
            )
        if type(each).__module__.startswith("pyspark."):
            raise DefinitionError(
                f"{what}: {each!r} is a column of Spark's, and a polars expression is wanted, like "
                'pl.col("amount") > 5 (import polars as pl); or do it in Spark, before tidewheel.stream(df, ...)'
            )
        if not isinstance(each, pl.Expr):
            raise DefinitionError(f'{what}: a polars expression is wanted, like pl.col("amount") > 5, got {each!r}')


def _named(what: str, given: Mapping[str, Any]) -> list[pl.Expr]:
    _check_expressions(what, (each for each in given.values() if type(each).__module__.startswith("pyspark.")))
    return [
        (value if isinstance(value, pl.Expr) else pl.col(value) if isinstance(value, str) else pl.lit(value)).alias(
            name
        )
        for name, value in given.items()
    ]


def after_ops(ops: Iterable[RowOp], schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """The columns after these steps; a column that is not there is told now, not when the first row comes."""
    frame = pl.DataFrame(schema=dict(schema))
    for op in ops:
        try:
            frame = op.apply(frame)
        except pl.exceptions.PolarsError as error:
            raise DefinitionError(
                f"{op!r}: {str(error).splitlines()[0]}; there are the columns {', '.join(frame.columns)}"
            ) from None
    if _TIME in frame.columns and frame.schema[_TIME] != pl.Datetime("us", "UTC"):
        if not isinstance(frame.schema[_TIME], pl.Datetime):
            raise DefinitionError(f"the column {_TIME} must stay a time, it would become {frame.schema[_TIME]}")
    elif _TIME not in frame.columns and schema:
        raise DefinitionError(f"the column {_TIME} must stay: every row has a time")
    strange = [name for name in frame.columns if name.startswith("__") and name != WEIGHT]
    if strange:
        raise DefinitionError(f"the column {strange[0]!r}: names that begin with __ are kept for Tidewheel; rename it")
    return dict(frame.schema)
