"""Runs a MATCH_RECOGNIZE clause over frames of rows: all at once, or batch by batch with state between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from tidewheel.errors import DefinitionError, MatchError, StatementError
from tidewheel.match_recognize.compile.define import PARTITION, Definitions
from tidewheel.match_recognize.compile.measures import Measures
from tidewheel.match_recognize.compile.prefilter import possible_starts
from tidewheel.match_recognize.compile.program import START, compile_pattern
from tidewheel.match_recognize.expressions.references import LABEL, NUMBER
from tidewheel.match_recognize.expressions.to_polars import find_column
from tidewheel.match_recognize.matching.attempt import MatchAttempt, Step
from tidewheel.match_recognize.matching.backtracking import TOO_LONG, Partition, Search, Undecided
from tidewheel.match_recognize.matching.matches import Integers, Matches, Output
from tidewheel.match_recognize.matching.partitions import COUNTS, Partitions, State
from tidewheel.match_recognize.syntax.clause import Clause, ColumnName
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.time import Instant

__all__ = ["FIRST", "LAST", "ROWS", "ClauseMatcher"]

_US = pl.Datetime("us")
_OWN_NAMES = {PARTITION, LABEL, NUMBER, *COUNTS}


class ClauseMatcher:
    """A clause over rows of a schema; what does not fit the schema is refused here, with the place in the statement.

    >>> from tidewheel.match_recognize import parse
    >>> statement = parse('''SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES FIRST(price) AS low,
    ...     LAST(price) AS high PATTERN (A UP+) DEFINE UP AS price > PREV(price))''')
    >>> prices = pl.DataFrame({"at": [1, 2, 3, 4], "price": [5, 7, 9, 4]})
    >>> ClauseMatcher(statement.clause, prices.schema).run(prices).rows()
    [(5, 9)]
    """

    def __init__(self, clause: Clause, schema: Mapping[str, pl.DataType]) -> None:
        self.clause = clause
        self._input = dict(schema)
        if taken := [name for name in self._input if name in _OWN_NAMES]:
            raise DefinitionError(
                f"the input has a column {taken[0]}, a name that MATCH_RECOGNIZE needs itself; rename it"
            )
        self._partition = [self._known(column, "PARTITION BY") for column in clause.partition_by]
        self._order = [self._known(item.column, "ORDER BY") for item in clause.order_by]
        self._time = self._time_column()
        self._definitions = Definitions(clause, self._input)
        self._measures = Measures(clause, self._input)
        self._program = compile_pattern(clause.pattern, clause.variables)
        self._search = Search(
            self._program,
            self._definitions.residues,
            self._definitions.ahead,
            self._definitions.history,
            clause.within,
        )
        self._skip_to = frozenset(
            index
            for index, name in enumerate(clause.variables)
            if clause.skip.variable is not None and name in clause.union(clause.skip.variable)
        )
        self._columns = self._needed()
        self.sources: dict[str, str] = {}
        """The columns of the result that are columns of the input, by their names there."""
        self.schema = self._schema()
        self._partitions = Partitions(
            {name: self._input[name] for name in self._partition},
            {name: self._input[name] for name in self._columns},
            behind=max(self._definitions.behind, self._measures.behind),
            keep_idle=self._definitions.uses_number
            or self._measures.uses_number
            or START in self._program.kind
            or clause.initial,
        )

    def __repr__(self) -> str:
        return f"ClauseMatcher({self.clause!r}, {self._input!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ClauseMatcher, (self.clause, self._input)

    # Definition ------------------------------------------------------------------------------------------------

    def _known(self, column: ColumnName, what: str) -> str:
        name = find_column(column.name, self._input)
        if name is None:
            raise StatementError(
                f"{what}: there is no column {column.name}, only {', '.join(self._input)}",
                text=self.clause.text,
                start=column.span[0],
                end=column.span[1],
            )
        return name

    def _time_column(self) -> str | None:
        if self.clause.within is None:
            return None
        problem = "WITHIN needs ORDER BY, with a time first"
        start, end = 0, None
        if self._order:
            item, kind = self.clause.order_by[0], self._input[self._order[0]]
            if isinstance(kind, (pl.Datetime, pl.Date)) and not item.descending:
                return self._order[0]
            start, end = item.column.span
            problem = f"WITHIN needs a time first in ORDER BY, ascending; {item.column.name} is {kind}"
            problem += ", descending" if item.descending else ""
        raise StatementError(problem, text=self.clause.text, start=start, end=end)

    def _needed(self) -> list[str]:
        """The columns that state and results are made of, in the order of the input."""
        if self.clause.rows != "one":
            return list(self._input)
        needed = {*self._partition, *self._order[:1], *self._definitions.columns, *self._measures.columns}
        # A frame without columns has no rows either.
        return [name for name in self._input if name in needed] or list(self._input)[:1]

    @property
    def columns(self) -> list[str]:
        """The columns of the input that it needs, those of the order included."""
        return [name for name in self._input if name in (*self._columns, *self._order)]

    @property
    def partition_by(self) -> list[str]:
        """The columns of PARTITION BY, as the input writes them."""
        return list(self._partition)

    @property
    def order_by(self) -> list[str]:
        """The columns of ORDER BY, as the input writes them."""
        return list(self._order)

    @property
    def given_up(self) -> pl.Schema:
        """The columns that describe attempts that were given up."""
        kind = self._input[self._order[0]] if self._order else pl.Null()
        keys = {name: self._input[name] for name in self._partition}
        return pl.Schema({**keys, FIRST: kind, LAST: kind, ROWS: pl.Int64()})

    def _sources(self) -> tuple[dict[str, str], dict[str, str]]:
        """The columns of the input that come out before and after the measures, by their names there.

        They are those of PARTITION BY, then those of ORDER BY. One that is named again comes out again, with a number.
        """
        named = [*self._partition, *(self._order if self.clause.rows != "one" else [])]
        rest = [name for name in self._input if name not in named] if self.clause.rows != "one" else []
        known = {name.lower() for name in self._input}
        before: dict[str, str] = {}
        for name in named:
            own, number = name, 0
            while own in before or (number and own.lower() in known):
                number += 1
                own = f"{name}_{number}"
            before[own] = name
        return before, {name: name for name in rest}

    def _schema(self) -> pl.Schema:
        names, rest = self._sources()
        self.sources = {**names, **rest}
        taken = {name.lower() for name in (*names, *rest)}
        for measure in self.clause.measures:
            if measure.name.lower() in taken:
                start, end = measure.value.span
                raise StatementError(
                    f"the result has a column {measure.name} already; give the measure another name",
                    text=self.clause.text,
                    start=start,
                    end=end,
                )
        return pl.Schema(
            {
                **{name: self._input[source] for name, source in names.items()},
                **self._measures.schema,
                **{name: self._input[source] for name, source in rest.items()},
            }
        )

    # Running ---------------------------------------------------------------------------------------------------

    def run(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a bounded input, given in any order."""
        if by := [*self._partition, *self._order]:
            descending = [False] * len(self._partition) + [item.descending for item in self.clause.order_by]
            nulls_last = [False] * len(self._partition) + [item.nulls_last for item in self.clause.order_by]
            frame = frame.sort(by, descending=descending, nulls_last=nulls_last, maintain_order=True)
        return self.step({}, frame, END_OF_TIME)[0]

    def step(
        self, state: State, events: pl.DataFrame, watermark: Instant | None = None
    ) -> tuple[pl.DataFrame, dict[str, pl.DataFrame]]:
        """Return the rows of all matches that these events decide, and the state for the next step.

        events: rows in the order of each partition, after all that came before; those to come are not earlier than
        the watermark, and END_OF_TIME says that there are none. An empty mapping is the state to begin with.
        """
        done = self.advance(state, events, watermark)
        return done.rows, done.state

    def advance(
        self, state: State, events: pl.DataFrame, watermark: Instant | None = None, *, limit: int | None = None
    ) -> Step:
        """The same, and more: when the matches were, and what was given up.

        limit: an attempt to match that takes more rows is given up: none of its first `limit` rows begins a match, and
        the search goes on after them. So it does not matter in which batches the rows come.
        """
        ended = watermark is not None and watermark >= END_OF_TIME
        batch = self._partitions.batch(state, events.select(self._columns), watermark)
        frame = batch.frame
        masks = self._definitions.masks(frame)
        times = None if self._time is None else frame[self._time].cast(_US).cast(pl.Int64)
        known_times = None if times is None else times.fill_null(_NEVER).to_numpy()
        begins = batch.first + batch.following
        work = MatchAttempt(self._search, masks, times, limit, lambda: self._definitions.prepare(frame))

        def partition(index: int) -> Partition:
            known = int(batch.dropped[index]) == 0
            return Partition(int(batch.first[index]), int(batch.last[index]), known, ended, watermark)

        following = batch.last.copy()
        over = batch.number == OVER
        waits = over.copy()
        for index in np.flatnonzero(batch.place).tolist() if not ended else ():
            stood = work.still(int(begins[index]), partition(index), batch.place[index], batch.reached[index])
            if stood is not None:
                waits[index], following[index] = True, begins[index]
                batch.place[index], batch.reached[index] = stood
        lengths = batch.last - batch.first
        possible = possible_starts(
            self._program,
            masks,
            self._definitions.ahead,
            np.repeat(batch.last, lengths),
            np.full(len(frame), not ended),
            known_times,
            self.clause.within,
            np.repeat(~waits, lengths),
            limit,
        )
        candidates = np.flatnonzero(possible)
        low = np.searchsorted(candidates, begins)
        high = np.searchsorted(candidates, batch.last)
        batch.place[~waits] = 0
        searched = begins < batch.last if self.clause.initial else high > low
        for index in np.flatnonzero(searched & ~waits).tolist():
            starts = candidates[low[index] : high[index]].tolist()
            following[index], batch.number[index] = self._partition_matches(
                partition(index), int(begins[index]), starts, int(batch.number[index]), work
            )
            batch.place[index], batch.reached[index] = work.stood
        matches = Matches.of(work.found, self._program)
        unmatched = self._unmatched(batch.first, begins, following, batch.matched, matches, len(frame))
        output = Output.of(matches, self.clause.rows, unmatched)
        due = self._due(batch.last, following, known_times)
        return Step(
            self._rows(frame, matches, output),
            self._order_times(frame, output.last_row(matches)),
            self._given_up(frame, work.given_up),
            self._partitions.state(batch, following, due),
        )

    def _due(self, last: Integers, following: Integers, times: Integers | None) -> Integers | None:
        """For each partition when the first row that still waits is too old for a match; None without a limit."""
        within = self.clause.within
        if times is None or within is None:
            return None
        first = np.where(following < last, times[np.minimum(following, len(times) - 1)], _NEVER)
        return np.where(first == _NEVER, _NEVER, first + within)

    def _partition_matches(
        self, partition: Partition, begin: int, starts: Sequence[int], number: int, work: MatchAttempt
    ) -> tuple[int, int]:
        """Find the matches of a partition; returns the row where the search continues, and the number of matches so
        far."""
        go_on = begin
        failed: set[Any] = set()
        work.stood = (0, 0)
        for start in starts:
            if start < go_on:
                continue
            if self.clause.initial and start > go_on:
                break
            taken = work.match(start, partition, number + 1, failed)
            if taken is None:
                continue
            if isinstance(taken, Undecided):
                return start, number
            failed.clear()
            if taken is TOO_LONG:
                go_on = work.give_up(start)
                if self.clause.initial:
                    return partition.last, OVER
                continue
            waits = taken and start + len(taken) - 1 + self._measures.ahead >= partition.last
            if waits and self._measures.ahead and not partition.ended:
                return start, number
            number += 1
            work.found.add(partition.first, partition.last, start, number, taken)
            go_on = self._after(start, taken)
        return partition.last, OVER if self.clause.initial and go_on < partition.last else number

    def _after(self, start: int, taken: Sequence[int]) -> int:
        """The row where the search continues after a match."""
        skip = self.clause.skip
        if not taken or skip.to == "next row":
            return start + 1
        if skip.to == "past last row":
            return start + len(taken)
        labels = [self._program.variable[place] in self._skip_to for place in taken]
        if not any(labels):
            raise MatchError(
                f"AFTER MATCH SKIP TO {skip.to.upper()} {skip.variable} failed: it is not present in a match, "
                "so there is no row to go on from. Skip to a variable that every match has, or use SKIP TO NEXT ROW."
            )
        position = labels.index(True) if skip.to == "first" else len(labels) - 1 - labels[::-1].index(True)
        if position == 0:
            raise MatchError(
                f"AFTER MATCH SKIP TO {skip.to.upper()} {skip.variable} failed: it is the first row of a match, which "
                "would be found again for ever. Use SKIP TO NEXT ROW."
            )
        return start + position

    def _unmatched(
        self,
        first: Integers,
        begins: Integers,
        following: Integers,
        matched: Integers,
        matches: Matches,
        height: int,
    ) -> Integers:
        """The rows that are decided and in no match; `matched` becomes how far a partition's last match reaches."""
        if self.clause.rows != "all and unmatched":
            return np.zeros(0, dtype=np.int64)
        reach = np.zeros(height + 1, dtype=np.int64)

        def cover(start: Integers, end: Integers) -> None:
            np.add.at(reach, start, 1)
            np.add.at(reach, end, -1)

        cover(first, first + matched)
        cover(matches.start, matches.start + np.maximum(matches.length, 1))
        decided = np.zeros(height + 1, dtype=np.int64)
        np.add.at(decided, begins, 1)
        np.add.at(decided, following, -1)
        ends = first + matched
        partition = np.searchsorted(first, matches.start, side="right") - 1
        np.maximum.at(ends, partition, matches.start + matches.length)
        matched[:] = ends - first
        return np.flatnonzero((np.cumsum(decided)[:-1] > 0) & (np.cumsum(reach)[:-1] == 0))

    def _rows(self, frame: pl.DataFrame, matches: Matches, output: Output) -> pl.DataFrame:
        measured = self._measures.of(frame, matches, output)
        wanted = [pl.col(source).alias(name) for name, source in self.sources.items()]
        columns = frame.select(wanted)[output.row].get_columns() if wanted else []
        if not self.schema:
            return pl.DataFrame()
        return pl.DataFrame([*columns, *measured]).select(self.schema.names()).cast(self.schema)

    def _order_times(self, frame: pl.DataFrame, rows: Integers) -> pl.Series:
        """The first column of the order at these rows."""
        return frame[self._order[0]].gather(rows) if self._order else pl.Series([None]).new_from_index(0, len(rows))

    def _given_up(self, frame: pl.DataFrame, spans: Sequence[tuple[int, int]]) -> pl.DataFrame:
        first = np.asarray([start for start, _ in spans], dtype=np.int64)
        last = np.asarray([end - 1 for _, end in spans], dtype=np.int64)
        keys = frame.select(self._partition)[first].get_columns() if self._partition else []
        times = [self._order_times(frame, first).alias(FIRST), self._order_times(frame, last).alias(LAST)]
        return pl.DataFrame([*keys, *times, pl.Series(ROWS, last - first + 1)]).cast(self.given_up)


FIRST, LAST, ROWS = "__first", "__last", "__rows"
OVER = -1
"""In place of the number of a partition's matches: with INITIAL, no more can come."""
_NEVER = np.iinfo(np.int64).max // 2
