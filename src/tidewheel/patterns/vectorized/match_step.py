"""One step of a matcher: what stays columns, what Python runs, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from tidewheel.model.columns import TIME
from tidewheel.model.time import Instant
from tidewheel.patterns.compile.bound_program import NEVER, BoundProgram
from tidewheel.patterns.vectorized.event_batch import EventBatch, Numbers, Truths
from tidewheel.patterns.vectorized.match_state import ID, Frames, Layout, MatchState, needed
from tidewheel.patterns.vectorized.measures import EVENTS, POSITIONS, Measures
from tidewheel.patterns.vectorized.new_matches import NewMatches, new_matches_of
from tidewheel.patterns.vectorized.nfa_step import PATHS, Found, NFABatch, NFAStep
from tidewheel.patterns.vectorized.pending_matches import PendingMatches, pending_matches_of

__all__ = ["MatchStep", "Outputs"]

Outputs = dict[str, pl.DataFrame]
_KEY = "__key"
REASON = "limit of partial matches reached"


class MatchStep:
    """A matcher bound to the schema of its events."""

    def __init__(
        self, bound: BoundProgram, layout: Layout, measures: Measures, *, keys: tuple[str, ...], limit: int
    ) -> None:
        self._bound = bound
        self._layout = layout
        self._measures = measures
        self._keys = keys
        self._limit = limit
        key_types = {name: layout.runs[name] for name in keys}
        ends = {**key_types, "match_start": pl.Int64(), "match_end": pl.Int64()}
        self.schemas: dict[str, dict[str, pl.DataType]] = {
            "matches": {**ends, "completed_at": pl.Int64(), **measures.schema},
            "timed_out": {**ends, "timed_out_at": pl.Int64(), "stage": pl.String(), **measures.schema},
            "dropped": {**ends, "dropped_at": pl.Int64(), "stage": pl.String(), "reason": pl.String()},
        }

    def step(
        self, state: Mapping[str, pl.DataFrame] | None, events: pl.DataFrame, watermark: Instant | None
    ) -> tuple[Outputs, Frames]:
        """Take the events of a step (see `Matcher.step`)."""
        kept = self._layout.read(state)
        mark = -NEVER if watermark is None else watermark
        keys = _Keys(events, kept, self._keys)
        bits = self._bound.conditions.bits(events)
        batch = EventBatch(keys.of_events, events[TIME].to_numpy().astype(np.int64, copy=False), bits)
        waiting = pending_matches_of(self._bound, kept.runs, keys.of_runs, batch, mark)
        starters = new_matches_of(self._bound, batch, mark)
        found = self._run(kept, keys, batch, events, waiting, starters, mark)

        idle_runs = waiting.rows(kept.runs, kept.next_id)
        new = starters.left.rows(keys.table, kept.next_id)
        timed_out = [
            waiting.timed_out(kept.runs, keys.of_runs, kept.next_id),
            starters.left.timed_out(kept.next_id),
            found.timed_out,
        ]
        telling = _Telling(self._bound, self._measures, keys.table, self._pool(kept, events), kept)
        outputs = {
            "matches": telling.of([found.matches], "completed_at", self.schemas["matches"]),
            "timed_out": telling.of(timed_out, "timed_out_at", self.schemas["timed_out"]),
            "dropped": telling.of([found.dropped], "dropped_at", self.schemas["dropped"]),
        }
        runs = pl.concat([idle_runs, _as(new, self._layout.runs), _as(keys.named(found.runs), self._layout.runs)])
        held = _as(keys.named(found.held), self._layout.held)
        after = MatchState(runs, held, self._events_of(runs, held, kept, events), kept.next_id + events.height)
        return outputs, self._layout.write(after)

    def abandon(self, state: Mapping[str, pl.DataFrame] | None, at: Instant, reason: str) -> pl.DataFrame:
        """Give up partial matches (see `Matcher.abandon`)."""
        kept = self._layout.read(state)
        nothing = pl.DataFrame(schema=self._layout.events | {name: self._layout.runs[name] for name in self._keys})
        keys = _Keys(nothing, kept, self._keys)
        given = [
            frame.with_columns(pl.Series(_KEY, numbers), pl.lit(at).alias("__at"))
            for frame, numbers in ((kept.runs, keys.of_runs), (kept.held, keys.of_held))
        ]
        telling = _Telling(self._bound, self._measures, keys.table, self._pool(kept, nothing), kept)
        rows = telling.of(given, "dropped_at", self.schemas["dropped"])
        return rows.with_columns(pl.lit(reason).alias("reason"))

    def _run(
        self,
        kept: MatchState,
        keys: _Keys,
        batch: EventBatch,
        events: pl.DataFrame,
        waiting: PendingMatches,
        starters: NewMatches,
        mark: Instant,
    ) -> Found:
        """Run the NFA where something happens."""
        count = keys.table.height
        dies = starters.dies

        def load(runs: Truths | slice, begun: Truths | slice) -> Numbers:
            """The maximal weight of the partial matches of each key."""
            of_runs = np.bincount(keys.of_runs[runs], waiting.weight[runs], minlength=count)
            of_starters = np.bincount(starters.key[begun], starters.weight[begun], minlength=count)
            return (of_runs + of_starters).astype(np.int64)

        loads = load(slice(None), slice(None))
        busy = np.zeros(count, dtype=np.bool_)
        busy[keys.of_runs[waiting.active]] = True
        busy[starters.key[starters.active]] = True
        busy[keys.of_held] = True
        whole: Truths = loads > self._limit
        while True:
            take_runs, take_starters = waiting.active | whole[keys.of_runs], starters.active | whole[starters.key]
            if not self._bound.program.policy.independent:
                # A match has a say in the key's other partial matches.
                take_runs |= busy[keys.of_runs]
                take_starters |= busy[starters.key] & ~dies
            nfa_batch = NFABatch(
                kept=kept,
                runs=kept.runs.filter(take_runs),
                run_keys=keys.of_runs[take_runs],
                held_keys=keys.of_held,
                batch=batch,
                events=events,
                starts=starters.marks(take_starters, len(batch)),
                whole=whole,
                spare=self._limit - (loads - load(take_runs, take_starters)),
                mark=mark,
            )
            found = NFAStep(self._bound, nfa_batch).run()
            again = found.too_many
            if len(found.given):
                key, start, completed = found.given.T
                again += key[starters.holding_back(~take_starters, start, completed)].tolist()
            if not again:
                waiting.take(take_runs)
                starters.left = starters.left.without(take_starters)
                return found
            whole[again] = True

    def _pool(self, kept: MatchState, events: pl.DataFrame) -> pl.DataFrame:
        names = [name for name in self._layout.events if name != ID]
        return pl.concat([kept.events.select(names), events.select(names)])

    def _events_of(
        self, runs: pl.DataFrame, held: pl.DataFrame, kept: MatchState, events: pl.DataFrame
    ) -> pl.DataFrame:
        if not runs.height and not held.height:
            return self._layout.none
        ids = needed([runs, held])
        old = kept.events.filter(pl.col(ID).is_in(ids.filter(ids < kept.next_id).implode()))
        fresh = ids.filter(ids >= kept.next_id)
        new = events.select(name for name in self._layout.events if name != ID)[fresh - kept.next_id]
        return pl.concat([old, new.insert_column(0, fresh.alias(ID))])


class _Keys:
    """Numbers for keys: those of the batch first, in their order."""

    def __init__(self, events: pl.DataFrame, kept: MatchState, names: tuple[str, ...]) -> None:
        if not names:
            self.table = pl.DataFrame({_KEY: [0]}, schema={_KEY: pl.UInt32})
            self.of_events: Numbers = np.zeros(events.height, dtype=np.int64)
            self.of_runs: Numbers = np.zeros(kept.runs.height, dtype=np.int64)
            self.of_held: Numbers = np.zeros(kept.held.height, dtype=np.int64)
            return
        before = [pl.col(name).ne_missing(pl.col(name).shift(1)) for name in names]
        changes = events.select(pl.any_horizontal(before).alias("it"))["it"].to_numpy().copy()
        changes[:1] = True
        self.of_events = np.cumsum(changes, dtype=np.int64) - 1
        own = events.select(names)[np.flatnonzero(changes)]
        old = [kept.runs.select(names), kept.held.select(names)]
        numbered = pl.concat([own, *old]).with_row_index(_KEY)
        table = numbered.unique(names, keep="first", maintain_order=True)
        if not table[_KEY].head(own.height).equals(numbered[_KEY].head(own.height)):
            raise ValueError(f"events must come in the order of their keys {list(names)}, and some key came twice")
        self.table = table.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias(_KEY))
        self.of_runs, self.of_held = (self._numbers(frame, names) for frame in old)

    def _numbers(self, frame: pl.DataFrame, names: tuple[str, ...]) -> Numbers:
        joined = frame.join(self.table, on=names, how="left", nulls_equal=True, maintain_order="left")
        return joined[_KEY].to_numpy().astype(np.int64)

    def named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add the columns of the keys whose numbers the frame has."""
        return pl.concat([frame, self.table[frame[_KEY]].drop(_KEY)], how="horizontal")


