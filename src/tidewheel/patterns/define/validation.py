"""Refuse malformed patterns when they are defined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.time import Duration
from tidewheel.patterns.define.policy import ALL, AfterMatch, Missing, Policy
from tidewheel.patterns.define.references import reference_of, references_in, resolve, stages_named_in
from tidewheel.patterns.define.stages import Condition, Group, Part, Stage, stages_of

SKIPS = ("skip none", "skip to next", "skip past last", "skip to first", "skip to last")
MOST_IN_ANY_ORDER = 6
_LOOPS_ONLY = {
    "greedy": "takes all it can only where it may take more than one",
    "consecutive": "speaks of the events of a loop",
    "combinations": "speaks of the events of a loop",
    "until": "ends a loop",
}


def check_name(name: Any) -> str:
    """Check that a stage's name is text without dots and brackets, so that "stage.column" can name it."""
    if not isinstance(name, str) or not name.strip():
        raise DefinitionError(f'a stage needs a name, like pattern("fast", ...), got {name!r}')
    if any(sign in name for sign in ".()"):
        raise DefinitionError(f"stage {name!r}: a name has no dot and no brackets, so that references can name it")
    return name


def check_column(column: Any, stage: str) -> str | None:
    """Refuse anything but the name of a column or None."""
    if column is not None and (not isinstance(column, str) or not column):
        raise DefinitionError(f"stage {stage!r}: differs_in must be the name of a column, got {column!r}")
    return column


def check_word(what: str, given: Any, words: Sequence[str]) -> None:
    """Refuse a word that is not one of these."""
    if given not in words:
        raise DefinitionError(f"{what} must be one of {', '.join(map(repr, words))}, got {given!r}")


def check_times(name: str, least: Any, most: Any) -> None:
    """Check how often a part comes: whole numbers from 1 on, in order."""
    for number in (least, most):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            raise DefinitionError(f"{name} takes whole numbers, got {number!r}")
    if least < 1:
        raise DefinitionError(f"{name} must be 1 or more, got {least}; if there may be none, add .optional()")
    if most is not None and most < least:
        raise DefinitionError(f"{name}: from {least} to {most} leaves nothing; write the smaller number first")


def check_change(name: str, part: Part) -> None:
    """Check that a quantifier makes sense on this part."""
    if isinstance(part, Stage) and part.forbids:
        raise DefinitionError(
            f"{name}: stage {part.name!r} says what must not come, so it takes no events and has no quantifier. "
            f"Put {name} on the stage before it."
        )
    if isinstance(part, Group):
        if name == "greedy":
            raise DefinitionError(f"{name} is for a stage, not for a group; put it on the stages inside")
        if part.kind == "all_of" and name in ("consecutive", "combinations"):
            return
    if name in _LOOPS_ONLY and not part.quantifier.loops:
        raise DefinitionError(
            f"{name}: {_called(part)} takes one event, and {name} {_LOOPS_ONLY[name]}. "
            "Add .one_or_more(), .times(...) or .at_least(...) before it."
        )
    if name in ("one_or_more", "times", "at_least") and part.quantifier.loops:
        raise DefinitionError(f"{name}: {_called(part)} says already how often it comes")


def check_loop_limit(name: str, limit: Duration | None, part: Part) -> None:
    """Refuse a limit between the events of a loop of a group."""
    if limit is not None and isinstance(part, Group):
        raise DefinitionError(f"{name}: within= is for a stage, not for a group; put it on the stages inside")


def check_parts(parts: tuple[Part, ...]) -> None:
    """Check what holds for every pattern, also while it is being built."""
    if not parts:
        return
    first = parts[0]
    if isinstance(first, Stage) and first.forbids:
        raise DefinitionError(f"a pattern cannot begin with what must not come ({first.name!r}); begin with a stage")
    counts = Counter(stage.name for stage in stages_of(parts))
    if twice := [name for name, count in counts.items() if count > 1]:
        raise DefinitionError(f"two stages are named {twice[0]!r}; each needs a name of its own")
    # A stage that is not known here may be one of a pattern that this one is to be a group of.
    _check_references(parts, [], own=set(counts))


