"""Drop exact duplicates within a horizon of event time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from tidewheel.engine.checkpoint.definition import described_as
from tidewheel.engine.operators.operator import (
    LATE,
    RESULTS,
    BatchTime,
    Operation,
    Outputs,
    Reference,
    ReferenceRows,
    Schema,
    StageInput,
    StageOperator,
    Store,
)
from tidewheel.model.columns import TIME
from tidewheel.model.panes import START_OF_TIME
from tidewheel.model.process.deduplicate import DUPLICATES
from tidewheel.model.process.exact_duplicates import ExactDuplicates, ExactDuplicatesReference
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant, format_duration

__all__ = ["DedupOperation", "DedupOperator"]

_SLICE: Duration = 10_000_000
_PREFIX = "seen/1/"  # with the version of what is kept


@dataclass(frozen=True)
class DedupOperation(Operation):
    """Passes on the first of equal rows of equal time; the others go to an output of their own."""

    dedup: ExactDuplicates

    stable_name: ClassVar[str] = "deduplicate.exact/1"
    stored: ClassVar[StoredFields] = StoredFields("repeats")
    noun: ClassVar[str] = "deduplicate"

    def outputs(self, stage: StageInput) -> dict[str, Schema]:
        return {RESULTS: dict(stage.schema), DUPLICATES: dict(stage.schema)}

    @property
    def others(self) -> tuple[str, ...]:
        return (DUPLICATES,)

    @property
    def results_behind(self) -> Duration | None:
        """Rows are passed on up to the horizon behind the watermark."""
        return self.dedup.horizon_micros

    @property
    def label(self) -> str:
        return "deduplicate"

    def about(self, outputs: Mapping[str, str]) -> dict[str, str]:
        kept = self.dedup.horizon_micros
        behind = "behind the watermark" + (f" by more than {format_duration(kept)}" if kept else "")
        passed = f"is {format_duration(kept)} past" if kept else "passes"
        return {
            "What": f"the first of equal rows; the others go to the output {outputs[DUPLICATES]}.",
            "When": "in the batch that brings them.",
            "Late": f"rows {behind} go to the output {outputs[LATE]}, with late_reason and late_by.",
            "Kept": f"rows, until the watermark {passed} them.",
        }

    def definition(self) -> Mapping[str, Any]:
        return described_as(self.stable_name, self.dedup)

    def operator(self, stage: StageInput) -> StageOperator:
        return DedupOperator(self.dedup, stage.schema)

    def reference(self, stage: StageInput) -> Reference | None:
        reference = ExactDuplicatesReference(self.dedup)

        def step(rows: pl.DataFrame, watermark: Instant | None, clock: Instant) -> ReferenceRows:
            first, again, late = reference.step(rows.to_dicts(), watermark=watermark)
            return ReferenceRows(first, late, {DUPLICATES: again})

        return step

    def __repr__(self) -> str:
        return repr(self.dedup)


class DedupOperator(StageOperator):
    """Rows that came before are known by their columns and time (`seen/<version>/<start of the slice>`). A batch reads
    and writes the slices that its rows are in, and forgets those that the watermark has left behind the horizon."""

    def __init__(self, dedup: ExactDuplicates, schema: Mapping[str, pl.DataType]) -> None:
        self.dedup = dedup
        self.lateness = dedup.horizon_micros
        self._schema = [*schema]
        self._same = [name for name in dedup.columns if name != "event_time"] + [TIME]

    def step(self, store: Store, rows: pl.DataFrame | None, batch_time: BatchTime) -> Outputs:
        """Take the batch's rows that are in time; give the first of equal ones and, apart, the repeats."""
        parts: list[pl.DataFrame] = []
        if rows is not None and rows.height:
            numbers = (rows[TIME].to_numpy() - START_OF_TIME) // _SLICE
            slices = np.unique(numbers)
            for number in slices:
                part = rows if len(slices) == 1 else rows.filter(pl.Series(numbers == number))
                parts.append(self._marked(store, f"{_PREFIX}{number:020d}", part))
        if batch_time.watermark is not None:
            self._forget(store, batch_time.watermark)
        if not parts:
            return {}
        marked = pl.concat(parts)
        first = pl.col("__first")
        outputs = {RESULTS: marked.filter(first), DUPLICATES: marked.filter(~first)}
        return {name: frame.select(self._schema) for name, frame in outputs.items()}

    def _marked(self, store: Store, name: str, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of a slice, with whether they are new."""
        values = rows.select(self._same)
        new = values.with_row_index("__row").unique(self._same, keep="first", maintain_order=True)
        seen = store.get(name)
        if seen is not None:
            new = new.join(seen, on=self._same, how="anti", nulls_equal=True, maintain_order="left")
        first = np.zeros(rows.height, dtype=np.bool_)
        first[new["__row"].to_numpy()] = True
        if new.height:
            fresh = new.drop("__row")
            store.put(name, fresh if seen is None else pl.concat([seen, fresh]))
        return rows.with_columns(pl.Series("__first", first))

    def _forget(self, store: Store, watermark: Instant) -> None:
        for name in store.names():
            end = (int(name.removeprefix(_PREFIX)) + 1) * _SLICE + START_OF_TIME
            if end <= watermark - self.dedup.horizon_micros:
                store.remove(name)
