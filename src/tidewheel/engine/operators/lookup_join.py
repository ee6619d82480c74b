"""Join rows with what was looked up about their key outside the stream.

Nothing is asked here: a job that called a service could not be repeated. Who asks writes what became of each request
into the lookup's topic (`tidewheel.ingest.lookup`), and a job reads that topic beside its rows. How far it has read is
in the batch's offsets, like everything else, so a batch that is run again finds the same answers and gives the same
bytes. The other way, to ask inside the reader and note the answers in a table of its own, would need a second store
that is written in step with Spark's checkpoint, and a slow service would hold up every job of the query.

Each row comes out once, with its own time: with the answer as soon as there is one; without, when the watermark is
`timeout` past the row. So a row waits, never the stream. Rows are taken however late they are: what follows decides.
An answer is good for all times, so the topic is read ahead of the rows, and it makes no difference to the results how
rows were cut into batches, as long as the answers were written before the batch was planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import polars as pl

from tidewheel.engine.operators.operator import (
    RESULTS,
    BatchTime,
    Operation,
    Outputs,
    Schema,
    SideInput,
    StageInput,
    StageOperator,
    Store,
    check_names,
)
from tidewheel.engine.operators.schema_evolution import conform
from tidewheel.errors import DefinitionError, MalformedError
from tidewheel.model.columns import TIME
from tidewheel.model.process.lookup import Lookup
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant, format_duration
from tidewheel.model.watermarks import ReadAheadTopic, Strategy
from tidewheel.transport.events.event_pb2 import LookupOutcome
from tidewheel.transport.events.registry import type_name

__all__ = ["FAILED", "REASON", "LookupJoin", "LookupJoinOperator"]

FAILED = "failed"
"""The output of the rows without an answer."""
REASON = "reason"
"""Its column that says why there is none."""

NO_ANSWER = "no answer in time"
NO_KEY = "the key is incomplete"

_FOUND, _WHY, _SEEN, _READ = "__found", "__why", "__seen", "__read"
_ANSWERS, _WAITING = "answers/1", "waiting/1"  # the number is the version of what they hold


@dataclass(frozen=True)
class LookupJoin(Operation):
    """A lookup for rows of a schema. `known`: outcomes that are there from the start, for bounded input."""

    lookup: Lookup
    timeout: Duration
    keep: Duration
    schema: Mapping[str, pl.DataType] = field(repr=False)
    known: pl.DataFrame | None = field(default=None, repr=False, compare=False)

    stable_name: ClassVar[str] = "lookup/1"
    stored: ClassVar[StoredFields] = StoredFields("lookup", "timeout", "keep", micros=("timeout", "keep"))
    only_once: ClassVar[bool] = True
    noun: ClassVar[str] = "a lookup"
    message: ClassVar[str] = type_name(LookupOutcome)
    strategy: ClassVar[Strategy] = ReadAheadTopic()

    def __post_init__(self) -> None:
        name = self.lookup.name
        for key, kind in self.lookup.keys.items():
            if key not in self.schema:
                raise DefinitionError(
                    f"lookup {name}: there is no column {key!r}; there are {', '.join(self.schema)}. "
                    "Make it with with_columns"
                )
            there = self.schema[key]
            if there != kind and not (there.is_integer() and kind.is_integer()):
                raise DefinitionError(f"lookup {name}: the column {key!r} is {there}, the lookup's is {kind}; cast it")
        taken = [column for column in self.lookup.returns if column in self.schema]
        if taken:
            raise DefinitionError(
                f"lookup {name}: the rows have a column {taken[0]!r} already, and so has the answer; rename one, or "
                "leave the rows' out with select"
            )
        if REASON in self.schema:
            raise DefinitionError(f"lookup {name}: rows that fail get a column {REASON!r}; rename the one there is")
        if self.timeout < 0 or self.keep <= 0:
            raise DefinitionError(
                f"lookup {name}: timeout must not be negative and keep greater than 0, got "
                f"{format_duration(self.timeout)} and {format_duration(self.keep)}"
            )

    @property
    def topic(self) -> str:
        return self.lookup.topic

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.lookup.keys)

    @property
    def answer_columns(self) -> dict[str, pl.DataType]:
        return dict(pl.DataFrame(schema=dict(self.lookup.returns)).schema)

    @property
    def others(self) -> tuple[str, ...]:
        """The output of the rows without an answer."""
        return (FAILED,)

    def outputs(self, stage: StageInput) -> dict[str, Schema]:
        """All rows with the answer's columns as `results`; those without an answer, with the reason, as `failed`."""
        return {RESULTS: {**self.schema, **self.answer_columns}, FAILED: {**self.schema, REASON: pl.String()}}

    def about(self, outputs: Mapping[str, str]) -> dict[str, str]:
        wait = format_duration(self.timeout)
        return {
            "What": f"{', '.join(self.lookup.returns)} of {', '.join(self.lookup.keys)}, from the topic {self.topic}.",
            "When": f"at once if the answer is there, else when it comes; when the watermark is {wait} past the row it "
            f"goes on without, and is in the output {outputs[FAILED]}, too.",
            "Late": "rows are accepted however late they come.",
            "Kept": f"rows until there is an answer, at most {wait}; answers for at least {format_duration(self.keep)} "
            "of event time after the row that asked.",
        }

    @property
    def label(self) -> str:
        return f"lookup {self.lookup.name}"

    @property
    def side_input(self) -> SideInput | None:
        return self

    @property
    def partitioned_by(self) -> Sequence[str] | None:
        """Outcomes go to the key groups of their keys."""
        return self.keys

    def answered(self, read: Callable[[SideInput], pl.DataFrame]) -> LookupJoin:
        """The same join with the outcomes that there are now."""
        return replace(self, known=self.newest(read(self)))

    def operator(self, stage: StageInput) -> StageOperator:
        """Make the operator, which holds rows until their answer comes."""
        return LookupJoinOperator(self)

    # Where outcomes are read ---------------------------------------------------------------------------------

    def refusal(self, row: Mapping[str, Any]) -> str | None:
        """Return why an outcome does not fit the lookup; None if it does."""
        try:
            self.lookup.read_key(row["key"] or "")
            if row["answer"]:
                self.lookup.read_answer(row["answer"])
            elif not row["reason"]:
                return f"lookup {self.lookup.name}: expected an answer, or the reason why there is none"
        except MalformedError as error:
            return str(error)
        return None

    def accepted(self, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
        """Make rows of outcomes, in the order in which they were read. Rows may have narrower columns
        than the lookup's key: what no row can ask for is left out."""
        columns = {
            **self.lookup.keys,
            **self.answer_columns,
            _FOUND: pl.Boolean(),
            _WHY: pl.String(),
            _SEEN: pl.Int64(),
        }
        rows: list[tuple[Any, ...]] = []
        nothing = (None,) * len(self.answer_columns)
        for frame in frames:
            seen = frame["event_time"].cast(pl.Datetime("us", "UTC")).cast(pl.Int64).to_list()
            for row, at in zip(frame.iter_rows(named=True), seen, strict=True):
                if self.refusal(row) is not None:
                    continue
                key, found = self.lookup.read_key(row["key"]), bool(row["answer"])
                answer = tuple(self.lookup.read_answer(row["answer"]).values()) if found else nothing
                rows.append((*key, *answer, found, row["reason"] or None, at))
        narrow = [pl.col(name).cast(self.schema[name], strict=False) for name in self.keys]
        return pl.DataFrame(rows, schema=columns, orient="row").with_columns(narrow).drop_nulls(self.keys)

    def newest(self, outcomes: pl.DataFrame) -> pl.DataFrame:
        """The latest outcome of each key; a failure never replaces an answer, which stays true."""
        ordered = outcomes.with_row_index(_READ).sort(_FOUND, _READ).drop(_READ)
        return ordered.unique(self.keys, keep="last", maintain_order=True)


class LookupJoinOperator(StageOperator):
    """A lookup on one key group.

    The store holds the outcomes (`answers`) and the rows that wait for one (`waiting`). A batch reads both once,
    and writes what changed.
    """

    def __init__(self, operation: LookupJoin) -> None:
        self.operation = operation
        self.keys = list(operation.keys)
        self.columns = list(operation.schema)
        self.schema = {**operation.schema, TIME: pl.Int64()}

    def split_late(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Split off rows with an invalid time; no row is too late."""
        return super().split_late(rows, None, future=future, arrival=arrival)

    def pre_aggregate(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """The rows: all of them have to be seen."""
        return rows.select([*self.columns, TIME])

    def on_control(self, store: Store, control: pl.DataFrame, batch_time: BatchTime) -> Outputs:
        """Take outcomes that were read in this batch: they count for its rows already."""
        check_names("this lookup", store.names(), (_ANSWERS, _WAITING))
        fresh = control.select(*self._kinds())
        stored = store.get(_ANSWERS)
        newest = self.operation.newest(fresh if stored is None else pl.concat([stored, fresh]))
        if batch_time.watermark_before is not None:
            newest = newest.filter(
                pl.col(_SEEN).fill_null(batch_time.watermark_before) + self.operation.keep
                >= batch_time.watermark_before
            )
        if newest.height:
            store.put(_ANSWERS, newest)
        else:
            store.remove(_ANSWERS)
        return {}

    def step(self, store: Store, rows: pl.DataFrame | None, batch_time: BatchTime) -> Outputs:
        """Take the batch's rows and its time; give those that have their answer, and those that can wait no more."""
        check_names("this lookup", store.names(), (_ANSWERS, _WAITING))
        waiting = store.get(_WAITING)
        given = [conform(frame, self.schema) for frame in (waiting, rows) if frame is not None]
        if not given or not any(frame.height for frame in given):
            return {}
        # Those that wait came first: rows of the same time stay in the order of their arrival.
        joined = pl.concat(given).join(
            self._answers(store), on=self.keys, how="left", maintain_order="left", nulls_equal=False
        )
        watermark = batch_time.reached
        complete = pl.all_horizontal(pl.col(name).is_not_null() for name in self.keys)
        found = pl.col(_FOUND).fill_null(False)
        overdue = pl.lit(False) if watermark is None else pl.col(TIME) + self.operation.timeout <= watermark
        over = joined.with_columns(
            pl.when(found).then(None).when(~complete).then(pl.lit(NO_KEY)).when(overdue)
            .then(pl.col(_WHY).fill_null(NO_ANSWER)).alias(REASON),
            (found | ~complete | overdue).alias(_READ),
        )  # fmt: skip
        self._keep(store, waiting, over.filter(~pl.col(_READ)))
        done = over.filter(_READ)
        failed = done.filter(pl.col(REASON).is_not_null())
        return {
            RESULTS: done.select([*self.columns, *self.operation.answer_columns, TIME]),
            FAILED: failed.select([*self.columns, REASON, TIME]),
        }

    def _kinds(self) -> list[str]:
        return [*self.keys, *self.operation.answer_columns, _FOUND, _WHY, _SEEN]

    def _answers(self, store: Store) -> pl.DataFrame:
        stored = store.get(_ANSWERS)
        known = self.operation.known if stored is None else stored
        found = self.operation.accepted(()) if known is None else known
        return found.select(*self.keys, *self.operation.answer_columns, _FOUND, _WHY)

    def _keep(self, store: Store, before: pl.DataFrame | None, after: pl.DataFrame) -> None:
        rows = after.select([*self.columns, TIME])
        if not rows.height:
            if before is not None:
                store.remove(_WAITING)
        elif before is None or not rows.equals(before):
            store.put(_WAITING, rows)
