"""Patterns that come and go, on one key group and without Spark."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidewheel as tw
from tidewheel.engine.operators.operator import BatchTime, MemoryStore
from tidewheel.engine.operators.patterns import dynamic_patterns
from tidewheel.engine.operators.patterns.dynamic_patterns import DynamicPatterns
from tidewheel.engine.operators.patterns.pattern import DynamicPatternsOperator
from tidewheel.engine.runtime.arrow_ipc import from_bytes, to_bytes
from tidewheel.errors import CheckpointError, DefinitionError
from tidewheel.patterns.serde.pattern_json import pattern_to_json
from tidewheel.patterns.vectorized.matcher import Matcher

INSTANT = pl.Datetime("us", "UTC")
SCHEMA = {"event_time": INSTANT, "who": pl.String(), "x": pl.Int64()}
S = 1_000_000
UP = tw.pattern("low", pl.col("x") < 3).followed_by("high", pl.col("x") > 7)
DOWN = tw.pattern("high", pl.col("x") > 7).followed_by("low", pl.col("x") < 3).within("10 s")
TO = {"to": tw.measures.last("high.x")}


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, timezone.utc)


class KeyGroup:
    """A key group whose state travels as bytes between batches, as in Spark."""

    def __init__(self, *, limit: int = 10_000, keys: tuple[str, ...] = ("who",)) -> None:
        self.patterns = DynamicPatterns("control.patterns", keys, SCHEMA, limit)
        self.store = MemoryStore()
        self.watermark: int | None = None
        self.outputs: dict[str, list[dict[str, Any]]] = {}
        self.all: dict[str, list[dict[str, Any]]] = {}

    def batch(
        self, *rows: tuple[float, str, int | None], until: float | None = None, control: tuple[Any, ...] = ()
    ) -> dict[str, list[dict[str, Any]]]:
        """Rows (second, who, x), definitions (name, version, text or None), and how far the watermark comes."""
        operator = DynamicPatternsOperator(self.patterns, self.patterns.keys or ("__all",))
        mark = self.watermark if until is None else int(until * S)
        batch_time = BatchTime(self.watermark, mark, 77 * S)
        given = None
        if rows:
            given = pl.DataFrame(
                {"event_time": [at(second) for second, _, _ in rows], "who": [who for _, who, _ in rows],
                 "x": [x for _, _, x in rows], "__time": [int(second * S) for second, _, _ in rows]},
                schema={**SCHEMA, "__time": pl.Int64},
            )  # fmt: skip
            if not self.patterns.keys:
                given = given.with_columns(pl.lit(0, pl.Int8).alias("__all"))
        self.outputs = {}
        if control:
            frame = pl.DataFrame(list(control), schema=dynamic_patterns.DEFINITIONS, orient="row")
            self._report(operator.on_control(self.store, frame.with_columns(reports=True), batch_time))
        self._report(operator.step(self.store, given, batch_time))
        self.watermark = mark
        self.store.frames = {name: from_bytes(to_bytes(frame)) for name, frame in self.store.frames.items()}
        return self.outputs

    def _report(self, outputs: Any) -> None:
        for name, frame in outputs.items():
            assert dict(frame.schema) == self.patterns.schemas()[name]
            for kept in (self.outputs, self.all) if frame.height else ():
                kept.setdefault(name, []).extend(frame.to_dicts())


def put(name: str, version: int, pattern: tw.Pattern, **measures: pl.Expr) -> tuple[str, int, str]:
    return name, version, pattern_to_json(pattern, measures)


def short(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["pattern"], row["version"], row["who"], row["match_start"], row["match_end"]) for row in rows]


def test_a_pattern_counts_for_what_is_released_from_its_batch_on():
    key_group = KeyGroup()
    assert key_group.batch((1, "a", 1), (2, "a", 9), (5, "b", 1), until=3) == {}
    assert key_group.batch((6, "b", 9), control=(put("up", 1, UP, **TO),), until=7) == {
        "results": [
            {"who": "b", "pattern": "up", "version": 1, "match_start": at(5), "match_end": at(6),
             "measures": '{"to":9}', "event_time": at(6)}
        ]
    }  # fmt: skip


def test_a_replaced_pattern_takes_its_partial_matches_with_it():
    key_group = KeyGroup()
    key_group.batch((1, "a", 1), (2, "b", 2), (2.5, "a", 2), control=(put("up", 1, UP),), until=3)
    reported = key_group.batch((4, "a", 9), control=(put("up", 2, DOWN),), until=5)
    assert reported == {
        "dropped": [
            {"who": who, "pattern": "up", "version": 1, "match_start": at(second), "match_end": at(second),
             "stage": "low", "reason": "replaced by version 2", "event_time": at(2.999999)}
            for who, second in (("a", 1), ("a", 2.5), ("b", 2))
        ]
    }  # fmt: skip
    assert short(key_group.batch((6, "a", 0), until=7)["results"]) == [("up", 2, "a", at(4), at(6))]


def test_a_removed_pattern_is_over_and_can_come_back():
    key_group = KeyGroup()
    key_group.batch((1, "a", 1), control=(put("up", 1, UP),), until=3)
    gone = key_group.batch((4, "a", 9), control=(("up", 2, None),), until=5)
    assert [row["reason"] for row in gone["dropped"]] == ["removed by version 2"]
    assert list(gone) == ["dropped"]
    assert key_group.batch((6, "a", 1), control=(put("up", 3, UP),), until=7) == {}
    assert short(key_group.batch((8, "a", 9), until=9)["results"]) == [("up", 3, "a", at(6), at(8))]


def test_matches_that_are_held_back_are_reported_too():
    later_only = (pl.col("x") == 3) & (tw.measures.first("a.x") == 4)
    held = tw.pattern("a", pl.col("x").is_in([1, 4])).followed_by("c", later_only).after_match("skip past last")
    key_group = KeyGroup()
    assert key_group.batch((1, "k", 1), (2, "k", 4), (3, "k", 3), control=(put("p", 1, held),), until=4) == {}
    reported = key_group.batch(control=(("p", 2, None),))["dropped"]
    assert [(row["match_start"], row["match_end"], row["stage"]) for row in reported] == [
        (at(1), at(1), "a"),
        (at(2), at(3), "c"),
    ]
    assert not [name for name in key_group.store.frames if name.startswith("match/open/")]


def test_time_runs_out_with_the_measures_so_far():
    key_group = KeyGroup()
    key_group.batch(
        (1, "a", 9),
        control=(put("down", 4, DOWN, first=tw.measures.first("high.x"), low=tw.measures.last("low.x")),),
        until=3,
    )
    (row,) = key_group.batch(until=20)["timed_out"]
    assert (row["version"], row["stage"], row["event_time"]) == (4, "high", at(11))
    assert json.loads(row["measures"]) == {"first": 9, "low": None}


def test_a_version_that_is_not_above_the_last_does_not_count_and_is_reported_once():
    key_group = KeyGroup()
    key_group.batch((1, "a", 1), control=(put("up", 5, UP),), until=3)
    assert key_group.batch(control=(put("up", 5, UP),)) == {}, "the same again says nothing new"
    reported = key_group.batch(control=(put("up", 4, DOWN), put("up", 5, DOWN), ("up", 3, None)))["dropped"]
    assert [(row["pattern"], row["version"], row["who"], row["reason"]) for row in reported] == [
        ("up", version, None, f"version {version} is not above 5, the last one; it does not count")
        for version in (4, 5, 3)
    ]
    assert short(key_group.batch((8, "a", 9), until=9)["results"]) == [("up", 5, "a", at(1), at(8))]
    operator = DynamicPatternsOperator(key_group.patterns, ("who",))
    stale = pl.DataFrame([put("up", 4, DOWN)], schema=dynamic_patterns.DEFINITIONS, orient="row")
    assert operator.on_control(key_group.store, stale.with_columns(reports=False), BatchTime(9 * S, 9 * S, 0)) == {}


def test_a_removed_name_remembers_its_version():
    key_group = KeyGroup()
    key_group.batch(control=(put("up", 5, UP), ("up", 6, None)), until=1)
    (reported,) = key_group.batch(control=(put("up", 6, UP),))["dropped"]
    assert "not above 6" in reported["reason"]


def test_more_patterns_than_the_most_are_reported(monkeypatch):
    monkeypatch.setattr(dynamic_patterns, "MOST_PATTERNS", 2)
    key_group = KeyGroup()
    reported = key_group.batch(control=(put("a", 1, UP), put("b", 2, UP), put("c", 3, UP), put("a", 4, DOWN)))
    assert [(row["pattern"], row["reason"]) for row in reported["dropped"]] == [
        ("c", "2 patterns are in force, which is the most")
    ]
    assert key_group.batch(control=(("b", 5, None), put("c", 6, UP))) == {}


def test_the_limit_is_for_each_key_and_pattern():
    key_group = KeyGroup(limit=2)
    rows = [(1 + second / 10, "a", 1) for second in range(4)]
    reported = key_group.batch(*rows, (1, "b", 1), control=(put("up", 1, UP), put("again", 2, UP)), until=3)
    assert [(row["pattern"], row["who"], row["reason"]) for row in reported["dropped"]] == [
        (name, "a", "limit of partial matches reached") for name in ("again", "again", "up", "up")
    ]


def test_a_pattern_that_breaks_is_out_and_the_rest_goes_on(monkeypatch):
    step = Matcher.step

    def breaking(self: Matcher, state: Any, events: pl.DataFrame, watermark: Any) -> Any:
        if self.pattern == DOWN and 13 in events["x"]:
            raise ArithmeticError("thirteen")
        return step(self, state, events, watermark)

    monkeypatch.setattr(Matcher, "step", breaking)
    key_group = KeyGroup()
    key_group.batch((1, "a", 1), (2, "a", 9), control=(put("up", 1, UP), put("down", 2, DOWN)), until=3)
    reported = key_group.batch((4, "a", 13), (4, "b", 1), until=5)
    assert [(row["pattern"], row["who"], row["reason"]) for row in reported["dropped"]] == [
        ("down", "a", "failed: ArithmeticError: thirteen"),
        ("down", None, "failed: ArithmeticError: thirteen"),
    ]
    assert short(key_group.batch((6, "a", 1), (6, "b", 9), until=7)["results"]) == [("up", 1, "b", at(4), at(6))]
    key_group.batch((8, "a", 9), control=(put("down", 3, DOWN),), until=9)
    assert ("down", 3, "a", at(8), at(10)) in short(key_group.batch((10, "a", 1), until=11)["results"])


def test_without_keys():
    key_group = KeyGroup(keys=())
    found = key_group.batch((1, "a", 1), (2, "b", 9), control=(put("up", 1, UP),), until=3)
    assert [(row["pattern"], row["match_start"]) for row in found["results"]] == [("up", at(1))]
    assert "who" not in found["results"][0]


def row(name: Any = "up", version: Any = 1, definition: Any = None, removed: Any = False) -> dict[str, Any]:
    text = pattern_to_json(UP) if definition is None and not removed else definition
    return {"name": name, "version": version, "definition": text, "removed": removed}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (row(name=""), "a pattern's name is"),
        (row(name="a/b"), "got 'a/b'"),
        (row(name=None), "a pattern's name is"),
        (row(version=0), "pattern up: a version is a whole number from 1 on, got 0"),
        (row(version=2**63), "a version is"),
        (row(definition=""), "either a definition or the word"),
        (row(definition="{}", removed=True), "either a definition or the word"),
        (row(definition="{"), "pattern up, version 1: not a pattern as JSON"),
        (row(definition=pattern_to_json(tw.pattern("a", pl.col("speed") > 1))), "no column 'speed'.*they have .*who"),
        (row(definition=pattern_to_json(tw.pattern("a", pl.col("who") > 1))), "condition"),
        (row(definition=pattern_to_json(tw.pattern("a", pl.col("x") + 1))), "true or false"),
        (row(definition=pattern_to_json(UP, {"who": tw.measures.last("who")})), "a column of this name already"),
        (row(definition=pattern_to_json(UP, {"y": tw.measures.last("high.y")})), "no column 'y'"),
        (row(definition=pattern_to_json(UP.after_match("skip to last", stage="low", missing="fail"))), "would stop"),
        (row(definition=pattern_to_json(tw.pattern("a", "x").times(5))), "true or false"),
        (row(definition=pattern_to_json(tw.pattern("a").times(2)).replace(":2", ":6000")), "more than 5000 steps"),
    ],
)
def test_definitions_that_make_no_sense_here_are_refused(given, reason):
    patterns = DynamicPatterns("control.patterns", ("who",), SCHEMA)
    found = patterns.refusal(given)
    assert found is not None
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found)
    assert patterns.accepted([pl.DataFrame([row(), row(name="b", removed=True)])]).rows() == [
        ("up", 1, pattern_to_json(UP)),
        ("b", 1, None),
    ]


def test_what_cannot_be_is_refused_when_defined():
    with pytest.raises(DefinitionError, match="matches have a column 'version' already"):
        DynamicPatterns("t", ("version",), {"version": pl.String()})
    with pytest.raises(DefinitionError, match="limit must be"):
        DynamicPatterns("t", ("who",), SCHEMA, 0)


def test_the_kept_patterns_have_a_version():
    key_group = KeyGroup()
    key_group.batch(control=(put("up", 1, UP),))
    name = "match/patterns"
    assert key_group.store.frames[name].columns == ["format", "name", "version", "definition", "failed"]
    key_group.store.frames[name] = key_group.store.frames[name].with_columns(format=pl.lit(2, pl.Int32))
    with pytest.raises(CheckpointError, match="format 2, this Tidewheel reads 1"):
        key_group.batch((1, "a", 1), until=3)


PATTERNS = [UP, DOWN, tw.pattern("a", pl.col("x") > 4).times(2).after_match("skip past last")]


@settings(max_examples=40)
@given(st.data())
def test_generated_changes_give_what_each_version_finds_by_itself(data):
    """For each version, a matcher of its own over what was released while it was in force."""
    key_group, version, second = KeyGroup(), 0, 0.0
    waiting: list[tuple[float, str, int]] = []
    in_force: dict[str, tuple[int, Matcher, dict[str, pl.DataFrame]]] = {}
    expected: list[tuple[Any, ...]] = []
    dropped = 0
    for _ in range(data.draw(st.integers(2, 6))):
        control: list[Any] = []
        for _ in range(data.draw(st.integers(0, 2))):
            version += 1
            name = data.draw(st.sampled_from("pq"))
            old = in_force.pop(name, None)
            if old is not None:
                dropped += sum(old[2][part].height for part in ("runs", "held") if part in old[2])
            pattern = data.draw(st.none() | st.sampled_from(PATTERNS))
            control.append((name, version, None) if pattern is None else put(name, version, pattern))
            if pattern is not None:
                in_force[name] = (version, Matcher(pattern, keys=["who"]), {})
        fresh = data.draw(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab"), st.integers(0, 9)), max_size=6))
        rows = [(second + offset, who, x) for offset, who, x in fresh]
        until = second + data.draw(st.integers(0, 6))
        key_group.batch(*rows, control=tuple(control), until=until)
        waiting += rows
        released = sorted((one for one in waiting if one[0] < until), key=lambda one: (one[1], one[0]))
        waiting = [one for one in waiting if one[0] >= until]
        second = until
        events = pl.DataFrame(
            [(who, x, int(time * S)) for time, who, x in released],
            schema={"who": pl.String, "x": pl.Int64, "__time": pl.Int64},
            orient="row",
        )
        for name, (own, matcher, state) in in_force.items():
            found, after = matcher.step(state, events, int(until * S))
            in_force[name] = (own, matcher, after)
            expected += [
                (name, own, one["who"], at(one["match_start"] / S), at(one["match_end"] / S))
                for one in found["matches"].iter_rows(named=True)
            ]
    assert sorted(short(key_group.all.get("results", []))) == sorted(expected)
    assert len(key_group.all.get("dropped", [])) == dropped
