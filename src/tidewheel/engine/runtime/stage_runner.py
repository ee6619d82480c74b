"""Run the stages of one depth, once for each key group and batch, with the key group's state. If another stage follows,
the results are partitioned again for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from tidewheel.engine.operators.operator import LATE, METRICS, RESULTS, BatchTime, Outputs, StageOperator
from tidewheel.engine.runtime.exchange import (
    ExchangeBatch,
    Partitioner,
    Rows,
    StageOperators,
    attribute_errors,
    late_rows,
    public_columns,
)
from tidewheel.engine.runtime.exchange_parts import (
    LateRows,
    MaybeLateRows,
    Output,
    SideInputRows,
    SkippedRows,
    StageRows,
)
from tidewheel.engine.runtime.flow import Flow, timed
from tidewheel.engine.runtime.row_op import RowOp
from tidewheel.engine.runtime.state_store import KeyGroupState
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.time import Instant

__all__ = ["ACCEPTED", "Flows", "StatefulStage", "late_output", "metrics_frame"]

ACCEPTED = "accepted"


@dataclass(frozen=True)
class Flows:
    """The flows that a call is for: the named ones, or if none is named all that are not elsewhere."""

    named: Collection[str]
    elsewhere: Collection[str]

    def __contains__(self, flow: str) -> bool:
        return flow in self.named if self.named else flow not in self.elsewhere


class StatefulStage:
    """Runs the stages of one depth on a key group. `watermark_known`: late rows were split off before the exchange."""

    def __init__(
        self, flows: Sequence[Flow], depth: int, key_groups: int, *, watermark_known: bool = True, last: bool = True
    ) -> None:
        self._operators = StageOperators(tuple(flows), depth)
        self._flows = {flow.name: flow for flow in flows}
        self._depth = depth
        self._watermark_known = watermark_known
        self._next = None if last else Partitioner(flows, key_groups, depth=depth + 1)

    @property
    def flows(self) -> list[str]:
        return list(self._flows)

    @property
    def last(self) -> bool:
        """Whether no stage follows."""
        return self._next is None

    def step(
        self,
        state: KeyGroupState,
        key_group: int,
        exchange_batches: Sequence[bytes],
        batch_time: BatchTime,
        *,
        flows: Flows | None = None,
    ) -> tuple[list[tuple[str, str, pl.DataFrame]], dict[int, ExchangeBatch]]:
        """Take a batch of a key group: what comes out (flow, output, frame), and what goes to the next stage."""
        incoming: dict[str, list[pl.DataFrame]] = {}
        out: list[tuple[str, str, pl.DataFrame]] = []
        late_here: dict[str, int] = {}
        control: dict[str, list[pl.DataFrame]] = {}
        forward: dict[int, ExchangeBatch] = {}
        for data in exchange_batches:
            for part, frame in ExchangeBatch.read(data, before=batch_time.watermark_before):
                match part:
                    case StageRows(flow):
                        incoming.setdefault(flow, []).append(frame)
                    case LateRows(flow):
                        out.append((flow, late_output(self._depth), frame))
                        late_here[flow] = late_here.get(flow, 0) + frame.height
                    case MaybeLateRows(flow):
                        rejected = self._late_of(flow, frame, batch_time.watermark_before)
                        if rejected is not None:
                            out.append((flow, late_output(self._depth), rejected))
                            late_here[flow] = late_here.get(flow, 0) + rejected.height
                    case SkippedRows(flow, reason, count):
                        out.append((flow, METRICS, self._skipped(flow, batch_time, reason, count)))
                    case SideInputRows(flow, self._depth):
                        control.setdefault(flow, []).append(frame)
                    case SideInputRows():
                        forward.setdefault(key_group, ExchangeBatch()).add(part, frame)
                    case Output(flow, output):
                        out.append((flow, output, frame))
        for name, operator in self._operators.by_name.items():
            if flows is not None and name not in flows:
                continue
            with attribute_errors(name):
                if name in control:
                    out += self._on_control(name, operator, state, control[name], batch_time)
                out += self._stage(name, operator, state, incoming.get(name, []), late_here, batch_time, forward)
        if self._next is not None:
            for name, output, frame in out:
                forward.setdefault(key_group, ExchangeBatch()).add(Output(name, output), frame)
            return [], forward
        return out, {}

    def _late_of(self, name: str, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame | None:
        """Select the rows that turned out to be late."""
        with attribute_errors(name):
            stage = self._flows[name].stages[self._depth]
            rejected = late_rows(self._operators.by_name[name], timed(stage, rows), before)
            return None if rejected is None else public_columns(rejected)

    def _skipped(self, flow: str, batch_time: BatchTime, reason: str, count: int) -> pl.DataFrame:
        return metrics_frame(flow, self._depth, batch_time, 0, 0, None, skipped=count, reason=reason)

    def _on_control(
        self,
        name: str,
        operator: StageOperator,
        state: KeyGroupState,
        frames: Sequence[pl.DataFrame],
        batch_time: BatchTime,
    ) -> list[tuple[str, str, pl.DataFrame]]:
        """Give the operator what was read of its side input, in that order: before the batch's rows."""
        found = operator.on_control(state.store(f"{name}/{self._depth}/"), pl.concat(frames), batch_time)
        name_of = self._flows[name].output
        return [(name, name_of(self._depth, output), frame) for output, frame in found.items() if frame.height]

    def _stage(
        self,
        name: str,
        operator: StageOperator,
        state: KeyGroupState,
        frames: Sequence[pl.DataFrame],
        late_here: dict[str, int],
        batch_time: BatchTime,
        forward: dict[int, ExchangeBatch],
    ) -> list[tuple[str, str, pl.DataFrame]]:
        """Run one flow's stage; results for its next stage are partitioned, the other outputs come back."""
        out: list[tuple[str, str, pl.DataFrame]] = []
        rows = None if not frames else frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal")
        late = late_here.get(name, 0)
        if rows is not None and not self._watermark_known and operator.late_by_slice:
            rows = operator.without_late(rows, batch_time.watermark_before)
            rows = rows if rows.height else None
        elif rows is not None and not self._watermark_known:
            rows, rejected = operator.split_late(rows, batch_time.watermark_before)
            if rejected is not None:
                out.append((name, late_output(self._depth), public_columns(rejected)))
                late += rejected.height
            rows = operator.pre_aggregate(rows, batch_time.watermark_before) if rows.height else None
        outputs = operator.step(state.store(f"{name}/{self._depth}/"), rows, batch_time)
        if self._flows[name].after and len(self._flows[name].stages) == self._depth + 1 and RESULTS in outputs:
            outputs = {**outputs, **_done_to(self._flows[name].after, public_columns(outputs[RESULTS]))}
        accepted = 0 if rows is None else operator.row_count(rows)
        for output, frame in outputs.items():
            if not frame.height:
                continue
            if output == LATE:
                late += frame.height
                accepted -= frame.height
            if output == RESULTS and len(self._flows[name].stages) > self._depth + 1:
                assert self._next is not None
                self._next.partition(forward, name, [Rows(public_columns(frame))], batch_time.watermark_before)
            else:
                shown = late_output(self._depth) if output == LATE else self._flows[name].output(self._depth, output)
                out.append((name, shown, public_columns(frame)))
        results = outputs.get(RESULTS)
        if accepted or late or (results is not None and results.height):
            out.append((name, METRICS, metrics_frame(name, self._depth, batch_time, accepted, late, results)))
        return out


