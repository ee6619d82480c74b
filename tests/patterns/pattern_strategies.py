"""Generated patterns, with the meaning of their conditions, and generated events for them."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import strategies as st

from tests.patterns.brute_force import Event, Meaning, Meanings, TakenSoFar, group_name
from tidewheel.patterns.define.builder import Pattern, all_of, any_of, pattern
from tidewheel.patterns.define.references import count, first, last, previous
from tidewheel.patterns.define.references import sum as total
from tidewheel.patterns.define.stages import Group

SCHEMA = {"name": pl.String(), "x": pl.Int64(), "who": pl.String()}


def events(most: int = 7, *, unit: int = 1) -> st.SearchStrategy[list[Event]]:
    """unit: of the time between events, in microseconds."""
    one = st.fixed_dictionaries(
        {"name": st.sampled_from("abc"), "x": st.integers(0, 3) | st.none(), "who": st.sampled_from("vw")}
    )
    step = st.integers(0, 3)

    def timed(given: list[tuple[int, dict[str, Any]]]) -> list[Event]:
        time, found = 0, []
        for later, event in given:
            time += later * unit
            found.append({"time": time, **event})
        return found

    return st.lists(st.tuples(step, one), max_size=most).map(timed)


class Building:
    """A pattern in the making: names are given in order, so that conditions know the stages before."""

    def __init__(self, draw: Any, unit: int = 1, gaps: bool = False) -> None:
        self.draw = draw
        self.unit = unit
        self.gaps = gaps
        self.takes: dict[str, Meaning] = {}
        self.ends: dict[str, Meaning] = {}
        self.sure: list[str] = []
        self.depth = 0

    def span(self, most: int) -> str:
        return f"{self.draw(st.integers(1, most)) * self.unit} us"

    def name(self) -> str:
        return f"s{len(self.takes)}"

    def condition(self, stage: str | None) -> tuple[pl.Expr | None, Meaning]:
        """stage: the one that asks, if it may speak of itself."""
        kind = self.draw(st.sampled_from(["name", "name", "name", "any", "two", "taken", "previous"]))
        letter = self.draw(st.sampled_from("abc"))
        if kind == "any":
            return None, lambda event, taken: True
        if kind == "two":
            return pl.col("name") != letter, lambda event, taken: event["name"] != letter
        named = pl.col("name") == letter
        if kind == "name":
            return named, lambda event, taken: event["name"] == letter
        if kind == "previous":
            return (
                named & (pl.col("x") >= previous("x").fill_null(0) if self.draw(st.booleans()) else _not_less()),
                lambda event, taken: event["name"] == letter and _not_less_than_before(event, taken),
            )
        known = [*self.sure, *([stage] if stage else [])]
        if not known:
            return named, lambda event, taken: event["name"] == letter
        return self._taken(named, letter, self.draw(st.sampled_from(known)))

    def _taken(self, named: pl.Expr, letter: str, about: str) -> tuple[pl.Expr, Meaning]:
        kind = self.draw(st.sampled_from(["count", "first", "last", "sum"]))

        def values(taken: TakenSoFar) -> list[Any]:
            return [event["x"] for stage, event in taken if stage == about]

        if kind == "count":
            return (
                named & (count(about) < 2),
                lambda event, taken: event["name"] == letter and len(values(taken)) < 2,
            )
        if kind == "sum":
            return (
                named | (total(f"{about}.x") >= 3),
                lambda event, taken: event["name"] == letter or sum(x for x in values(taken) if x is not None) >= 3,
            )
        place = 0 if kind == "first" else -1
        reference = first if kind == "first" else last

        def meaning(event: Event, taken: TakenSoFar) -> bool:
            there = values(taken)
            if not there or there[place] is None or event["x"] is None:
                return False
            return bool(event["x"] <= there[place])

        return pl.col("x") <= reference(f"{about}.x"), meaning

    def sequence(self, most: int) -> Pattern:
        built = self.begin()
        for _ in range(self.draw(st.integers(0, most - 1))):
            built = self.more(built)
        return built

    def begin(self) -> Pattern:
        kind = self.draw(st.sampled_from(["stage"] * 5 + ["group", "any", "all"])) if self.depth < 1 else "stage"
        if kind == "stage":
            name = self.name()
            expression, self.takes[name] = self.condition(name)
            self.sure.append(name)
            return self.quantified(pattern(name, expression), name)
        return (
            self.quantified(self.group(kind), None)
            if kind != "group"
            else self.quantified(pattern(self.group(kind)), None)
        )

    def group(self, kind: str) -> Pattern:
        self.depth += 1
        before = list(self.sure)
        if kind == "group":
            inside = self.sequence(2)
        else:
            parts = []
            for _ in range(2):
                self.sure = list(before)
                name = self.name()
                expression, self.takes[name] = self.condition(name)
                part = pattern(name, expression)
                if self.draw(st.integers(0, 3)) == 0:
                    part = part.times(1, 2)
                parts.append(part)
            inside = any_of(*parts) if kind == "any" else all_of(*parts)
            if kind == "all" and self.draw(st.booleans()):
                inside = self.draw(st.sampled_from([inside.consecutive, inside.combinations]))()
        self.sure = before
        self.depth -= 1
        return inside

    def more(self, built: Pattern) -> Pattern:
        kind = self.draw(st.sampled_from(["stage"] * 6 + ["never", "group", "any", "all"]))
        join = self.draw(st.sampled_from(["next", "followed_by", "followed_by", "followed_by_any"]))
        if kind == "never":
            name = self.name()
            expression, self.takes[name] = self.condition(None)
            never = self.draw(st.sampled_from(["not_next", "not_followed_by"]))
            built = getattr(built, never)(name, expression)
            kind = "stage"
        if kind != "stage" and self.depth < 1:
            return self.quantified(getattr(built, join)(self.group(kind)), None)
        name = self.name()
        expression, self.takes[name] = self.condition(name)
        options: dict[str, Any] = {}
        if self.draw(st.integers(0, 1 if self.gaps else 5)) == 0:
            options["within"] = self.span(4)
        if self.draw(st.integers(0, 5)) == 0:
            options["differs_in"] = "who"
        self.sure.append(name)
        return self.quantified(getattr(built, join)(name, expression, **options), name)

    def quantified(self, built: Pattern, stage: str | None) -> Pattern:
        """stage: None for a group."""
        often = self.draw(st.sampled_from(["once"] * 5 + ["one_or_more", "times", "range", "at_least"]))
        limits: dict[str, Any] = {}
        part = built.parts[-1]
        own_limit = stage is not None and part.within is None  # type: ignore[union-attr]
        if own_limit and often != "once" and self.draw(st.integers(0, 4)) == 0:
            limits["within"] = self.span(4)
        if part.quantifier.loops:
            often = "once"
        if often == "one_or_more":
            built = built.one_or_more(**limits)
        elif often == "times":
            built = built.times(2, **limits)
        elif often == "range":
            built = built.times(1, self.draw(st.integers(2, 3)), **limits)
        elif often == "at_least":
            built = built.at_least(2, **limits)
        if often != "once":
            if self.draw(st.booleans()):
                built = self.draw(st.sampled_from([built.consecutive, built.combinations]))()
            if stage is not None and self.draw(st.integers(0, 2)) == 0:
                built = built.greedy()
            if self.draw(st.integers(0, 3)) == 0:
                expression, meaning = self.condition(stage)
                if expression is not None:
                    built = built.until(expression)
                    ended = built.parts[-1]
                    self.ends[group_name(ended) if isinstance(ended, Group) else ended.name] = meaning
        if self.draw(st.integers(0, 3)) == 0:
            built = built.optional()
        return built


def _not_less() -> pl.Expr:
    return pl.col("x") >= pl.when(previous("x").is_null()).then(0).otherwise(previous("x"))


def _not_less_than_before(event: Event, taken: TakenSoFar) -> bool:
    before = taken[-1][1]["x"] if taken else None
    return event["x"] is not None and event["x"] >= (0 if before is None else before)


@st.composite
def patterns(draw: Any, *, window: bool | None = None, unit: int = 1, gaps: bool = False) -> tuple[Pattern, Meanings]:
    """window: whether the whole has a limit; None: either. unit: of times, in microseconds. gaps: many stages have a
    limit of their own."""
    building = Building(draw, unit, gaps)
    built = building.sequence(draw(st.integers(1, 3)))
    ending = draw(st.sampled_from(["none"] * 4 + ["not_next", "not_followed_by", "optional", "gap"]))
    limited = draw(st.booleans()) if window is None else window
    if ending in ("not_next", "not_followed_by"):
        name = building.name()
        expression, building.takes[name] = building.condition(None)
        options = {}
        if ending == "not_followed_by" and (not limited or draw(st.booleans())):
            options["within"] = building.span(5)
        built = getattr(built, ending)(name, expression, **options)
    if ending == "optional":  # and something that must not come on the way to it
        name = building.name()
        expression, building.takes[name] = building.condition(None)
        built = built.not_followed_by(name, expression)
        name = building.name()
        expression, building.takes[name] = building.condition(name)
        built = building.quantified(built.followed_by(name, expression), name).optional()
    if limited:
        built = built.within(building.span(8))
    if ending == "gap":
        built = built.within(building.span(5), between="neighbours")
    return built, Meanings(building.takes, building.ends)


@st.composite
def policies(draw: Any, built: Pattern) -> Pattern:
    """The pattern with any policy."""
    skip = draw(
        st.sampled_from(["skip none"] * 3 + ["skip to next", "skip past last", "skip to first", "skip to last"])
    )
    if skip != "skip none":
        to_stage = skip in ("skip to first", "skip to last")
        built = built.after_match(skip, stage=draw(st.sampled_from(built.stages)) if to_stage else None)
    if draw(st.integers(0, 2)) == 0:
        built = built.select(draw(st.sampled_from(["each", "first", "last"])), reuse=draw(st.booleans()))
    return built
