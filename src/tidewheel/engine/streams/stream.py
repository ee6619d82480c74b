"""Streams: a lazy description of what is computed, where in event time, when, and how results of a window relate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from tidewheel.engine.execution.input import DataFrameInput, LogInput, side_input_rows
from tidewheel.engine.operators.lookup_join import LookupJoin
from tidewheel.engine.runtime.flow import Flow, Stage
from tidewheel.engine.runtime.row_op import RowOp
from tidewheel.engine.streams.explain.display import stream_html, summary
from tidewheel.engine.streams.keyed_stream import KeyedStream
from tidewheel.engine.streams.row_ops import after_ops, check_expressions, named_expressions
from tidewheel.errors import DefinitionError
from tidewheel.html import counted
from tidewheel.model.expressions.rowwise import check_rowwise
from tidewheel.model.process.lookup import Lookup
from tidewheel.model.time import duration
from tidewheel.model.windowing import Timestamp
from tidewheel.model.windows import Windows
from tidewheel.patterns.define.builder import Pattern
from tidewheel.transport.log.log import Log, Topic

if TYPE_CHECKING:
    from tidewheel.engine.streams.result import Result
    from tidewheel.engine.streams.windowed_stream import WindowedStream

__all__ = ["Stream"]

_TIME = "event_time"
_S = TypeVar("_S", bound="Stream")


@dataclass(frozen=True, repr=False)
class Stream:
    """Rows with an event time. Every method gives a new stream; nothing runs until a result is started.

    >>> import tempfile
    >>> import tidewheel as tw
    >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
    >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7, "speed": 12.5}
    >>> _ = log.append_rows("input.position", [row], time="event_time")
    >>> positions = tw.stream(log, "input.position")
    >>> moving = positions.filter(pl.col("speed") > 0).with_columns(kmh=pl.col("speed") * 3.6).select("vehicle", "kmh")
    >>> list(moving.schema)
    ['event_time', 'vehicle', 'kmh']
    >>> list(moving.key_by("vehicle").window(tw.windows.tumbling("10 s")).aggregate(kmh=tw.agg.mean("kmh")).schema)[:4]
    ['vehicle', 'window_start', 'window_end', 'kmh']
    """

    input: LogInput | DataFrameInput
    stages: tuple[Stage, ...]
    ops: tuple[RowOp, ...]
    schema: Mapping[str, pl.DataType]
    retracting: bool = False

    def with_columns(self: _S, *exprs: pl.Expr, **named: Any) -> _S:
        """Add columns, each a polars expression over the row."""
        check_expressions("with_columns", exprs)
        return self._with(RowOp("with_columns", (*exprs, *named_expressions("with_columns", named))))

    def filter(self: _S, *conditions: pl.Expr) -> _S:
        """Keep the rows for which all conditions hold."""
        check_expressions("filter", conditions)
        return self._with(RowOp("filter", conditions))

    def skip(self: _S, **reasons: pl.Expr) -> _S:
        """Leave out the rows for which a condition holds, and count them in `metrics` by the condition's name; a row
        for which several hold is counted by the first.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7, "journey": "journey", "lat": 60.2}
        >>> _ = log.append_rows("input.position", [row], time="event_time")
        >>> positions = tw.stream(log, "input.position")
        >>> positions.skip(deadrun=pl.col("journey") == "deadrun", nowhere=pl.col("lat").is_null()).ops
        (skip(deadrun=...), skip(nowhere=...))
        """
        if not reasons:
            raise DefinitionError('skip: give a condition by name, like skip(nowhere=pl.col("lat").is_null())')
        check_expressions("skip", reasons.values())
        skipping = self
        for reason, condition in reasons.items():
            skipping = skipping._with(RowOp("skip", (condition,), reason))
        return skipping

    def select(self: _S, *columns: str | pl.Expr, **named: Any) -> _S:
        """Keep these columns; the event time stays."""
        chosen = [pl.col(column) if isinstance(column, str) else column for column in columns]
        check_expressions("select", chosen)
        names = [column.meta.output_name(raise_if_undetermined=False) for column in chosen]
        needed = [_TIME, "retraction"] if self.retracting else [_TIME]
        kept = [pl.col(name) for name in needed if name not in names and name not in named]
        return self._with(RowOp("select", (*kept, *chosen, *named_expressions("select", named))))

    def key_by(self, *columns: str, **named: pl.Expr) -> KeyedStream:
        """Partition rows by key: columns by name, or new ones made by expressions."""
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
        """Cut event time into windows over all rows together; see `KeyedStream.window`.

        >>> import tidewheel as tw
        >>> from tidewheel.testing import Script
        >>> rows = Script().add(at="12:00:01", v=3).add(at="12:00:04", v=5).end()
        >>> panes = rows.run(lambda events: events.window(tw.windows.tumbling("10 s")).aggregate(most=tw.agg.max("v")))
        >>> panes[0]["most"]
        5
        """
        return KeyedStream(self, ()).window(windows, lateness=lateness, timestamp=timestamp)

    def each_row(self) -> Result:
        """Emit every row as a result; see `KeyedStream.each_row`.

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
        >>> by = tw.measures.last("high.v") - tw.measures.first("low.v")
        >>> found = rows.run(lambda events: events.match(rise, measures={"by": by}))
        >>> found[0]["by"]
        2
        """
        return KeyedStream(self, ()).match(pattern, measures=measures, limit=limit)

    def match_from(self, topic: Topic, *, limit: int = 10_000) -> Result:
        """Find the patterns that a topic defines in all rows together; see `KeyedStream.match_from`.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7}
        >>> _ = log.append_rows("input.position", [row], time="event_time")
        >>> positions = tw.stream(log, "input.position")
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
        return KeyedStream(self, ())._deduplicated(columns, horizon)

    def lookup(self, lookup: Lookup, *, timeout: str | timedelta = "5 s", keep: str | timedelta = "1 d") -> Result:
        """Add to each row what was looked up about its key outside the stream, and written into the lookup's topic.

        A row goes on with the answer as soon as there is one. When the watermark is `timeout` past it, it goes on
        without: the answer's columns are null, and the output `failed` has it, too, with the reason. No row is too late
        here; windows that follow want a lateness of at least `timeout`. Answers are kept for `keep` of event time.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> row = {"event_time": "2026-01-31T12:00:00Z", "operator": 1, "vehicle": 7, "speed": 12.5}
        >>> _ = log.append_rows("input.position", [row], time="event_time")
        >>> depot = tw.Lookup("depot", keys={"operator": pl.Int64, "vehicle": pl.Int64}, returns={"depot": pl.String})
        >>> positions = tw.stream(log, "input.position")
        >>> list(positions.select("operator", "vehicle", "speed").lookup(depot).schema)
        ['event_time', 'operator', 'vehicle', 'speed', 'depot']
        """
        if not isinstance(lookup, Lookup):
            raise DefinitionError(f"lookup: expected a tidewheel.Lookup, got {lookup!r}")
        if any(stage.operation.only_once for stage in self.stages):
            raise DefinitionError(f"lookup {lookup.name}: there is a lookup before it; a stream can have one")
        what = LookupJoin(
            lookup,
            duration(timeout, what="timeout of a lookup"),
            duration(keep, what="keep"),
            dict(self.schema),
        )
        if not isinstance(self.input, LogInput):
            what = what.answered(partial(side_input_rows, self._log_of_answers(self.input, lookup)))
        elif lookup.topic in self.input.topics:
            raise DefinitionError(f"lookup {lookup.name}: {lookup.topic!r} holds the rows; answers need another topic")
        return KeyedStream(self, what.keys)._append(what)

    @staticmethod
    def _log_of_answers(given: DataFrameInput, lookup: Lookup) -> Log:
        if given.frame.isStreaming:
            raise DefinitionError(
                f"lookup {lookup.name}: answers come to a streaming DataFrame in no order that could be repeated; "
                "write its rows to a log, and read them with stream(log, ...)"
            )
        if given.lookups is None:
            raise DefinitionError(
                f"lookup {lookup.name}: name the log that has the answers: stream(df, lookups=log, ...)"
            )
        return given.lookups

    def _with(self: _S, op: RowOp) -> _S:
        schema = after_ops((op,), self.schema)
        for expression in op.exprs:
            if isinstance(expression, pl.Expr):
                check_rowwise(expression, what=op.kind)
        return replace(self, ops=(*self.ops, op), schema=schema)

    def _flow(self) -> Flow:
        """The flow so far."""
        return Flow("stream", self.input.topics, self.stages, None, self.ops)

    def _steps_line(self) -> str:
        """How many steps there are, in words; nothing if there is none."""
        count = len(self.stages) + len(self.ops)
        return counted(count, "step") if count else ""

    def __repr__(self) -> str:
        return summary("Stream", self.input, self.schema, self._steps_line())

    def _repr_html_(self) -> str:
        return stream_html("Stream", self.input, self._flow(), self.schema)
