"""A process function bound to the columns of its input: its schemas, and a call that is checked on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.process.process import DATETIME, Clock, DataType, Process

__all__ = ["BoundProcess", "bind"]


@dataclass(frozen=True)
class BoundProcess:
    """A process with the schemas of its events, its state (keys and state columns) and its results."""

    process: Process
    events: Mapping[str, pl.DataType]
    state: Mapping[str, pl.DataType]
    results: Mapping[str, pl.DataType]

    def call(self, events: pl.DataFrame, state: pl.DataFrame, clock: Clock) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Call the function; the results and the new state have the declared columns and types, or it is an error."""
        results, new = _returned(self.process, self.process.function(events, state, clock))
        results = _shaped(self.process, "results", results, self.results)
        new = _shaped(self.process, "state", new, self.state)
        if results[self.process.time].null_count():
            raise DefinitionError(
                f"{self.process.name} returned results without {self.process.time}; each result needs its event time"
            )
        self._check_keys(state, new)
        return results, new

    def _check_keys(self, state: pl.DataFrame, new: pl.DataFrame) -> None:
        keys = list(self.process.key_columns)
        if new.select(keys).is_duplicated().any():
            twice = new.filter(new.select(keys).is_duplicated()).row(0, named=True)
            raise DefinitionError(
                f"{self.process.name} returned more than one row of state for key {[twice[key] for key in keys]}; "
                "state has one row per key"
            )
        strange = new.join(state, on=keys, how="anti", nulls_equal=True)
        if strange.height:
            raise DefinitionError(
                f"{self.process.name} returned state of key {list(strange.select(keys).row(0))}, which it was not "
                "called for; return state only for the keys in the state it was given"
            )

    def split(self, results: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """Split the results by output."""
        declared, column = self.process.outputs, self.process.output_column
        if not declared:
            return {"results": results}
        strange = set(results[column].drop_nulls().unique()) - set(declared)
        if strange:
            raise DefinitionError(
                f"{self.process.name} returned results for the output {sorted(strange)[0]!r}, but declares {declared}"
            )
        outputs = {"results": results.filter(pl.col(column).is_null()).drop(column)}
        return outputs | {name: results.filter(pl.col(column) == name).drop(column) for name in declared}


def bind(process: Process, schema: Mapping[str, DataType]) -> BoundProcess:
    """Bind a process to the columns of its input; what does not fit is an error here, before any event came."""
    known = {name: kind() if isinstance(kind, type) else kind for name, kind in schema.items()}
    for key in process.key_columns:
        if key not in known:
            raise DefinitionError(f"{process.name}: there is no key column {key!r}; the input has {list(known)}")
    events = known | {process.time: DATETIME}
    state: dict[str, pl.DataType] = {key: known[key] for key in process.key_columns}
    for name, kind in process.state.items():
        state[name] = kind if isinstance(kind, pl.DataType) else DATETIME
    results = _results(process, events, state)
    needed = [*process.key_columns, process.time, *([process.output_column] if process.outputs else [])]
    for name in needed:
        if name not in results:
            raise DefinitionError(f"{process.name}: results need a column {name!r}, they have {list(results)}")
    if process.lateness and results.get("retraction") != pl.Boolean:
        raise DefinitionError(
            f"{process.name}: events may come late, so results need a boolean column 'retraction' that says which take "
            f"back earlier ones; they have {list(results)}"
        )
    types = {name: kind for name, kind in results.items() if isinstance(kind, pl.DataType)}
    return BoundProcess(process, events, state, types)


def _results(
    process: Process, events: Mapping[str, pl.DataType], state: Mapping[str, pl.DataType]
) -> Mapping[str, object]:
    if process.schema is not None:
        return process.schema
    due = {f"{name}_due": pl.Boolean() for name in (*process.timers, *process.processing_timers)}
    empty = pl.DataFrame(schema=dict(events)), pl.DataFrame(schema={**state, **due})
    try:
        returned = process.function(*empty, Clock(before=None, watermark=None, clock=0))
    except Exception as error:  # the user's function, on frames that it may not expect
        raise DefinitionError(
            f"{process.name} failed on empty frames, by which the columns of its results are found: "
            f'{type(error).__name__}: {error}. Fix that, or pass schema={{"column": pl.Int64, ...}}'
        ) from error
    results, new = _returned(process, returned)
    _shaped(process, "state", new, state)
    return dict(results.schema)


def _returned(process: Process, returned: object) -> tuple[pl.DataFrame, pl.DataFrame]:
    if isinstance(returned, tuple) and len(returned) == 2:
        results, state = returned
        if isinstance(results, pl.DataFrame) and isinstance(state, pl.DataFrame):
            return results, state
    raise DefinitionError(
        f"{process.name} must return two polars DataFrames, (results, state), got {type(returned).__name__}"
    )


def _shaped(process: Process, what: str, frame: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    missing = [name for name in schema if name not in frame.columns]
    if missing:
        raise DefinitionError(f"{process.name} returned {what} without column {missing[0]!r}, it has {frame.columns}")
    try:
        return frame.select(pl.col(name).cast(kind) for name, kind in schema.items())
    except pl.exceptions.PolarsError as error:
        raise DefinitionError(f"{process.name} returned {what} of other types than declared: {error}") from error