def _check_references(parts: tuple[Part, ...], before: list[str], own: set[str] | None = None) -> None:
    """Check that conditions refer to their own stage and earlier ones. own: names that other stages cannot refer to."""
    for part in parts:
        if isinstance(part, Group):
            # A loop comes back to its beginning, and what comes in any order has no before.
            inside = [stage.name for sequence in part.sequences for stage in stages_of(sequence) if not stage.forbids]
            comes_back = part.quantifier.loops or part.kind == "all_of" or own is not None  # it may loop yet
            for sequence in part.sequences:
                _check_references(sequence, before + inside if comes_back else before, own)
            before = before + inside
            _check_condition(part.quantifier.until, before, own, "until of a group")
            continue
        known = before if part.forbids else [*before, part.name]
        for condition in (part.condition, part.quantifier.until):
            _check_condition(condition, known, own, f"stage {part.name!r}")
        if part.quantifier.within is not None and part.within is not None:
            raise DefinitionError(f"stage {part.name!r} has two limits, of the stage and of the loop; leave one out")
        before = known


def _check_condition(condition: Condition | None, known: list[str], own: set[str] | None, what: str) -> None:
    if condition is not None:
        foreign = [] if own is None else sorted(stages_named_in(condition.expression) - own)
        resolve([condition.expression], [*dict.fromkeys(known), *foreign], what=what)


def check_choice(kind: str, patterns: tuple[Any, ...]) -> None:
    """Check alternatives, or parts in any order."""
    if kind == "all_of" and len(patterns) > MOST_IN_ANY_ORDER:
        raise DefinitionError(
            f"all_of takes up to {MOST_IN_ANY_ORDER} patterns (their orders are many), got {len(patterns)}"
        )
    for one in patterns:
        check_group(kind, one.window, one.gap, one.policy)
        _check_end(kind, one.parts)
        if can_be_empty(one.parts):
            raise DefinitionError(f"{kind}: {one!r} may be left out as a whole; make the group optional instead")


def check_group(where: str, window: Duration | None, gap: Duration | None, policy: Policy) -> None:
    """Check a pattern that is to be a part of another one."""
    if window is not None or gap is not None or policy != ALL:
        raise DefinitionError(
            f"{where}: within, after_match and select are for the whole pattern, not for a group in it"
        )


def _check_end(where: str, parts: tuple[Part, ...]) -> None:
    last = parts[-1]
    if isinstance(last, Stage) and last.forbids:
        raise DefinitionError(
            f"{where}: a group cannot end with what must not come ({last.name!r}); put it after the group"
        )


def check_after_match(parts: tuple[Part, ...], skip: AfterMatch, stage: str | None, missing: Missing) -> None:
    """Check that a skip to a stage names one that takes events."""
    check_word("after_match", skip, SKIPS)
    check_word("after_match: missing", missing, ("ignore", "fail"))
    if skip not in ("skip to first", "skip to last"):
        if stage is not None or missing != "ignore":
            raise DefinitionError(
                f'after_match: {skip!r} needs no stage=; use "skip to first" or "skip to last" with it'
            )
        return
    names = [one.name for one in stages_of(parts) if not one.forbids]
    if stage not in names:
        raise DefinitionError(f"after_match: {skip!r} needs stage= one of {', '.join(names)}, got {stage!r}")
    begins = parts[0]
    surely_first = isinstance(begins, Stage) and begins.name == stage and not begins.quantifier.optional
    if missing == "fail" and skip == "skip to first" and surely_first:
        raise DefinitionError(
            f"after_match: every match begins with {stage!r}, so skipping to its first event goes nowhere. "
            'Use "skip to next", or "skip to last", or another stage.'
        )


