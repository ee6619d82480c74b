"""Results with a lookup, without Spark: as `PureRun`, with outcomes that are read in some of the batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from tests.transit.jobs.pure_run import PureRun
from tidewheel.engine.runtime.exchange import Partitioner, Rows
from tidewheel.model.process.lookup import Lookup

Outcomes = Iterable[tuple[tuple[Any, ...], Mapping[str, Any] | str]]
"""Keys with their answer, or the reason why there is none."""


class _WithAnswers:
    """A partitioner that also puts in what was read of side inputs."""

    def __init__(self, partitioner: Partitioner) -> None:
        self.partitioner = partitioner
        self.reported: dict[str, list[Rows]] = {}

    def partition(self, exchange_batches, flow, *given, **options) -> None:
        self.partitioner.broadcast(exchange_batches, flow, self.reported)
        self.reported = {}
        self.partitioner.partition(exchange_batches, flow, *given, **options)


class LookupRun(PureRun):
    """Fed with rows and outcomes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.partitioner = _WithAnswers(self.partitioner)

    def answer(self, lookup: Lookup, outcomes: Outcomes, *, seen: int = 0) -> None:
        """These outcomes are read in the next batch."""
        self.partitioner.reported[lookup.topic] = [Rows(outcome_frame(lookup, outcomes, seen=seen))]


def outcome_frame(lookup: Lookup, outcomes: Outcomes, *, seen: int = 0) -> pl.DataFrame:
    """Outcomes as a reader gives them."""
    rows = [
        (lookup.key_text(key), "", said)
        if isinstance(said, str)
        else (lookup.key_text(key), lookup.answer_text(said), "")
        for key, said in outcomes
    ]
    frame = pl.DataFrame(rows, schema={"key": pl.String, "answer": pl.String, "reason": pl.String}, orient="row")
    return frame.with_columns(pl.lit(seen, pl.Int64).cast(pl.Datetime("us", "UTC")).alias("event_time"))
