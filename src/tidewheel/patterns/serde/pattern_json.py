"""Patterns with their measures as JSON text and back.

The text says the calls that build the pattern, and reading it makes these calls: what the builder would refuse is
refused here too. Nothing in it is run, so it may come from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.panes import END_OF_TIME
from tidewheel.patterns.define.builder import Pattern, all_of, any_of, pattern
from tidewheel.patterns.define.policy import ALL
from tidewheel.patterns.define.stages import ONCE, Group, Part, Quantifier
from tidewheel.patterns.serde.expression_json import expression_from_json, expression_to_json

__all__ = ["VERSION", "pattern_from_json", "pattern_to_json"]

VERSION = 1
MOST_LETTERS = 200_000
MOST_PARTS = 200
MOST_DEPTH = 10
_WHOLE = {"version", "parts", "within", "gap", "after_match", "stage", "missing", "select", "reuse", "measures"}
_PART = {"call", "within", "differs_in", "least", "most", "apart", "inner", "until", "greedy", "optional"}
_CALLS = ("pattern", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by")
_INNER = {"next": "consecutive", "followed_by_any": "combinations"}


def pattern_to_json(pattern: Pattern, measures: Mapping[str, pl.Expr] | None = None) -> str:
    """Write a pattern and its measures as text; conditions that cannot be written so are refused.

    >>> stop = pattern("fast", pl.col("speed") >= 10).next("standing", pl.col("speed") < 1).within("10 s")
    >>> print(pattern_to_json(stop))
    {"version":1,"parts":[{"call":"pattern","stage":"fast","if":[">=",["col","speed"],["lit",10]]},\
{"call":"next","stage":"standing","if":["<",["col","speed"],["lit",1]]}],"within":10000000}
    >>> pattern_from_json(pattern_to_json(stop))[0] == stop
    True
    """
    if not isinstance(pattern, Pattern):
        raise DefinitionError(f'expected a pattern like pattern("fast", ...), got {pattern!r}')
    pattern.check_ready(measures)
    fields: dict[str, Any] = {"version": VERSION, "parts": _parts(pattern.parts)}
    fields |= _given(within=pattern.window, gap=pattern.gap)
    policy = pattern.policy
    if policy.after_match != ALL.after_match:
        fields |= {"after_match": policy.after_match} | _given(stage=policy.stage)
        fields |= {} if policy.missing == ALL.missing else {"missing": policy.missing}
    if policy.select != ALL.select or not policy.reuse:
        fields |= {"select": policy.select} | ({} if policy.reuse else {"reuse": False})
    if measures:
        fields["measures"] = {
            name: expression_to_json(measure, what=f"measure {name!r}") for name, measure in measures.items()
        }
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    again, same = pattern_from_json(text)
    if again != pattern or any(not same[name].meta.eq(_bare(given)) for name, given in (measures or {}).items()):
        raise DefinitionError(f"{pattern!r} cannot be written as JSON: it would be read back as {again!r}")
    return text


def pattern_from_json(text: str) -> tuple[Pattern, dict[str, pl.Expr]]:
    """Read the pattern and the measures that `pattern_to_json` wrote; whatever else is refused.

    >>> from tidewheel.patterns import measures as of
    >>> text = pattern_to_json(pattern("fast", pl.col("speed") > 9), {"most": of.max("fast.speed")})
    >>> found, measures = pattern_from_json(text)
    >>> found == pattern("fast", pl.col("speed") > 9), list(measures)
    (True, ['most'])
    """
    if len(text) > MOST_LETTERS:
        raise DefinitionError(f"a definition has at most {MOST_LETTERS:,} letters, got {len(text):,}")
    try:
        fields = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DefinitionError(f"not a pattern as JSON: {error}") from None
    if not isinstance(fields, dict) or "version" not in fields:
        raise DefinitionError("not a pattern: expected an object with a version")
    if fields["version"] != VERSION or isinstance(fields["version"], bool):
        raise DefinitionError(f"a pattern of version {fields['version']!r}, this Tidewheel reads {VERSION}")
    _check_names(fields, _WHOLE, "pattern")
    try:
        found = _whole(fields)
        measures = _measures(fields.get("measures", {}))
        found.check_ready(measures)
    except DefinitionError:
        raise
    except (TypeError, ValueError, ArithmeticError, pl.exceptions.PolarsError) as error:
        raise DefinitionError(f"not a pattern: {error}") from None
    return found, measures


# To JSON ----------------------------------------------------------------------------------------------------


def _parts(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    return [_part(part, first=place == 0) for place, part in enumerate(parts)]


def _part(part: Part, *, first: bool) -> dict[str, Any]:
    if isinstance(part, Group):
        called = part.kind if part.kind != "sequence" else "pattern" if first else part.contiguity
        fields: dict[str, Any] = {"call": called, "of": [_parts(one) for one in part.sequences]}
        return fields | _often(part.quantifier, "a group")
    call = "pattern" if first else f"not_{part.contiguity}" if part.forbids else part.contiguity
    what = f"stage {part.name!r}"
    fields = {"call": call, "stage": part.name}
    fields |= {} if part.condition is None else {"if": expression_to_json(part.condition.expression, what=what)}
    fields |= _given(within=part.within, differs_in=part.differs_in)
    return fields | _often(part.quantifier, what)


def _often(quantifier: Quantifier, what: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if (quantifier.least, quantifier.most) != (ONCE.least, ONCE.most) or quantifier.within is not None:
        fields = {"least": quantifier.least, "most": quantifier.most} | _given(apart=quantifier.within)
    fields |= {} if quantifier.inner == ONCE.inner else {"inner": quantifier.inner}
    if quantifier.until is not None:
        fields["until"] = expression_to_json(quantifier.until.expression, what=f"{what}: until")
    fields |= {"greedy": True} if quantifier.greedy else {}
    return fields | ({"optional": True} if quantifier.optional else {})


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _bare(expression: pl.Expr) -> pl.Expr:
    return expression.meta.undo_aliases()


# From JSON --------------------------------------------------------------------------------------------------


def _whole(fields: Mapping[str, Any]) -> Pattern:
    built = _sequence(fields.get("parts"), _Budget(MOST_PARTS), MOST_DEPTH)
    if "within" in fields:
        built = built.within(_time(fields["within"]))
    if "gap" in fields:
        built = built.within(_time(fields["gap"]), between="neighbours")
    if "after_match" in fields:
        options = {name: fields[name] for name in ("stage", "missing") if name in fields}
        built = built.after_match(fields["after_match"], **options)
    elif "stage" in fields or "missing" in fields:
        raise DefinitionError("pattern: stage and missing are for after_match, which is not there")
    if "select" in fields or "reuse" in fields:
        built = built.select(fields.get("select", ALL.select), reuse=fields.get("reuse", True))
    return built


class _Budget:
    """The number of parts that may still be added."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise DefinitionError(f"a pattern as JSON has at most {MOST_PARTS} stages and groups")


