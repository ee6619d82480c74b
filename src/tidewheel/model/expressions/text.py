"""Polars expressions as stable text of our own: checkpoints compare expressions by their text.

What polars writes of an expression is made for people, and changes with its versions. This text is made from the tree
of its parts, whose names have lasted, and leaves out what says how an expression is computed and not what it gives.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import pickle
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta, timezone
from pathlib import PurePath
from typing import Any

import polars as pl

__all__ = ["dtype_text", "expression_text"]

_OPERATORS = {
    "Eq": "==",
    "NotEq": "!=",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
    "Plus": "+",
    "Minus": "-",
    "Multiply": "*",
    "Divide": "/",
    "TrueDivide": "/",
    "FloorDivide": "//",
    "Modulus": "%",
    "And": "&",
    "Or": "|",
    "Xor": "^",
    "LogicalAnd": "and",
    "LogicalOr": "or",
    "EqValidity": "eq_missing",
    "NotEqValidity": "ne_missing",
}
_FAMILIES = {
    "StringExpr": "str.",
    "TemporalExpr": "dt.",
    "ListExpr": "list.",
    "ArrayExpr": "arr.",
    "StructExpr": "struct.",
    "BinaryExpr": "bin.",
    "Categorical": "cat.",
    "Boolean": "",
    "Trigonometry": "",
    "Pow": "",
    "Range": "",
}
"""Functions that polars keeps together, and the name under which they are called."""

_NAMES = {
    "str.lowercase": "str.to_lowercase",
    "str.uppercase": "str.to_uppercase",
    "str.titlecase": "str.to_titlecase",
    "list.length": "list.len",
    "list.contains": "list.contains",
    "negate": "neg",
    "not": "not_",
    "dt.week_day": "dt.weekday",
    "dt.time_stamp": "dt.timestamp",
    "generic": "pow",
}
"""The name under which users write a function, where polars' own name for it is another."""

_HOW = {"multithreaded", "cache", "parsed_int", "flags", "is_deterministic", "check_lengths"}
"""Options that say how something is computed."""

_ALONE = ("Len", "Element")
"""Expressions that are made of nothing else."""

_SUBJECTS = ("input", "expr")
"""What something is done to is called so."""

_UNITS = {"Nanoseconds": "ns", "Microseconds": "us", "Milliseconds": "ms"}
_FRACTIONS = re.compile(r"(?<![\w\"])(NaN|-?inf)(?![\w\"])")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_STREAM = [255, 255, 255, 255]  # what Arrow's form of a series begins with
_SHOWN = 10


def expression_text(expression: pl.Expr) -> str:
    """Write an expression, the same in every process and with every polars that this package allows.

    Functions written in Python are known by their names, not by what they do. An expression that polars cannot take
    apart is in polars' own words.

    >>> expression_text((pl.col("speed") * 3.6 > 50) & pl.col("line").str.to_lowercase().eq_missing("9"))
    '((col("speed") * 3.6) > 50) & (col("line").str.to_lowercase() eq_missing "9")'
    """
    try:
        tree = json.loads(expression.meta.serialize(format="json"))
    except pl.exceptions.PolarsError:
        return str(expression)  # a Python function that could not be sent anywhere, either
    return _Writer(iter(_FRACTIONS.findall(str(expression)))).text(tree)


def dtype_text(dtype: pl.DataType | type[pl.DataType]) -> str:
    """The text of a type.

    >>> dtype_text(pl.List(pl.Datetime("us", "UTC")))
    'List(Datetime(us, UTC))'
    """
    tree = json.loads(pl.lit(None).cast(dtype).meta.serialize(format="json"))
    return _dtype(tree["Cast"]["dtype"])


