"""Exactly once, from the log alone: what became of every event that came in, and whether a result is there twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from tidewheel.engine.jobs.job import Job
from tidewheel.topic_names import late
from tidewheel.topic_names import metrics as metrics_topic
from tidewheel.transport.log.log import Log
from tidewheel.transport.topics.materialize import KEY, frames_of

__all__ = ["Account", "accounts"]

_PANE = [KEY, "window_start", "window_end", "pane_index", "retraction"]


@dataclass(frozen=True)
class Account:
    """What a job did with its input, as its metrics topic tells it, beside what is in the other topics.

    `came`: events in the input topic that are meant for it. `written`: results and retractions in its topic, of which
    metrics tell `results`. `late_written`: rows in its topic of late ones. `twice`: results that are there once more
    than once, by key and pane, or where there are no panes by all they say.
    """

    job: str
    came: int
    accepted: int
    late: int
    skipped: int
    results: int
    written: int
    late_written: int
    twice: int

    @property
    def missing(self) -> int:
        """Events that nothing is known of, or that were counted more than once; results that are lost or too many."""
        counted = self.accepted + self.late + self.skipped
        return abs(self.came - counted) + abs(self.results - self.written) + abs(self.late - self.late_written)

    @property
    def holds(self) -> bool:
        """Is every event accounted for, and every result there once?"""
        return self.missing == 0 and self.twice == 0


def accounts(log: Log, jobs: Iterable[Job]) -> list[Account]:
    """The accounts of these jobs, which have done all that is in the log."""
    return [_account(log, job) for job in jobs]


def _account(log: Log, job: Job) -> Account:
    metrics = pl.concat([_metrics(frame) for frame in frames_of(log, metrics_topic(job.name))] or [_metrics(_NOTHING)])
    last_stage = len(job.on(log).stages) - 1
    first, last = metrics.filter(pl.col("stage") == 0), metrics.filter(pl.col("stage") == last_stage)
    written, twice = _results(log, job.topic)
    return Account(
        job.name,
        came=sum(_meant(log, topic, job) for topic in job.reads),
        accepted=int(first["accepted"].sum()),
        late=int(first["late"].sum()),
        skipped=int(first["skipped"].sum()),
        results=int(last["results"].sum()) + int(last["retractions"].sum()),
        written=written,
        late_written=sum(frame.height for frame in frames_of(log, late(job.name))),
        twice=twice,
    )


_COUNTS = ("stage", "accepted", "late", "skipped", "results", "retractions")
_NOTHING = pl.DataFrame(schema=dict.fromkeys(_COUNTS, pl.Int64))


def _metrics(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.col(_COUNTS).cast(pl.Int64))


def _meant(log: Log, topic: str, job: Job) -> int:
    """Events for a job. Of arrivals it takes only those at a stop (ARS), and does not count the rest."""
    if job.name != "delay-distribution":
        return log.topic_info(topic).count
    return sum(frame.filter(pl.col("event") == "ars").height for frame in frames_of(log, topic))


def _results(log: Log, topic: str) -> tuple[int, int]:
    """How many results there are, and how many of them are repeats of another."""
    seen: list[pl.Series] = []
    for frame in frames_of(log, topic):
        own = _PANE if "pane_index" in frame.columns else [name for name in frame.columns if name != "ingestion_time"]
        seen.append(frame.select(own).hash_rows(seed=1))
    found = pl.concat(seen) if seen else pl.Series([], dtype=pl.UInt64)
    return len(found), len(found) - found.n_unique()
