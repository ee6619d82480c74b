"""A stream cut into windows: when results come, how they relate, and what is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from tidewheel.engine.operators.window_operation import WindowOperation
from tidewheel.engine.runtime.row_op import RowOp
from tidewheel.engine.streams.explain.display import stream_html, summary
from tidewheel.engine.streams.stages import append_stage, unretracted
from tidewheel.engine.streams.step_text import key_by_text
from tidewheel.errors import DefinitionError
from tidewheel.model.aggregates.aggregate import Aggregate
from tidewheel.model.aggregates.buffered_aggregate import buffered
from tidewheel.model.aggregates.retractable import WEIGHT, retractable
from tidewheel.model.triggers import Trigger, default
from tidewheel.model.windowing import EarlyWindows, Mode, Timestamp, Windowing
from tidewheel.model.windows import Count, Windows, typed_back
from tidewheel.plain_text import plain

if TYPE_CHECKING:
    from tidewheel.engine.streams.result import Result
    from tidewheel.engine.streams.stream import Stream

__all__ = ["WindowedStream"]

_BEAM_MODES: Mapping[str, Any] = {"discarding": "delta", "accumulating": "value"}


@dataclass(frozen=True, repr=False)
class WindowedStream:
    """A stream cut into windows; `aggregate` says what is computed.

    >>> import tidewheel as tw
    >>> from tidewheel.testing import Script
    >>> def counted(events):
    ...     each = tw.triggers.after_watermark(early=tw.triggers.each_batch())
    ...     ten_seconds = events.window(tw.windows.tumbling("10 s"))
    ...     return ten_seconds.trigger(each).accumulate("delta").aggregate(n=tw.agg.count())
    >>> rows = Script().add(at="12:00:01", v=1).add(at="12:00:02", v=1).batch().add(at="12:00:03", v=1).end()
    >>> [(pane["timing"], pane["n"]) for pane in rows.run(counted)]
    [('EARLY', 2), ('ON_TIME', 1)]
    """

    stream: Stream
    keys: tuple[str, ...]
    windows: Windows
    lateness: int = 0
    timestamp: Timestamp = "end"
    when: Trigger = field(default_factory=default)
    early_windows: EarlyWindows = "all"
    allow_loss: bool = False
    mode: Mode = "value"

    def trigger(
        self, trigger: Trigger, *, early_windows: EarlyWindows = "all", allow_loss: bool = False
    ) -> WindowedStream:
        """Say when results come: see `triggers`. With `early_windows="next"` only the open window that ends next gives
        early results. A trigger that would lose rows is refused unless `allow_loss`."""
        return replace(self, when=trigger, early_windows=early_windows, allow_loss=allow_loss)

    def accumulate(self, mode: Mode | Literal["discarding", "accumulating"]) -> WindowedStream:
        """Say how results of one window relate: each is what came since the last (`delta`), or everything (`value`), or
        everything, after the last one was retracted (`retracting`). Beam's words for the first two are `discarding` and
        `accumulating`; they are understood."""
        return replace(self, mode=_BEAM_MODES.get(mode, mode))

    def aggregate(self, **aggregates: Aggregate) -> Result:
        """Compute aggregates: a column for each.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7, "route": "4", "speed": 12.5}
        >>> _ = log.append_rows("input.position", [row], time="event_time")
        >>> result = (
        ...     tw.stream(log, "input.position")
        ...     .key_by("route")
        ...     .window(tw.windows.tumbling("1 min"), lateness="10 s")
        ...     .trigger(tw.triggers.after_watermark(early=tw.triggers.every("5 s"), late=tw.triggers.each_batch()))
        ...     .accumulate("retracting")
        ...     .aggregate(vehicles=tw.agg.count_distinct("vehicle"), fastest=tw.agg.max("speed"))
        ... )
        >>> list(result.schema)[:5]
        ['route', 'window_start', 'window_end', 'vehicles', 'fastest']
        """
        source = self.stream
        if source.retracting and isinstance(self.windows, Count):
            raise DefinitionError(
                f"{self.windows!r}: the rows before it may be retracted, and windows of so many rows cannot follow; "
                f"use windows of time, or {unretracted(source)}"
            )
        if source.retracting:
            weighted = dict(source.schema) | {WEIGHT: pl.Int8()}
            instead = unretracted(source)
            aggregates = {name: retractable(given, weighted, instead=instead) for name, given in aggregates.items()}
            weight = pl.when(pl.col("retraction")).then(-1).otherwise(1).cast(pl.Int8).alias(WEIGHT)
            source = source._with(RowOp("with_columns", (weight,)))
        windowing = Windowing(
            windows=self.windows,
            aggregates=aggregates,
            trigger=self.when,
            mode=self.mode,
            lateness=self.lateness,
            early_windows=self.early_windows,
            timestamp=self.timestamp,
            allow_loss=self.allow_loss,
            weighted=source.retracting,
        )
        _check_columns(windowing, source.schema, self.keys)
        kept = {name: buffered(given, source.schema) for name, given in aggregates.items()}
        return append_stage(source, self.keys, WindowOperation(replace(windowing, aggregates=kept)))

    def _said(self) -> list[str]:
        lateness = f", lateness={typed_back(self.lateness)}" if self.lateness else ""
        said = [key_by_text(self.keys)] if self.keys else []
        said.append(f"window({plain(repr(self.windows))}{lateness})")
        said += [] if self.when == default() else [f"trigger({self.when!r})"]
        return said + ([] if self.mode == "value" else [f"accumulate({self.mode!r})"])

    def __repr__(self) -> str:
        return summary("WindowedStream", self.stream.input, self.stream.schema, *self._said())

    def _repr_html_(self) -> str:
        source = self.stream
        return stream_html("WindowedStream", source.input, source._flow(), source.schema, self._said())


def _check_columns(windowing: Windowing, there: Mapping[str, pl.DataType], keys: Sequence[str]) -> None:
    for name, aggregate in windowing.aggregates.items():
        assert isinstance(aggregate, Aggregate)
        for column in aggregate.columns:
            if column not in there and column != WEIGHT:
                raise DefinitionError(
                    f"aggregate {name}: there is no column {column!r} for {aggregate!r}; there are {', '.join(there)}"
                )
        if name in keys:
            raise DefinitionError(f"aggregate {name}: a key has that name already; give the aggregate another")
        try:
            aggregate.dtype(pl.Schema(there))
        except pl.exceptions.PolarsError as error:
            raise DefinitionError(f"aggregate {name}: {aggregate!r} cannot be computed: {error}") from None
    for column in windowing.trigger.inputs:
        if column not in there:
            raise DefinitionError(
                f"trigger: there is no column {column!r} for {windowing.trigger!r}; there are {', '.join(there)}"
            )