class _Writer:
    """`odd`: the fractions that JSON cannot hold, in their order."""

    def __init__(self, odd: Iterator[str]) -> None:
        self._odd = odd

    def text(self, tree: Any) -> str:
        """A part of an expression, or whatever an option may be."""
        if isinstance(tree, dict) and len(tree) == 1:
            ((kind, what),) = tree.items()
            if kind[:1].isupper():
                return self._node(kind, what)
        if isinstance(tree, dict):
            return f"{{{', '.join(self._options(tree))}}}"
        if isinstance(tree, list):
            return _series(tree) if tree[:4] == _STREAM else f"[{', '.join(map(self.text, tree))}]"
        return f"{_snake(tree)}()" if tree in _ALONE else _value(tree)

    def _node(self, kind: str, what: Any) -> str:
        match kind:
            case "Column":
                return f"col({json.dumps(what, ensure_ascii=False)})"
            case "Literal":
                return self._literal(what)
            case "BinaryExpr" if isinstance(what, dict) and "op" in what:
                left, right = self._operand(what["left"]), self._operand(what["right"])
                return f"{left} {_OPERATORS.get(what['op'], _snake(str(what['op'])))} {right}"
            case "Function" | "AnonymousFunction":
                return self._function(what)
            case "Ternary":
                parts = (self.text(what[part]) for part in ("predicate", "truthy", "falsy"))
                return "when({}).then({}).otherwise({})".format(*parts)
            case "Cast":
                strict = "" if what["options"] == "Strict" else f", {_snake(str(what['options']))}"
                return f"{self._operand(what['expr'])}.cast({_dtype(what['dtype'])}{strict})"
            case "Alias":
                return f"{self._operand(what[0])}.alias({json.dumps(what[1], ensure_ascii=False)})"
            case "Agg":
                return self.text(what)
            case "Over":
                options = self._options({name: given for name, given in what.items() if name != "function"})
                return f"{self._operand(what['function'])}.over({', '.join(options)})"
            case "Field":
                return f"field({', '.join(map(_value, what))})"
        return self._call(_snake(kind), what)

    def _call(self, name: str, what: Any) -> str:
        """A function of which only the name is known, called on its input if that is known."""
        if _is_expression(what):
            return f"{self._operand(what)}.{name}()"
        if isinstance(what, dict):
            subject = next((given for given in _SUBJECTS if _is_expression(what.get(given))), None)
            options = ", ".join(self._options({each: given for each, given in what.items() if each != subject}))
            return f"{name}({options})" if subject is None else f"{self._operand(what[subject])}.{name}({options})"
        if isinstance(what, list) and what and _is_expression(what[0]):
            return f"{self._operand(what[0])}.{name}({', '.join(map(self.text, what[1:]))})"
        return f"{name}({self.text(what)})"

    def _function(self, what: Mapping[str, Any]) -> str:
        parts = what.get("input") or []
        name, options = self._called(what["function"])
        subject = f"{self._operand(parts[0])}." if parts and "Literal" not in parts[0] else ""
        arguments = [self.text(each) for each in (parts[1:] if subject else parts)]
        return f"{subject}{name}({', '.join([*arguments, *options])})"

    def _called(self, function: Any, family: str | None = None) -> tuple[str, list[str]]:
        """A function's name and its options."""
        if isinstance(function, list):  # the bytes of one that is written in Python
            return "python_function", [_python_name(bytes(function))]
        if isinstance(function, str):
            name = (family or "") + _snake(function)
            return _NAMES.get(name, name), []
        if not isinstance(function, dict) or len(function) != 1:
            return "function", [self.text(function)]
        ((kind, what),) = function.items()
        if kind == "FfiPlugin":
            library = PurePath(what["lib"])
            given = self._options(_plugin_options(what.get("kwargs") or []))
            return f"{library.parent.name}.{what['symbol']}", given
        if kind in _FAMILIES and family is None:
            return self._called(what, _FAMILIES[kind])
        name = (family or "") + _snake(kind)
        named = isinstance(what, dict) and not _is_expression(what)
        return _NAMES.get(name, name), self._options(what) if named else [self.text(what)]

    def _options(self, given: Mapping[str, Any]) -> list[str]:
        """The options that are set to something."""
        return [
            f"{name}={_dtype(what) if name == 'dtype' else self.text(what)}"
            for name, what in sorted(given.items())
            if name not in _HOW and what is not None
        ]

    def _operand(self, tree: Any) -> str:
        text = self.text(tree)
        return f"({text})" if isinstance(tree, dict) and {"BinaryExpr", "Ternary"} & tree.keys() else text

    def _literal(self, what: Any) -> str:
        kind, value = next(iter(what.items())) if isinstance(what, dict) else ("", what)
        if kind == "Series":
            return f"series({_series(value)})"
        if kind not in ("Dyn", "Scalar"):
            return _dtype(what)  # where an option is a type
        if not isinstance(value, dict) or len(value) != 1:
            return f"lit({self.text(value)})"
        ((dtype, plain),) = value.items()
        if dtype == "Null":
            return "None"
        if plain is None and dtype.startswith("Float"):
            plain = float(next(self._odd, "nan"))
        text = _scalar(dtype, plain)
        # What polars took from Python as it was needs no type beside it.
        return text if kind == "Dyn" or dtype in _PLAIN else f"{dtype}({text})"


_PLAIN = ("String", "Boolean", "List", "Datetime", "Duration", "Date", "Time", "Binary")


