"""Process functions: anything that a user wants to do per key, in event-time order, on columns.

When things happen, for each key by itself:

- An event is released when the watermark has passed it (time < watermark), in order of event time; events of the same
  time keep the order in which they arrived.
- A timer at T is due when the watermark reaches T: after all events before T, ahead of all events at T or later.
- With a `ttl`, state is forgotten once event time is more than that past the key's last event, be it the key's next
  event or the watermark that shows it. What comes after starts anew. A timer beyond that moment goes with the state.
- Processing timers are due when the batch's clock reaches them; they are handled last in a batch.
- A timer lies ahead: what the function leaves set at or before the moment it was called for is cleared.
- With a `lateness`, events up to that far behind the watermark are released as well, in the batch that brings them. The
  function retracts what they make wrong: such results have `retraction` set.

None of this, but for processing timers, depends on how the events were cut into batches. That also asks something of
the function: events of a key handed in together must give what they give when handed in one after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import ClassVar

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant, duration, format_duration, moment

__all__ = [
    "DATETIME",
    "OUTPUT",
    "Clock",
    "DataType",
    "Process",
    "ProcessFunction",
    "ProcessingTimer",
    "ReadyMade",
    "Timer",
]

DATETIME = pl.Datetime("us", "UTC")
"""The type of all times in the frames that a function sees."""

OUTPUT = "output"
"""The column of the results that says to which output a row goes, if a process has more than one."""

DataType = pl.DataType | type[pl.DataType]
_LATEST = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of a call: the watermark before this batch and now, and the batch's clock (processing time).

    >>> clock = Clock(before=None, watermark=1_000_000, clock=2_500_000)
    >>> clock.watermark_time
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    >>> clock.before_time is None, clock.processing_time.microsecond, clock.ended
    (True, 500000, False)
    """

    before: Instant | None
    watermark: Instant | None
    clock: Instant

    @property
    def before_time(self) -> datetime | None:
        """The watermark before this batch."""
        return _moment(self.before)

    @property
    def watermark_time(self) -> datetime | None:
        """The watermark; the last moment of the year 9999 when the input has ended."""
        return _moment(self.watermark)

    @property
    def processing_time(self) -> datetime:
        """The batch's clock."""
        return moment(self.clock)

    @property
    def ended(self) -> bool:
        """Whether bounded input has come to its end."""
        return self.watermark is not None and self.watermark >= END_OF_TIME


def _moment(time: Instant | None) -> datetime | None:
    if time is None:
        return None
    return _LATEST if time >= END_OF_TIME else moment(time)


@dataclass(frozen=True)
class Timer:
    """A state column that wakes its key in event time; null is not set.

    `after` is the function's promise that an event never sets the timer less than this after the event's own time.
    Without it, a key's events are handed in one moment at a time, as each might set the timer ahead of the next one;
    with it, as many of a key's events are handed in together as lie closer than this to the first of them.

    >>> Timer(after="30 s"), Timer(after="30 s").wait
    (Timer(after='30 s'), 30000000)
    """

    stable_name: ClassVar[str] = "timer/1"
    stored: ClassVar[StoredFields] = StoredFields("after", micros=("after",))

    after: str | timedelta | Duration = "1 us"

    def __post_init__(self) -> None:
        object.__setattr__(self, "after", duration(self.after, what="after of a Timer"))
        if self.wait < 1:
            raise DefinitionError(f"after of a Timer must be more than nothing, got {format_duration(self.wait)}")

    @property
    def wait(self) -> Duration:
        """`after` in microseconds."""
        assert isinstance(self.after, int)
        return self.after

    def __repr__(self) -> str:
        return "Timer()" if self.wait == 1 else f"Timer(after={format_duration(self.wait)!r})"


