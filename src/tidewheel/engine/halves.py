"""The two halves of a query: what needs no state, and what does. Spark carries bytes between them; nothing here
knows it.

The first half runs where the rows are read: it prepares them, tells late ones apart, aggregates what can be aggregated,
and deals everything out to buckets. The second half runs once for each bucket and batch, with the bucket's state. When
flows have several stages, a second half is also the first half of the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from tidewheel.engine.bucket_store import BucketState
from tidewheel.engine.buckets import by_bucket
from tidewheel.engine.flow import Flow, RowOp, Stage, StageOperator, prepared, timed
from tidewheel.engine.frames import pack, unpack
from tidewheel.engine.judging import LATE_BY, REASON
from tidewheel.engine.looked_up import LookedUp, LookupOperator
from tidewheel.engine.matching import BookOperator
from tidewheel.engine.operator import LATE, RESULTS, Outputs, Tick
from tidewheel.engine.partials import N
from tidewheel.engine.window_columns import SLICE, TIME
from tidewheel.errors import FlowError
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.time import Instant

__all__ = [
    "ACCEPTED",
    "CLOCK",
    "METRICS",
    "TICK",
    "Dealer",
    "Flows",
    "PLACE",
    "Parcel",
    "Rows",
    "SecondHalf",
    "blamed",
    "late_port",
    "metrics_frame",
]

METRICS = "metrics"
TICK = "tick"
"""The output that tells the watermark of the batch."""
CLOCK = "clock"
"""The output that tells the clock of the batch, of no flow."""
ACCEPTED = "accepted"
_OUT = "out"  # results on their way through later stages
_IN = "in"
_TOLD = "book-"  # what a topic beside the input tells the stage of this depth
_DOUBT = "doubt-"  # rows, none earlier than this, that are in partial aggregates already but may have been too late
_SKIPPED = "skipped"  # how many rows were skipped, by reason
PLACE = "__place"
"""The column that says which row of its input a row is."""


@dataclass
class Parcel:
    """What goes to one bucket: frames by flow and port."""

    frames: list[tuple[str, pl.DataFrame]] = field(default_factory=list)

    def add(self, flow: str, port: str, frame: pl.DataFrame) -> None:
        """Put a frame in."""
        self.frames.append((f"{port}:{flow}", frame))

    def to_bytes(self) -> bytes:
        """As one value."""
        return pack(self.frames)

    @staticmethod
    def read(data: bytes, *, before: Instant | None = END_OF_TIME) -> list[tuple[str, str, pl.DataFrame]]:
        """Flow, port and frame of everything in it, but for rows of which all are of this time or later."""

        def wanted(name: str) -> bool:
            port = name.partition(":")[0]
            return not port.startswith(_DOUBT) or (before is not None and int(port.removeprefix(_DOUBT)) < before)

        return [(name.partition(":")[2], name.partition(":")[0], frame) for name, frame in unpack(data, wanted=wanted)]


@dataclass(frozen=True)
class _Operators:
    """The operators of one depth, by flow."""

    flows: tuple[Flow, ...]
    depth: int

    @cached_property
    def by_name(self) -> dict[str, StageOperator]:
        return {flow.name: flow.stages[self.depth].operator() for flow in self.flows if len(flow.stages) > self.depth}

    def __getstate__(self) -> dict[str, object]:
        return {"flows": self.flows, "depth": self.depth}  # operators are made anew in each process

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True)
class Rows:
    """Rows of an input. `whole`: if they lack columns that nobody asked for, all columns of those at these places."""

    frame: pl.DataFrame
    whole: Callable[[pl.Series], pl.DataFrame] | None = None

    def completed(self, stage: Stage, late: pl.DataFrame) -> pl.DataFrame:
        """Late rows with all columns: whoever looks at them may ask for any."""
        if self.whole is None or PLACE not in late.columns:
            return late
        full = prepared(stage, self.whole(late[PLACE]))
        lost = {name: pl.lit(None, kind) for name, kind in stage.schema.items() if name not in full.columns}
        verdict = late.select(PLACE, REASON, LATE_BY)
        return full.with_columns(**lost).join(verdict, on=PLACE, how="inner", maintain_order="left")


class Dealer:
    """Rows to parcels for the stage of one depth."""

    def __init__(self, flows: Sequence[Flow], buckets: int, *, depth: int = 0, judged: bool = True) -> None:
        self._operators = _Operators(tuple(flows), depth)
        self._flows = {flow.name: flow for flow in flows}
        self._buckets = buckets
        self._depth = depth
        self._judged = judged

    def deal(
        self,
        parcels: dict[int, Parcel],
        flow: str,
        given: Iterable[Rows],
        before: Instant | None,
        *,
        arrival: str | None = None,
        spare: int = 0,
        bound: Instant | None = None,
    ) -> None:
        """Deal the rows of one flow out. Without `judged` whoever knows the watermark judges: rows that are aggregated
        already go along as they are, to the bucket `spare`, since all are to be had that turn out to be late. If it is
        known that the watermark is not beyond `bound`, only those behind it do."""
        with blamed(flow):
            self._deal(parcels, flow, given, before, arrival, spare, bound)

    def _deal(
        self,
        parcels: dict[int, Parcel],
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
            rows, rejected = operator.judge(rows, before, future=future, arrival=arrival)
            if rejected is not None:
                late.append(some.completed(stage, rejected))
            if not rows.height:
                continue
            if not self._judged and arrival is not None:
                rows = rows.drop(arrival)
            if not self._judged and operator.late_by_slice:
                doubtful = rows if bound is None else _late(operator, rows, bound)
                if doubtful is not None:
                    port = f"{_DOUBT}{doubtful.select(pl.min(TIME)).item()}"
                    parcels.setdefault(spare, Parcel()).add(
                        flow, port, _public(doubtful).drop(REASON, LATE_BY, strict=False)
                    )
            if self._judged or operator.late_by_slice:
                rows = operator.first_half(rows, before)
            good.append(rows)
        if good:
            whole = good[0] if len(good) == 1 else pl.concat(good)
            for bucket, part in by_bucket(whole, stage.by, self._buckets):
                parcels.setdefault(bucket, Parcel()).add(flow, _IN, part)
        if skipped:
            counts = {"reason": list(skipped), "count": list(skipped.values())}
            parcels.setdefault(0, Parcel()).add(flow, _SKIPPED, pl.DataFrame(counts))
        if late:
            # Late rows need no state, only a way out.
            parcels.setdefault(0, Parcel()).add(flow, LATE, _public(pl.concat(late)))

    def announce(self, parcels: dict[int, Parcel], flow: str, by_topic: Mapping[str, Sequence[Rows]]) -> None:
        """Give the buckets what the flow's stages are told to heed: definitions to all of them, the answers of a lookup
        to those of their keys."""
        with blamed(flow):
            for depth, what in self._flows[flow].told.items():
                found = what.accepted([rows.frame for rows in by_topic.get(what.topic, ())])
                if not found.height:
                    continue
                if isinstance(what, LookedUp):
                    parts = by_bucket(found, what.keys, self._buckets)
                else:
                    numbers = range(self._buckets)
                    parts = ((number, found.with_columns(pl.lit(number == 0).alias("tells"))) for number in numbers)
                for bucket, part in parts:
                    parcels.setdefault(bucket, Parcel()).add(flow, f"{_TOLD}{depth}", part)


@contextmanager
def blamed(flow: str) -> Iterator[None]:
    """What breaks in here is the flow's own doing, unless Spark or the machine failed."""
    try:
        yield
    except (Exception, pl.exceptions.PanicException) as error:  # a panic of polars is no Exception
        broken = isinstance(error, (BrokenPipeError, ConnectionResetError, EOFError))
        if broken or isinstance(error, FlowError) or type(error).__module__.startswith("pyspark"):
            raise
        raise FlowError(f"{flow}: {type(error).__name__}: {error}") from error


