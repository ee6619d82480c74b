"""Jobs of every kind that keeps state, and rows that leave something of each kind in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

import tidewheel as tw
from tests.transit.jobs.lookup_run import outcome_frame
from tidewheel.engine.operators.operator import BatchTime
from tidewheel.engine.runtime.exchange import Partitioner, Rows
from tidewheel.engine.runtime.stage_runner import StatefulStage
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries
from tidewheel.patterns.serde.pattern_json import pattern_to_json

__all__ = ["CASES", "TOPIC", "Batches", "JobRun", "rows_of"]

S = 1_000_000
TOPIC = "input.rows"
DEPOT = tw.Lookup("depot", keys={"key": pl.String}, returns={"depot": pl.String})
FALL = tw.pattern("high", pl.col("v") > 5).followed_by("low", pl.col("v") < 4).one_or_more().within("20 s")
RISE = tw.pattern("low", pl.col("v") < 4).next("high", pl.col("v") > 5)
_SCHEMA = {"second": pl.Float64, "key": pl.String, "v": pl.Int64, "x": pl.Float64}


def rows_of(*given: tuple[float, str, int | None]) -> pl.DataFrame:
    """Rows (second, key, v); x is half of v."""
    frame = pl.DataFrame([(*each, each[2] and each[2] / 2) for each in given], schema=_SCHEMA, orient="row")
    time = (pl.col("second") * S).cast(pl.Int64).cast(pl.Datetime("us", "UTC"))
    return frame.select(event_time=time, key="key", v="v", x="x")


def running(events, state, clock):
    """The sum of each key, and again after three seconds of silence in event time, or six by the clock."""
    before = events.join(state, on="key", how="left", maintain_order="left")["total"].fill_null(0)
    so_far = events.with_columns(total=before + pl.col("v").fill_null(0).cum_sum().over("key"))
    new = so_far.group_by("key", maintain_order=True).agg(
        pl.col("total").last(),
        wake=pl.col("event_time").last() + pl.duration(seconds=3),
        ring=pl.lit(clock.processing_time) + pl.duration(seconds=6),
    )
    due = state.filter(pl.col("wake_due") | pl.col("ring_due"))
    again = due.select("key", pl.coalesce("wake", "ring").alias("event_time"), "total")
    kept = state.join(new, on="key", how="anti").select(new.columns)
    return pl.concat([so_far.select(again.columns), again]), pl.concat([new, kept])


AGGREGATES: Mapping[str, Any] = {
    "n": tw.agg.count(),
    "total": tw.agg.sum("v"),
    "least": tw.agg.min("x"),
    "most": tw.agg.max("x"),
    "mean": tw.agg.mean("x"),
    "variance": tw.agg.variance("x"),
    "stddev": tw.agg.stddev("x"),
    "first": tw.agg.first("v"),
    "last": tw.agg.last("v"),
    "arg_max": tw.agg.arg_max("v", by="x"),
    "arg_min": tw.agg.arg_min("v", by="x"),
    "all": tw.agg.collect("v"),
    "distinct": tw.agg.count_distinct("v"),
    "about": tw.agg.approx_count_distinct("v"),
    "middle": tw.agg.percentile("x", 50),
    "about_middle": tw.agg.approx_percentile("x", 50),
    "top": tw.agg.top_k("v", 2, by="x"),
    "often": tw.agg.most_frequent("v", 2),
    "range": tw.agg.custom(
        partial={"low": pl.col("x").min(), "high": pl.col("x").max()},
        merge={"low": pl.col("low").min(), "high": pl.col("high").max()},
        finish=pl.col("high") - pl.col("low"),
    ),
    "unmerged": tw.agg.custom(partial={"m": pl.col("x").median()}, finish=pl.col("m")),
}
SEVERAL = {name: AGGREGATES[name] for name in ("n", "most", "last")}


def _windows(rows: tw.Stream, windows: Any, *, lateness: str = "8 s", **options: Any) -> tw.WindowedStream:
    return rows.key_by("key").window(windows, lateness=lateness, **options)


def _early(**options: Any) -> Any:
    return tw.triggers.after_watermark(late=tw.triggers.each_batch(), **options)


CASES: Mapping[str, Callable[[tw.Stream, tw.Log], tw.Result]] = {
    "sliced windows": lambda rows, _: _windows(rows, tw.windows.sliding("10 s", every="5 s")).aggregate(**AGGREGATES),
    "sliced windows, retracting": lambda rows, _: (
        _windows(rows, tw.windows.tumbling("10 s")).trigger(_early()).accumulate("retracting").aggregate(**SEVERAL)
    ),
    "windows with triggers": lambda rows, _: (
        _windows(rows, tw.windows.sliding("10 s", every="5 s"))
        .trigger(_early(early=tw.triggers.any_of(tw.triggers.after_count(3), tw.triggers.every("2 s"))))
        .accumulate("retracting")
        .aggregate(**AGGREGATES)
    ),
    "windows that expect rows": lambda rows, _: (
        _windows(rows, tw.windows.tumbling("10 s"))
        .trigger(
            tw.triggers.repeatedly(
                tw.triggers.in_order(tw.triggers.completeness(50, expected="v"), tw.triggers.after_count(2))
            )
        )
        .aggregate(**SEVERAL)
    ),
    "windows at the earliest row": lambda rows, _: _windows(
        rows, tw.windows.calendar("hour"), timestamp="earliest"
    ).aggregate(**SEVERAL),
    "windows at the latest row": lambda rows, _: (
        _windows(rows, tw.windows.global_(), timestamp="latest")
        .trigger(tw.triggers.repeatedly(tw.triggers.all_of(tw.triggers.after_count(2), tw.triggers.every("1 s"))))
        .accumulate("delta")
        .aggregate(**SEVERAL)
    ),
    "sessions": lambda rows, _: (
        _windows(rows, tw.windows.session("4 s"), lateness="30 s")
        .trigger(_early())
        .accumulate("retracting")
        .aggregate(**SEVERAL)
    ),
    "count windows": lambda rows, _: _windows(rows, tw.windows.count(3), lateness="0 s").aggregate(**SEVERAL),
    "windows of what may be retracted": lambda rows, _: (
        _windows(rows, tw.windows.tumbling("5 s"))
        .trigger(_early(early=tw.triggers.each_batch()))
        .accumulate("retracting")
        .aggregate(n=tw.agg.count(), most=tw.agg.max("x"))
        .window(tw.windows.tumbling("10 s"), lateness="5 s")
        .trigger(_early(early=tw.triggers.each_batch()))
        .aggregate(total=tw.agg.sum("n"), most=tw.agg.max("most"), count=tw.agg.count())
    ),
    "process": lambda rows, _: rows.key_by("key").process(
        running,
        state={"total": pl.Int64, "wake": tw.Timer(), "ring": tw.ProcessingTimer()},
        ttl="1 min",
        schema={"key": pl.String, "event_time": pl.Datetime("us", "UTC"), "total": pl.Int64},
    ),
    "previous": lambda rows, _: rows.key_by("key").previous("v", ttl="1 min"),
    "previous, corrected": lambda rows, _: rows.key_by("key").previous("v", lateness="5 s"),
    "deduplicate": lambda rows, _: rows.key_by("key").deduplicate("v", horizon="20 s"),
    "deduplicate by time": lambda rows, _: rows.key_by("key").deduplicate("event_time", "v", horizon="20 s"),
    "match": lambda rows, _: rows.key_by("key").match(FALL, measures={"low": tw.measures.last("low.v")}),
    "match from": lambda rows, log: rows.key_by("key").match_from(log.topic("control.patterns")),
    "match recognize": lambda rows, _: tw.sql(
        "SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY key ORDER BY event_time MEASURES LAST(L.v) AS low "
        "PATTERN (H L+) WITHIN INTERVAL '20 s' DEFINE H AS v > 5, L AS v < 4)",
        events=rows,
    ),
    "lookup": lambda rows, _: rows.lookup(DEPOT, timeout="10 s"),
}
"""Each kind of state."""


@dataclass(frozen=True)
class Batches:
    """Rows in batches, what is read of side inputs with them, and the watermark and the clock after each."""

    rows: Sequence[pl.DataFrame]
    controls: Sequence[Mapping[str, pl.DataFrame]]
    watermarks: Sequence[int]


def _definitions(**patterns: Any) -> pl.DataFrame:
    rows = [(name, number, pattern_to_json(each, {}), False) for number, (name, each) in enumerate(patterns.items(), 1)]
    columns = {"name": pl.String, "version": pl.Int64, "definition": pl.String, "removed": pl.Boolean}
    return pl.DataFrame(rows, schema=columns, orient="row")


BEFORE = Batches(
    [
        rows_of((1, "a", 7), (2, "b", 1), (3, "a", 2), (3, "a", 2), (4, "c", None)),
        rows_of((9, "a", 3), (11, "b", 8), (6, "a", 5), (4.5, "a", 8), (12, "b", 2), (12, "b", 2), (13, "a", 9)),
    ],
    [
        {
            "control.patterns": _definitions(fall=FALL, rise=RISE),
            DEPOT.topic: outcome_frame(DEPOT, [(("a",), {"depot": "north"})]),
        },
        {},
    ],
    [7, 10],
)
AFTER = Batches(
    [
        rows_of((7, "a", 1), (14, "a", 2), (9, "b", 9), (12, "b", 2), (15, "c", 6)),
        rows_of((21, "a", 4), (18, "c", 1), (22, "b", 7), (16, "a", 3)),
        rows_of(),
    ],
    [{}, {DEPOT.topic: outcome_frame(DEPOT, [(("b",), {"depot": "south"}), (("c",), "unknown")])}, {}],
    [14, 20, 4_000],
)


class JobRun:
    """A job on one key group: `state` is what a key group keeps, for each stage."""

    def __init__(self, result: tw.Result, state: Sequence[Mapping[str, bytes]] | None = None) -> None:
        self.flow = result.named("job").flow()
        depth = len(self.flow.stages)
        self.stages = [StatefulStage([self.flow], level, 1, last=level + 1 == depth) for level in range(depth)]
        self.entries = [MemoryEntries() for _ in self.stages]
        for entries, held in zip(self.entries, state or (), strict=False):
            entries.values = {(name,): (data,) for name, data in held.items()}

    @property
    def state(self) -> list[dict[str, bytes]]:
        return [{name: data for (name,), (data,) in sorted(entries.values.items())} for entries in self.entries]

    def run(self, batches: Batches, before: int | None) -> list[tuple[str, dict[str, Any]]]:
        """The rows that come out, each with the name of its output."""
        partitioner = Partitioner([self.flow], 1)
        found: list[tuple[str, dict[str, Any]]] = []
        mark = None if before is None else before * S
        for frame, controls, watermark in zip(batches.rows, batches.controls, batches.watermarks, strict=True):
            exchange: dict[int, Any] = {}
            batch_time = BatchTime(mark, watermark * S, watermark * S)
            partitioner.broadcast(exchange, "job", {topic: [Rows(each)] for topic, each in controls.items()})
            partitioner.partition(exchange, "job", [Rows(frame)], mark)
            for stage, entries in zip(self.stages, self.entries, strict=True):
                state = KeyGroupState(entries)
                data = [each.to_bytes() for each in exchange.values()]
                out, exchange = stage.step(state, 0, data, batch_time)
                state.save()
            found += [(output, row) for _, output, rows in out for row in rows.to_dicts()]
            mark = watermark * S
        return found
