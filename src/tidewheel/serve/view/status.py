"""The status of the whole pipeline, from the log: rates, event time, watermarks, lag, latency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidewheel.model.clock_jump import is_ahead
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.rate import Rate
from tidewheel.model.time import Duration, Instant
from tidewheel.model.watermark_hold import hold_text
from tidewheel.serve.view.activity import last_filled
from tidewheel.serve.view.latency import Latencies
from tidewheel.serve.view.log_positions import offset_at
from tidewheel.topic_names import DEAD, INPUT, LATE, kind_of
from tidewheel.transport.log.damage import pass_over
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Partition, TopicInfo
from tidewheel.transport.topics.held_watermarks import HeldWatermarks
from tidewheel.transport.topics.run_states import RunStates, start_text

__all__ = ["TopicStats", "Status"]

_IDLE: Duration = 30_000_000
_REMEMBERED = 20_000
_FIRST_LOOK: Duration = 120_000_000


@dataclass
class TopicStats:
    """The statistics of a topic of results: their number, their event time, and when that was last reported."""

    count: int = 0
    bad: int = 0
    watermarks: dict[int, Instant] = field(default_factory=dict)
    reported_at: Instant = 0
    latest: Instant | None = None

    @property
    def watermark(self) -> Instant | None:
        """Everything before it is there; None if that was never reported, or event time is over."""
        found = min(self.watermarks.values(), default=None)
        return None if found is None or found >= END_OF_TIME else found


class Status:
    """Keeps account of the inputs and results of a log, and sums it up once a second."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._held = HeldWatermarks(log)
        self._runs = RunStates(log)
        self._inputs: dict[Partition, int] = {}
        self._reached: list[Instant] = []
        """Event times that the inputs have reached, rising, and `_when` they did."""
        self._when: list[Instant] = []
        self.latencies = Latencies()
        self._rates: dict[str, Rate] = {}
        self._moved: dict[str, tuple[Mapping[Partition, int], Instant]] = {}
        self._ends: dict[Partition, int] = {}
        self._counted: dict[Partition, int] = {}
        self.topic_stats: dict[str, TopicStats] = {}
        self.latest: Mapping[str, Any] = {}
        """The last sum."""

    def stats_of(self, topic: str) -> TopicStats:
        """The stats of a topic, empty if it is new."""
        return self.topic_stats.setdefault(topic, TopicStats())

    def sum_up(self, infos: Sequence[TopicInfo], *, now: Instant, last: Instant | None = None) -> Mapping[str, Any]:
        """Everything as of now; times in milliseconds. `last`: when something last came to the log."""
        self._look_at_inputs(infos, now)
        self.latencies.measure(self._reached, self._when, now=now)
        inputs = [info for info in infos if kind_of(info.name) == INPUT]
        results = {topic: stats for topic, stats in self.topic_stats.items() if kind_of(topic) != INPUT}
        event_times = [stats.latest for stats in results.values() if stats.latest is not None]
        reached = self._reached[-1] if self._reached else max(event_times, default=None)
        watermark = self._watermark(now)
        lag = None if reached is None or watermark is None else max(0, reached - watermark)
        self.latest = {
            "now": now // 1_000,
            "last": _millis(last),
            "event_time": _millis(reached),
            "watermark": _millis(watermark),
            "lag": _millis(lag),
            "behind": self._behind(inputs, now),
            "in_rate": self._rate(INPUT, self._appended(inputs), now),
            "result_rate": self._rate("", sum(stats.count for stats in results.values()), now),
            "latency": self.latencies.percentiles(),
            "held": [
                {
                    "job": job,
                    "text": hold_text(held, now=now),
                    "by": [
                        {"topic": each.topic, "partition": each.partition, "since": _millis(each.since)}
                        for each in held
                    ],
                    "moved": all(each.mark is not None for each in held),
                }
                for job, held in self._held.all(now=now).items()
            ],
            "starting": [
                {"run": run, "text": start_text(state, now=now), "since": _millis(state.since)}
                for run, state in self._runs.starting(now=now).items()
            ],
            "late": self._appended(info for info in infos if kind_of(info.name) == LATE),
            "dead": self._appended(info for info in infos if kind_of(info.name) == DEAD),
            "bad": sum(stats.bad for stats in results.values()),
            "topics": {
                topic: {
                    "watermark": _millis(stats.watermark),
                    "rate": self._rate(topic, stats.count, now),
                    "count": stats.count,
                }
                for topic, stats in sorted(results.items())
            },
        }
        return self.latest

    def _rate(self, name: str, total: int, now: Instant) -> float:
        return round(self._rates.setdefault(name, Rate())(total, now / 1e6), 1)

    def _look_at_inputs(self, infos: Sequence[TopicInfo], now: Instant) -> None:
        """Note how far event time was when, from the headers of blocks alone."""
        news: list[tuple[Instant, Instant]] = []
        for info in infos:
            if kind_of(info.name) != INPUT:
                continue
            for number, end in enumerate(info.next_offsets):
                part = (info.name, number)
                start = self._inputs.get(part)
                if start is None or start < info.first_offsets[number] or start > end:
                    start = self._first_look(part, info.first_offsets[number], end, now)
                blocks = self._log.blocks(*part, start, end=end, on_damage=pass_over) if end > start else []
                summaries = [block.summary for block in blocks]
                news += [(each.append_time, each.max_plausible) for each in summaries if each.max_plausible is not None]
                self._inputs[part] = end
        if self._when and is_ahead(self._when[-1], now):  # a clock was wrong
            self._reached.clear()
            self._when.clear()
        for appended, reached in sorted(news):
            if not self._reached or reached > self._reached[-1]:
                self._reached.append(reached)
                self._when.append(max(appended, self._when[-1] if self._when else appended))
        if len(self._reached) > 2 * _REMEMBERED:
            del self._reached[:-_REMEMBERED], self._when[:-_REMEMBERED]

    def _first_look(self, part: Partition, first: int, end: int, now: Instant) -> int:
        """The start position: a while ago, or before that at the last block that holds more than markers."""
        start = max(first, offset_at(self._log, part, now - _FIRST_LOOK))
        block = last_filled(self._log, part, first, end)
        return start if block is None else min(start, block.first_offset)

    def _watermark(self, now: Instant) -> Instant | None:
        """The least of the jobs that run; if none does, the highest that was reported."""
        known = [(stats.watermark, stats.reported_at) for stats in self.topic_stats.values()]
        reported = [(mark, at) for mark, at in known if mark is not None]
        running = [mark for mark, at in reported if at >= now - _IDLE]
        return min(running) if running else max((mark for mark, _ in reported), default=None)

    def _appended(self, infos: Iterable[TopicInfo]) -> int:
        """The number of records ever appended to these topics, as far as they were there when they were looked at."""
        ends = {(info.name, number): end for info in infos for number, end in enumerate(info.next_offsets)}
        before = {part: self._ends.get(part, 0) for part in ends}
        for part, count in self._log.counts(before, ends).items():
            self._counted[part] = self._counted.get(part, 0) + count
        self._ends |= ends
        return sum(self._counted[part] for part in ends)

    def _behind(self, inputs: Sequence[TopicInfo], now: Instant) -> int | None:
        """The lag of the slowest running consumer, in input records."""
        known = {(info.name, number) for info in inputs for number in range(info.partitions)}
        found: dict[str, int] = {}
        for group in self._log.groups():
            done = {part: at for part, at in self._log.committed(group).items() if part in known}
            if not done:
                continue
            before, when = self._moved.get(group, ({}, now))
            self._moved[group] = (done, when if before == done else now)
            left = sum(self._log.counts(done).values())
            if now - self._moved[group][1] <= _IDLE or not left:
                found[group] = left
        return max(found.values(), default=None)


def _millis(value: int | None) -> int | None:
    return None if value is None else value // 1_000