def _done_to(ops: Iterable[RowOp], frame: pl.DataFrame) -> Outputs:
    """Apply steps to results: what they leave, and by output what they set apart."""
    apart: dict[str, pl.DataFrame] = {}
    for op in ops:
        if op.output is not None:
            apart[op.output] = op.chosen(frame)
        frame = op.apply(frame)
    return {RESULTS: frame, **apart}


def late_output(depth: int) -> str:
    """The name of a stage's late rows: those of later stages are other rows, so they have outputs of their own.

    >>> late_output(0), late_output(1)
    ('late', 'late_2')
    """
    return LATE if depth == 0 else f"{LATE}_{depth + 1}"


def metrics_frame(
    flow: str,
    depth: int,
    batch_time: BatchTime,
    accepted: int,
    late: int,
    results: pl.DataFrame | None,
    *,
    skipped: int = 0,
    reason: str | None = None,
) -> pl.DataFrame:
    """The metrics of one stage on a key group in a batch: events = accepted + late + skipped."""
    count = 0 if results is None else results.height
    retractions = 0 if results is None or "retraction" not in results.columns else int(results["retraction"].sum())
    instant = pl.Datetime("us", "UTC")
    return pl.DataFrame(
        {
            "job": [flow],
            "stage": [depth],
            "event_time": pl.Series([batch_time.clock], dtype=pl.Int64).cast(instant),
            "watermark": pl.Series([_shown(batch_time.watermark)], dtype=pl.Int64).cast(instant),
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
