"""Watermarks: how far event time has come, decided from summaries alone.

A watermark W says that everything before W was seen; an event is late if its time is before W. A strategy says how W
follows from what a batch holds. It is asked when a batch is planned, so it sees summaries, never records, and its whole
memory is a JSON object that is kept with the batch's offsets: a batch that is planned again gets the same watermark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, ClassVar

from tidewheel.errors import DefinitionError
from tidewheel.model.block_stats import BlockStats, skew_bounds
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant, duration, format_duration

__all__ = [
    "Arrival",
    "Bounded",
    "Inherited",
    "Percentile",
    "Punctuated",
    "Strategy",
    "arrival",
    "bounded",
    "monotonic",
    "percentile",
    "punctuated",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports


_FUTURE: Duration = 60_000_000
_SKEW_MEMORY = 1_000_000  # when more events than this are remembered, all are halved: the recent count more


@dataclass(frozen=True, slots=True, repr=False)
class Strategy(ABC):
    """A watermark strategy: derives the watermark of one input from its records.

    `idle`: after so long without data the watermark moves with the wall clock, so that the last window of a quiet
    stream closes, and the input no longer holds others back. `future`: event times further than this ahead of the
    log's clock do not move the watermark; None trusts every clock (for replays that run ahead of time).
    """

    kind: ClassVar[str]
    stored: ClassVar[StoredFields] = StoredFields("idle", "future")
    takes_part: ClassVar[bool] = True
    """Whether the input has a say in the common watermark."""
    reads_ahead: ClassVar[bool] = False
    """Whether all that is there is read at once, ahead of other inputs."""

    idle: Duration | None = None
    future: Duration | None = _FUTURE

    def __post_init__(self) -> None:
        for name in ("idle", "future"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise DefinitionError(f"watermark: {name} must not be negative, got {format_duration(value)}")

    @abstractmethod
    def of(self, state: dict[str, Any], summary: BlockStats) -> Instant | None:
        """The watermark after records with this summary; may keep what it needs in `state`."""

    def to_json(self) -> dict[str, Any]:
        """The strategy as JSON, for `from_json`: its kind, and the options that do not have their default. Checkpoints
        hold it: so an option that comes to be later changes nothing."""
        defaults = {field.name: field.default for field in fields(self)}
        given = {name: getattr(self, attribute) for name, attribute in self.stored.attributes.items()}
        changed = {name: value for name, value in given.items() if value != defaults[self.stored.attributes[name]]}
        return {"kind": self.kind, **changed}

    def __repr__(self) -> str:
        given = [self._argument] if self._argument else []
        given += [f"idle={format_duration(self.idle)!r}"] if self.idle is not None else []
        if self.future != _FUTURE:
            given.append(f"future={None if self.future is None else format_duration(self.future)!r}")
        return f"{self.kind}({', '.join(given)})"

    @property
    def _argument(self) -> str:
        """The argument of the function that makes it, besides `idle` and `future`."""
        return ""

    def _highest(self, summary: BlockStats) -> Instant | None:
        """The highest plausible event time, or one shortly before it where only the skew is known."""
        # Whatever is trusted: no event is after all time, and a watermark there would say that the input has ended.
        limit = END_OF_TIME - 1 if self.future is None else summary.append_time + self.future
        if summary.max_event_time is None or summary.min_event_time is None:
            return None
        if summary.max_event_time <= limit:
            return summary.max_event_time
        bounds = [skew_bounds(number) for number in summary.skew]
        plausible = [summary.append_time + low for low, high in bounds if summary.append_time + high <= limit]
        if summary.max_plausible is not None and summary.max_plausible <= limit:
            plausible.append(summary.max_plausible)
        return max(summary.min_event_time, *plausible) if plausible else None


def _check_delay(delay: Duration) -> None:
    if delay < 0:
        raise DefinitionError(f"watermark: the delay must not be negative, got {format_duration(delay)}")


@dataclass(frozen=True, slots=True, repr=False)
class Bounded(Strategy):
    """The watermark follows the highest event time by `delay`."""

    kind: ClassVar[str] = "bounded"
    stored: ClassVar[StoredFields] = StoredFields("idle", "future", "delay")
    delay: Duration = 0

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        _check_delay(self.delay)

    @property
    def _argument(self) -> str:
        return repr(format_duration(self.delay))

    def of(self, state: dict[str, Any], summary: BlockStats) -> Instant | None:
        """The highest plausible event time less the delay."""
        highest = self._highest(summary)
        return None if highest is None else highest - self.delay


@dataclass(frozen=True, slots=True, repr=False)
class Percentile(Strategy):
    """The watermark lets only the slowest events be late: those further behind the log's clock than `percent` per cent
    of the events seen so far."""

    kind: ClassVar[str] = "percentile"
    stored: ClassVar[StoredFields] = StoredFields("idle", "future", "percent")
    percent: float = 99.0

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        if not 0 < self.percent <= 100:
            raise DefinitionError(f"watermark: percent must be above 0 and at most 100, got {self.percent}")

    @property
    def _argument(self) -> str:
        return f"{self.percent:g}"

    def of(self, state: dict[str, Any], summary: BlockStats) -> Instant | None:
        """The log's clock plus the skew that all but the slowest events keep."""
        skew: dict[str, int] = state.setdefault("skew", {})
        for bin_number, count in sorted(summary.skew.items()):
            skew[str(bin_number)] = skew.get(str(bin_number), 0) + count
        total = sum(skew.values())
        if total > _SKEW_MEMORY:
            skew = state["skew"] = {name: count // 2 for name, count in skew.items() if count > 1}
            total = sum(skew.values())
        if total == 0:
            return None
        behind = total * (100 - self.percent) / 100
        for bin_number in sorted(map(int, skew)):
            behind -= skew[str(bin_number)]
            if behind < 0:
                break
        slowest = skew_bounds(bin_number)[0]
        return summary.append_time + (slowest if self.future is None else min(slowest, self.future))


@dataclass(frozen=True, slots=True, repr=False)
class Punctuated(Strategy):
    """The watermark follows markers: each says that everything before it was sent."""

    kind: ClassVar[str] = "punctuated"

    def of(self, state: dict[str, Any], summary: BlockStats) -> Instant | None:
        """The watermark: the time of the last marker."""
        limit = None if self.future is None else summary.append_time + self.future
        marks = [mark for mark in summary.punctuations if limit is None or mark <= limit]
        return max(marks, default=None)


@dataclass(frozen=True, slots=True, repr=False)
class Arrival(Strategy):
    """Time is when events reach the log, or shortly before: it follows the log's clock."""

    kind: ClassVar[str] = "arrival"
    stored: ClassVar[StoredFields] = StoredFields("idle", "future", "delay")
    delay: Duration = 0

    def __post_init__(self) -> None:
        Strategy.__post_init__(self)
        _check_delay(self.delay)

    @property
    def _argument(self) -> str:
        return repr(format_duration(self.delay)) if self.delay else ""

    def of(self, state: dict[str, Any], summary: BlockStats) -> Instant | None:
        """The log's clock at the last append, less the delay."""
        return summary.append_time - self.delay


@dataclass(frozen=True, slots=True, repr=False)
class ControlTopic(Strategy):
    """An input without influence on the watermark: it neither moves the common watermark nor holds it back, however
    silent it is. For topics that control what is done with the events of others. They are read from their beginning."""

    kind: ClassVar[str] = "control"
    takes_part: ClassVar[bool] = False

    def of(self, state: dict[str, Any], summary: BlockStats) -> Instant | None:
        """None: it has no watermark of its own."""
        return None


@dataclass(frozen=True, slots=True, repr=False)
class ReadAheadTopic(ControlTopic):
    """A control topic that is read ahead of the events: its records hold for all times."""

    kind: ClassVar[str] = "read_ahead"
    reads_ahead: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, repr=False)
