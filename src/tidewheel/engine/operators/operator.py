"""Operators: the description of a stage, and its implementation on one key group, batch by batch, in columns. They do
not depend on Spark.

A kind of stage is one `Operation`, in a file of its own: everything else asks it, and knows no kinds. It says what it
needs and what it gives, describes itself, and makes the `StageOperator` that does the work.

An operator holds no state of its own. What it must remember it keeps as frames in a store; each store call may be a
round trip to another process, so an operator's calls grow with the slices of time that a batch touches, never with the
number of keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import polars as pl

from tidewheel.engine.checkpoint.definition import described
from tidewheel.engine.operators.lateness import split_late
from tidewheel.errors import CheckpointError, DefinitionError
from tidewheel.model.columns import TIME
from tidewheel.model.time import Duration, Instant
from tidewheel.model.watermarks import Strategy

__all__ = [
    "LATE",
    "METRICS",
    "REPORTS",
    "RESULTS",
    "MemoryStore",
    "Operation",
    "Outputs",
    "Reference",
    "ReferenceRows",
    "Schema",
    "SideInput",
    "StageInput",
    "StageOperator",
    "Store",
    "BatchTime",
    "check_names",
    "about_late",
    "unlike_outputs",
]

Schema = dict[str, pl.DataType]
Outputs = Mapping[str, pl.DataFrame]
"""The frames that an operator gives in a batch, by the name of the output."""

RESULTS = "results"
LATE = "late"
METRICS = "metrics"

REPORTS = "reports"
"""A column of what is broadcast: true for the key group that puts out what is to come out once."""


@dataclass(frozen=True, slots=True)
class BatchTime:
    """The time of a batch: the watermark in force when its events came, the one it moves to, and its clock."""

    watermark_before: Instant | None
    watermark: Instant | None
    clock: Instant

    @property
    def reached(self) -> Instant | None:
        """The watermark at the end of the batch; it never falls."""
        return max((time for time in (self.watermark_before, self.watermark) if time is not None), default=None)


class Store(Protocol):
    """The state of an operator in one key group: frames by name."""

    def names(self) -> list[str]:
        """All names, sorted. Makes no calls, but takes time for each name."""

    def get(self, name: str) -> pl.DataFrame | None:
        """Return the frame of this name. Where there is none, it costs nothing."""

    def put(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a frame under this name."""

    def remove(self, name: str) -> None:
        """Remove the frame of this name, if there is one."""


class MemoryStore:
    """A store in this process's memory: for tests, and for input that is read to its end at once."""

    def __init__(self) -> None:
        self.frames: dict[str, pl.DataFrame] = {}
        self.calls = 0

    def names(self) -> list[str]:
        return sorted(self.frames)

    def get(self, name: str) -> pl.DataFrame | None:
        self.calls += name in self.frames
        return self.frames.get(name)

    def put(self, name: str, frame: pl.DataFrame) -> None:
        self.calls += 1
        self.frames[name] = frame

    def remove(self, name: str) -> None:
        self.calls += name in self.frames
        self.frames.pop(name, None)


