"""Lookups: facts about a key from outside the stream, with the columns of the key and of the answer.

An answer is a fact about its key, good for all times, so it does not matter when it was asked for. Who asks writes what
became of it down, in the topic of the lookup, and jobs read it there (see `docs/lookups.md`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl

from tidewheel.errors import DefinitionError, MalformedError
from tidewheel.model.process.process import DataType
from tidewheel.model.stored_fields import StoredFields
from tidewheel.topic_names import lookups

__all__ = ["Key", "Lookup"]

Key = tuple[Any, ...]
"""The values of a key's columns, in their order."""

_MOST = 2**127  # polars knows no larger whole numbers
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True)
class Lookup:
    """Something to be looked up: `keys` are the columns that are asked for, `returns` those of the answer.

    Columns are text, numbers or booleans. The outcome of each request is in the topic `lookups.<name>`.

    >>> weather = Lookup("weather", keys={"place": pl.String, "day": pl.String}, returns={"degrees": pl.Float64})
    >>> weather.topic
    'lookups.weather'
    >>> weather.key_text(("Helsinki", "2026-01-01"))
    '["Helsinki","2026-01-01"]'
    >>> weather.read_key('["Helsinki","2026-01-01"]')
    ('Helsinki', '2026-01-01')
    >>> weather.read_answer(weather.answer_text({"degrees": -4.5}))
    {'degrees': -4.5}
    """

    stable_name: ClassVar[str] = "lookup.definition/1"
    stored: ClassVar[StoredFields] = StoredFields("name", "keys", "returns")

    name: str
    keys: Mapping[str, DataType] = field(kw_only=True)
    returns: Mapping[str, DataType] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"a lookup's name is 1 to 200 letters, digits, dots, hyphens and underscores, got {self.name!r}"
            )
        for what in ("keys", "returns"):
            columns = {name: kind() if isinstance(kind, type) else kind for name, kind in getattr(self, what).items()}
            if not columns:
                raise DefinitionError(f"lookup {self.name}: {what} must name at least one column")
            for name, kind in columns.items():
                if not (kind in (pl.String, pl.Boolean) or kind.is_integer() or kind.is_float()):
                    raise DefinitionError(
                        f"lookup {self.name}: column {name!r} of {what} is {kind}; it must be text, a number or a "
                        "boolean"
                    )
                if name == "event_time" or name.startswith("_"):
                    raise DefinitionError(f"lookup {self.name}: a column cannot be called {name!r}; rename it")
            object.__setattr__(self, what, columns)
        shared = [name for name in self.returns if name in self.keys]
        if shared:
            raise DefinitionError(f"lookup {self.name}: {shared[0]!r} is a column of the key and of the answer")

    @property
    def topic(self) -> str:
        """The topic of the lookup's outcomes."""
        return lookups(self.name)

    def key_text(self, key: Sequence[Any]) -> str:
        """Write a key as text: the same for the same values, always."""
        return json.dumps(list(key), ensure_ascii=False, separators=(",", ":"))

    def answer_text(self, answer: Mapping[str, Any]) -> str:
        """Write an answer as text; `MalformedError` if it is none."""
        self._check("answer", self.returns, answer)
        return json.dumps({name: answer[name] for name in self.returns}, ensure_ascii=False, separators=(",", ":"))

    def read_key(self, text: str) -> Key:
        """Parse the key that `key_text` wrote; `MalformedError` if it is none."""
        values = _json(text, "key")
        if not isinstance(values, list) or len(values) != len(self.keys):
            raise MalformedError(
                f"lookup {self.name}: a key is a list of {', '.join(self.keys)}, got {str(text)[:100]!r}"
            )
        self._check("key", self.keys, dict(zip(self.keys, values, strict=True)))
        return tuple(values)

    def read_answer(self, text: str) -> dict[str, Any]:
        """Parse the answer that `answer_text` wrote; `MalformedError` if it is none."""
        values = _json(text, "answer")
        if not isinstance(values, dict):
            raise MalformedError(f"lookup {self.name}: an answer is an object, got {str(text)[:100]!r}")
        self._check("answer", self.returns, values)
        return {name: values[name] for name in self.returns}

    def _check(self, what: str, columns: Mapping[str, DataType], values: Mapping[str, Any]) -> None:
        for name, kind in columns.items():
            if name not in values:
                raise MalformedError(f"lookup {self.name}: the {what} lacks {name!r}, got {str(dict(values))[:100]}")
            value = values[name]
            if not _fits(value, kind) and not (value is None and what == "answer"):
                raise MalformedError(f"lookup {self.name}: {name!r} of the {what} is {kind}, got {value!r}")


def _fits(value: Any, kind: DataType) -> bool:
    if kind == pl.String:
        return isinstance(value, str)
    if kind == pl.Boolean or isinstance(value, bool):
        return kind == pl.Boolean and isinstance(value, bool)
    if kind.is_float():
        return math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and abs(value) < _MOST
    if not isinstance(value, int):
        return False
    try:
        pl.Series([value], dtype=kind, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        return False
    return True


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedError(f"the {what} of a lookup is not JSON: {error}") from None
