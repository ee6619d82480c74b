"""The part of a step that Python runs: the NFAs of the keys where something happens."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tidewheel.model.time import Instant
from tidewheel.patterns.compile.accumulators import Taken
from tidewheel.patterns.compile.bound_program import BoundProgram
from tidewheel.patterns.nfa.nfa import NFA
from tidewheel.patterns.nfa.partial_match import BY_TIME, Match, PartialMatch, Path
from tidewheel.patterns.vectorized.event_batch import EventBatch, Numbers, Truths
from tidewheel.patterns.vectorized.match_state import HELD, ID, RUN, MatchState, needed
from tidewheel.patterns.vectorized.measures import EVENTS, POSITIONS

__all__ = ["PATHS", "Found", "NFABatch", "NFAStep"]

PATHS = {
    "__key": pl.Int64(),
    "__at": pl.Int64(),
    "__start": pl.Int64(),
    EVENTS: pl.List(pl.Int64()),
    POSITIONS: pl.List(pl.Int32()),
}
"""What is reported of a match or a partial match: its key, when, the identity of its first event, and its path."""


@dataclass
class Found:
    """too_many: keys whose partial matches were too many to leave any of them out. given: a row for each match that
    others of its key, some of which were left out, have a say in: the key, the rows of the events that began and
    completed the match.
    """

    matches: pl.DataFrame
    timed_out: pl.DataFrame
    dropped: pl.DataFrame
    runs: pl.DataFrame
    held: pl.DataFrame
    too_many: list[int]
    given: Numbers


@dataclass(frozen=True)
class NFABatch:
    """The input of the NFAs in one step."""

    kept: MatchState
    runs: pl.DataFrame
    """Rows of the state that go through the NFA."""
    run_keys: Numbers
    """The numbers of their keys."""
    held_keys: Numbers
    """Those of the keys of the matches that are held."""
    batch: EventBatch
    events: pl.DataFrame
    starts: Numbers
    """For each event, the starts to consider, as bits."""
    whole: Truths
    """By key, whether no event and no start was left out."""
    spare: Numbers
    """How much the partial matches of each key may weigh, besides those that stay rows."""
    mark: Instant


class NFAStep:
    """Events have local numbers: those that were kept come first, then those of the batch that matter."""

    def __init__(self, bound: BoundProgram, nfa_batch: NFABatch) -> None:
        self._bound = bound
        self._nfa_batch = nfa_batch
        batch, kept = nfa_batch.batch, nfa_batch.kept
        playing = np.zeros(len(nfa_batch.spare), dtype=np.bool_)
        playing[nfa_batch.run_keys] = playing[nfa_batch.held_keys] = True
        playing[batch.keys[nfa_batch.starts != 0]] = True
        self._keys: list[int] = np.flatnonzero(playing).tolist()
        matter = batch.satisfied(bound.matters) | (nfa_batch.starts != 0) | nfa_batch.whole[batch.keys]
        matter &= playing[batch.keys]
        self._rows = np.flatnonzero(matter)
        # What comes right after an event that matters, and does not matter itself, still comes next.
        skips = batch.has_next.copy()
        skips[:-1] &= ~matter[1:]
        self._skips: list[bool] = skips[self._rows].tolist()
        self._first_skipped = ~matter[batch.firsts] if len(batch) else np.zeros(0, dtype=np.bool_)
        old = needed([nfa_batch.runs, kept.held])
        self._old = len(old)
        self._ids: list[int] = np.concatenate([old.to_numpy(), self._rows + kept.next_id]).tolist()
        self._numbers = {identity: number for number, identity in enumerate(self._ids[: self._old])}
        if bound.conditions.columns:
            names = list(bound.conditions.columns)
            before = kept.events.filter(pl.col(ID).is_in(old.implode()))
            before = before.select(name for name in names if name in before.columns)
            arrived = nfa_batch.events.select(names)[self._rows]
            # Columns that only the event itself is asked for were not kept.
            bound.conditions.load(pl.concat([before, arrived], how="diagonal"))

    def run(self) -> Found:
        """Run all that is to be run."""
        nfa_batch, rows = self._nfa_batch, self._rows
        row_keys = nfa_batch.batch.keys[rows]
        bounds = np.searchsorted(row_keys, self._keys).tolist()
        ends = np.searchsorted(row_keys, self._keys, side="right").tolist()
        # From each event, the next one that begins something.
        marked = np.where(nfa_batch.starts[rows] != 0, np.arange(len(rows)), len(rows))
        begins = np.minimum.accumulate(marked[::-1])[::-1].tolist()
        skips = self._skips
        following = nfa_batch.batch.times[np.minimum(rows + 1, len(nfa_batch.batch) - 1)].tolist()
        times, bits = nfa_batch.batch.times[rows].tolist(), nfa_batch.batch.bits[rows].tolist()
        starts = nfa_batch.starts[rows].tolist()
        runs, held = (
            self._by_key(nfa_batch.runs, nfa_batch.run_keys),
            self._by_key(nfa_batch.kept.held, nfa_batch.held_keys),
        )
        collected = _Collected(self._ids, nfa_batch.kept.next_id)
        for place, key in enumerate(self._keys):
            nfa = NFA(self._bound, limit=int(nfa_batch.spare[key]))
            for row in runs.get(key, ()):
                nfa.add(self._loaded(row))
            nfa.hold([self._held(row) for row in held.get(key, ())])
            if key < len(self._first_skipped) and self._first_skipped[key]:
                nfa.pass_over(int(nfa_batch.batch.times[nfa_batch.batch.firsts[key]]))
            number, end, whole = bounds[place], ends[place], nfa_batch.whole[key]
            while number < end and (whole or not nfa.dropped):
                if nfa.empty:
                    number = begins[number]
                    if number >= end:
                        break
                nfa.event(self._old + number, times[number], bits[number], starts[number])
                if skips[number]:
                    nfa.pass_over(following[number])
                number += 1
            nfa.advance(nfa_batch.mark)
            if nfa.dropped and not whole:
                collected.too_many.append(key)
            else:
                collected.add(key, nfa)
                if not whole and not self._bound.program.policy.independent:
                    collected.give(key, nfa.matches)
        return collected.found()

    @staticmethod
    def _by_key(frame: pl.DataFrame, keys: Numbers) -> dict[int, list[dict[str, Any]]]:
        found: dict[int, list[dict[str, Any]]] = {}
        for key, row in zip(keys.tolist(), frame.iter_rows(named=True), strict=True):
            found.setdefault(key, []).append(row)
        return found

    def _loaded(self, row: dict[str, Any]) -> PartialMatch:
        path, taken = self._path(row)
        start = self._numbers[row["__start"]]
        times = row["__start_time"], row["__last_time"]
        run = PartialMatch(row["__position"], row["__open"], path, len(row[EVENTS]), start, *times, taken)
        run.fresh, run.released = row["__fresh"], row["__released"]
        return run

    def _held(self, row: dict[str, Any]) -> Match:
        by = row["__by"]
        # Whatever completed it came before all events of the batch.
        by = by if by == BY_TIME else by - self._nfa_batch.kept.next_id
        return Match(self._path(row)[0], self._numbers[row["__start"]], row["__at"], by)

    def _path(self, row: dict[str, Any]) -> tuple[Path, Taken]:
        path: Path | None = None
        taken = self._bound.accumulators.empty
        for identity, position in zip(row[EVENTS], row[POSITIONS], strict=True):
            event = self._numbers[identity]
            path = (path, event, position)
            if self._bound.accumulates:
                taken = self._bound.accumulators.after(taken, position, event)
        assert path is not None
        return path, taken


class _Collected:
    """The output and state of NFAs, as columns."""

    def __init__(self, ids: list[int], next_id: int) -> None:
        self._ids = ids
        self._next_id = next_id
        self._matches: list[tuple[Any, ...]] = []
        self._timed_out: list[tuple[Any, ...]] = []
        self._dropped: list[tuple[Any, ...]] = []
        self._runs: list[tuple[Any, ...]] = []
        self._held: list[tuple[Any, ...]] = []
        self.too_many: list[int] = []
        self._given: list[tuple[int, int, int]] = []

    def give(self, key: int, matches: list[Match]) -> None:
        self._given += [(key, self._row(match.start), self._row(self._completed(match))) for match in matches]

    def add(self, key: int, nfa: NFA) -> None:
        matches = nfa.matches
        if len(matches) > 1:
            alike = len({_moment(match) for match in matches}) < len(matches)
            matches = sorted(matches, key=(lambda match: match.order) if alike else _moment)
        self._matches += [self._record(key, match.path, match.completed_at) for match in matches]
        self._timed_out += [self._record(key, one.path, one.at) for one in nfa.timed_out]
        self._dropped += [self._record(key, one.path, one.at) for one in nfa.dropped]
        self._held += [
            (key, self._ids[one.start], one.completed_at, self._by(one.completed_by), *self._path(one.path))
            for one in nfa.held
        ]
        self._runs += [
            (
                key,
                run.position,
                run.open,
                run.released,
                run.fresh,
                self._ids[run.start],
                run.start_time,
                run.last_time,
                run.due,
                *self._path(run.path),
            )
            for run in nfa
        ]

    def found(self) -> Found:
        key = {"__key": pl.Int64()}
        return Found(
            matches=_frame(self._matches, PATHS),
            timed_out=_frame(self._timed_out, PATHS),
            dropped=_frame(self._dropped, PATHS),
            runs=_frame(self._runs, key | RUN),
            held=_frame(self._held, key | HELD),
            too_many=self.too_many,
            given=np.array(self._given, dtype=np.int64).reshape(-1, 3),
        )

    def _record(self, key: int, path: Path, at: Instant) -> tuple[Any, ...]:
        events, positions = self._path(path)
        return key, at, events[0], events, positions

    def _path(self, path: Path) -> tuple[list[int], list[int]]:
        ids = self._ids
        events, positions = [], []
        node: Path | None = path
        while node is not None:
            node, event, position = node
            events.append(ids[event])
            positions.append(position)
        return events[::-1], positions[::-1]

    @staticmethod
    def _completed(match: Match) -> int:
        """The event that completed a match; if time did, its last one."""
        return match.path[1] if match.completed_by == BY_TIME else match.completed_by

    def _row(self, event: int) -> int:
        """The row in the batch; of what came before it, -1 at most."""
        return self._ids[event] - self._next_id if event >= 0 else -1

    def _by(self, event: int) -> int:
        if event == BY_TIME:
            return BY_TIME
        return self._ids[event] if event >= 0 else event + self._next_id


def _moment(match: Match) -> tuple[int, Instant, int]:
    return match.start, match.completed_at, match.completed_by


def _frame(rows: list[tuple[Any, ...]], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Make a frame, its lists of all their values at once: polars takes its time for one list after the other."""
    if not rows:
        return pl.DataFrame(schema=schema)
    columns = dict(zip(schema, zip(*rows, strict=True), strict=True))
    lists = {name: columns.pop(name) for name in (EVENTS, POSITIONS)}
    lengths = [len(events) for events in lists[EVENTS]]
    number = np.repeat(np.arange(len(rows)), lengths)
    flat = {name: list(itertools.chain.from_iterable(values)) for name, values in lists.items()}
    grouped = pl.DataFrame({"__row": number, **flat}).group_by("__row", maintain_order=True).agg(EVENTS, POSITIONS)
    plain = pl.DataFrame({name: list(values) for name, values in columns.items()}, schema_overrides=schema)
    return pl.concat([plain, grouped.drop("__row")], how="horizontal").select(
        pl.col(name).cast(kind) for name, kind in schema.items()
    )