def late_port(depth: int) -> str:
    """The name of a stage's late rows: those of later stages are other rows, so they have outputs of their own.

    >>> late_port(0), late_port(1)
    ('late', 'late_2')
    """
    return LATE if depth == 0 else f"{LATE}_{depth + 1}"


def _public(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.drop([name for name in rows.columns if name.startswith("__")])


@dataclass(frozen=True)
class Flows:
    """Those that a step is for: the named ones, or if none is named all that are not elsewhere."""

    named: Collection[str]
    elsewhere: Collection[str]

    def __contains__(self, flow: str) -> bool:
        return flow in self.named if self.named else flow not in self.elsewhere


class SecondHalf:
    """The stages of one depth, on one bucket."""

    def __init__(
        self, flows: Sequence[Flow], depth: int, buckets: int, *, judged: bool = True, last: bool = True
    ) -> None:
        self._operators = _Operators(tuple(flows), depth)
        self._flows = {flow.name: flow for flow in flows}
        self._depth = depth
        self._judged = judged
        self._next = None if last else Dealer(flows, buckets, depth=depth + 1)

    @property
    def flows(self) -> list[str]:
        """The names of all flows."""
        return list(self._flows)

    @property
    def last(self) -> bool:
        """Is there no stage after it?"""
        return self._next is None

    def step(
        self, state: BucketState, bucket: int, parcels: Sequence[bytes], tick: Tick, *, flows: Flows | None = None
    ) -> tuple[list[tuple[str, str, pl.DataFrame]], dict[int, Parcel]]:
        """What comes out (flow, name of the stream, frame), and what goes to the buckets of the next stage."""
        incoming: dict[str, list[pl.DataFrame]] = {}
        out: list[tuple[str, str, pl.DataFrame]] = []
        late_here: dict[str, int] = {}
        told: dict[str, list[pl.DataFrame]] = {}
        forward: dict[int, Parcel] = {}
        for data in parcels:
            for flow, port, frame in Parcel.read(data, before=tick.before):
                if port == _IN:
                    incoming.setdefault(flow, []).append(frame)
                elif port.startswith(_DOUBT):
                    rejected = self._late_of(flow, frame, tick.before)
                    if rejected is not None:
                        out.append((flow, late_port(self._depth), rejected))
                        late_here[flow] = late_here.get(flow, 0) + rejected.height
                elif port == LATE:
                    out.append((flow, late_port(self._depth), frame))
                    late_here[flow] = late_here.get(flow, 0) + frame.height
                elif port == _SKIPPED:
                    out += [(flow, METRICS, self._skipped(flow, tick, *row)) for row in frame.iter_rows()]
                elif port == f"{_TOLD}{self._depth}":
                    told.setdefault(flow, []).append(frame)
                elif port.startswith(_TOLD):
                    forward.setdefault(bucket, Parcel()).add(flow, port, frame)
                else:
                    out.append((flow, port.removeprefix(f"{_OUT}-"), frame))
        for name, operator in self._operators.by_name.items():
            if flows is not None and name not in flows:
                continue
            with blamed(name):
                if name in told:
                    out += self._heed(name, operator, state, told[name], tick)
                out += self._stage(name, operator, state, incoming.get(name, []), late_here, tick, forward)
        if self._next is not None:
            for name, port, frame in out:
                forward.setdefault(bucket, Parcel()).add(name, f"{_OUT}-{port}", frame)
            return [], forward
        return out, {}

    def _late_of(self, name: str, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame | None:
        """Those of these rows that were too late."""
        with blamed(name):
            stage = self._flows[name].stages[self._depth]
            rejected = _late(self._operators.by_name[name], timed(stage, rows), before)
            return None if rejected is None else _public(rejected)

    def _skipped(self, flow: str, tick: Tick, reason: str, count: int) -> pl.DataFrame:
        return metrics_frame(flow, self._depth, tick, 0, 0, None, skipped=count, reason=reason)

    def _heed(
        self, name: str, operator: StageOperator, state: BucketState, frames: Sequence[pl.DataFrame], tick: Tick
    ) -> list[tuple[str, str, pl.DataFrame]]:
        """What is told comes before the batch's rows, in the order in which it was read."""
        assert isinstance(operator, (BookOperator, LookupOperator))
        told = operator.heed(state.store(f"{name}/{self._depth}/"), pl.concat(frames), tick)
        output = self._flows[name].output
        return [(name, output(self._depth, port), frame) for port, frame in told.items() if frame.height]

    def _stage(
        self,
        name: str,
        operator: StageOperator,
        state: BucketState,
        frames: Sequence[pl.DataFrame],
        late_here: dict[str, int],
        tick: Tick,
        forward: dict[int, Parcel],
    ) -> list[tuple[str, str, pl.DataFrame]]:
        """One flow's stage; what goes on to its next stage is dealt out, the rest comes back."""
        out: list[tuple[str, str, pl.DataFrame]] = []
        rows = None if not frames else frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal")
        late = late_here.get(name, 0)
        if rows is not None and not self._judged and operator.late_by_slice:
            rows = _in_time(operator, rows, tick.before)
        elif rows is not None and not self._judged:
            rows, rejected = operator.judge(rows, tick.before)
            if rejected is not None:
                out.append((name, late_port(self._depth), _public(rejected)))
                late += rejected.height
            rows = operator.first_half(rows, tick.before) if rows.height else None
        outputs = operator.step(state.store(f"{name}/{self._depth}/"), rows, tick)
        if self._flows[name].after and len(self._flows[name].stages) == self._depth + 1 and RESULTS in outputs:
            outputs = {**outputs, **_done_to(self._flows[name].after, _public(outputs[RESULTS]))}
        accepted = 0 if rows is None else int(rows[N].sum()) if N in rows.columns else rows.height
        for port, frame in outputs.items():
            if not frame.height:
                continue
            if port == LATE:
                late += frame.height
                accepted -= frame.height
            if port == RESULTS and len(self._flows[name].stages) > self._depth + 1:
                assert self._next is not None
                self._next.deal(forward, name, [Rows(_public(frame))], tick.before)
            else:
                shown = late_port(self._depth) if port == LATE else self._flows[name].output(self._depth, port)
                out.append((name, shown, _public(frame)))
        results = outputs.get(RESULTS)
        if accepted or late or (results is not None and results.height):
            out.append((name, METRICS, metrics_frame(name, self._depth, tick, accepted, late, results)))
        return out


def _late(operator: StageOperator, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame | None:
    """Those of these rows that are too late by this watermark, with by how much."""
    return operator.judge(rows.filter(pl.col(TIME) < before), before)[1]


def _done_to(ops: Iterable[RowOp], frame: pl.DataFrame) -> Outputs:
    """The results after these steps, and those that they set apart."""
    apart: dict[str, pl.DataFrame] = {}
    for op in ops:
        if op.kind == "apart":
            apart[op.reason] = op.chosen(frame)
        frame = op.apply(frame)
    return {RESULTS: frame, **apart}


def _in_time(operator: StageOperator, partials: pl.DataFrame, before: Instant | None) -> pl.DataFrame | None:
    """Those of these partial aggregates whose rows were not too late."""
    if before is None or partials[SLICE].min() >= before:  # type: ignore[operator]
        return partials
    welcome, _ = operator.judge(partials.with_columns(pl.col(SLICE).alias(TIME)), before)
    return welcome.drop(TIME) if welcome.height else None


def metrics_frame(
    flow: str,
    depth: int,
    tick: Tick,
    accepted: int,
    late: int,
    results: pl.DataFrame | None,
    *,
    skipped: int = 0,
    reason: str | None = None,
) -> pl.DataFrame:
    """What one stage of a flow did to a bucket in a batch: events in = accepted + late + skipped."""
    count = 0 if results is None else results.height
    retractions = 0 if results is None or "retraction" not in results.columns else int(results["retraction"].sum())
    instant = pl.Datetime("us", "UTC")
    return pl.DataFrame(
        {
            "job": [flow],
            "stage": [depth],
            "event_time": pl.Series([tick.clock], dtype=pl.Int64).cast(instant),
            "watermark": pl.Series([_shown(tick.watermark)], dtype=pl.Int64).cast(instant),
            "events": [accepted + late + skipped],
            ACCEPTED: [accepted],
            "late": [late],
            "results": [count - retractions],
            "retractions": [retractions],
            "skipped": [skipped],
            "skipped_reason": pl.Series([reason], dtype=pl.String),
        },
        schema_overrides=dict.fromkeys(
            ["stage", "events", ACCEPTED, "late", "results", "retractions", "skipped"], pl.Int64
        ),
    )


def _shown(watermark: Instant | None) -> Instant | None:
    return None if watermark is None or watermark >= END_OF_TIME else watermark
