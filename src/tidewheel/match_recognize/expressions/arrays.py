"""SQL's functions over arrays, and over maps, which are arrays of keys and values: what `map_agg` gives."""

from __future__ import annotations

from typing import Any, NoReturn

import polars as pl

__all__ = ["ARRAYS", "MAPS", "entries", "is_map", "joined"]

KEY, VALUE = "key", "value"
_TEXTS = pl.List(pl.String())


def is_map(kind: pl.DataType) -> bool:
    """Whether values of the type are maps: lists of entries, with a key and a value."""
    inner = kind.inner if isinstance(kind, pl.List) else None
    return isinstance(inner, pl.Struct) and [field.name for field in inner.fields] == [KEY, VALUE]


def entries(key: pl.Expr, value: pl.Expr) -> pl.Expr:
    """The map of a group's keys and values; of a key that comes again, the first value counts."""
    known = key.is_not_null() & key.is_first_distinct()
    found = pl.struct(key.alias(KEY), value.alias(VALUE)).filter(known)
    return pl.when(found.len() > 0).then(found.implode())


def joined(separator: pl.Expr, *parts: pl.Expr) -> pl.Expr:
    """All texts and all elements of arrays, in one text; nulls are left out."""
    lists = [pl.concat_list(part).cast(_TEXTS).fill_null(pl.lit([], dtype=_TEXTS)) for part in parts]
    return pl.concat_list(lists).list.join(separator, ignore_nulls=True)


def _array_join(values: pl.Expr, separator: pl.Expr, instead: pl.Expr | None = None) -> pl.Expr:
    texts = values.cast(_TEXTS)
    if instead is not None:
        texts = texts.list.eval(pl.element().fill_null(pl.lit(_constant(instead, "the text in place of nulls"))))
    return texts.list.join(separator, ignore_nulls=True)


def _slice(values: pl.Expr, start: pl.Expr, length: pl.Expr) -> pl.Expr:
    return values.list.slice(pl.when(start > 0).then(start - 1).otherwise(start), length)


def _element_at(values: pl.Expr, key: pl.Expr) -> pl.Expr:
    wanted = pl.lit(_constant(key, "the key of a map"))
    found = pl.element().filter(pl.element().struct.field(KEY) == wanted).struct.field(VALUE)
    return values.list.eval(found).list.first()


def _keys(values: pl.Expr) -> pl.Expr:
    return values.list.eval(pl.element().struct.field(KEY))


def _constant(given: pl.Expr, what: str) -> Any:
    if given.meta.root_names():
        raise TypeError(f"{what} must be a constant")
    return pl.select(given).item()


def _refused(*given: pl.Expr) -> NoReturn:
    raise TypeError("it takes an array, as array_agg gives, or a map, as map_agg gives")


ARRAYS: dict[str, Any] = {
    "ARRAY_DISTINCT": (1, 1, lambda values: values.list.unique(maintain_order=True)),
    "ARRAY_JOIN": (2, 3, _array_join),
    "ARRAY_SORT": (1, 1, lambda values: values.list.sort(nulls_last=True)),
    "CONTAINS": (2, 2, lambda values, value: values.list.contains(value)),
    "REVERSE": (1, 1, lambda values: values.list.reverse()),
    "SLICE": (3, 3, _slice),
}
"""What functions are if their first argument is an array."""

MAPS: dict[str, Any] = {
    "ELEMENT_AT": (2, 2, _element_at),
    "MAP_CONTAINS_KEY": (2, 2, lambda values, key: _keys(values).list.contains(key)),
    "MAP_KEYS": (1, 1, _keys),
    "MAP_VALUES": (1, 1, lambda values: values.list.eval(pl.element().struct.field(VALUE))),
}
"""What functions are if their first argument is a map."""

ELSEWHERE = {name: (least, most, _refused) for name, (least, most, _) in {**ARRAYS, **MAPS}.items()}
"""What they are otherwise, unless they are something else."""

__all__ += ["ELSEWHERE"]
