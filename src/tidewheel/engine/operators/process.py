"""Process functions on one key group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import polars as pl

from tidewheel.engine.checkpoint.definition import described_as
from tidewheel.engine.operators import event_buffer
from tidewheel.engine.operators.event_buffer import NEVER, Queue
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
    about_late,
)
from tidewheel.engine.operators.process_driver import LAST, ProcessDriver
from tidewheel.errors import CheckpointError
from tidewheel.model.columns import TIME
from tidewheel.model.process.process import DATETIME, Clock, DataType, Process
from tidewheel.model.process.process_call import bind
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant, format_duration
from tidewheel.plain_text import function_name

__all__ = ["ProcessOperation", "ProcessOperator"]

VERSION = 1
_STATE, _HINT = "state", "hint"
_HINT_COLUMNS = dict.fromkeys(["version", "next_event", "next_timer", "next_clock", "arrivals"], pl.Int64())
"""Its columns, in the order of `Hint`; the version is that of the state, too."""


@dataclass(frozen=True)
class ProcessOperation(Operation):
    """A process function over each key's rows, in the order of event time."""

    process: Process

    stable_name: ClassVar[str] = "process/1"
    stored: ClassVar[StoredFields] = StoredFields("process")
    noun: ClassVar[str] = "a process function"

    def outputs(self, stage: StageInput) -> dict[str, Schema]:
        columns = dict(bind(self.process, stage.schema).results)
        if self.process.outputs:
            columns.pop(self.process.output_column)
        return dict.fromkeys((RESULTS, *self.process.outputs), columns)

    @property
    def others(self) -> tuple[str, ...]:
        return self.process.outputs

    @property
    def waits_for_clock(self) -> bool:
        """Whether there may be timers in processing time."""
        return bool(self.process.processing_timers)

    @property
    def results_behind(self) -> Duration | None:
        """A function may give its results any time, unless it is known to keep that of its rows."""
        return 0 if self.process.keeps_time else None

    def retracts(self, given: bool) -> bool:
        """Whether late rows change results."""
        return self.process.retracts

    @property
    def unretracted(self) -> str | None:
        """Without a lateness nothing is retracted."""
        if not self.process.retracts:
            return None
        return "leave out the lateness of previous, after which late rows go to the output late"

    @property
    def label(self) -> str:
        return f"process: {function_name(self.process.function)}"

    def about(self, outputs: Mapping[str, str]) -> dict[str, str]:
        process = self.process
        about = process.about or f"{function_name(process.function)}(events, state, clock)"
        ttl = "for ever" if process.ttl is None else f"until a key was silent for {format_duration(process.lifetime)}"
        timers = [f"when the watermark reaches a key's {name}" for name in process.timers]
        timers += [f"when the clock reaches a key's {name}" for name in process.processing_timers]
        state = f"; {', '.join(process.state)} of each key, {ttl}" if process.state else ""
        return {
            "What": f"{about}, over each key's rows in the order of event time.",
            "When": f"{', and '.join(['in the batch in which the watermark passes the rows', *timers])}.",
            "Late": self._late(outputs[LATE]),
            "Kept": f"rows until the watermark passes them{state}.",
        }

    def _late(self, late: str) -> str:
        if not self.process.lateness:
            return about_late(late)
        by = format_duration(self.process.lateness)
        return (
            f"rows up to {by} behind the watermark change results in the batch that brings them: they are "
            f"retracted (retraction = true) and come again; later ones go to the output {late}, with late_reason and "
            "late_by."
        )

    def definition(self) -> Mapping[str, Any]:
        return described_as(self.stable_name, self.process)

    def operator(self, stage: StageInput) -> StageOperator:
        return ProcessOperator(self.process, stage.schema)

    def reference(self, stage: StageInput) -> Reference | None:
        from tidewheel.model.reference.process import ProcessReference  # only tests need it

        reference = ProcessReference(self.process, stage.schema)

        def step(rows: pl.DataFrame, watermark: Instant | None, clock: Instant) -> ReferenceRows:
            found = reference.step(rows, watermark=watermark, clock=clock)
            late = [(row, row.pop("reason"), row.pop("late_by")) for row in found.pop(LATE)]
            return ReferenceRows(found.pop(RESULTS), late, found)

        return step

    def __repr__(self) -> str:
        return repr(self.process)


@dataclass(frozen=True, slots=True)
class Hint:
    """A summary of the state, enough to see that nothing is due: a quiet batch reads only this."""

    version: int = VERSION
    next_event: Instant = NEVER
    """No event that waits is before this."""
    next_timer: Instant = NEVER
    """No timer is due and no state expires at a watermark before this."""
    next_clock: Instant = NEVER
    """No processing timer is due at a clock before this."""
    arrivals: int = 0
    """How many events have come."""


class ProcessOperator(StageOperator):
    """A process function, on rows with the user's columns (`schema`) and `__time` (Int64, µs).

    The store holds the events that wait (`events/...`), the state
    (`state`: the key and state columns and `__last`) and `hint`. A batch calls the store once for the hint if nothing
    is due, and otherwise a number of times that depends on the slices of event time it touches.
    """

    def __init__(self, process: Process, schema: Mapping[str, DataType]) -> None:
        self.process = process
        self.lateness = process.lateness
        self.bound = bind(process, schema)
        self.schema = {name: self.bound.events[name] for name in schema if name != process.time}

    def step(self, store: Store, rows: pl.DataFrame | None, batch_time: BatchTime) -> Outputs:
        """Take the batch's rows that are in time, and its time; give `results` and the process's other outputs."""
        columns = [*self.schema, TIME]
        accepted = pl.DataFrame(schema={**self.schema, TIME: pl.Int64()}) if rows is None else rows.select(columns)
        watermark = batch_time.reached
        hint = old = _read_hint(store)
        released, queue = event_buffer.release(store, accepted, watermark, Queue(hint.next_event, hint.arrivals))
        hint = replace(hint, next_event=queue.next_event, arrivals=queue.arrivals)
        timers_due = watermark is not None and hint.next_timer <= watermark
        results = pl.DataFrame(schema=dict(self.bound.results))
        if released.height or timers_due or hint.next_clock <= batch_time.clock:
            results, hint = self._advance(
                store, released, Clock(batch_time.watermark_before, watermark, batch_time.clock), hint
            )
        if hint != old:
            store.put(_HINT, pl.DataFrame([astuple(hint)], schema=_HINT_COLUMNS, orient="row"))
        return self.bound.split(results)

    def _advance(self, store: Store, released: pl.DataFrame, clock: Clock, hint: Hint) -> tuple[pl.DataFrame, Hint]:
        """Run the function over what was released and what is due."""
        stored = store.get(_STATE)
        state = pl.DataFrame(schema={**self.bound.state, LAST: pl.Int64()}) if stored is None else stored
        events = released.with_columns(pl.col(TIME).cast(DATETIME).alias(self.process.time))
        rounds = ProcessDriver(self.bound, events, state, clock)
        results, new = rounds.run()
        if new.height:
            store.put(_STATE, new)
        elif stored is not None:
            store.remove(_STATE)
        return results, Hint(VERSION, hint.next_event, *rounds.due(new), hint.arrivals)


def _read_hint(store: Store) -> Hint:
    frame = store.get(_HINT)
    if frame is None:
        return Hint()
    version = frame["version"][0]
    if version != VERSION:
        raise CheckpointError(
            f"the state of this process was written in format {version}, this Tidewheel reads {VERSION}; "
            "start on a new checkpoint, or with the Tidewheel that wrote it"
        )
    return Hint(*frame.select(list(_HINT_COLUMNS)).row(0))
