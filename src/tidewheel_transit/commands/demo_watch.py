"""The numbers of the demo, from the log and from the job's reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

import tidewheel as tw
from tidewheel import topic_names
from tidewheel.cli import Rate
from tidewheel.ingest import IngestReport, Reports
from tidewheel_transit.transit_pb2 import VehicleCell, VehiclePosition

__all__ = ["INPUT", "RESULTS", "Check", "Positions", "Quantiles", "Snapshot", "Watch"]

INPUT = "input.vehicle-position"
RESULTS = "analytics.vehicle-cell"

Partition: TypeAlias = tuple[str, int]
"""A topic, and the number of one of its partitions."""
Positions: TypeAlias = Mapping[Partition, int]
"""A position in each partition."""
_Times: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
_Extent: TypeAlias = Mapping[Partition, tuple[int, int]]
_IDENTITY = ["operator", "vehicle", "event_time"]
_RECENT: tw.time.Duration = 10_000_000
_MOST_MEASURED = 2_000_000


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of latencies in seconds, and their number."""

    p50: float
    p99: float
    count: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the demo at one moment."""

    seconds: float
    topics: Mapping[str, int]
    rates: Mapping[str, float]
    received: float
    """Events a second that came in, of late; likewise `processed`."""
    processed: float
    lag: int
    latency: Quantiles | None
    results: int
    latest: Sequence[Mapping[str, Any]]
    reports: Sequence[IngestReport]
    job: Mapping[str, Any] = field(default_factory=dict)
    url: str = ""
    """Where the map is; empty as long as it is not there."""


@dataclass(frozen=True, slots=True)
class Check:
    """Whether each position on a journey with a place has its result, exactly once; `whole`: for everything that came
    in, not only what is still in the log."""

    expected: int
    missing: int
    twice: int
    whole: bool

    @property
    def passed(self) -> bool:
        """Whether none is missing and none is there twice."""
        return self.missing == 0 and self.twice == 0


class Watch:
    """Looks at what has come into the log from `start_from` on: what was there before is not the demo's."""

    def __init__(self, log: tw.Log, *, start_from: Positions, group: str) -> None:
        self._log = log
        self._group = group
        self._start_from = start_from
        self._at: dict[Partition, int] = dict(start_from)
        self._in, self._done = Rate(), Rate()
        self._by_topic: dict[str, Rate] = {}
        self._waiting = _no_rows()
        self.reports = Reports(log)
        """The ingestion's account."""
        self.results = 0
        """How many results have come."""
        self._measured: deque[_Times] = deque()
        """When results were appended, and when what they are results of was ingested."""
        self._latest: Sequence[Mapping[str, Any]] = []
        self._first: dict[str, tw.time.Instant | None] = {INPUT: None, topic_names.ANALYTICS: None}

    def look(self, *, seconds: float, job: Mapping[str, Any], url: str = "") -> Snapshot:
        """Take a snapshot of the demo."""
        self._read_inputs()
        self._read_results()
        self.firsts()  # before they leave by retention
        topics = {
            info.name: info.count
            for info in self._log.topics()
            if topic_names.kind_of(info.name) in (topic_names.INPUT, topic_names.ANALYTICS)
        }
        lag = self.lag()
        return Snapshot(
            seconds=seconds,
            topics=topics,
            rates={topic: self._by_topic.setdefault(topic, Rate())(count) for topic, count in topics.items()},
            received=self._in(
                sum(count for topic, count in topics.items() if topic_names.kind_of(topic) == topic_names.INPUT)
            ),
            processed=self._done(sum(self._log.counts(dict.fromkeys(self._extent(INPUT), 0)).values()) - lag),
            lag=lag,
            latency=self._latency(lambda appended, _: appended >= tw.time.now() - _RECENT),
            results=self.results,
            latest=self._latest,
            reports=self.reports(),
            job=job,
            url=url,
        )

    def lag(self) -> int:
        """The number of positions that the jobs have not finished."""
        done = self._log.committed(self._group)
        return sum(self._log.counts({part: done.get(part, 0) for part in self._extent(INPUT)}).values())

    def latency(self, *, ingested_since: tw.time.Instant) -> Quantiles | None:
        """The latency from ingestion to the result in the log, of what has come in since then."""
        return self._latency(lambda _, ingested: ingested >= ingested_since)

    def firsts(self) -> tuple[tw.time.Instant | None, tw.time.Instant | None]:
        """The times of the first position and the first result of any job in the log; None while there is none."""
        for name in self._first:
            if self._first[name] is None:
                self._first[name] = self._first_append(name)
        vehicles, results = self._first.values()
        return vehicles, results

    def _first_append(self, topic_or_kind: str) -> tw.time.Instant | None:
        found: list[tw.time.Instant] = []
        for info in self._log.topics():
            if topic_or_kind in (info.name, topic_names.kind_of(info.name)):
                for part, (first, end) in self._extent(info.name).items():
                    start = max(first, self._start_from.get(part, 0))
                    blocks = self._log.blocks(*part, start, end=end, on_damage=lambda _: None) if start < end else []
                    filled = (each.summary for each in blocks if each.summary.count > len(each.summary.punctuations))
                    found += [each.append_time for each in islice(filled, 1)]
        return min(found, default=None)

    def check(self) -> Check:
        """Compare the inputs since the beginning, as far as they are retained, with the results."""
        inputs = self._fingerprints(INPUT)
        wanted, times_wanted = np.unique(inputs, return_counts=True)
        found, times_found = np.unique(self._fingerprints(RESULTS), return_counts=True)
        # Results of what had been left over in the log are nobody's fault: only what came in since is compared.
        _, here, there = np.intersect1d(wanted, found, assume_unique=True, return_indices=True)
        surplus = -times_wanted
        surplus[here] += times_found[there]
        return Check(
            expected=len(inputs),
            missing=-int(surplus[surplus < 0].sum()),
            twice=int(surplus[surplus > 0].sum()),
            whole=all(first <= self._start_from.get(part, 0) for part, (first, _) in self._extent(INPUT).items()),
        )

    def _fingerprints(self, topic: str) -> npt.NDArray[np.uint64]:
        """The identity of each row since the beginning, in 8 bytes: the rows themselves might not fit in memory."""
        frames = self._frames(topic, self._start_from, self._extent(topic))
        each = [rows.select(_IDENTITY).hash_rows().to_numpy() for rows in frames]
        return np.concatenate([np.empty(0, np.uint64), *each])

    def _extent(self, topic: str) -> _Extent:
        """From where to where the log has records."""
        try:
            info = self._log.topic_info(topic)
        except tw.errors.TopicNotFoundError:
            return {}
        extents = enumerate(zip(info.first_offsets, info.next_offsets, strict=True))
        return {(topic, number): extent for number, extent in extents}

    def _news(self, topic: str) -> pl.DataFrame:
        """The rows that came since the last time."""
        extent = self._extent(topic)
        frames = list(self._frames(topic, self._at, extent))
        self._at.update((part, end) for part, (_, end) in extent.items())
        return pl.concat(frames) if frames else _no_rows()

    def _read_inputs(self) -> None:
        rows = self._news(INPUT)
        self._waiting = pl.concat([self._waiting, rows]).unique(_IDENTITY, keep="first", maintain_order=True)

    def _read_results(self) -> None:
        rows = self._news(RESULTS)
        if rows.is_empty():
            return
        self.results += rows.height
        self._latest = rows.tail(12).reverse().to_dicts()
        met = rows.select(*_IDENTITY, "append_time").join(self._waiting, on=_IDENTITY)
        self._waiting = self._waiting.join(met, on=_IDENTITY, how="anti")
        appended, ingested = (met[name].dt.epoch("us").to_numpy() for name in ("append_time", "ingestion_time"))
        self._measured.append((appended, ingested))
        while sum(len(each) for each, _ in self._measured) > _MOST_MEASURED:
            self._measured.popleft()

    def _latency(self, counts: Callable[..., npt.NDArray[np.bool_]]) -> Quantiles | None:
        chosen = [(appended - ingested)[counts(appended, ingested)] for appended, ingested in self._measured]
        taken = np.concatenate([np.empty(0, np.int64), *chosen])
        if not len(taken):
            return None
        p50, p99 = np.quantile(taken, [0.5, 0.99]) / 1_000_000
        return Quantiles(float(p50), float(p99), len(taken))

    def _frames(self, topic: str, starts: Positions, extent: _Extent) -> Iterator[pl.DataFrame]:
        """Inputs that must have a result, or results: block by block, from there on."""
        kind = VehiclePosition if topic == INPUT else VehicleCell
        for part, (first, end) in extent.items():
            for batch in self._log.read(*part, max(first, starts.get(part, 0)), end=end):
                decoded = tw.codec.decode_columns(kind, batch.records.column("value"))
                times = batch.records.column("append_time").take(decoded.rows)
                frame = pl.from_arrow(decoded.columns.append_column("append_time", times))
                assert isinstance(frame, pl.DataFrame)
                if topic == INPUT:
                    placed = pl.col("lat").is_between(-90, 90) & pl.col("lon").is_between(-180, 180)
                    frame = frame.filter((pl.col("journey") != "deadrun") & placed).select(_no_rows().columns)
                yield frame


def _no_rows() -> pl.DataFrame:
    instants = pl.Datetime("us", "UTC")
    return pl.DataFrame(
        schema={"operator": pl.Int32, "vehicle": pl.Int32, "event_time": instants, "ingestion_time": instants}
    )
