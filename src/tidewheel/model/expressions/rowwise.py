"""Check that expressions are row-wise: their values must not depend on which rows arrive together."""

from __future__ import annotations

import json

import polars as pl

from tidewheel.errors import DefinitionError

__all__ = ["check_rowwise"]


def check_rowwise(expression: pl.Expr, *, what: str) -> None:
    """Refuse an expression that looks at several rows. Python functions and polars plugins are trusted.

    >>> check_rowwise(pl.col("speed") * 3.6 > 50, what="filter")
    >>> check_rowwise(pl.col("speed") > pl.col("speed").mean(), what="filter")
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: filter: ...col("speed").mean() looks at several rows...
    """
    culprit = _beyond_its_row(expression)
    if culprit is not None:
        raise DefinitionError(
            f"{what}: in {expression}, {culprit} looks at several rows, and which rows come together is chance. For "
            "several rows of a key use previous(), process() or a pattern; for all of a window, an aggregate"
        )


def _beyond_its_row(expression: pl.Expr) -> pl.Expr | None:
    """The innermost part that looks at several rows."""
    try:
        alone = expression.meta.is_row_separable()
    except pl.exceptions.PolarsError:
        alone = True  # it would have to know the columns
    for part in expression.meta.pop():
        if "element()" in str(part) and not part.meta.root_names():
            continue  # speaks of the elements of a list, which are all in one row
        if (found := _beyond_its_row(part)) is not None:
            return found
    return None if alone or _is_plugin(expression) else expression


def _is_plugin(expression: pl.Expr) -> bool:
    """Whether a function is of a library that extends polars: not all of these say that they look at one row."""
    try:
        tree = json.loads(expression.meta.serialize(format="json"))
    except pl.exceptions.PolarsError:
        return False
    function = tree.get("Function", {}).get("function") if isinstance(tree, dict) else None
    return isinstance(function, dict) and "FfiPlugin" in function