def _sequence(parts: Any, budget: _Budget, depth: int) -> Pattern:
    if not isinstance(parts, list) or not parts:
        raise DefinitionError("a pattern has a list of parts, and at least one")
    if depth == 0:
        raise DefinitionError(f"a pattern that is sent has groups at most {MOST_DEPTH} deep")
    built: Pattern | None = None
    for fields in parts:
        budget.take()
        if not isinstance(fields, dict):
            raise DefinitionError("a part of a pattern is an object")
        if "of" in fields:
            _check_names(fields, _PART - {"within", "differs_in"} | {"of"}, "group")
            built = _quantified(_group(built, fields, budget, depth), fields)
        else:
            _check_names(fields, _PART | {"stage", "if"}, "stage")
            built = _quantified(_stage(built, fields), fields)
    assert built is not None
    return built


def _group(before: Pattern | None, fields: Mapping[str, Any], budget: _Budget, depth: int) -> Pattern:
    call, of = fields.get("call"), fields["of"]
    if not isinstance(of, list):
        raise DefinitionError("a group has a list of sequences")
    inside = [_sequence(parts, budget, depth - 1) for parts in of]
    if call in ("any_of", "all_of"):
        if before is not None:
            raise DefinitionError(f"{call} stands at the beginning of its sequence; wrap it in a group")
        return any_of(*inside) if call == "any_of" else all_of(*inside)
    if len(inside) != 1:
        raise DefinitionError(f"{call}: a group that is called so has one sequence, got {len(inside)}")
    return _call(before, call, _CALLS[:4])(inside[0])


def _stage(before: Pattern | None, fields: Mapping[str, Any]) -> Pattern:
    name = fields.get("stage")
    call = _call(before, fields.get("call"), _CALLS)
    if not isinstance(name, str):
        raise DefinitionError(f"a stage has a name, got {name!r}")
    condition = expression_from_json(fields["if"], what=f"stage {name!r}") if "if" in fields else None
    options: dict[str, Any] = {"within": _time(fields["within"])} if "within" in fields else {}
    options |= {"differs_in": fields["differs_in"]} if "differs_in" in fields else {}
    return call(name, condition, **options)


def _call(before: Pattern | None, call: Any, known: tuple[str, ...]) -> Callable[..., Pattern]:
    if call not in known or (call == "pattern") != (before is None):
        raise DefinitionError(f"a sequence begins with pattern and goes on with {', '.join(known[1:])}, got {call!r}")
    if before is None:
        return pattern
    found: Callable[..., Pattern] = getattr(before, call)
    return found


def _quantified(built: Pattern, fields: Mapping[str, Any]) -> Pattern:
    if "least" in fields or "most" in fields or "apart" in fields:
        least, most = fields.get("least"), fields.get("most", 1)
        within = _time(fields["apart"]) if "apart" in fields else None
        if not isinstance(least, int) or isinstance(least, bool):
            raise DefinitionError(f"least must be a whole number, got {least!r}")
        built = built.at_least(least, within=within) if most is None else built.times(least, most, within=within)
    if "inner" in fields:
        if fields["inner"] not in _INNER:
            raise DefinitionError(f"inner must be one of {', '.join(_INNER)}, got {fields['inner']!r}")
        built = getattr(built, _INNER[fields["inner"]])()
    if "until" in fields:
        built = built.until(expression_from_json(fields["until"], what="until"))
    for name in ("greedy", "optional"):
        if name in fields:
            if fields[name] is not True:
                raise DefinitionError(f"{name} is true or left out, got {fields[name]!r}")
            built = getattr(built, name)()
    return built


def _measures(given: Any) -> dict[str, pl.Expr]:
    if not isinstance(given, dict):
        raise DefinitionError("measures are an object of names and expressions")
    if len(given) > MOST_PARTS:
        raise DefinitionError(f"a pattern as JSON has at most {MOST_PARTS} measures, got {len(given)}")
    return {name: expression_from_json(one, what=f"measure {name!r}") for name, one in given.items()}


def _time(given: Any) -> timedelta:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 < given < END_OF_TIME:
        raise DefinitionError(f"a limit of time is a whole number of microseconds, got {given!r}")
    return timedelta(microseconds=given)


def _check_names(fields: Mapping[str, Any], known: set[str], what: str) -> None:
    strange = sorted(fields.keys() - known)
    if strange:
        raise DefinitionError(f"{what}: there is no field {strange[0]!r}; there are {', '.join(sorted(known))}")


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
