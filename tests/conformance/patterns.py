"""Cases of event patterns: what is written there as data and text becomes patterns of ours, and matches are checked.

A runner takes cases and gives for each the outcomes of all its runs, which must all be as expected (see
`pattern_runners`). Events have the columns of `SCHEMA`; `event` names an event in what is expected of it.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from tests.conformance.cases import files_in
from tidewheel.model.panes import END_OF_TIME
from tidewheel.patterns.define import references
from tidewheel.patterns.define.builder import Pattern, pattern

MILLISECOND = 1_000
SCHEMA = {
    "event": pl.String(),
    "id": pl.Int64(),
    "name": pl.String(),
    "price": pl.Float64(),
    "volume": pl.Float64(),
    "is_subevent": pl.Boolean(),
}
Row = dict[str, Any]
Stages = dict[str, list[str]]


@dataclass(frozen=True)
class PatternStep:
    """Events that are released together, in order, with their times; then the watermark (None: it stays). late: those
    that came too late, after the watermark of the step before."""

    events: tuple[tuple[int, Row], ...] = ()
    watermark: int | None = None
    late: tuple[tuple[int, Row], ...] = ()


@dataclass
class Outcome:
    """What came of a case: matches and timed-out partial matches, those of each step apart, and the events that came
    too late; or an error."""

    matches: list[list[Stages]] = field(default_factory=list)
    timed_out: list[list[tuple[Stages, int]]] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    error: str | None = None


Check = Callable[[Outcome], list[str]]


@dataclass(frozen=True)
class PatternCase:
    """keys: the columns by which events belong together."""

    file: str
    name: str
    build: Callable[[], Pattern]
    keys: tuple[str, ...]
    steps: list[PatternStep]
    check: Check


PatternRunner = Callable[[Sequence[PatternCase]], list[list[Outcome]]]


@dataclass
class PatternResult:
    case: PatternCase
    complaints: list[str]
    another_way: str | None = None

    @property
    def passed(self) -> bool:
        return not self.complaints


def check_patterns(cases: Sequence[PatternCase], runner: PatternRunner) -> list[PatternResult]:
    return [
        PatternResult(case, [complaint for outcome in found for complaint in case.check(outcome)])
        for case, found in zip(cases, runner(cases), strict=True)
    ]


def load_patterns(folder: Path) -> list[PatternCase]:
    """All cases of the folder's `patterns`."""
    return [case for path in files_in(folder, "patterns") for case in load_pattern_file(path)]


def load_pattern_file(path: Path) -> list[PatternCase]:
    with path.open(encoding="utf-8") as text:
        documents = [document for document in yaml.safe_load_all(text) if document]
    return [_case(path.name, document) for document in documents]


def _case(file: str, given: dict[str, Any]) -> PatternCase:
    if "pattern" not in given or not ("events" in given or "steps" in given):
        raise ValueError(f"{file}: a case of an unknown kind: {sorted(given)}")
    keys = (given["key_by"],) if given.get("key_by") else ()
    steps, marks = _steps(given)
    return PatternCase(file, given["name"], lambda: build_pattern(given), keys, steps, _check(given, marks))


# Events -----------------------------------------------------------------------------------------------------


def _row(given: dict[str, Any]) -> Row:
    volume = given.get("volume")
    return {
        "event": given["key"],
        "id": given["id"],
        "name": given["name"],
        "price": given["price"],
        "volume": volume,
        "is_subevent": volume is not None,
    }


