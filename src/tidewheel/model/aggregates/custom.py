"""Aggregates that a user defines from polars expressions."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from tidewheel.errors import DefinitionError
from tidewheel.model.aggregates.aggregate import Aggregate, Column, Row
from tidewheel.model.columns import TIME
from tidewheel.model.stored_fields import StoredFields

__all__ = ["Custom"]


@dataclass(frozen=True, repr=False)
class Custom(Aggregate):
    """Named parts from rows, the same from parts, and a result from parts. Without `merging` all rows are kept."""

    stable_name: ClassVar[str] = "agg.custom/1"
    stored: ClassVar[StoredFields] = StoredFields("parts", "merging", "finishing", "name")

    function: ClassVar[str] = "custom"

    parts: tuple[tuple[str, Column], ...]
    merging: tuple[tuple[str, Column], ...] | None
    finishing: Column
    name: str | None = None

    def __post_init__(self) -> None:
        names = [name for name, _ in self.parts]
        if not names:
            raise DefinitionError(f"{self._label}: partial names no parts; give at least one")
        if self.merging is not None and {name for name, _ in self.merging} != set(names):
            got = ", ".join(name for name, _ in self.merging) or "nothing"
            raise DefinitionError(f"{self._label}: merge must give the parts {', '.join(names)}, it gives {got}")
        for what, expressions in (("merge", self.merging or ()), ("finish", (("", self.finishing),))):
            for _, column in expressions:
                strange = [name for name in column.names if name not in names]
                if strange:
                    known = ", ".join(names)
                    raise DefinitionError(f"{self._label}: {what} reads {strange[0]!r}, the parts are {known}")
                _renamed(column.expr, {name: f"x.{name}" for name in names}, what=f"{self._label}: {what}")

    @property
    def _label(self) -> str:
        return self.name or self.function

    @property
    def mergeable(self) -> bool:
        """Whether it was defined with a merge."""
        return self.merging is not None

    @property
    def columns(self) -> tuple[str, ...]:
        names = dict.fromkeys(name for _, column in self.parts for name in column.names)
        return tuple(name for name in names if name != TIME)

    def partial(self, prefix: str) -> list[pl.Expr]:
        return [column.expr.alias(f"{prefix}.{name}") for name, column in self.parts]

    def merge(self, prefix: str) -> list[pl.Expr]:
        if self.merging is None:
            raise DefinitionError(f"{self._label}: was defined without merge; its rows have to be kept")
        merging = dict(self.merging)
        return [self._over(merging[name], prefix).alias(f"{prefix}.{name}") for name, _ in self.parts]

    def finish(self, prefix: str) -> pl.Expr:
        """Compute the user's result; null if there is no part at all."""
        known = pl.any_horizontal(pl.col(f"{prefix}.{name}").is_not_null() for name, _ in self.parts)
        return pl.when(known).then(self._over(self.finishing, prefix))

    def of(self, rows: Sequence[Row]) -> Any:
        """The user's expressions over all the rows at once."""
        if not rows:
            return None
        frame = pl.DataFrame([pl.Series(name, [row[name] for row in rows]) for name in (TIME, *self.columns)])
        parts = frame.select(column.expr.alias(name) for name, column in self.parts)
        if all(value is None for value in parts.row(0)):
            return None
        return parts.select(self.finishing.expr).item()

    def _over(self, column: Column, prefix: str) -> pl.Expr:
        names = {name: f"{prefix}.{name}" for name, _ in self.parts}
        return _renamed(column.expr, names, what=self._label)

    def __repr__(self) -> str:
        shown = [f"partial={_shown(self.parts)}"]
        if self.merging is not None:
            shown.append(f"merge={_shown(self.merging)}")
        shown.append(f"finish={self.finishing!r}")
        if self.name is not None:
            shown.append(f"name={self.name!r}")
        return f"custom({', '.join(shown)})"


def _shown(parts: Iterable[tuple[str, Column]]) -> str:
    return "{" + ", ".join(f"{name!r}: {column!r}" for name, column in parts) + "}"


def _renamed(expr: pl.Expr, names: Mapping[str, str], *, what: str) -> pl.Expr:
    """The expression over columns of other names.

    Two aggregates may have parts of the same name, and polars has no way to rename what an expression reads but its
    written form. What does not come back from that unharmed is refused.
    """
    try:
        tree = json.loads(expr.meta.serialize(format="json"))
        same = pl.Expr.deserialize(io.StringIO(json.dumps(tree)), format="json")
        renamed = pl.Expr.deserialize(io.StringIO(json.dumps(_renamed_tree(tree, names))), format="json")
    except (pl.exceptions.PolarsError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise DefinitionError(f"{what}: {expr!s} must be made of native polars expressions only ({reason})") from None
    wanted = {names.get(name, name) for name in expr.meta.root_names()}
    if not same.meta.eq(expr) or set(renamed.meta.root_names()) != wanted:
        raise DefinitionError(f"{what}: {expr!s} cannot be applied to renamed columns; write it in another way")
    return renamed


def _renamed_tree(tree: Any, names: Mapping[str, str]) -> Any:
    if isinstance(tree, dict):
        if list(tree) == ["Column"] and isinstance(tree["Column"], str):
            name = tree["Column"]
            return {"Alias": [{"Column": names[name]}, name]} if name in names else tree  # structs keep their names
        return {key: _renamed_tree(value, names) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_renamed_tree(value, names) for value in tree]
    return tree
