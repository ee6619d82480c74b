"""Everything that users call has an example in its docstring. That the examples are true is for `test_docs`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import tidewheel as tw
import tidewheel.testing

SPACES = {
    "tw": tw,
    "agg": tw.agg,
    "geo": tw.geo,
    "testing": tidewheel.testing,
    "triggers": tw.triggers,
    "watermarks": tw.watermarks,
    "windows": tw.windows,
}
WITH_METHODS = ("tw", "testing")
"""Where users call methods of classes; the classes of the other spaces are made by functions, and only passed on."""


def example_of(thing: Any) -> str:
    """The examples of a docstring: what comes after the first prompt."""
    return (inspect.getdoc(thing) or "").partition(">>>")[2]


def names_of(space: Any) -> list[str]:
    return list(getattr(space, "__all__", [name for name in vars(space) if not name.startswith("_")]))


def public() -> Iterator[tuple[str, Any, str]]:
    """Each function, class and method by name, with examples elsewhere that may show it: those of its own class, or of
    the class that it returns."""
    for prefix, space in SPACES.items():
        for name in names_of(space):
            thing = getattr(space, name)
            if inspect.isfunction(thing):
                yield f"{prefix}.{name}", thing, example_of(getattr(tw, str(thing.__annotations__["return"]), None))
            elif inspect.isclass(thing) and prefix in WITH_METHODS:
                yield f"{prefix}.{name}", thing, ""
                for method, raw in vars(thing).items():
                    if not method.startswith("_") and (
                        inspect.isfunction(raw) or isinstance(raw, (property, classmethod))
                    ):
                        yield f"{prefix}.{name}.{method}", getattr(thing, method), _around(thing, raw)


def _around(owner: type, method: Any) -> str:
    found = getattr(method, "__annotations__", {}).get("return")
    return example_of(owner) + example_of(getattr(tw, str(found), None))


PUBLIC = list(public())


@pytest.mark.parametrize(("name", "thing", "around"), PUBLIC, ids=[name for name, _, _ in PUBLIC])
def test_it_has_an_example_or_is_in_that_of_its_class(name, thing, around):
    called = re.compile(rf"\.{re.escape(name.rpartition('.')[2])}\b")
    assert inspect.getdoc(thing)
    assert example_of(thing) or called.search(around), f"{name} needs an example in its docstring, a line with >>>"


def test_what_is_walked_is_all_that_users_see():
    names = [name for name, _, _ in PUBLIC]
    assert len(names) > 200
    assert {
        "tw.run",
        "tw.Stream.key_by",
        "tw.Log.append",
        "agg.sum",
        "windows.session",
        "geo.inside",
        "testing.pane",
    } <= {*names}
