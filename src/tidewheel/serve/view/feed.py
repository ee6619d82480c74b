"""The feed: a thread that follows the result topics of a log into the view and the history."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from tidewheel.errors import DamagedBlockError, DataLossError, LogError, panics_as_errors
from tidewheel.model.panes import START_OF_TIME
from tidewheel.model.time import Instant
from tidewheel.model.time import now as wall_clock
from tidewheel.serve.layers.catalogue import Catalogue
from tidewheel.serve.layers.layer import Layer, Point
from tidewheel.serve.view.activity import Activity
from tidewheel.serve.view.decode import Decoder, prepared, shown_early
from tidewheel.serve.view.history import HOUR, History
from tidewheel.serve.view.log_positions import batches_with_marks, offset_at
from tidewheel.serve.view.status import Status
from tidewheel.serve.view.view import View
from tidewheel.threads import ServiceThread, reason_of
from tidewheel.topic_names import INPUT, kind_of
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Batch, Partition, TopicInfo

__all__ = ["Feed"]

_logger = logging.getLogger(__name__)
_LOOK: int = 1_000_000
_WAIT_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_DAMAGED_SHOWN = 20
_STALE: int = 15_000_000


@dataclass
class _Following:
    """The position of the feed in a layer's topic."""

    layer: Layer
    topic: str
    decode: Decoder
    since: Instant
    """When it began to be followed."""
    at: dict[int, int] = field(default_factory=dict)
    backlog: list[Iterator[Batch]] = field(default_factory=list)
    watermarks: dict[int, Instant] = field(default_factory=dict)
    before: dict[int, Instant] = field(default_factory=dict)
    """The watermarks before those that were reported last: what is behind them came late."""

    @property
    def results(self) -> bool:
        """Whether the topic holds results: inputs do not measure how jobs are doing."""
        return kind_of(self.topic) != INPUT