def _as(frame: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return frame.select(pl.col(name).cast(kind) for name, kind in schema.items())


@dataclass(frozen=True)
class _Telling:
    """Paths as rows of the outputs."""

    bound: BoundProgram
    measures: Measures
    keys: pl.DataFrame
    pool: pl.DataFrame
    kept: MatchState

    def of(self, given: list[pl.DataFrame], time: str, schema: dict[str, pl.DataType]) -> pl.DataFrame:
        """Make the rows, ordered by time, then key, then the start, then as they were given."""
        some = [_as(frame, PATHS) for frame in given if frame.height]
        if not some:
            return pl.DataFrame(schema=schema)
        paths = pl.concat(some)
        names = [name for name in self.keys.columns if name != _KEY]
        paths = pl.concat([paths, self.keys[paths[_KEY]].select(names)], how="horizontal")
        paths = paths.sort("__at", *names, "__start", maintain_order=True)
        times = self.pool[TIME]
        stages = pl.Series(self.bound.stages, dtype=pl.String)
        rows = paths.select(
            *names,
            times[self.place(paths[EVENTS].list.first())].alias("match_start"),
            times[self.place(paths[EVENTS].list.last())].alias("match_end"),
            pl.col("__at").alias(time),
            stages[paths[POSITIONS].list.last()].alias("stage"),
            pl.lit(REASON).alias("reason"),
        )
        if time != "dropped_at":
            rows = pl.concat([rows, self.measures.of(paths, self.pool, self.place)], how="horizontal")
        return _as(rows, schema)

    def place(self, ids: pl.Series) -> pl.Series:
        """The rows of events in the pool: those that were kept come first."""
        given = ids.to_numpy()
        old = self.kept.events[ID].to_numpy()
        rows = given - self.kept.next_id + len(old)
        if len(old):
            rows = np.where(given < self.kept.next_id, np.searchsorted(old, given), rows)
        return pl.Series(rows, dtype=pl.Int64)