def _steps(given: dict[str, Any]) -> tuple[list[PatternStep], list[dict[str, Any]]]:
    """The steps as the matcher sees them, and for each step what the case says of it.

    A watermark of the cases says that all up to it has come; ours, that all before it has.
    """
    entries = given["steps"] if "steps" in given else [{"element": event} for event in given["events"]]
    entries = [entry for entry in entries if "restart_from_checkpoint" not in entry]
    if not any("watermark" in entry for entry in entries):
        elements = [entry["element"] for entry in entries]
        times = [number if one["ts"] is None else one["ts"] for number, one in enumerate(elements)]
        events = [(time * MILLISECOND, _row(one)) for time, one in zip(times, elements, strict=True)]
        return [PatternStep((event,)) for event in events], [{} for _ in events]
    by_price = "price ascending" in given.get("tie_break", "")
    steps, marks = [], []
    late: list[tuple[int, Row]] = []
    waiting: list[tuple[Any, tuple[int, Row]]] = []
    seen = float("-inf")
    for entry in entries:
        if "element" in entry:
            one = entry["element"]
            if one["ts"] <= seen:
                late.append((one["ts"] * MILLISECOND, _row(one)))
            else:
                order = (one["ts"], one["price"] if by_price else 0, len(waiting))
                waiting.append((order, (one["ts"] * MILLISECOND, _row(one))))
            continue
        mark = {"max": float("inf"), "min": float("-inf")}.get(entry["watermark"], entry["watermark"])
        seen = max(seen, mark)
        ready = tuple(event for order, event in sorted(waiting, key=operator.itemgetter(0)) if order[0] <= seen)
        waiting = [one for one in waiting if one[0][0] > seen]
        unbounded = END_OF_TIME if seen > 0 else None
        known = unbounded if seen in (float("inf"), float("-inf")) else (int(seen) + 1) * MILLISECOND
        steps.append(PatternStep(ready, known, tuple(late)))
        marks.append(entry)
        late = []
    if late:
        steps.append(PatternStep(late=tuple(late)))
        marks.append({})
    return steps, marks


# What is expected -------------------------------------------------------------------------------------------


def _check(given: dict[str, Any], marks: list[dict[str, Any]]) -> Check:
    def check(found: Outcome) -> list[str]:
        if "expected_error" in given:
            return [] if found.error else [f"expected an error: {given['expected_error']}, got {found}"]
        if found.error:
            return [f"expected matches, got an error: {found.error}"]
        return list(_complaints(found))

    def _complaints(found: Outcome) -> Iterator[str]:
        matches = [match for step in found.matches for match in step]
        timeouts = [partial for step in found.timed_out for partial in step]
        if "expected" in given:
            yield from _compare("matches", map(_flat, given["expected"]), map(_flat, matches))
            if given["expected"] and isinstance(given["expected"][0], dict):
                yield from _compare("stages of matches", map(_staged, given["expected"]), map(_staged, matches))
        if "flink_output" in given:
            wanted = (_staged(one["stages"]) for one in given["flink_output"])
            yield from _compare("stages of matches", wanted, map(_staged, matches))
        if given.get("expected_count", len(matches)) != len(matches):
            yield f"expected {given['expected_count']} matches, got {matches}"
        if "expected_timeouts" in given:
            wanted = ((_staged(one["partial"]), one["at"] * MILLISECOND) for one in given["expected_timeouts"])
            yield from _compare("timed out", wanted, ((_staged(stages), at) for stages, at in timeouts))
        if "expected_timeout_start" in given:
            starts = (next(iter(stages.values()))[0] for stages, _ in timeouts)
            yield from _compare("starts of timed out", given["expected_timeout_start"], starts)
        if "dropped_late" in given:
            yield from _compare("late", given["dropped_late"], found.late)
        for number, mark in enumerate(marks):
            if "expect" in mark:
                yield from _compare(
                    f"matches of step {number}", map(_staged, mark["expect"]), map(_staged, found.matches[number])
                )
            if "expect_timeouts" in mark:
                wanted = ((_staged(one["partial"]), one["at"] * MILLISECOND) for one in mark["expect_timeouts"])
                got = ((_staged(stages), at) for stages, at in found.timed_out[number])
                yield from _compare(f"timed out in step {number}", wanted, got)

    return check


def _compare(what: str, wanted: Any, got: Any) -> Iterator[str]:
    expected, actual = Counter(wanted), Counter(got)
    if expected != actual:
        yield f"{what}: expected {sorted(expected.elements())}, got {sorted(actual.elements())}"


def _flat(match: Any) -> tuple[str, ...]:
    events = [event for events in match.values() for event in events] if isinstance(match, dict) else match
    return tuple(sorted(events))