def _scalar(dtype: str, value: Any) -> str:
    match dtype, value:
        case ("List" | "Array", [255, 255, 255, 255, *_]):
            return _series(value)
        case "Datetime", [int(ticks), str(unit), zone]:
            at = (_EPOCH + timedelta(microseconds=_micros(ticks, unit))) if unit != "Nanoseconds" else None
            named = zone["inner"] if isinstance(zone, dict) else zone
            shown = f"{ticks} ns" if at is None else at.replace(tzinfo=None).isoformat()
            return f"datetime({shown}{'' if named is None else f' {named}'})"
        case "Duration", [int(ticks), str(unit)]:
            return f"duration({ticks} ns)" if unit == "Nanoseconds" else f"duration({_micros(ticks, unit)} us)"
        case "Date", int(days):
            return f"date({(_EPOCH + timedelta(days=days)).date().isoformat()})"
        case "Time", int(nanos):
            return f"time({(_EPOCH + timedelta(microseconds=nanos // 1000)).time().isoformat()})"
        case "Binary", [*some]:
            return f"bytes({bytes(some).hex()})"
    return _value(value)


def _micros(ticks: int, unit: str) -> int:
    return ticks * 1_000 if unit == "Milliseconds" else ticks


def _value(value: Any) -> str:
    """A plain value of Python's, or JSON's."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)} us"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return f"bytes({value.hex()})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_value(each)}' for name, each in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def _series(given: list[int]) -> str:
    """The values of a series in Arrow's form; of many the first, and a digest of all."""
    series = pl.read_ipc_stream(bytes(given)).to_series()
    values = [_value(value) for value in series.to_list()]
    dtype = "" if series.dtype in (pl.Int64, pl.Float64, pl.String, pl.Boolean) else f" of {dtype_text(series.dtype)}"
    if len(values) > _SHOWN:
        values = [*values[:3], f"… {len(values)} in all, digest {_digest(', '.join(values).encode())}"]
    return f"[{', '.join(values)}]{dtype}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _plugin_options(data: list[int]) -> dict[str, Any]:
    """The arguments of a plugin: a dictionary, pickled by polars in this process."""
    if not data:
        return {}
    try:
        found = pickle.loads(bytes(data))
    except Exception:  # of another polars, or of a class that is not here: its digest must do
        found = None
    return found if isinstance(found, dict) else {"digest": _digest(bytes(data))}


def _python_name(data: bytes) -> str:
    """The name of a function of Python's that polars has pickled in this process: `udf` in `map_elements(udf)`."""
    start = data.find(b"\x80\x05")
    try:
        found: Any = pickle.loads(data[start:])
    except Exception:  # it only names the function
        return "?"
    # Polars wraps it in functions of its own.
    waiting = [found]
    for each in waiting:
        if not str(getattr(each, "__module__", "polars")).startswith("polars") and hasattr(each, "__name__"):
            return str(each.__name__)
        cells = inspect.getclosurevars(each).nonlocals.values() if inspect.isfunction(each) else ()
        inner = [getattr(each, name, None) for name in ("function", "func", "__wrapped__")]
        waiting += [more for more in (*inner, *cells) if callable(more)] if len(waiting) < 100 else []
    return "?"


def _dtype(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    if isinstance(tree, dict) and len(tree) == 1:
        ((kind, what),) = tree.items()
        if kind == "Literal":
            return _dtype(what)
        if kind == "Datetime":
            zone = what[1]["inner"] if isinstance(what[1], dict) else what[1]
            return f"Datetime({_UNITS[what[0]]}{'' if zone is None else f', {zone}'})"
        if kind == "Duration":
            return f"Duration({_UNITS[what]})"
        if kind == "Struct":
            fields = [f"{field['name']}: {_dtype(field['dtype'])}" for field in what]
            return f"Struct({', '.join(fields)})"
        if kind == "Enum" and isinstance(what.get("strings"), list):
            return f"Enum({_series(what['strings'])})"
        if kind == "Categorical":
            return "Categorical" if not what.get("name") else f"Categorical({what['name']})"
        inner = what if isinstance(what, list) else [what]
        return f"{kind}({', '.join(_dtype(each) for each in inner)})"
    return str(tree) if not isinstance(tree, (dict, list)) else json.dumps(tree, sort_keys=True)


def _is_expression(tree: Any) -> bool:
    if isinstance(tree, str):
        return tree in _ALONE
    return isinstance(tree, dict) and len(tree) == 1 and next(iter(tree))[:1].isupper()


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