@dataclass(frozen=True)
class ProcessingTimer:
    """A state column that wakes its key when the batch's clock gets there; null is not set.

    >>> import tidewheel as tw
    >>> from tidewheel.testing import Script
    >>> def waited(events, state, clock):
    ...     due = state.filter("wake_at_due").select("key", event_time="wake_at")
    ...     soon = pl.lit(clock.processing_time, DATETIME) + pl.duration(seconds=5)
    ...     return due, events.select("key").unique().with_columns(wake_at=soon)
    >>> script = Script().add(at="00:00:01", key="a").watermark("00:00:02").clock("+6 s").batch()
    >>> script.run(lambda events: events.key_by("key").process(waited, state={"wake_at": tw.ProcessingTimer}))
    [row(at='00:00:05', key='a')]
    """

    stable_name: ClassVar[str] = "processing_timer/1"


class ReadyMade(ABC):
    """A process function of Tidewheel's own, which says of itself what nobody can tell of a user's."""

    output_column: ClassVar[str] = OUTPUT
    """The column of the results that names their output; one that passes on any columns has one of its own."""
    keeps_time: ClassVar[bool] = False
    """Whether each result has the time of an event."""

    @property
    @abstractmethod
    def about(self) -> str:
        """What it does, in plain words."""

    @abstractmethod
    def __call__(self, events: pl.DataFrame, state: pl.DataFrame, clock: Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Give results and the new state, as any process function does."""


ProcessFunction = Callable[[pl.DataFrame, pl.DataFrame, Clock], tuple[pl.DataFrame, pl.DataFrame]]
StateColumn = DataType | Timer | ProcessingTimer | type[Timer] | type[ProcessingTimer]


@dataclass(frozen=True, repr=False)
class Process:
    """A function over the events of each key in order, and the state that it keeps, one row per key.

    `function(events, state, clock)` gets the events of many keys at once, ordered by key and event time, with the
    user's columns and `time`; and one row of state for each key that it is called for, ordered by key, null where
    nothing was kept. A key is there either for its events or because a timer of it is due: a timer column `wake_at`
    has a column `wake_at_due` beside it that says so. It returns the results (at least the key columns and `time`)
    and the new state (the key and state columns; others are ignored). A key left out of the new state is forgotten.

    `schema` is that of the results; without it, it is found by calling the function with empty frames.
    With `outputs`, results have a column `output` that names the output of each row; null is the results themselves.
    With a `lateness` they have a boolean column `retraction`.

    >>> def totals(events, state, clock):
    ...     sums = events.group_by("shop", maintain_order=True).agg(pl.col("event_time").last(), pl.col("paid").sum())
    ...     joined = sums.join(state, on="shop")
    ...     new = joined.select("shop", "event_time", total=pl.col("paid") + pl.col("total").fill_null(0))
    ...     return new, new
    >>> Process(totals, keys="shop", state={"total": pl.Int64}, ttl="1 d")
    Process(totals, keys=('shop',), state={'total': Int64}, ttl='1 d')
    """

    stored: ClassVar[StoredFields] = StoredFields(
        "function",
        "keys",
        "state",
        "ttl",
        "output",
        "streams",
        "time",
        "lateness",
        micros=("ttl", "lateness"),
        renamed={"output": "schema", "streams": "outputs"},
    )

    function: ProcessFunction
    keys: tuple[str, ...] | str = field(kw_only=True)
    state: Mapping[str, StateColumn] = field(kw_only=True)
    ttl: Duration | str | None = field(default=None, kw_only=True)
    schema: Mapping[str, DataType] | None = field(default=None, kw_only=True)
    outputs: tuple[str, ...] = field(default=(), kw_only=True)
    time: str = field(default="event_time", kw_only=True)
    lateness: Duration = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "keys", (self.keys,) if isinstance(self.keys, str) else tuple(self.keys))
        put(self, "outputs", tuple(self.outputs))
        if not callable(self.function):
            raise DefinitionError(f"a process needs a function(events, state, clock), got {self.function!r}")
        if not self.keys:
            raise DefinitionError(f"{self.name}: process functions run per key; name at least one key column")
        put(self, "state", {name: _column(name, kind, self.name) for name, kind in self.state.items()})
        if self.ttl is not None:
            put(self, "ttl", duration(self.ttl, what=f"ttl of {self.name}", bare=True))
            if not 0 < self.lifetime <= END_OF_TIME - START_OF_TIME:
                raise DefinitionError(
                    f"{self.name}: ttl must be more than nothing, got {format_duration(self.lifetime)}; "
                    "leave it out to keep state for ever"
                )
        if self.schema is not None:
            put(self, "schema", {name: _column(name, kind, self.name) for name, kind in self.schema.items()})
        if self.lateness < 0 or (self.lateness and (self.timers or self.processing_timers)):
            raise DefinitionError(
                f"{self.name}: lateness must not be negative, nor be there beside timers, which late events would be "
                f"behind; got {format_duration(self.lateness)}"
            )
        self._check_names()

    def _check_names(self) -> None:
        taken = [*self.key_columns, self.time]
        for name in [*self.state, *(f"{timer}_due" for timer in (*self.timers, *self.processing_timers))]:
            if name in taken:
                raise DefinitionError(f"{self.name}: column {name!r} of the state has a name that is taken; rename it")
            taken.append(name)
        if len(set(taken)) < len(taken):
            raise DefinitionError(f"{self.name}: key columns {self.key_columns} name a column twice")
        for name in taken:
            if name.startswith("__"):
                raise DefinitionError(f"{self.name}: column {name!r}: names that begin with __ are kept for Tidewheel")
        if {"results", "late"} & set(self.outputs):
            raise DefinitionError(f"{self.name}: outputs are those beside results and late, got {self.outputs}")

    @property
    def name(self) -> str:
        """What the function is called."""
        return str(getattr(self.function, "__name__", repr(self.function)))

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return (self.keys,) if isinstance(self.keys, str) else self.keys

    @property
    def output_column(self) -> str:
        """The column of the results that names their output."""
        return self.function.output_column if isinstance(self.function, ReadyMade) else OUTPUT

    @property
    def keeps_time(self) -> bool:
        """Whether each result is known to have the time of an event."""
        return isinstance(self.function, ReadyMade) and self.function.keeps_time

    @property
    def about(self) -> str | None:
        """What the function does, in plain words; None if that is not known."""
        return self.function.about if isinstance(self.function, ReadyMade) else None

    @property
    def retracts(self) -> bool:
        """Whether a result may be retracted."""
        return self.lateness > 0

    @property
    def lifetime(self) -> Duration:
        """`ttl` in microseconds; more than all time if there is none."""
        return END_OF_TIME - START_OF_TIME if self.ttl is None else int(self.ttl)

    @property
    def timers(self) -> tuple[str, ...]:
        """The state columns that are timers in event time."""
        return tuple(self.waits)

    @property
    def processing_timers(self) -> tuple[str, ...]:
        """The state columns that are timers in processing time."""
        return tuple(name for name, kind in self.state.items() if isinstance(kind, ProcessingTimer))

    @property
    def waits(self) -> Mapping[str, Duration]:
        """The least time from an event to each of the timers in event time that it sets."""
        return {name: kind.wait for name, kind in self.state.items() if isinstance(kind, Timer)}

    @property
    def wait(self) -> Duration | None:
        """The least of these; None if there are no timers in event time."""
        return min(self.waits.values(), default=None)

    def __repr__(self) -> str:
        parts = [self.name, f"keys={self.keys!r}", f"state={self.state!r}"]
        if self.ttl is not None:
            parts.append(f"ttl={format_duration(self.lifetime)!r}")
        if self.schema is not None:
            parts.append(f"schema={self.schema!r}")
        if self.outputs:
            parts.append(f"outputs={self.outputs!r}")
        if self.time != "event_time":
            parts.append(f"time={self.time!r}")
        if self.lateness:
            parts.append(f"lateness={format_duration(self.lateness)!r}")
        return f"Process({', '.join(parts)})"


def _column(name: str, kind: StateColumn, where: str) -> pl.DataType | Timer | ProcessingTimer:
    made = kind() if isinstance(kind, type) else kind
    if not isinstance(made, (pl.DataType, Timer, ProcessingTimer)):
        raise DefinitionError(
            f"{where}: column {name!r} must be a polars type like pl.Int64, or Timer or ProcessingTimer, got {kind!r}"
        )
    return made
