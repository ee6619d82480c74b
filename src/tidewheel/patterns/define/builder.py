"""Patterns: which events, in what order, how often and how far apart make a match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal, TypeAlias

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, duration
from tidewheel.patterns.define import repr, validation
from tidewheel.patterns.define.policy import ALL, AfterMatch, Missing, Policy, Select
from tidewheel.patterns.define.references import references_in, resolve
from tidewheel.patterns.define.stages import (
    Condition,
    Contiguity,
    Group,
    Part,
    Quantifier,
    Stage,
    conditions_of,
    stages_of,
)

__all__ = ["Pattern", "all_of", "any_of", "pattern"]

Given: TypeAlias = "str | pl.Expr | None"
"""A condition: the name of a boolean column, an expression, or none."""

Time = str | timedelta


def pattern(begin: str | Pattern, condition: Given = None, *, differs_in: str | None = None) -> Pattern:
    """Begin a pattern with a stage, or with a group: a pattern that is quantified as a whole.

    >>> pattern("fast", pl.col("speed") >= 10).next("standing", pl.col("speed") < 1).within("10 s")
    pattern('fast', pl.col('speed') >= 10).next('standing', pl.col('speed') < 1).within('10 s')
    """
    return Pattern(())._then("followed_by", begin, condition, differs_in=differs_in, within=None)


def any_of(*alternatives: Pattern) -> Pattern:
    """Match one of these patterns, as one part.

    >>> any_of(pattern("late", "is_late"), pattern("full", "is_full"))
    any_of(pattern('late', 'is_late'), pattern('full', 'is_full'))
    """
    return _choice("any_of", alternatives)


def all_of(*parts: Pattern) -> Pattern:
    """Match all of these patterns, one after the other in any order, as one part.

    What may lie between them is as within a loop: `.consecutive()` and `.combinations()` change it.

    >>> all_of(pattern("late", "is_late"), pattern("full", "is_full")).consecutive()
    all_of(pattern('late', 'is_late'), pattern('full', 'is_full')).consecutive()
    """
    return _choice("all_of", parts)


def _choice(kind: Literal["any_of", "all_of"], patterns: tuple[Pattern, ...]) -> Pattern:
    if len(patterns) < 2 or not all(isinstance(one, Pattern) for one in patterns):
        raise DefinitionError(f'{kind} takes two or more patterns, like pattern("a", ...), got {patterns!r}')
    validation.check_choice(kind, patterns)
    group = Group(kind, tuple(one.parts for one in patterns))
    return Pattern((group,))


@dataclass(frozen=True, repr=False)
class Pattern:
    """A pattern; every call gives a new one. Begin with `pattern(...)`, `any_of(...)` or `all_of(...)`.

    >>> stop = (
    ...     pattern("fast", pl.col("speed") > 10)
    ...     .followed_by("braking", pl.col("acc") < 0).one_or_more().greedy().until(pl.col("speed") > 10)
    ...     .followed_by_any("standing", pl.col("speed") < 1).optional()
    ... )
    >>> stop.stages
    ('fast', 'braking', 'standing')
    >>> pattern("a", "is_a").at_least(2).consecutive().next("b", "is_b").times(2).combinations()
    pattern('a', 'is_a').at_least(2).consecutive().next('b', 'is_b').times(2).combinations()
    >>> pattern("a", "is_a").not_followed_by("b", "is_b").check_ready()
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: ...
    """

    stable_name: ClassVar[str] = "pattern/1"
    stored: ClassVar[StoredFields] = StoredFields("parts", "window", "gap", "policy", micros=("window", "gap"))

    parts: tuple[Part, ...]
    window: Duration | None = None
    gap: Duration | None = None
    policy: Policy = ALL

    def __post_init__(self) -> None:
        validation.check_parts(self.parts)

    # Stages -------------------------------------------------------------------------------------------------

    def next(
        self,
        stage: str | Pattern,
        condition: Given = None,
        *,
        within: Time | None = None,
        differs_in: str | None = None,
    ) -> Pattern:
        """Require the very next event of the key to satisfy the condition. within: how long after the event before
        (strictly less).

        differs_in: a column in which the event differs from all that the match has taken.

        >>> pattern("a", "is_a").next("b", "is_b", within="3 s")
        pattern('a', 'is_a').next('b', 'is_b', within='3 s')
        """
        return self._then("next", stage, condition, within=within, differs_in=differs_in)

    def followed_by(
        self,
        stage: str | Pattern,
        condition: Given = None,
        *,
        within: Time | None = None,
        differs_in: str | None = None,
    ) -> Pattern:
        """Take the first later event that satisfies the condition; those in between are passed over."""
        return self._then("followed_by", stage, condition, within=within, differs_in=differs_in)

    def followed_by_any(
        self,
        stage: str | Pattern,
        condition: Given = None,
        *,
        within: Time | None = None,
        differs_in: str | None = None,
    ) -> Pattern:
        """Take any later event that satisfies the condition: each gives a match of its own."""
        return self._then("followed_by_any", stage, condition, within=within, differs_in=differs_in)

    def not_next(self, stage: str, condition: Given = None) -> Pattern:
        """Require the next event of the key not to satisfy the condition. At the end of a pattern, that next event
        decides.

        >>> pattern("a", "is_a").not_next("b", "is_b").followed_by("c", "is_c")
        pattern('a', 'is_a').not_next('b', 'is_b').followed_by('c', 'is_c')
        """
        return self._never("next", stage, condition, None)

    def not_followed_by(self, stage: str, condition: Given = None, *, within: Time | None = None) -> Pattern:
        """Require that no such event comes until the next stage takes one; at the end of a pattern, until `within` has
        passed.

        If only optional stages follow, it is about the way to them: a match without them is complete at once.

        >>> pattern("a", "is_a").not_followed_by("b", "is_b").within("10 s")
        pattern('a', 'is_a').not_followed_by('b', 'is_b').within('10 s')
        """
        return self._never("followed_by", stage, condition, within)

    # Quantifiers, on the latest part ------------------------------------------------------------------------

    def one_or_more(self, *, within: Time | None = None) -> Pattern:
        """Repeat the latest part once or more often; each number is a match of its own, unless it is `greedy`.

        within: how far apart neighbouring events of the loop may be (strictly less); for a part that must be there,
        this counts for its first event as well.
        """
        return self._often("one_or_more", 1, None, within)

    def times(self, least: int, most: int | None = None, *, within: Time | None = None) -> Pattern:
        """Repeat the latest part n times, or `least` to `most` times.

        >>> pattern("a", "is_a").times(2, 4).consecutive()
        pattern('a', 'is_a').times(2, 4).consecutive()
        """
        return self._often("times", least, least if most is None else most, within)

    def at_least(self, least: int, *, within: Time | None = None) -> Pattern:
        """Repeat the latest part n times or more."""
        return self._often("at_least", least, None, within)

    def optional(self) -> Pattern:
        """Allow the latest part to be left out."""
        return self._change("optional", optional=True)

    def greedy(self) -> Pattern:
        """Let the latest loop take all it can before the next stage; at the end of a pattern this changes nothing."""
        return self._change("greedy", greedy=True)

    def consecutive(self) -> Pattern:
        """Allow no other events between the events of the latest loop."""
        return self._change("consecutive", inner="next")

    def combinations(self) -> Pattern:
        """Allow any events between those of the latest loop, also such that it could have taken."""
        return self._change("combinations", inner="followed_by_any")

    def until(self, condition: Given) -> Pattern:
        """End the latest loop, of a stage or a group, with an event that it does not take.

        It leaves an iteration of a group that has begun incomplete; those before it count.
        """
        if condition is None:
            raise DefinitionError('until: expected a condition like until(pl.col("speed") < 1), got None')
        return self._change("until", until=_condition(condition, "until"))

    # The whole ----------------------------------------------------------------------------------------------

    def within(self, limit: Time, *, between: Literal["ends", "neighbours"] = "ends") -> Pattern:
        """Limit the time from the first to the last event of a match, or between neighbouring events: strictly less.

        >>> pattern("a", "is_a").followed_by("b", "is_b").within("10 s").within("3 s", between="neighbours")
        pattern('a', 'is_a').followed_by('b', 'is_b').within('10 s').within('3 s', between='neighbours')
        """
        validation.check_word("within: between", between, ("ends", "neighbours"))
        checked = _time(limit, "within")
        return replace(self, window=checked) if between == "ends" else replace(self, gap=checked)

    def after_match(self, skip: AfterMatch, *, stage: str | None = None, missing: Missing = "ignore") -> Pattern:
        """Choose which partial matches a match ends: "skip none", "skip to next" (those that began with the same
        event), "skip past last" (those that began before its end), "skip to first" and "skip to last" (those that began
        before the first or last event of `stage`; missing: if there is none, "ignore" it or "fail").

        A match is held back while a partial match that began earlier may still complete.

        >>> pattern("a", "is_a").times(2).after_match("skip past last")
        pattern('a', 'is_a').times(2).after_match('skip past last')
        """
        validation.check_after_match(self.parts, skip, stage, missing)
        return self._with_policy(after_match=skip, stage=stage, missing=missing)

    def select(self, which: Select = "each", *, overlap: bool = True, reuse: bool = True) -> Pattern:
        """Choose which of the matches that begin with the same event are given: each, the first to complete, or the
        last.

        overlap: whether matches of a key may overlap in time; if not, this is `after_match("skip past last")`.
        reuse: whether an event may be in several matches; if not, it is in the one that is complete first.

        >>> pattern("a", "is_a").followed_by_any("b", "is_b").within("10 s").select("last")
        pattern('a', 'is_a').followed_by_any('b', 'is_b').within('10 s').select('last')
        """
        validation.check_word("select", which, ("each", "first", "last"))
        validation.check_overlap(overlap, self.policy)
        chosen = self._with_policy(select=which, reuse=reuse)
        return chosen if overlap else chosen.after_match("skip past last")

    # What an engine must know -------------------------------------------------------------------------------

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages that take events, in the order written."""
        return tuple(stage.name for stage in stages_of(self.parts) if not stage.forbids)

    def columns(self, measures: Mapping[str, pl.Expr] | None = None) -> tuple[str, ...]:
        """List the columns of events that the pattern and these measures need, in order.

        >>> from tidewheel.patterns.define.references import first
        >>> pattern("a", pl.col("speed") > 3).columns({"at": first("a.lat")})
        ('speed', 'lat')
        """
        found: dict[str, None] = {}
        for stage in stages_of(self.parts):
            conditions = (stage.condition, stage.quantifier.until)
            for expression in (condition.expression for condition in conditions if condition is not None):
                found.update(dict.fromkeys(self._columns_in(expression)))
            if stage.differs_in is not None:
                found[stage.differs_in] = None
        until = (condition.expression for condition in conditions_of(self.parts))  # of groups, too
        for expression in (*until, *(measures or {}).values()):
            found.update(dict.fromkeys(self._columns_in(expression)))
        return tuple(found)

    def check_ready(self, measures: Mapping[str, pl.Expr] | None = None) -> None:
        """Refuse a pattern that is not complete, and measures that it cannot give."""
        validation.check_whole(self.parts, self.window)
        for name, measure in (measures or {}).items():
            validation.check_measure(name, measure, self.stages)

    def _columns_in(self, expression: pl.Expr) -> list[str]:
        references = resolve([expression], self.stages, what="pattern")
        names = dict.fromkeys(expression.meta.root_names())
        columns = [references[name].column if name in references else name for name in names]
        return [column for column in columns if column is not None]

    def _then(
        self, contiguity: Contiguity, given: Any, condition: Given, *, within: Time | None, differs_in: str | None
    ) -> Pattern:
        where = contiguity if self.parts else "pattern"
        if isinstance(given, Pattern):
            if condition is not None or differs_in is not None or within is not None:
                raise DefinitionError(f"{where}: a group has its conditions inside; pass it alone")
            validation.check_group(where, given.window, given.gap, given.policy)
            return self._add(Group("sequence", (given.parts,), contiguity))
        stage = Stage(
            validation.check_name(given),
            _condition(condition, f"stage {given!r}"),
            contiguity,
            within=None if within is None else _time(within, f"stage {given!r}: within"),
            differs_in=validation.check_column(differs_in, given),
        )
        return self._add(stage)

    def _never(self, contiguity: Contiguity, name: str, condition: Given, within: Time | None) -> Pattern:
        checked = None if within is None else _time(within, f"stage {name!r}: within")
        stage = Stage(
            validation.check_name(name),
            _condition(condition, f"stage {name!r}"),
            contiguity,
            forbids=True,
            within=checked,
        )
        return self._add(stage)

    def _add(self, part: Part) -> Pattern:
        if self.window is not None or self.gap is not None or self.policy != ALL:
            raise DefinitionError(
                "a stage comes before within, after_match and select, which are for the whole pattern; "
                "call them after the last stage"
            )
        return Pattern((*self.parts, part))

    def _often(self, name: str, least: int, most: int | None, within: Time | None) -> Pattern:
        validation.check_times(name, least, most)
        limit = None if within is None else _time(within, f"{name}: within")
        validation.check_loop_limit(name, limit, self.parts[-1])
        return self._change(name, least=least, most=most, within=limit)

    def _change(self, name: str, **changes: Any) -> Pattern:
        if self.window is not None or self.gap is not None or self.policy != ALL:
            raise DefinitionError(f"{name} is for the latest stage; call it before within, after_match and select")
        part = self.parts[-1]
        validation.check_change(name, part)
        quantifier: Quantifier = replace(part.quantifier, **changes)
        changed = replace(part, quantifier=quantifier)
        return Pattern((*self.parts[:-1], changed))

    def _with_policy(self, **changes: Any) -> Pattern:
        policy = replace(self.policy, **changes)
        validation.check_policy(policy)
        return replace(self, policy=policy)

    def __repr__(self) -> str:
        return repr.written(self.parts, self.window, self.gap, self.policy)


def _condition(given: Given, what: str) -> Condition | None:
    if given is None:
        return None
    if isinstance(given, str) and given:
        return Condition(pl.col(given))
    if not isinstance(given, pl.Expr):
        raise DefinitionError(
            f"{what}: a condition is the name of a boolean column or a polars expression like "
            f'pl.col("speed") > 10, got {given!r}'
        )
    if not given.meta.root_names():
        raise DefinitionError(f"{what}: the condition {given} reads no column; leave it out to take any event")
    if any(name.startswith("collect(") for name in references_in(given)):
        raise DefinitionError(f"{what}: collect gives lists for measures; use count, sum, min or max in conditions")
    return Condition(given)


def _time(given: Time, what: str) -> Duration:
    checked = duration(given, what=what)
    if checked <= 0:
        raise DefinitionError(f"{what} must be longer than nothing, got {given!r}")
    return checked
