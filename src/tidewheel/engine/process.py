"""Process functions on one bucket of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields

import polars as pl

from tidewheel.engine import event_buffer
from tidewheel.engine.operator import LATE, Outputs, Store, Tick
from tidewheel.engine.process_rounds import LAST, NEVER, Rounds
from tidewheel.errors import CheckpointError
from tidewheel.model.panes import ABSURD_TIME, END_OF_TIME, NO_TIME, START_OF_TIME, TOO_LATE
from tidewheel.model.process import DATETIME, Clock, DataType, Process
from tidewheel.model.process_call import bind
from tidewheel.model.time import Instant

__all__ = ["ProcessOperator", "judge"]

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

    With `judged`, late rows were split off before. The store holds the events that wait (`events/...`), the state
    (`state`: the key and state columns and `__last`) and `hint`. A batch calls the store once for the hint if nothing
    is due, and otherwise a number of times that depends on the slices of event time it touches.
    """

    def __init__(self, process: Process, schema: Mapping[str, DataType], *, judged: bool = False) -> None:
        self.process = process
        self.bound = bind(process, schema)
        self.schema = {name: self.bound.events[name] for name in schema if name != process.time}
        self.given = {name: kind() if isinstance(kind, type) else kind for name, kind in schema.items()}
        self.judged = judged

    def step(self, store: Store, rows: pl.DataFrame | None, tick: Tick) -> Outputs:
        """Take the batch's rows and time; give `results`, the process's other streams, and `late`."""
        late = self._no_rows().clear()
        accepted = late.select([*self.schema, "__time"])
        if rows is not None and rows.height:
            accepted, late = self._accept(rows, tick)
        watermark = max((time for time in (tick.before, tick.watermark) if time is not None), default=None)
        hint = old = _read_hint(store)
        released, hint = self._release(store, accepted, watermark, hint)
        timers_due = watermark is not None and hint.next_timer <= watermark
        results = pl.DataFrame(schema=dict(self.bound.output))
        if released.height or timers_due or hint.next_clock <= tick.clock:
            results, hint = self._advance(store, released, Clock(tick.before, watermark, tick.clock), hint)
        if hint != old:
            names = [field.name for field in fields(Hint)]
            store.put("hint", pl.DataFrame([astuple(hint)], schema=dict.fromkeys(names, pl.Int64), orient="row"))
        return {**self.bound.split(results), LATE: late}

    def _accept(self, rows: pl.DataFrame, tick: Tick) -> tuple[pl.DataFrame, pl.DataFrame]:
        rows = rows.select([*self.given, "__time"])
        if self.judged:
            accepted, late = rows, self._no_rows()
        else:
            accepted, late = judge(rows, tick.before)
        return accepted.select([*self.schema, "__time"]), late

    def _no_rows(self) -> pl.DataFrame:
        more = {"__time": pl.Int64(), "reason": pl.String(), "late_by": pl.Duration("us")}
        return pl.DataFrame(schema={**self.given, **more})

    def _release(
        self, store: Store, rows: pl.DataFrame, watermark: Instant | None, hint: Hint
    ) -> tuple[pl.DataFrame, Hint]:
        """The events, new or waiting, that the watermark has passed; the rest waits."""
        arrival = pl.int_range(hint.arrivals, hint.arrivals + pl.len(), dtype=pl.Int64).alias("__arrival")
        pending = rows.with_columns(arrival)
        arrivals, next_event = hint.arrivals + rows.height, hint.next_event
        if watermark is not None and next_event < watermark:
            pending = pl.concat([*event_buffer.take(store, watermark), pending])
            start = event_buffer.least_start(store)
            next_event = NEVER if start is None else start
        passed = pl.lit(False) if watermark is None else pl.col("__time") < watermark
        released, waiting = pending.filter(passed), pending.filter(~passed)
        if waiting.height:
            event_buffer.keep(store, waiting)
            next_event = min(next_event, *waiting.select(pl.col("__time").min()).row(0))
        return released, Hint(VERSION, next_event, hint.next_timer, hint.next_clock, arrivals)

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


def judge(rows: pl.DataFrame, before: Instant | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows that are in time at this watermark, and the others with `reason` and `late_by`."""
    time = pl.col("__time")
    behind = pl.lit(False) if before is None else time < before
    reason = (
        pl.when(time.is_null()).then(pl.lit(NO_TIME))
        .when((time < START_OF_TIME) | (time >= END_OF_TIME)).then(pl.lit(ABSURD_TIME))
        .when(behind).then(pl.lit(TOO_LATE))
    )  # fmt: skip
    by = pl.when(pl.col("reason") == TOO_LATE).then(pl.lit(before, dtype=pl.Int64) - time)
    judged = rows.with_columns(reason.alias("reason"))
    late = judged.filter(pl.col("reason").is_not_null()).with_columns(by.cast(pl.Duration("us")).alias("late_by"))
    return judged.filter(pl.col("reason").is_null()).drop("reason"), late


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