class Inherited(Strategy):
    """The watermark that a DataFrame already has from `withWatermark`."""

    kind: ClassVar[str] = "inherited"

    def of(self, state: dict[str, Any], summary: BlockStats) -> Instant | None:
        """None: the DataFrame brings the watermark."""
        return None

    def __repr__(self) -> str:
        return "of the DataFrame"


KINDS: Mapping[str, type[Strategy]] = {
    each.kind: each for each in (Arrival, Bounded, ControlTopic, Percentile, Punctuated, ReadAheadTopic)
}
"""Those that JSON may name."""


def _common(idle: str | timedelta | None, future: str | timedelta | None) -> dict[str, Duration | None]:
    return {
        "idle": None if idle is None else duration(idle, what="watermark idle timeout"),
        "future": None if future is None else duration(future, what="watermark future guard"),
    }


def bounded(
    delay: str | timedelta, *, idle: str | timedelta | None = None, future: str | timedelta | None = "1 min"
) -> Bounded:
    """Events come at most `delay` late.

    >>> bounded("1 s", idle="10 s")
    bounded('1 s', idle='10 s')
    """
    return Bounded(delay=duration(delay, what="watermark delay"), **_common(idle, future))


def monotonic(*, idle: str | timedelta | None = None, future: str | timedelta | None = "1 min") -> Bounded:
    """Events come in the order of their times.

    >>> monotonic(idle="10 s")
    bounded('0 s', idle='10 s')
    """
    return Bounded(delay=0, **_common(idle, future))


