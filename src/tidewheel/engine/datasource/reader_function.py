"""Functions that run inside the reading tasks: what they get, what they give, and how an option carries them."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidewheel.engine.spark.pickling import dumps, loads
from tidewheel.model.time import Instant

__all__ = [
    "DecodedBatch",
    "ReadInfo",
    "ReaderFunction",
    "SelectiveReaderFunction",
    "load_reader_function",
    "reader_function",
]


@dataclass(frozen=True, slots=True)
class ReadInfo:
    """The time of a batch, as its offsets hold it, and which of its tasks this is.

    >>> info = ReadInfo(watermark_before=None, watermark=1_000_000, clock=2_000_000, task=0, tasks=4)
    >>> info.watermark, info.first
    (1000000, True)
    """

    watermark_before: Instant | None
    """The watermark that the batch before ended with."""
    watermark: Instant | None
    """The watermark of this batch."""
    clock: Instant
    """The processing time of this batch."""
    task: int
    """The number of this task, from 0."""
    tasks: int
    """How many tasks read the batch."""
    first: bool = True
    """Whether it is the first task of its catch-up, from which every key group gets the time."""
    catch_up: tuple[str, ...] = ()
    """The flows that it is for; empty: all that are not catching up."""
    elsewhere: tuple[str, ...] = ()
    """The flows that are catching up."""


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """Events of one partition in columns (raw records if no type was named), as a function inside the reader gets
    them.

    >>> batch = DecodedBatch("input.order", 0, pa.RecordBatch.from_pydict({"amount": [12.5, 3.0]}))
    >>> batch.topic, batch.columns.num_rows
    ('input.order', 2)
    """

    topic: str
    """The topic that they are from."""
    partition: int
    """The partition of the topic."""
    columns: pa.RecordBatch
    """A row for each event."""
    whole: Callable[[pa.Array], pa.RecordBatch] | None = None
    """If only some columns were decoded: all columns of the rows at these places."""
    size: int = 0
    """The bytes of the records that the events were in."""


class ReaderFunction(Protocol):
    """A function inside the reader.

    >>> def lengths(batches: Iterator[DecodedBatch], info: ReadInfo, /) -> Iterator[pa.RecordBatch]:
    ...     for batch in batches:
    ...         yield pa.RecordBatch.from_pydict({"rows": [batch.columns.num_rows]})
    >>> function: ReaderFunction = lengths
    """

    def __call__(self, batches: Iterator[DecodedBatch], info: ReadInfo, /) -> Iterator[pa.RecordBatch]:
        """Make rows for Spark of what was decoded."""


class SelectiveReaderFunction(ABC):
    """One that also says what to decode, and what to refuse. A user's function is none, whatever attributes it has."""

    columns: Mapping[str, frozenset[str]]
    """The columns that need to be decoded, of each topic of which not all are."""

    @abstractmethod
    def __call__(self, batches: Iterator[DecodedBatch], info: ReadInfo, /) -> Iterator[pa.RecordBatch]:
        """Make rows for Spark of what was decoded."""

    @abstractmethod
    def refused(self, topic: str, columns: pa.RecordBatch) -> Mapping[int, str]:
        """Name the rows that become dead letters although they can be decoded, each with the reason."""


def reader_function(function: ReaderFunction) -> str:
    """Make the value of the option `transform`: a function that runs inside the reading tasks, before Spark sees a row.

    In each task it is called once, with an iterator of `DecodedBatch` and the batch's `ReadInfo` (watermark before and
    after, clock), also when there is nothing to read; it gives Arrow record batches of the columns `transformSchema`.

    >>> def lengths(batches, info):
    ...     for batch in batches:
    ...         yield pa.RecordBatch.from_pydict({"rows": [batch.columns.num_rows]})
    >>> option = reader_function(lengths)  # .option("transform", option).option("transformSchema", "rows BIGINT")
    >>> isinstance(option, str)
    True
    """
    return base64.b64encode(dumps(function)).decode()


def load_reader_function(option: str) -> ReaderFunction:
    """Read a function back from the option's value."""
    function: ReaderFunction = loads(base64.b64decode(option))
    return function
