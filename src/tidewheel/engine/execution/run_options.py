"""The options of a run: the same keywords wherever one is started, checked once and handed on as one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, TypedDict

from tidewheel.engine.datasource.batch_limit import MAX_BYTES
from tidewheel.engine.datasource.options import parse_start_from
from tidewheel.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DataFrameRunOptions", "RunOptions", "RunSettings"]


class DataFrameRunOptions(TypedDict, total=False):
    """The options of `run_dataframe`: those of `RunOptions` that do not concern state that Tidewheel keeps."""

    spark: SparkSession | Callable[[], SparkSession] | None
    available_now: bool
    start_from: str
    max_events_per_batch: int
    max_bytes_per_batch: int
    skip_damaged: bool
    append_to_existing: bool


class RunOptions(DataFrameRunOptions, total=False):
    """The options of a run: keywords of `tidewheel.run` and `Result.start`; all can be left out. `run_dataframe` takes
    them too, except the last three.

    Args:
        spark: A session, or a function that makes one, which is called when all that can be refused without Spark has
            been checked; by default `tidewheel.session()`.
        available_now: Read what is there now, and end; by default it goes on until it is stopped.
        start_from: Where a new checkpoint begins: "earliest" (the default), "latest", or a time.
        max_events_per_batch: How many events a batch reads at most, in whole blocks; by default 100,000.
        max_bytes_per_batch: How many bytes of keys and values a batch reads at most, uncompressed; by default 256 MiB.
        skip_damaged: Go on without records whose blocks are damaged in the log's file. `dead.<name>` has a letter for
            each stretch, and `progress().damaged` their number. By default the run fails.
        append_to_existing: Let a new checkpoint write into topics that hold results of another run. By default it is
            refused, since the results would be there twice.
        key_groups: Into how many groups keys are hashed, each with state and a Spark partition of its own; by default
            what the checkpoint says, or for a new one the session's shuffle partitions, at most 64.
        accept_changes: Go on from a checkpoint that was made with other parameters or steps, if no state is kept.
        clock: What processing time is: "wall" (the default), or "log", when events reached the log, to run history
            again as it happened.

    >>> RunOptions(available_now=True, key_groups=8)  # tw.run(job, log=log, checkpoint="state", **options)
    {'available_now': True, 'key_groups': 8}
    """

    key_groups: int | None
    accept_changes: bool
    clock: Literal["wall", "log"]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The options of a run, checked and with defaults. `RunOptions` explains each.

    >>> RunSettings.of("run", {"available_now": True}).max_events_per_batch
    100000
    >>> RunSettings(clock="sun")
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: clock must be wall or log, got 'sun'
    """

    spark: SparkSession | Callable[[], SparkSession] | None = None
    available_now: bool = False
    start_from: str = "earliest"
    max_events_per_batch: int = 100_000
    max_bytes_per_batch: int = MAX_BYTES
    skip_damaged: bool = False
    append_to_existing: bool = False
    key_groups: int | None = None
    accept_changes: bool = False
    clock: Literal["wall", "log"] = "wall"

    def __post_init__(self) -> None:
        for name in ("available_now", "skip_damaged", "append_to_existing", "accept_changes"):
            if not isinstance(getattr(self, name), bool):
                raise DefinitionError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("max_events_per_batch", "max_bytes_per_batch", "key_groups"):
            number = getattr(self, name)
            whole = isinstance(number, int) and not isinstance(number, bool)
            if not (whole and number >= 1) and not (name == "key_groups" and number is None):
                raise DefinitionError(f"{name} must be a whole number of at least 1, got {number!r}")
        if self.clock not in ("wall", "log"):
            raise DefinitionError(f"clock must be wall or log, got {self.clock!r}")
        parse_start_from(self.start_from, what="start_from")

    @classmethod
    def of(
        cls,
        caller: str,
        options: RunOptions | DataFrameRunOptions,
        known: type[RunOptions] | type[DataFrameRunOptions] = RunOptions,
    ) -> RunSettings:
        """Check the keywords that a function was called with; one that is not known is refused with the nearest."""
        names = list(known.__annotations__)
        strange = next((name for name in options if name not in names), None)
        if strange is not None:
            near = get_close_matches(strange, names, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise DefinitionError(f"{caller}: there is no option {strange!r}{hint}; there are {', '.join(names)}")
        return cls(**options)
