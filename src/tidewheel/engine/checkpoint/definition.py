"""A job's definition as lasting JSON: kept in checkpoints, compared when they are used again, with differences in
words.

The form of a value follows from what it holds, not from how it is shown, so that a job is the same after an upgrade.
Options that have their default are left out: one that comes to be later changes nothing. Expressions are known by our
own text of them, functions by their names, and objects by their `stable_name`, which stays as it is whatever their
class is called. Of our own classes the fields are kept that they declare (`StoredFields`).
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import json
import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.aggregates.aggregate import Aggregate, Column
from tidewheel.model.expressions.text import dtype_text, expression_text
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import format_duration
from tidewheel.model.triggers.trigger import Trigger
from tidewheel.model.watermarks import KINDS, Strategy, from_json
from tidewheel.model.windows import Windows

__all__ = ["described", "described_as", "differences", "without_expressions", "without_texts"]

# What is no name of a part has a $.
_IS, _TEXT, _EXPRESSION, _MICROS, _FUNCTION = "$is", "$text", "$expression", "$us", "$function"
_PLACE = re.compile(r" at 0x[0-9a-f]+")  # where in memory a function is
_SHOWN = 160
_WITH_LASTING_TEXT = (date, datetime, time, Decimal, PurePath, UUID)
_NAMES = {
    "windows": "window",
    "aggregates": "aggregate",
    "measures": "measure",
    "what": "",
    "stages": "",
    "after": "",
    "keys": "key_by",
    "parameters": "parameter",
    "topics": "input topics",
    "type": "type of the events",
    "ops": "",
    "mode": "accumulate",
    "time": "time column",
    "reads": "input topic",
    "matcher": "",
    "parts": "",
    "columns": "column",
    "writes": "type of the results",
    "exprs": "",
    "output": "schema",
    "streams": "outputs",
}
"""The names by which users know the parts of a definition."""

_MAPPINGS = {"parameter", "aggregate", "measure", "state", "schema", "column", "input topic"}
"""The parts of a definition whose own parts are named by the user."""


def described(value: Any) -> Any:
    """The form of a value, of which JSON can hold everything.

    >>> from tidewheel.model.windows import tumbling
    >>> described({"size": tumbling("10 s"), "fast": pl.col("speed") > 5})["fast"]
    {'$expression': 'col("speed") > 5'}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, timedelta):
        return {_MICROS: value // timedelta(microseconds=1)}
    if isinstance(value, pl.Expr):
        return {_EXPRESSION: expression_text(value)}
    if isinstance(value, Column):
        return described(value.expr)
    if isinstance(value, pl.DataType) or (isinstance(value, type) and issubclass(value, pl.DataType)):
        return dtype_text(value)
    if isinstance(value, Strategy):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(name): described(each) for name, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((described(each) for each in value), key=str)
    if isinstance(value, (list, tuple)):
        return [described(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return described_as(_name_of(value), value)
    if isinstance(value, functools.partial):
        return {**described(value.func), "$given": described([value.args, value.keywords])}
    if isinstance(value, enum.Enum):
        return {_IS: _name_of(value), "name": value.name}
    if isinstance(value, _WITH_LASTING_TEXT):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if callable(value):
        named = getattr(value, "stable_name", None) or getattr(value, "__name__", None)
        return {_FUNCTION: str(named or _name_of(value))}
    return {_IS: _name_of(value)}


def described_as(stable_name: str, value: Any) -> dict[str, Any]:
    """The form of a dataclass's instance under this name.

    >>> @dataclasses.dataclass
    ... class Point:
    ...     stored = StoredFields("x", "y")
    ...     x: int
    ...     y: int
    >>> described_as("point/1", Point(1, 2))
    {'$is': 'point/1', 'x': 1, 'y': 2}
    """
    found: dict[str, Any] = {_IS: stable_name}
    fields = {field.name: field for field in dataclasses.fields(value)}
    stored = _stored(type(value), fields.values())
    for name, attribute in stored.attributes.items():
        given = getattr(value, attribute)
        if not _is_default(fields[attribute], given):
            found[name] = {_MICROS: given} if name in stored.micros and given is not None else described(given)
    # As it was written, to be shown: no part of what is compared.
    if isinstance(value, (Windows, Trigger, Aggregate)) and not _has_expressions(found):
        found[_TEXT] = _PLACE.sub("", repr(value))
    return found


def _stored(kind: type, fields: Collection[dataclasses.Field[Any]]) -> StoredFields:
    """What is stored of a class; if it is a user's and does not say so, the fields that it shows."""
    declared = getattr(kind, "stored", None)
    if isinstance(declared, StoredFields):
        return declared
    if fields and _is_ours(kind):
        raise DefinitionError(f"{kind.__qualname__} does not declare which of its fields are stored (a bug)")
    return StoredFields(*(field.name for field in fields if field.repr))


def _name_of(value: Any) -> str:
    """What a value is: its stable name, with a version. A class that is made from one of ours is not that one."""
    kind = type(value)
    names = [base for base in kind.__mro__ if "stable_name" in vars(base)]
    if names and (names[0] is kind or not _is_ours(names[0])):
        return str(value.stable_name)
    if _is_ours(kind):
        raise DefinitionError(f"{kind.__qualname__} has no stable_name, by which checkpoints would know it (a bug)")
    _warn_of_name(kind.__qualname__)
    return kind.__qualname__


@functools.cache
def _warn_of_name(name: str) -> None:
    warnings.warn(
        f"checkpoints know {name} by the name of its class: once that is renamed, a run on a checkpoint from before is "
        f'refused. Give the class a name that stays, like stable_name = "crossings/1"',
        stacklevel=2,
    )


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def _is_default(field: dataclasses.Field[Any], given: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return type(given) is type(field.default) and bool(given == field.default)
    return field.default_factory is not dataclasses.MISSING and bool(given == field.default_factory())


def _has_expressions(form: Any) -> bool:
    """Whether there is an expression in it beside plain columns, which everybody writes the same."""
    if isinstance(form, Mapping):
        if set(form) == {_EXPRESSION}:
            return re.fullmatch(r'col\("\w*"\)', str(form[_EXPRESSION])) is None
        return any(map(_has_expressions, form.values()))
    return isinstance(form, list) and any(map(_has_expressions, form))


def without_texts(form: Any) -> Any:
    """A definition without what is only there to be shown: what is compared."""
    if isinstance(form, Mapping):
        return {name: without_texts(each) for name, each in form.items() if name != _TEXT}
    return [without_texts(each) for each in form] if isinstance(form, list) else form


def without_expressions(form: Any) -> Any:
    """All of a definition but the texts of its expressions."""
    if isinstance(form, Mapping):
        if set(form) == {_EXPRESSION}:
            return _EXPRESSION
        return {name: without_expressions(each) for name, each in form.items() if name != _TEXT}
    return [without_expressions(each) for each in form] if isinstance(form, list) else form


def differences(before: Any, now: Any) -> list[str]:
    """What differs between two definitions, and where, for people; nothing if they are the same.

    >>> differences({"keys": ["vehicle"]}, {"keys": ["operator", "vehicle"]})
    ['key_by: vehicle → operator, vehicle']
    """
    return list(dict.fromkeys(_differences(before, now, [])))


def _differences(before: Any, now: Any, where: list[str]) -> list[str]:
    if without_texts(before) == without_texts(now):
        return []
    if isinstance(before, Mapping) and isinstance(now, Mapping) and _is_other_version(before, now):
        old, new = (str(form[_IS]).partition("/")[2] or "none" for form in (before, now))
        return [f"{' '.join([*where, _name(now)])}: version {old} → version {new}"]
    if isinstance(before, Mapping) and isinstance(now, Mapping) and _kind(before) == _kind(now):
        named = _TEXT in before and _TEXT in now and before[_TEXT] != now[_TEXT]
        if not named and not _is_leaf(before) and not _is_leaf(now):
            return _of_mappings(before, now, where)
    if isinstance(before, list) and isinstance(now, list) and any(isinstance(each, dict) for each in [*before, *now]):
        return _of_lists(before, now, where)
    path = " ".join(where)
    if before is None or now is None:
        what, verb = (now, "is new") if before is None else (before, "is gone")
        plain = isinstance(what, Mapping) and not _is_leaf(what) and _IS not in what
        return [f"{path} {verb}" if plain else f"{path}: {_shortened(before)} → {_shortened(now)}"]
    return [
        f"{path}: {_shortened(before)} → {_shortened(now)}" if path else f"{_shortened(before)} → {_shortened(now)}"
    ]


def _name(form: Mapping[str, Any]) -> str:
    """What this is, by its stable name without the version; nothing if it has none."""
    return str(form.get(_IS, "")).partition("/")[0]


def _is_other_version(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether these are the same thing with other state, whatever else differs."""
    return _name(before) == _name(now) and before.get(_IS) != now.get(_IS)


def _kind(form: Mapping[str, Any]) -> tuple[Any, Any]:
    return form.get(_IS), form.get("kind") if _is_row_op(form) else None


def _is_row_op(form: Mapping[str, Any]) -> bool:
    return {"kind", "exprs"} <= form.keys()


def _of_mappings(before: Mapping[str, Any], now: Mapping[str, Any], where: list[str]) -> list[str]:
    names = [name for name in dict.fromkeys([*before, *now]) if name not in (_TEXT, _IS)]
    if before.get("parameters") != now.get("parameters"):
        names = ["parameters"]  # what they change in the steps is no news
    changes: list[str] = []
    for name in names:
        word = name if where and where[-1] in _MAPPINGS else _NAMES.get(name, name)
        changes += _differences(before.get(name), now.get(name), [*where, *([word] if word else [])])
    return changes


def _of_lists(before: Sequence[Any], now: Sequence[Any], where: list[str]) -> list[str]:
    """Steps one after the other: those that are new, those that are gone, and those that became others."""
    old_texts, new_texts = (
        [json.dumps(without_texts(each), sort_keys=True) for each in some] for some in (before, now)
    )
    changes: list[str] = []
    for what, a, b, c, d in difflib.SequenceMatcher(None, old_texts, new_texts, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        pairs = min(b - a, d - c)
        for old, new in zip(before[a : a + pairs], now[c : c + pairs], strict=True):
            place = _place(before, now, old, new)
            changes += _differences(old, new, [*where, *place])
        changes += [f"{' '.join([*where, _shortened(each)])} is gone" for each in before[a + pairs : b]]
        changes += [f"{' '.join([*where, _shortened(each)])} is new" for each in now[c + pairs : d]]
    return changes


def _place(before: Sequence[Any], now: Sequence[Any], old: Any, new: Any) -> list[str]:
    """How to call a part of a list: by its name, if it has one, or by its number if there are several."""
    for name in ("name", "kind"):
        called = [each[name] for each in (old, new) if isinstance(each, Mapping) and isinstance(each.get(name), str)]
        if len(called) == 2 and called[0] == called[1]:
            return called[:1]
    if isinstance(old, Mapping) and "what" in old and max(len(before), len(now)) > 1:
        return [f"stage {before.index(old) + 1}"]
    return []


def _is_leaf(form: Mapping[str, Any]) -> bool:
    return bool({_EXPRESSION, _MICROS, _FUNCTION} & form.keys()) or form.get("kind") in KINDS


def _shortened(form: Any) -> str:
    text = _text(form)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"


def _text(form: Any) -> str:
    if form is None:
        return "not set"
    if isinstance(form, list):
        return ", ".join(map(_text, form)) or "none"
    if not isinstance(form, Mapping):
        return str(form)
    if isinstance(form.get(_TEXT), str):
        return str(form[_TEXT])
    if _EXPRESSION in form:
        return str(form[_EXPRESSION])
    if _MICROS in form:
        return format_duration(int(form[_MICROS]))
    if _FUNCTION in form:
        return str(form[_FUNCTION])
    if form.get("kind") in KINDS:
        return repr(from_json(form))
    if _is_row_op(form):
        return f"{form['kind']}({', '.join(filter(None, (form.get('reason'), _text(form.get('exprs') or []))))})"
    if "what" in form and "ops" in form:
        return _text(form["what"])
    rest = ", ".join(f"{name}={_text(each)}" for name, each in form.items() if name != _IS)
    return f"{_name(form)}({rest})" if _IS in form else f"{{{rest}}}"