def check_overlap(overlap: Any, policy: Policy) -> None:
    """Refuse a skip policy if matches do not overlap."""
    if not isinstance(overlap, bool):
        raise DefinitionError(f"select: overlap must be True or False, got {overlap!r}")
    if not overlap and policy.after_match not in ("skip none", "skip past last"):
        raise DefinitionError(
            f'select: overlap=False is after_match("skip past last"), but after_match is {policy.after_match!r}; '
            "leave one of them out"
        )


def check_policy(policy: Policy) -> None:
    """Check the options of a policy."""
    if not isinstance(policy.reuse, bool):
        raise DefinitionError(f"select: reuse must be True or False, got {policy.reuse!r}")


def check_whole(parts: tuple[Part, ...], window: Duration | None) -> None:
    """Check what a pattern needs before events come."""
    if not parts:
        raise DefinitionError('a pattern needs a stage; begin with pattern("name", condition)')
    _check_references(parts, [])
    for group in groups_of(parts):
        for sequence in group.sequences:
            _check_end("a group", sequence)
        if group.quantifier.loops and any(can_be_empty(sequence) for sequence in group.sequences):
            names = ", ".join(stage.name for sequence in group.sequences for stage in stages_of(sequence))
            raise DefinitionError(
                f"the group of {names} repeats, and all in it may be left out: it could match nothing for ever. "
                "Make one of its stages mandatory, or the group itself optional."
            )
        if group.quantifier.optional and any(can_be_empty(sequence) for sequence in group.sequences):
            names = ", ".join(stage.name for sequence in group.sequences for stage in stages_of(sequence))
            raise DefinitionError(
                f"the group of {names} is optional, and so is all in it: it could be left out in two ways. "
                "Leave out the .optional() of the group."
            )
    last = len(parts) - 1
    for place, part in enumerate(parts):
        if not isinstance(part, Stage) or not part.forbids:
            continue
        trailing = all(isinstance(later, Stage) and later.forbids for later in parts[place + 1 :])
        if part.contiguity == "followed_by" and trailing and window is None and part.within is None:
            raise DefinitionError(
                f"no stage comes after not_followed_by({part.name!r}), so it would be waited for for ever. Say for how "
                'long: .within("10 s") on the pattern, or within= on the stage.'
            )
        if part.within is not None and place != last:
            raise DefinitionError(
                f"stage {part.name!r}: within= is for a not_followed_by at the end of a pattern; "
                "inside, give the limit to the stage that follows it"
            )


def check_measure(name: Any, measure: Any, stages: tuple[str, ...]) -> None:
    """Check that a measure is an expression over the events taken."""
    what = f"measure {name!r}"
    if not isinstance(name, str) or not name or name.startswith("__"):
        raise DefinitionError(f"{what}: a name must be text that does not begin with __")
    if not isinstance(measure, pl.Expr):
        raise DefinitionError(f'{what}: expected an expression like first("fast.speed"), got {measure!r}')
    references = references_in(measure)
    for column in measure.meta.root_names():
        if column not in references:
            raise DefinitionError(
                f"{what}: the column {column!r} could be that of any event of the match; "
                f'say which, like last("{stages[-1]}.{column}")'
            )
        if reference_of(column, stages, what=what).function == "previous":
            raise DefinitionError(f"{what}: previous is for conditions; use last(...) in measures")


def groups_of(parts: tuple[Part, ...]) -> list[Group]:
    """All groups, also those inside others."""
    found = []
    for part in parts:
        if isinstance(part, Group):
            found += [part, *(group for sequence in part.sequences for group in groups_of(sequence))]
    return found


def may_be_skipped(part: Part) -> bool:
    """Whether a match may have no event of this part."""
    if isinstance(part, Stage):
        return part.forbids or part.quantifier.optional
    empties = [can_be_empty(sequence) for sequence in part.sequences]
    return part.quantifier.optional or (all(empties) if part.kind == "all_of" else any(empties))


def can_be_empty(parts: tuple[Part, ...]) -> bool:
    """Whether all parts may be left out."""
    return all(may_be_skipped(part) for part in parts)


def _called(part: Part) -> str:
    return f"stage {part.name!r}" if isinstance(part, Stage) else "the group"
