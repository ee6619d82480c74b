"""Generated patterns, conditions and rows, against a matcher that tries every way in the order of preference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.match_recognize.sql_support import recognize
from tidewheel.match_recognize import ClauseMatcher, parse

pytestmark = pytest.mark.long

# A pattern is a nested tuple: ("var", name), ("seq", parts), ("alt", parts), ("perm", parts), ("rep", part, low, high,
# greedy), ("empty",), ("start",), ("end",). What follows is the meaning of each, and nothing else.
Node = tuple[Any, ...]
Transition = tuple[str, ...]

CONDITIONS: dict[str, Callable[[list[int | None], int, int, Transition, int], bool | None]] = {
    "true": lambda values, start, row, way, number: True,
    "value = 1": lambda values, start, row, way, number: values[row] == 1,
    "value < 2": lambda values, start, row, way, number: values[row] is not None and values[row] < 2,
    "value > PREV(value)": lambda values, start, row, way, number: (
        row > 0 and None not in (values[row], values[row - 1]) and values[row] > values[row - 1]
    ),
    "value <= NEXT(value)": lambda values, start, row, way, number: (
        row + 1 < len(values) and None not in (values[row], values[row + 1]) and values[row] <= values[row + 1]
    ),
    "value >= FIRST(value)": lambda values, start, row, way, number: (
        None not in (values[row], values[start]) and values[row] >= values[start]
    ),
    "value <> LAST(A.value, 1)": lambda values, start, row, way, number: _differs(values, start, row, way),
    "count(B.value) < 2": lambda values, start, row, way, number: (
        sum(label == "B" and values[start + place] is not None for place, label in enumerate(way)) < 2
    ),
    "sum(value) < 4": lambda values, start, row, way, number: (
        0 < _total(values[start : row + 1]) < 4
        or (_total(values[start : row + 1]) == 0 and any(value is not None for value in values[start : row + 1]))
    ),
    "PREV(CLASSIFIER()) = 'A'": lambda values, start, row, way, number: len(way) > 1 and way[-2] == "A",
    "array_join(array_agg(CLASSIFIER()), '') <> 'AB'": lambda values, start, row, way, number: "".join(way) != "AB",
    "max_by(CLASSIFIER(), value) = 'A'": lambda values, start, row, way, number: _greatest(values, start, way) == "A",
    "cardinality(min(value, 2)) < 2": lambda values, start, row, way, number: (
        sum(value is not None for value in values[start : row + 1]) == 1
    ),
    "map_agg(CLASSIFIER(), value)['A'] = 1": lambda values, start, row, way, number: (
        "A" in way and values[start + way.index("A")] == 1
    ),
    "MATCH_NUMBER() < 3 AND value IS NOT NULL": lambda values, start, row, way, number: (
        number < 3 and values[row] is not None
    ),
}


def _greatest(values: list[int | None], start: int, way: Transition) -> str | None:
    """The variable of the first of the rows with the greatest value."""
    known = [(values[start + place], -place, label) for place, label in enumerate(way)]
    return max((one for one in known if one[0] is not None), default=(0, 0, None))[2]


def _total(values: list[int | None]) -> int:
    return sum(value for value in values if value is not None)


def _differs(values: list[int | None], start: int, row: int, way: Transition) -> bool:
    rows = [start + place for place, label in enumerate(way) if label == "A"]
    return len(rows) > 1 and None not in (values[rows[-2]], values[row]) and values[rows[-2]] != values[row]


class BruteForce:
    """All matches from a row, the preferred first. A way that comes twice to a choice at the same row is none."""

    def __init__(self, pattern: Node, define: dict[str, str], values: list[int | None]) -> None:
        self.pattern, self.define, self.values = pattern, define, values

    def ways(self, start: int, number: int) -> Iterator[Transition]:
        def done(row: int, way: Transition, passed: frozenset[Any]) -> Iterator[Transition]:
            yield way

        yield from self._ways(self.pattern, (), start, (), frozenset(), done, start, number)

    def _ways(self, node, path, row, way, passed, then, start, number):
        def go(inner, name, at, taken, seen, after):
            yield from self._ways(inner, (*path, name), at, taken, seen, after, start, number)

        kind = node[0]
        if kind == "var":
            if row < len(self.values):
                taken = (*way, node[1])
                condition = CONDITIONS[self.define.get(node[1], "true")]
                if condition(self.values, start, row, taken, number):
                    yield from then(row + 1, taken, passed)
        elif kind == "start":
            if row == 0:
                yield from then(row, way, passed)
        elif kind == "end":
            if row == len(self.values):
                yield from then(row, way, passed)
        elif kind == "empty":
            yield from then(row, way, passed)
        elif kind == "seq":
            yield from self._sequence(node[1], 0, go, row, way, passed, then)
        elif kind == "perm":
            one, two = node[1]
            both = ("alt", (("seq", (one, two)), ("seq", (two, one))))
            yield from go(both, "perm", row, way, passed, then)
        elif kind == "alt":
            yield from self._alternatives(node[1], 0, path, go, row, way, passed, then)
        else:
            yield from self._repeat(node, 0, path, go, row, way, passed, then)

    def _sequence(self, parts, index, go, row, way, passed, then):
        if index == len(parts):
            yield from then(row, way, passed)
            return

        def following(at, taken, seen):
            yield from self._sequence(parts, index + 1, go, at, taken, seen, then)

        yield from go(parts[index], index, row, way, passed, following)

    def _alternatives(self, parts, index, path, go, row, way, passed, then):
        if index == len(parts) - 1:
            yield from go(parts[index], index, row, way, passed, then)
            return
        choice = (path, index, row)
        if choice in passed:
            return
        yield from go(parts[index], index, row, way, passed | {choice}, then)
        yield from self._alternatives(parts, index + 1, path, go, row, way, passed | {choice}, then)

    def _repeat(self, node, done, path, go, row, way, passed, then):
        _, part, low, high, greedy = node
        must = low if high is not None else max(low - 1, 0)

        def again(at, taken, seen):
            yield from self._repeat(node, done + 1, path, go, at, taken, seen, then)

        if done < must:
            yield from go(part, ("must", done), row, way, passed, again)
        elif high is None:
            yield from self._loop(node, path, go, row, way, passed, then, inside=low > 0)
        elif done < high:
            choice = (path, done, row)
            if choice in passed:
                return
            inside = go(part, ("may", done), row, way, passed | {choice}, again)
            outside = then(row, way, passed | {choice})
            for branch in (inside, outside) if greedy else (outside, inside):
                yield from branch
        else:
            yield from then(row, way, passed)

    def _loop(self, node, path, go, row, way, passed, then, *, inside):
        _, part, _, _, greedy = node

        def end(at, taken, seen):
            choice = (path, "again", at)
            if choice in seen:
                return
            more = go(part, "loop", at, taken, seen | {choice}, end)
            out = then(at, taken, seen | {choice})
            for branch in (more, out) if greedy else (out, more):
                yield from branch

        if inside:
            yield from go(part, "loop", row, way, passed, end)
            return
        choice = (path, "before", row)
        if choice in passed:
            return
        body = go(part, "loop", row, way, passed | {choice}, end)
        out = then(row, way, passed | {choice})
        for branch in (body, out) if greedy else (out, body):
            yield from branch


def brute_force(
    pattern: Node, define: dict[str, str], values: list[int | None], skip: str, search: str = ""
) -> list[tuple[Any, ...]]:
    """Rows as ALL ROWS PER MATCH gives them: id, number, label."""
    found: list[tuple[Any, ...]] = []
    start, number = 0, 0
    matcher = BruteForce(pattern, define, values)
    while start < len(values):
        way = next(matcher.ways(start, number + 1), None)
        if way is None and search == "INITIAL":
            break
        if way is None:
            start += 1
            continue
        number += 1
        found += [(start + place + 1, number, label) for place, label in enumerate(way)] or [(start + 1, number, None)]
        start += 1 if not way or skip == "TO NEXT ROW" else len(way)
    return found


def text(node: Node) -> str:
    kind = node[0]
    if kind == "var":
        return str(node[1])
    if kind in ("empty", "start", "end"):
        return {"empty": "()", "start": "^", "end": "$"}[kind]
    if kind == "perm":
        return f"PERMUTE({', '.join(map(text, node[1]))})"
    if kind in ("seq", "alt"):
        return "(" + (" " if kind == "seq" else " | ").join(map(text, node[1])) + ")"
    _, part, low, high, greedy = node
    return f"({text(part)}){{{low},{'' if high is None else high}}}{'' if greedy else '?'}"


VARIABLES = st.sampled_from("ABC").map(lambda name: ("var", name))
LEAVES = st.one_of(VARIABLES, VARIABLES, VARIABLES, st.sampled_from([("empty",), ("start",), ("end",)]))


def _compound(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    few = st.lists(inner, min_size=2, max_size=3).map(tuple)
    bounds = st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2))).filter(lambda low: low != (0, 0))
    return st.one_of(
        st.tuples(st.just("seq"), few),
        st.tuples(st.just("alt"), few),
        st.tuples(st.just("perm"), st.tuples(inner, inner)),
        st.builds(
            lambda part, low, greedy: ("rep", part, low[0], None if low[1] is None else low[0] + low[1], greedy),
            inner,
            bounds,
            st.booleans(),
        ),
    )


PATTERNS = st.recursive(LEAVES, _compound, max_leaves=5).filter(lambda node: "'var'" in repr(node))
VALUES = st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=0, max_size=6)
SEARCHES = st.sampled_from(["", "SEEK", "INITIAL"])
DEFINES = st.dictionaries(st.sampled_from("ABC"), st.sampled_from(sorted(CONDITIONS)), min_size=0, max_size=3)


def _defined(pattern: Node, define: dict[str, str]) -> dict[str, str]:
    names = {name for name in "ABC" if f"'{name}'" in repr(pattern)}
    kept = {name: condition for name, condition in define.items() if name in names}
    kept = kept or {min(names): "true"}
    return {name: _known(condition, names) for name, condition in kept.items()}


def _known(condition: str, names: set[str]) -> str:
    """A condition may name only variables of the pattern."""
    needs = {"value <> LAST(A.value, 1)": "A", "count(B.value) < 2": "B"}.get(condition)
    return condition if needs is None or needs in names else "value = 1"


@settings(max_examples=200, deadline=None)
@given(PATTERNS, DEFINES, VALUES, st.sampled_from(["PAST LAST ROW", "TO NEXT ROW"]), SEARCHES)
def test_the_preferred_match_is_the_first_of_all_ways(pattern, define, values, skip, search):
    define = _defined(pattern, define)
    clause = (
        f"ORDER BY id MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS label ALL ROWS PER MATCH "
        f"AFTER MATCH SKIP {skip} {search} PATTERN ({text(pattern)}) "
        f"DEFINE {', '.join(f'{name} AS {condition}' for name, condition in define.items())}"
    )
    frame = pl.DataFrame({"id": range(1, len(values) + 1), "value": values}, schema={"id": pl.Int64, "value": pl.Int64})
    got = [(row, number, label) for row, number, label, _ in recognize(clause, frame)]
    assert got == brute_force(pattern, define, values, skip, search)


@settings(max_examples=75, deadline=None)
@given(PATTERNS, DEFINES, st.lists(VALUES, min_size=1, max_size=4))
def test_partitions_have_no_part_in_each_other(pattern, define, parts):
    define = _defined(pattern, define)
    clause = (
        "PARTITION BY k ORDER BY id MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS label, FINAL count(*) AS c "
        f"ALL ROWS PER MATCH PATTERN ({text(pattern)}) "
        f"DEFINE {', '.join(f'{name} AS {condition}' for name, condition in define.items())}"
    )
    schema = {"k": pl.Int64, "id": pl.Int64, "value": pl.Int64}
    rows = [(key, place, value) for key, values in enumerate(parts) for place, value in enumerate(values)]
    frame = pl.DataFrame(sorted(rows, key=lambda row: row[1:2]), schema=schema, orient="row")
    together = ClauseMatcher(parse(f"SELECT * FROM t MATCH_RECOGNIZE ({clause})").clause, schema)
    apart = [together.run(frame.filter(pl.col("k") == key)) for key in range(len(parts))]
    assert together.run(frame).rows() == pl.concat(apart).rows()
