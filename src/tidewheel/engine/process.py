"""Process functions on one bucket of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields, replace

import polars as pl

from tidewheel.engine import event_buffer
from tidewheel.engine.event_buffer import NEVER, Queue
from tidewheel.engine.judging import judge
from tidewheel.engine.operator import Outputs, Store, Tick
from tidewheel.engine.process_rounds import LAST, Rounds
from tidewheel.engine.window_columns import TIME
from tidewheel.errors import CheckpointError
from tidewheel.model.process import DATETIME, Clock, DataType, Process
from tidewheel.model.process_call import bind
from tidewheel.model.time import Duration, Instant

__all__ = ["ProcessOperator"]

VERSION = 1


@dataclass(frozen=True, slots=True)
class Hint:
    """What must be known to see that there is nothing to do: all that a quiet batch reads."""

    version: int = VERSION
    next_event: Instant = NEVER
    """No event that waits is before this."""
    next_timer: Instant = NEVER
    """No timer is due and no state expires at a watermark before this."""
    next_clock: Instant = NEVER
    """No processing timer is due at a clock before this."""
    arrivals: int = 0
    """How many events have come."""


class ProcessOperator:
    """A process function, on rows with the user's columns (`schema`) and `__time` (Int64, µs).

    The store holds the events that wait (`events/...`), the state
    (`state`: the key and state columns and `__last`) and `hint`. A batch calls the store once for the hint if nothing
    is due, and otherwise a number of times that depends on the slices of event time it touches.
    """

    takes_rows = True
    late_by_slice = False

    def __init__(self, process: Process, schema: Mapping[str, DataType]) -> None:
        self.process = process
        self.bound = bind(process, schema)
        self.schema = {name: self.bound.events[name] for name in schema if name != process.time}

    def judge(
        self, rows: pl.DataFrame, before: Instant | None, *, future: Duration | None = None, arrival: str | None = None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """The rows that are not behind the watermark by more than the lateness, and the others with the reason."""
        return judge(
            rows,
            before=before,
            last_end=lambda sound: sound[TIME] + 1,
            lateness=self.process.lateness,
            future=future,
            arrival=arrival,
        )

    def first_half(self, rows: pl.DataFrame, before: Instant | None) -> pl.DataFrame:
        """The rows: all of them have to be seen."""
        return rows

    def step(self, store: Store, rows: pl.DataFrame | None, tick: Tick) -> Outputs:
        """Take the batch's rows that are in time, and its time; give `results` and the process's other streams."""
        columns = [*self.schema, TIME]
        accepted = pl.DataFrame(schema={**self.schema, TIME: pl.Int64()}) if rows is None else rows.select(columns)
        watermark = max((time for time in (tick.before, tick.watermark) if time is not None), default=None)
        hint = old = _read_hint(store)
        released, queue = event_buffer.release(store, accepted, watermark, Queue(hint.next_event, hint.arrivals))
        hint = replace(hint, next_event=queue.next_event, arrivals=queue.arrivals)
        timers_due = watermark is not None and hint.next_timer <= watermark
        results = pl.DataFrame(schema=dict(self.bound.output))
        if released.height or timers_due or hint.next_clock <= tick.clock:
            results, hint = self._advance(store, released, Clock(tick.before, watermark, tick.clock), hint)
        if hint != old:
            names = [field.name for field in fields(Hint)]
            store.put("hint", pl.DataFrame([astuple(hint)], schema=dict.fromkeys(names, pl.Int64), orient="row"))
        return self.bound.split(results)

    def _advance(self, store: Store, released: pl.DataFrame, clock: Clock, hint: Hint) -> tuple[pl.DataFrame, Hint]:
        """Run the function over what was released and what is due."""
        kept = store.get("state")
        state = pl.DataFrame(schema={**self.bound.state, LAST: pl.Int64()}) if kept is None else kept
        events = released.with_columns(pl.col("__time").cast(DATETIME).alias(self.process.time))
        rounds = Rounds(self.bound, events, state, clock)
        results, new = rounds.run()
        if new.height:
            store.put("state", new)
        elif kept is not None:
            store.remove("state")
        return results, Hint(VERSION, hint.next_event, *rounds.due(new), hint.arrivals)


def _read_hint(store: Store) -> Hint:
    frame = store.get("hint")
    if frame is None:
        return Hint()
    hint = Hint(**frame.row(0, named=True))
    if hint.version != VERSION:
        raise CheckpointError(
            f"the state of this process was written in format {hint.version}, this Tidewheel reads {VERSION}; "
            "start on a new checkpoint, or with the Tidewheel that wrote it"
        )
    return hint