def percentile(
    percent: float, *, idle: str | timedelta | None = None, future: str | timedelta | None = "1 min"
) -> Percentile:
    """All but the slowest (100 - percent) per cent of events are on time, judged by those seen so far.

    >>> percentile(99.5)
    percentile(99.5)
    """
    if isinstance(percent, (int, float)) and 0 < percent <= 1:
        raise DefinitionError(f"watermark: percent is out of 100, got {percent!r}; say percentile({100 * percent:g})")
    return Percentile(percent=float(percent), **_common(idle, future))


def arrival(delay: str | timedelta = "0 s", *, idle: str | timedelta | None = None) -> Arrival:
    """For streams whose time is that of arrival or ingestion: the watermark follows the log's clock, `delay` behind.

    >>> arrival("1 s")
    arrival('1 s')
    """
    return Arrival(delay=duration(delay, what="watermark delay"), **_common(idle, "1 min"))


def punctuated(*, idle: str | timedelta | None = None, future: str | timedelta | None = "1 min") -> Punctuated:
    """Markers from the producers say how far they are.

    >>> punctuated(future=None)
    punctuated(future=None)
    """
    return Punctuated(**_common(idle, future))


def from_json(form: Mapping[str, Any]) -> Strategy:
    """The strategy that `to_json` wrote.

    >>> from_json(bounded("1 s").to_json()) == bounded("1 s")
    True
    """
    options = dict(form)
    kind = options.pop("kind", None)
    if kind not in KINDS:
        raise DefinitionError(f"watermark: unknown kind {kind!r}, use one of {', '.join(KINDS)}")
    attributes = KINDS[kind].stored.attributes
    strange = [name for name in options if name not in attributes]
    if strange:
        raise DefinitionError(f"watermark: {kind} has no option {strange[0]!r}; it has {', '.join(attributes)}")
    return KINDS[kind](**{attributes[name]: value for name, value in options.items()})


def advance(
    strategies: Mapping[str, Strategy],
    state: Mapping[str, Any],
    blocks: Mapping[tuple[str, int], Sequence[BlockStats]],
    *,
    clock: Instant,
    behind: frozenset[tuple[str, int]] = frozenset(),
) -> tuple[dict[str, Any], Instant | None]:
    """The new state and the common watermark after these records: the least of all inputs' that take part, and never
    falling.

    `state` is what the last call returned ({} at first). `blocks` holds, for every partition of every input, what the
    batch reads of it (perhaps nothing). Partitions in `behind` have more that the batch does not read: they are not
    idle however long they were silent. The state also names the inputs that are the `slowest`: those that the watermark
    waits for.

    >>> from tidewheel.model.block_stats import BlockStats
    >>> block = BlockStats(1, append_time=5_000_000, min_event_time=4_000_000, max_event_time=4_000_000)
    >>> state, watermark = advance({"t": bounded("1 s")}, {}, {("t", 0): [block]}, clock=5_000_000)
    >>> watermark
    3000000
    """
    partitions: dict[str, Any] = {}
    marks: list[Instant | None] = []
    idle_marks: list[Instant] = []
    awaited: list[str] = []
    for (name, number), summaries in blocks.items():
        strategy = strategies[name]
        if not strategy.takes_part:
            continue
        key = f"{name}/{number}"
        memory: dict[str, Any] = dict(state.get("inputs", {}).get(key, {"fed": clock, "moved": clock}))
        mark: Instant | None = memory.get("mark")
        if summaries:
            memory["fed"] = clock
            # One by one, since each has its own clock: so it does not matter how they were cut into batches.
            found = [each for summary in summaries if (each := strategy.of(memory, summary)) is not None]
            if found and (mark is None or max(found) > mark):
                mark = memory["mark"] = max(found)
                memory["moved"] = clock
        partitions[key] = memory
        silent = clock - memory["fed"]
        if strategy.idle is not None and silent >= strategy.idle and (name, number) not in behind:
            if mark is not None:
                idle_marks.append(mark + silent)
        else:
            marks.append(mark)
            awaited.append(key)
    common: Instant | None = None
    if marks:
        common = None if None in marks else min(mark for mark in marks if mark is not None)
    elif idle_marks:
        common = max(idle_marks)
    before: Instant | None = state.get("watermark")
    if before is not None:
        common = before if common is None else max(before, common)
    least = None if None in marks else min((mark for mark in marks if mark is not None), default=None)
    slowest = [key for key, mark in zip(awaited, marks, strict=True) if mark == least]
    return {"inputs": partitions, "watermark": common, "slowest": slowest}, common