class Feed:
    """Reads on until it is stopped. Readers of the view or the history hold `lock`.

    It starts as far back as results are still shown. What is in the log of the hour before that is read afterwards,
    bit by bit, into the history.
    """

    def __init__(
        self,
        log: Log,
        catalogue: Catalogue,
        view: View,
        history: History,
        *,
        clock: Callable[[], Instant] = wall_clock,
    ) -> None:
        self.lock = threading.Lock()
        self.catalogue = catalogue
        self.view = view
        self.history = history
        self.activity = Activity(log)
        self.status = Status(log)
        self.version = 0
        """Rises whenever other layers are there."""
        self.partial: Mapping[str, Mapping[str, int]] = {}
        """The layers that do not show all their keys, as of the last second."""
        self.caught_up = threading.Event()
        """Set when all that was there in the beginning has been read."""
        self._log = log
        self._clock = clock
        self._stop = threading.Event()
        self._following: dict[str, _Following] = {}
        self._trouble = ""
        self._damaged: list[str] = []
        self._alive: Instant = 0
        self._looked: Instant = -_LOOK
        self._thread = ServiceThread(self._run, name="the reader of the log")

    def start(self) -> None:
        """Start following; when it returns, the view holds the current results."""
        self._step()
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def running(self) -> bool:
        """Whether it is reading the log."""
        return self._thread.is_alive()

    @property
    def failure(self) -> Exception | None:
        """The error that ended the feed, if it was not stopped."""
        return self._thread.failure

    def health(self) -> list[str]:
        """Current problems; empty if there are none."""
        reasons = [self._trouble] if self._trouble else []
        if not self._thread.is_alive():
            why = "" if self.failure is None else f": {reason_of(self.failure)}"
            reasons.append(f"the reader of the log is not running{why}")
        elif self._clock() - self._alive > _STALE:
            reasons.append(f"the reader of the log has not come round for {(self._clock() - self._alive) // 10**6} s")
        return reasons

    def warnings(self) -> list[str]:
        """Warnings about the log, about jobs, or about layers that are too large; everything else goes on."""
        few = (
            f"layer {name} shows {count['shown']:,} of {count['keys']:,} keys" for name, count in self.partial.items()
        )
        held = (f"job {each['job']}: {each['text']}" for each in self.status.latest.get("held", ()))
        return [*self.catalogue.broken_types.values(), *self._damaged, *few, *held]

    @property
    def layers(self) -> Mapping[str, Layer]:
        """The layers by name."""
        return self.catalogue.layers

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with panics_as_errors():
                    self._step(wait=True)
                self._trouble = ""
            except Exception as error:  # a log that cannot be read now may be readable soon: others go on with the view
                self._trouble = f"{type(error).__name__}: {error}"
                _logger.warning("the live view waits: %s", self._trouble)
                self._looked = -_LOOK
                self._stop.wait(_RETRY_SECONDS)

    def _step(self, *, wait: bool = False) -> None:
        now = self._alive = self._clock()
        infos = self._look(now) if now - self._looked >= _LOOK or now < self._looked else None
        positions: dict[Partition, int] = {
            (each.topic, number): at for each in self._following.values() for number, at in each.at.items()
        }
        backlog = next((each for each in self._following.values() if each.backlog), None)
        if not positions:
            self._stop.wait(_WAIT_SECONDS if wait else 0)
        elif self._log.wait(positions, _WAIT_SECONDS if wait and backlog is None and infos is None else 0):
            for each in self._following.values():
                self._read_on(each)
        if infos is not None:  # after reading: what is counted anew would be missing before
            with self.lock:
                self.view.expire(self.activity.clock(now))
                self.partial = self.view.partial()
            self.status.sum_up(infos, now=now, last=self.activity.last)
            self._looked = now
        if backlog is not None:
            self._fill_in(backlog)
        else:
            self.caught_up.set()

    def _look(self, now: Instant) -> Sequence[TopicInfo]:
        """Look which topics and layers are there."""
        infos = self._log.topics()
        self.activity.look(infos, now=now)
        self.catalogue.refresh(infos)
        wanted = {name: (self.catalogue.layers[name], topic) for name, topic in self.catalogue.topics.items()}
        changed = False
        for name in [*self._following]:
            each = self._following[name]
            if wanted.get(name) != (each.layer, each.topic):
                with self.lock:
                    self.view[name].clear()
                    self.history.clear(name)
                    self.status.topic_stats.pop(each.layer.topic, None)  # if it is followed again, it is counted again
                del self._following[name]
                changed = True
        partitions = {info.name: info.partitions for info in infos}
        for name, (layer, topic) in wanted.items():
            if name not in self._following:
                with self.lock:
                    if name not in self.view or self.view[name].layer != layer:
                        self.view.add(layer)
                self._following[name] = self._begin(layer, topic, partitions[topic], now)
                changed = True
        if changed:
            self.version += 1
        with self.lock:
            self.history.trim(now=self.activity.clock(now))
        return infos

    def _begin(self, layer: Layer, topic: str, partitions: int, now: Instant) -> _Following:
        each = _Following(layer, topic, Decoder(self.catalogue.registry), now)
        active = self.activity.clock(now)
        for number in range(partitions):
            part = (topic, number)
            live = offset_at(self._log, part, active - self.view[layer.name].expiry)
            first = offset_at(self._log, part, active - HOUR)
            each.at[number] = live
            if first < live:
                each.backlog.append(self._log.read(*part, first, end=live, on_damage=self.pass_over))
        return each

    def _read_on(self, each: _Following) -> None:
        for number, start in each.at.items():
            end = self._log.position(each.topic, number, "latest")
            if end <= start:
                continue
            try:
                for batch, marks in batches_with_marks(
                    self._log, (each.topic, number), start, end, on_damage=self.pass_over
                ):
                    self._mark(each, number, marks)
                    self._take(each, number, batch, live=True)
                    each.at[number] = batch.records.column("offset")[-1].as_py() + 1
            except DataLossError:  # retention was faster
                end = self._log.position(each.topic, number, "earliest")
            each.at[number] = end

    def pass_over(self, damaged: DamagedBlockError) -> None:
        """Skip a damaged block, and report it once, for as long as this feed runs."""
        message = str(damaged).partition(". ")[0]
        if message not in self._damaged:
            self._damaged = [*self._damaged, message][-_DAMAGED_SHOWN:]
            _logger.warning("the map goes on without a damaged block: %s", message)

    def _mark(self, each: _Following, number: int, marks: tuple[Instant, ...]) -> None:
        if marks and each.results:
            if number in each.watermarks:
                each.before[number] = each.watermarks[number]
            each.watermarks[number] = max(*marks, each.watermarks.get(number, marks[0]))
            stats = self.status.stats_of(each.layer.topic)
            stats.watermarks, stats.reported_at = each.watermarks, self._clock()

    def _fill_in(self, each: _Following) -> None:
        """Read a piece of the hour before the beginning."""
        try:
            batch = next(each.backlog[0], None)
        except LogError:  # it left by retention, or the topic was made anew
            batch = None
        if batch is None:
            each.backlog.pop(0)
        else:
            self._take(each, batch.partition, batch, live=False)

    def _take(self, each: _Following, number: int, batch: Batch, *, live: bool) -> None:
        self._alive = self._clock()  # there may be many of them in a round
        try:
            with panics_as_errors():
                self._show(each, number, batch, live=live)
        except Exception as error:  # fields that a layer cannot show as it should must not hold up all the others
            self.status.stats_of(each.layer.topic).bad += batch.records.num_rows
            _logger.warning("layer %s cannot show a block of %s: %s", each.layer.name, each.topic, error)

    def _show(self, each: _Following, number: int, batch: Batch, *, live: bool) -> None:
        raw = each.decode(batch)
        stats = self.status.stats_of(each.layer.topic)
        stats.count += raw.count
        stats.bad += raw.bad
        if raw.bad:
            _logger.info("%s: %d results cannot be decoded: %s", each.topic, raw.bad, raw.reason)
        for frame in raw.frames:
            rows = prepared(each.layer, frame)
            if not each.results and isinstance(each.layer.geometry, Point):
                rows = rows.filter(pl.col("@lat").is_not_null())  # it stays where it was last seen
            now = self._clock()
            rows = rows.with_columns(pl.min_horizontal("@arrival", pl.lit(now)).alias("@arrival"))
            watermark = each.watermarks.get(number) if live else None
            self.activity.heard(int(rows["@arrival"].max()))  # type: ignore[arg-type]  # a number
            with self.lock:
                self.history.add(each.layer.name, shown_early(each.layer, rows, watermark))
                if live:
                    self.view[each.layer.name].apply(rows, now=self.activity.clock(now), watermark=watermark)
            if live and each.results:
                self._account(each, number, rows, now)

    def _account(self, each: _Following, number: int, rows: pl.DataFrame, now: Instant) -> None:
        """Update event time and latency. Results of late events, and of events before the start, are not measured."""
        due = rows.filter((pl.col("@timing").is_null() | (pl.col("@timing") == "ON_TIME")) & ~pl.col("@back"))
        if due.height:
            latest = int(due["@t"].to_numpy().max())
            stats = self.status.stats_of(each.layer.topic)
            stats.latest = max(latest, stats.latest or latest)
            timely = pl.col("@t") >= each.before.get(number, START_OF_TIME)
            measured = due.filter(timely & (pl.col("@arrival") >= each.since))["@t"].to_numpy()
            self.status.latencies.result(measured, had=now)