def _staged(match: dict[str, list[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(sorted((stage, tuple(events)) for stage, events in match.items()))


# Patterns ---------------------------------------------------------------------------------------------------

_SKIPS = {
    "no_skip": "skip none",
    "skip_to_next": "skip to next",
    "skip_past_last_event": "skip past last",
    "skip_to_first": "skip to first",
    "skip_to_last": "skip to last",
}


def build_pattern(given: dict[str, Any]) -> Pattern:
    """The pattern of a case."""
    within = given.get("within") or {}
    gaps = {}
    if within.get("type") == "PREVIOUS_AND_CURRENT":
        gaps[within["declared_on"]] = f"{within['ms']} ms"
    built = _sequence(given["pattern"], gaps)
    if within.get("type") == "FIRST_AND_LAST":
        built = built.within(f"{within['ms']} ms")
    skip = given.get("skip") or {"strategy": "no_skip"}
    missing = "fail" if skip.get("throw_on_miss") else "ignore"
    if skip["strategy"] == "no_skip":
        return built
    return built.after_match(_SKIPS[skip["strategy"]], stage=skip.get("stage"), missing=missing)


def _sequence(stages: list[dict[str, Any]], gaps: dict[str, str]) -> Pattern:
    built: Pattern | None = None
    for stage in stages:
        built = _quantified(_stage(built, stage, gaps), stage)
    assert built is not None
    return built


def _stage(built: Pattern | None, stage: dict[str, Any], gaps: dict[str, str]) -> Pattern:
    if "group" in stage:
        group = _sequence(stage["group"], gaps)
        return pattern(group) if built is None else _joined(built, stage["contiguity"])(group)
    condition = expression(stage["condition"])
    if built is None:
        return pattern(stage["name"], condition)
    limit = {"within": gaps[stage["name"]]} if stage["name"] in gaps else {}
    return _joined(built, stage["contiguity"])(stage["name"], condition, **limit)


def _joined(built: Pattern, contiguity: str) -> Callable[..., Pattern]:
    return {
        "next": built.next,
        "followedBy": built.followed_by,
        "followedByAny": built.followed_by_any,
        "notNext": built.not_next,
        "notFollowedBy": built.not_followed_by,
    }[contiguity]


def _quantified(built: Pattern, stage: dict[str, Any]) -> Pattern:
    least, most = stage["quantifier"]["min"], stage["quantifier"]["max"]
    window = stage["quantifier"].get("window_ms")
    limit = None if window is None else f"{window} ms"
    if most is None:
        built = built.one_or_more(within=limit) if least == 1 else built.at_least(least, within=limit)
    elif (least, most) != (1, 1):
        built = built.times(least, most, within=limit)
    loops = (least, most) != (1, 1)
    if loops and stage.get("inner_contiguity") == "strict":
        built = built.consecutive()
    if loops and stage.get("inner_contiguity") == "any":
        built = built.combinations()
    if stage.get("until") is not None:
        built = built.until(expression(stage["until"]))
    if stage.get("greedy"):
        built = built.greedy()
    return built.optional() if stage.get("optional") else built


_OPERATORS = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def expression(text: str | bool) -> pl.Expr | None:
    """A condition of the cases as an expression; None if it is always true."""
    tree = ast.parse(str(text), mode="eval").body
    return None if isinstance(tree, ast.Constant) and tree.value is True else _expression(tree)


def _expression(tree: ast.expr) -> pl.Expr:
    match tree:
        case ast.Constant(value):
            return pl.lit(value)
        case ast.Name(name):
            return pl.col(name)
        case ast.BoolOp(ast.And(), values):
            return pl.all_horizontal(*map(_expression, values)) if len(values) > 9 else _fold(operator.and_, values)
        case ast.BoolOp(ast.Or(), values):
            return _fold(operator.or_, values)
        case ast.UnaryOp(ast.Not(), value):
            return ~_expression(value)
        case ast.UnaryOp(ast.USub(), value):
            return -_expression(value)
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_expression(left), _expression(right))
        case ast.Compare(left, [ast.In()], [right]):
            return _expression(right).str.contains(ast.literal_eval(left), literal=True)
        case ast.Compare(left, [op], [right]):
            return _OPERATORS[type(op)](_expression(left), _expression(right))
        case ast.IfExp(test, body, orelse):
            return pl.when(_expression(test)).then(_expression(body)).otherwise(_expression(orelse))
        case ast.Call(ast.Attribute(value, ("startswith" | "endswith") as method), [prefix]):
            text = _expression(value).str
            return (text.starts_with if method == "startswith" else text.ends_with)(ast.literal_eval(prefix))
        case ast.Call(ast.Name("count"), [stage]):
            return references.count(ast.literal_eval(stage))
        case ast.Call(ast.Name(name), [stage]):
            function, _, column = name.partition("_")
            return getattr(references, function)(f"{ast.literal_eval(stage)}.{column}")
    raise ValueError(f"a condition of an unknown kind: {ast.unparse(tree)}")


def _fold(combine: Callable[[pl.Expr, pl.Expr], pl.Expr], values: list[ast.expr]) -> pl.Expr:
    first, *others = map(_expression, values)
    for other in others:
        first = combine(first, other)
    return first
