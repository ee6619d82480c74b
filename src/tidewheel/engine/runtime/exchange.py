"""The exchange from the map side to the key groups: rows are prepared, late ones split off, partial aggregates
computed, and one exchange batch is built for each key group. Spark carries these as bytes; nothing here depends on
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from tidewheel.engine.operators.lateness import LATE_BY, REASON
from tidewheel.engine.operators.operator import REPORTS, SideInput, StageOperator
from tidewheel.engine.runtime.arrow_ipc import pack, unpack
from tidewheel.engine.runtime.exchange_parts import (
    LateRows,
    MaybeLateRows,
    Output,
    Part,
    SideInputRows,
    SkippedRows,
    StageRows,
)
from tidewheel.engine.runtime.flow import Flow, Stage, prepared
from tidewheel.engine.runtime.key_groups import by_key_group
from tidewheel.errors import FlowError
from tidewheel.model.columns import TIME
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.time import Instant

__all__ = [
    "PLACE",
    "ExchangeBatch",
    "Partitioner",
    "Rows",
    "StageOperators",
    "attribute_errors",
    "attributed",
    "late_rows",
    "public_columns",
]

PLACE = "__place"
"""The column that says which row of its input a row is."""


@dataclass
class ExchangeBatch:
    """The data for one key group: parts, most of them with rows."""

    parts: list[tuple[Part, pl.DataFrame | None]] = field(default_factory=list)

    def add(self, part: Part, rows: pl.DataFrame | None = None) -> None:
        """Add a part."""
        self.parts.append((part, rows))

    def to_bytes(self) -> bytes:
        """Pack it into one value."""
        return pack(self.parts)

    @staticmethod
    def read(data: bytes, *, before: Instant | None = END_OF_TIME) -> list[tuple[Part, pl.DataFrame]]:
        """Read its parts with their rows, which are none where a part has no rows; of those that may be late only the
        ones with rows before this time."""

        def wanted(part: Part) -> bool:
            return not isinstance(part, MaybeLateRows) or (before is not None and part.earliest < before)

        return unpack(data, wanted=wanted)

    @staticmethod
    def outputs(data: bytes) -> list[tuple[str, str, pl.DataFrame]]:
        """Read the outputs in it: flow, output, frame."""
        return [(part.flow, part.output, frame) for part, frame in unpack(data) if isinstance(part, Output)]


@dataclass(frozen=True)
class StageOperators:
    """The operators of one depth, by flow."""

    flows: tuple[Flow, ...]
    depth: int

    @cached_property
    def by_name(self) -> dict[str, StageOperator]:
        """The operators by the names of their flows."""
        return {flow.name: flow.stages[self.depth].operator() for flow in self.flows if len(flow.stages) > self.depth}

    def __getstate__(self) -> dict[str, object]:
        return {"flows": self.flows, "depth": self.depth}  # operators are made anew in each process

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True)
class Rows:
    """Rows of an input. `whole`: if columns that were not requested are missing, returns all columns of the rows at
    these places."""

    frame: pl.DataFrame
    whole: Callable[[pl.Series], pl.DataFrame] | None = None

    def completed(self, stage: Stage, late: pl.DataFrame) -> pl.DataFrame:
        """Add all columns to late rows: their readers may need any."""
        if self.whole is None or PLACE not in late.columns:
            return late
        full = prepared(stage, self.whole(late[PLACE]))
        lost = {name: pl.lit(None, kind) for name, kind in stage.schema.items() if name not in full.columns}
        tags = late.select(PLACE, REASON, LATE_BY)
        return full.with_columns(**lost).join(tags, on=PLACE, how="inner", maintain_order="left")


class Partitioner:
    """Partitions rows by key group, into one exchange batch for each, for the stage of one depth. `watermark_known`:
    late rows are split off here, not where the stage runs."""

    def __init__(self, flows: Sequence[Flow], key_groups: int, *, depth: int = 0, watermark_known: bool = True) -> None:
        self._operators = StageOperators(tuple(flows), depth)
        self._flows = {flow.name: flow for flow in flows}
        self._key_groups = key_groups
        self._depth = depth
        self._watermark_known = watermark_known

    def partition(
        self,
        exchange_batches: dict[int, ExchangeBatch],
        flow: str,
        given: Iterable[Rows],
        before: Instant | None,
        *,
        arrival: str | None = None,
        spare: int = 0,
        bound: Instant | None = None,
    ) -> None:
        """Partition the rows of one flow by key group. Unless the watermark is known here, the stage splits off late
        rows: rows that are aggregated are also sent unaggregated to the key group `spare`, since late rows are emitted
        whole. If the watermark is known to be at most `bound`, only those behind it are."""
        with attribute_errors(flow):
            self._partition(exchange_batches, flow, given, before, arrival, spare, bound)

    def _partition(
        self,
        exchange_batches: dict[int, ExchangeBatch],
        flow: str,
        given: Iterable[Rows],
        before: Instant | None,
        arrival: str | None,
        spare: int,
        bound: Instant | None,
    ) -> None:
        stage = self._flows[flow].stages[self._depth]
        operator = self._operators.by_name[flow]
        good: list[pl.DataFrame] = []
        late: list[pl.DataFrame] = []
        skipped: Counter[str] = Counter()
        for some in given:
            if not some.frame.height:
                continue
            rows = prepared(stage, some.frame, skipped)
            if not rows.height:
                continue
            future = self._flows[flow].future if self._depth == 0 else None
            rows, rejected = operator.split_late(rows, before, future=future, arrival=arrival)
            if rejected is not None:
                late.append(some.completed(stage, rejected))
            if not rows.height:
                continue
            if not self._watermark_known and arrival is not None:
                rows = rows.drop(arrival)
            if not self._watermark_known and operator.late_by_slice:
                maybe_late = rows if bound is None else late_rows(operator, rows, bound)
                if maybe_late is not None:
                    exchange_batches.setdefault(spare, ExchangeBatch()).add(
                        MaybeLateRows(flow, maybe_late.select(pl.min(TIME)).item()),
                        public_columns(maybe_late).drop(REASON, LATE_BY, strict=False),
                    )
            if self._watermark_known or operator.late_by_slice:
                rows = operator.pre_aggregate(rows, before)
            good.append(rows)
        if good:
            whole = good[0] if len(good) == 1 else pl.concat(good)
            for key_group, part in by_key_group(whole, stage.by, self._key_groups):
                exchange_batches.setdefault(key_group, ExchangeBatch()).add(StageRows(flow), part)
        for reason, count in skipped.items():
            exchange_batches.setdefault(0, ExchangeBatch()).add(SkippedRows(flow, reason, count))
        if late:
            exchange_batches.setdefault(0, ExchangeBatch()).add(LateRows(flow), public_columns(pl.concat(late)))

    def broadcast(
        self, exchange_batches: dict[int, ExchangeBatch], flow: str, by_topic: Mapping[str, Sequence[Rows]]
    ) -> None:
        """Put in what was read of the side inputs of the flow's stages."""
        with attribute_errors(flow):
            for depth, side_input in self._flows[flow].side_inputs.items():
                found = side_input.accepted([rows.frame for rows in by_topic.get(side_input.topic, ())])
                if not found.height:
                    continue
                for key_group, part in self._by_key_group(side_input, found):
                    exchange_batches.setdefault(key_group, ExchangeBatch()).add(SideInputRows(flow, depth), part)

    def _by_key_group(self, side_input: SideInput, control: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
        """Partition what was read of a side input, or broadcast it."""
        if side_input.partitioned_by is not None:
            yield from by_key_group(control, side_input.partitioned_by, self._key_groups)
            return
        for number in range(self._key_groups):
            yield number, control.with_columns(pl.lit(number == 0).alias(REPORTS))


@contextmanager
def attribute_errors(flow: str) -> Iterator[None]:
    """Attribute errors in this block to the flow, unless Spark or the machine failed."""
    try:
        yield
    except (Exception, pl.exceptions.PanicException) as error:  # a panic of polars is no Exception
        broken = isinstance(error, (BrokenPipeError, ConnectionResetError, EOFError))
        if broken or isinstance(error, FlowError) or type(error).__module__.startswith("pyspark"):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise FlowError(f"{flow}: {reason}", flow=flow, reason=reason) from error


def attributed(message: str) -> tuple[str, str]:
    """The flow and the reason in the message of an error that `attribute_errors` raised: Spark carries only the text.
    Names of flows have no colon.

    >>> attributed("delays: ValueError: not today")
    ('delays', 'ValueError: not today')
    """
    flow, _, reason = message.partition(": ")
    return flow, reason


def public_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """Drop the columns that only the engine uses."""
    return rows.drop([name for name in rows.columns if name.startswith("__")])


def late_rows(operator: StageOperator, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame | None:
    """Select the rows that are late by this watermark, with by how much."""
    return operator.split_late(rows.filter(pl.col(TIME) < before), before)[1]
