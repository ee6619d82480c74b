"""Keyed streams: computations for each key."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl

from tidewheel.engine.execution.input import LogInput
from tidewheel.engine.operators.dedup import DedupOperation
from tidewheel.engine.operators.operator import Operation
from tidewheel.engine.operators.passthrough import Passthrough
from tidewheel.engine.operators.patterns.dynamic_patterns import DynamicPatterns
from tidewheel.engine.operators.patterns.recognizer import PatternRecognizer
from tidewheel.engine.operators.process import ProcessOperation
from tidewheel.engine.streams.explain.display import stream_html, summary
from tidewheel.engine.streams.stages import append_stage
from tidewheel.engine.streams.step_text import key_by_text
from tidewheel.engine.streams.windowed_stream import WindowedStream
from tidewheel.errors import DefinitionError, DefinitionWarning
from tidewheel.model.process.deduplicate import deduplicate
from tidewheel.model.process.exact_duplicates import ExactDuplicates
from tidewheel.model.process.previous import previous
from tidewheel.model.process.process import DataType, Process, ProcessFunction, StateColumn
from tidewheel.model.time import duration
from tidewheel.model.windowing import Timestamp
from tidewheel.model.windows import Windows
from tidewheel.patterns.define.builder import Pattern
from tidewheel.patterns.vectorized.matcher import Matcher
from tidewheel.transport.log.log import Topic

if TYPE_CHECKING:
    from tidewheel.engine.streams.result import Result
    from tidewheel.engine.streams.stream import Stream

__all__ = ["KeyedStream"]

_TIME = "event_time"


@dataclass(frozen=True, repr=False)
class KeyedStream:
    """A stream that is partitioned by key: results are per key.

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
        """Cut event time into windows, for which results are computed. Rows that arrive up to `lateness` after the
        watermark has passed their window still change its result; later ones go to the output `late`. `timestamp`: the
        event time of a result is the window's last instant, or that of its earliest or latest row."""
        return WindowedStream(self.stream, self.keys, windows, duration(lateness, what="lateness"), timestamp)

    def each_row(self) -> Result:
        """Emit every row as a result, without windows or state, in the batch that reads it. None is late. Rows of one
        key stay in their order.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7, "speed": 12.5}
        >>> _ = log.append_rows("input.position", [row], time="event_time")
        >>> positions = tw.stream(log, "input.position")
        >>> fast = positions.filter(pl.col("speed") > 20).select("vehicle", "speed").key_by("vehicle").each_row()
        >>> list(fast.schema)
        ['event_time', 'vehicle', 'speed']
        """
        return self._append(Passthrough())

    def process(
        self,
        function: ProcessFunction,
        *,
        state: Mapping[str, StateColumn] | None = None,
        ttl: str | timedelta | None = None,
        schema: Mapping[str, DataType] | None = None,
        outputs: Sequence[str] = (),
    ) -> Result:
        """Call a function with each key's rows in event-time order, with state and timers: see `Process`.

        Args:
            function: Takes the events of a batch, the state and a `Clock`; gives rows and the new state.
            state: The columns of the state, each with its type; a `Timer` among them wakes the function.
            ttl: How long a key's state is kept after its last event, in event time; by default for ever.
            schema: The columns of the results; by default they are found by calling the function with empty frames.
            outputs: The names of further outputs: results then have a column `output` that names the one of each row,
                null for the results.

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
            ttl=None if ttl is None else duration(ttl, what="ttl"),
            schema=schema,
            outputs=tuple(outputs),
        )
        return self._append(ProcessOperation(process))

    def deduplicate(self, *columns: str, horizon: str | timedelta) -> Result:
        """Keep the first of rows that are equal in the keys and these columns; see `Stream.deduplicate`. Rows of a key
        that have one event time stay in the order in which they came."""
        return self._deduplicated(columns, horizon)

    def _deduplicated(self, columns: Sequence[str], horizon: str | timedelta) -> Result:
        there = self.stream.schema
        for name in columns:
            if name not in there:
                raise DefinitionError(f"deduplicate: there is no column {name!r}; there are {', '.join(there)}")
        same = tuple(dict.fromkeys((*self.keys, *columns)))
        micros = duration(horizon, what="horizon of deduplicate")
        if _TIME not in same and self.stream.input.time_column in columns and not self.stream.stages:
            self._warn_of_time(columns)
        if _TIME in same:
            return KeyedStream(self.stream, self.keys or same)._append(DedupOperation(ExactDuplicates(same, micros)))
        return KeyedStream(self.stream, same)._append(ProcessOperation(deduplicate(*same, horizon=micros)))

    def _warn_of_time(self, columns: Sequence[str]) -> None:
        column = self.stream.input.time_column
        better = ", ".join(repr(_TIME if name == column else name) for name in columns)
        warnings.warn(
            f"deduplicate: {column!r} is the time column, which a stream calls {_TIME!r}. By {column!r} rows are held "
            "back until the watermark has passed them, and late ones are lost to whatever follows; if rows are equal "
            f"that have the same time, say deduplicate({better}, horizon=...), which passes them on at once",
            DefinitionWarning,
            stacklevel=4,
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
            ttl=None if ttl is None else duration(ttl, what="ttl"),
            lateness=duration(lateness, what="lateness"),
        )
        return self._append(ProcessOperation(made))

    def match(self, pattern: Pattern, *, measures: Mapping[str, pl.Expr] | None = None, limit: int = 10_000) -> Result:
        """Find a pattern in each key's rows, in event-time order. Results are its matches: the keys, `match_start`,
        `match_end` and the measures. Partial matches that ran out of time go to the output `timed_out`; those beyond
        `limit` for one key to `dropped`, the oldest first.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> row = {"event_time": "2026-01-31T12:00:00Z", "operator": 1, "vehicle": 7, "speed": 12.5, "acc": 0.1}
        >>> _ = log.append_rows("input.position", [row], time="event_time")
        >>> positions = tw.stream(log, "input.position")
        >>> hard_stop = (
        ...     tw.pattern("fast", pl.col("speed") >= 10)
        ...     .next("braking", pl.col("acc") < 0).one_or_more().consecutive().greedy()
        ...     .next("standing", pl.col("speed") < 1)
        ...     .within("10 s")
        ...     .after_match("skip past last")
        ... )
        >>> stops = positions.key_by("operator", "vehicle").match(
        ...     hard_stop, measures={"drop": tw.measures.first("fast.speed") - tw.measures.last("standing.speed")}
        ... )
        >>> list(stops.schema)
        ['operator', 'vehicle', 'match_start', 'match_end', 'drop', 'event_time']
        """
        schema = dict(self.stream.schema)
        matcher = Matcher(pattern, keys=self.keys, measures=measures, limit=limit)
        return self._append(PatternRecognizer(matcher, schema))

    def match_from(self, topic: Topic, *, limit: int = 10_000) -> Result:
        """Find the patterns that a topic of the same log defines, now and while the job runs: see `PatternRegistry`,
        which writes them. Results are the matches of all of them: the keys, `pattern`, `version`, `match_start`,
        `match_end` and `measures` as JSON. The outputs `timed_out` and `dropped` are as of `match`; what a pattern had
        open when it was replaced or removed is in `dropped`. Definitions that make no sense are dead letters.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> row = {"event_time": "2026-01-31T12:00:00Z", "operator": 1, "vehicle": 7}
        >>> _ = log.append_rows("input.position", [row], time="event_time")
        >>> positions = tw.stream(log, "input.position")
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
        return append_stage(
            self.stream, self.keys, DynamicPatterns(topic.name, self.keys, dict(self.stream.schema), limit)
        )

    def _append(self, operation: Operation) -> Result:
        return append_stage(self.stream, self.keys, operation)

    def __repr__(self) -> str:
        source = self.stream
        return summary("KeyedStream", source.input, source.schema, source._steps_line(), key_by_text(self.keys))

    def _repr_html_(self) -> str:
        source = self.stream
        said = [key_by_text(self.keys)] if self.keys else []
        return stream_html("KeyedStream", source.input, source._flow(), source.schema, said)