class StageOperator(ABC):
    """The implementation of a stage: its stateless part, and the step on the state of one key group."""

    takes_rows: bool = True
    """Whether `step` takes rows as they are, rather than partial aggregates of them."""
    late_by_slice: bool = False
    """Whether what `pre_aggregate` makes still tells which rows were late, for `without_late`."""
    lateness: Duration = 0
    """How far behind the watermark a row may be, unless `split_late` knows better."""

    def split_late(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Split rows into those in time and the late ones, with the reason (None if there are none)."""
        return split_late(
            rows,
            before=before,
            last_end=lambda sound: sound[TIME] + 1,
            lateness=self.lateness,
            future=future,
            arrival=arrival,
        )

    def pre_aggregate(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """Prepare rows for `step`: before the shuffle, anywhere, for any part of a batch."""
        return rows

    def without_late(self, taken: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """Leave out what `pre_aggregate` made of rows that turn out to be late, where `late_by_slice`."""
        raise NotImplementedError(f"{type(self).__name__} cannot tell which of its rows were late")

    def row_count(self, taken: pl.DataFrame) -> int:
        """How many rows `pre_aggregate` made this of."""
        return taken.height

    @abstractmethod
    def step(self, store: Store, rows: pl.DataFrame | None, batch_time: BatchTime) -> Outputs:
        """Take a batch's rows of this key group and its time; give what comes out."""

    def on_control(self, store: Store, control: pl.DataFrame, batch_time: BatchTime) -> Outputs:
        """Take what was read of the side input in this batch, before the batch's rows."""
        raise NotImplementedError(f"{type(self).__name__} has no side input")


class StageInput(Protocol):
    """The rows that an operation gets."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that they are keyed by."""

    @property
    def by(self) -> tuple[str, ...]:
        """The key columns in the frames; rows without keys have a constant one."""

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        """The columns of the rows."""


class SideInput(Protocol):
    """A topic that a stage reads beside its rows: patterns to look for, or answers of lookups."""

    @property
    def topic(self) -> str:
        """The name of the topic."""

    @property
    def message(self) -> str:
        """The type of its messages."""

    @property
    def strategy(self) -> Strategy:
        """Its watermark."""

    def refusal(self, row: Mapping[str, Any]) -> str | None:
        """The reason why a message is invalid here, if it is: it becomes a dead letter."""

    def accepted(self, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
        """Make the rows that the operator gets of messages, in the order in which they were read."""

    @property
    def partitioned_by(self) -> Sequence[str] | None:
        """The columns by which it is partitioned; None for a broadcast to all key groups. Then the column `REPORTS` is
        true in exactly one of them, which emits what must be emitted once."""


@dataclass(frozen=True)
class ReferenceRows:
    """The rows that a reference gives for a bundle. late: values, the reason, and by how much."""

    results: Sequence[Mapping[str, Any]]
    late: Sequence[tuple[Mapping[str, Any], str, Duration | None]] = ()
    others: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


Reference = Callable[[pl.DataFrame, Instant | None, Instant], ReferenceRows]
"""The slow and obvious way, over all keys: takes the prepared rows of a bundle, the watermark, and the clock. Times may
be in µs."""


class Operation(ABC):
    """A kind of stage with its arguments: what it needs, its outputs, its description, and its implementation.

    A new one is a subclass in a file of its own. What has a default need only be said where it differs.
    """

    stable_name: ClassVar[str]
    """Its name in checkpoints, with the version of what it keeps: neither may change while the state means the same. A
    class with fields also says which of them are stored (`stored`)."""
    noun: ClassVar[str]
    """What errors call it, like "a pattern"."""
    keeps_state: ClassVar[bool] = True
    """Whether it keeps state from one batch to the next."""
    rejects_rows: ClassVar[bool] = True
    """Whether there is an output `late`, for rows that are late or have a time that makes no sense."""
    follows_retractions: ClassVar[bool] = False
    """Whether rows before it may be retracted."""
    gives_panes: ClassVar[bool] = False
    """Whether its results are panes of windows."""
    only_once: ClassVar[bool] = False
    """Whether a stream can have one at most."""

    # What it needs and gives ---------------------------------------------------------------------------------------

    def needed(self, stage: StageInput) -> Iterable[str] | None:
        """The columns that it needs of its rows besides keys and time; None for all."""
        return None

    @abstractmethod
    def outputs(self, stage: StageInput) -> dict[str, Schema]:
        """The columns of its outputs, `results` first, without those of late rows; refuses invalid arguments."""

    @property
    def others(self) -> tuple[str, ...]:
        """The names of its outputs besides `results` and late rows."""
        return ()

    @property
    def computed(self) -> tuple[str, ...]:
        """The columns of results that the user asked for by name: a message of results must have room for them."""
        return ()

    @property
    def side_input(self) -> SideInput | None:
        """The topic that it reads beside its rows."""
        return None

    # Time and retractions ------------------------------------------------------------------------------------------

    @property
    def waits_for_clock(self) -> bool:
        """Whether it must be called as time goes by, although no rows come."""
        return False

    @property
    def results_behind(self) -> Duration | None:
        """How far the event times of results may be behind the watermark; None if there is no bound."""
        return None

    def retracts(self, given: bool) -> bool:
        """Whether results may be retracted. given: whether rows may be."""
        return given

    @property
    def unretracted(self) -> str | None:
        """How to get results without retractions; None if it only passes on those of its input."""
        return None

    @property
    def refused_in_front(self) -> str | None:
        """Why it cannot be followed by another stage; None if it can."""
        return None

    # Input that has an end -----------------------------------------------------------------------------------------

    @property
    def refused_in_batch(self) -> str | None:
        """Why it cannot run over input that is read to its end at once; None if it can."""
        return None

    def answered(self, read: Callable[[SideInput], pl.DataFrame]) -> Operation:
        """The same with all that its side input holds, from the start. `read` gives the rows of a side input."""
        return self

    # In words ------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def label(self) -> str:
        """Its name in the graph."""

    @abstractmethod
    def about(self, outputs: Mapping[str, str]) -> dict[str, str]:
        """What it gives, when, and what it keeps, each by the word that says which of these it is: What, Measures,
        Where, When, How, Changed, Late, Kept. outputs: what its outputs besides its results are called, by their own
        names."""

    @property
    def note(self) -> str | None:
        """A remark for a stage that follows."""
        return None

    def definition(self) -> Mapping[str, Any]:
        """The part that must not change while there is state: stored in the checkpoint and compared."""
        form: Mapping[str, Any] = described(self)
        return form

    # What runs it --------------------------------------------------------------------------------------------------

    @abstractmethod
    def operator(self, stage: StageInput) -> StageOperator:
        """Make the operator; called in each process."""

    def reference(self, stage: StageInput) -> Reference | None:
        """The reference implementation, for the test kit; None if there is none."""
        return None


def check_names(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse state that another version left. known: the names of what this one keeps, or what they begin with; each
    has the version of what is under it."""
    strange = next((name for name in names if not name.startswith(tuple(known))), None)
    if strange is not None:
        raise CheckpointError(
            f"the state of {what} holds {strange!r}, which this Tidewheel does not know; start on a new checkpoint, or "
            "with the Tidewheel that wrote it"
        )


def unlike_outputs(columns: Schema, others: Iterable[str]) -> Schema:
    """The columns, if none is called like an output: in a DataFrame they stand side by side."""
    reserved = [name for name in columns if name in (LATE, METRICS, "output", *others)]
    if reserved:
        raise DefinitionError(f"the column {reserved[0]!r}: an output has that name; give it another name")
    return columns


def about_late(late: str) -> str:
    """What becomes of rows behind the watermark: they go to the output of this name."""
    return f"rows behind the watermark go to the output {late}, with late_reason and late_by."
