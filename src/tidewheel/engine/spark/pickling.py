"""Pickle functions, closures included, as PySpark does."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

__all__ = ["dumps", "loads", "pickle_by_value", "register_modules"]

# PySpark takes its time to import, and a job that is refused needs none of it.
_waiting: list[ModuleType] = []


def dumps(value: object) -> bytes:
    """Pickle a value with the functions in it."""
    from pyspark import cloudpickle

    register_modules()
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def loads(data: bytes) -> Any:
    """Read back what `dumps` has made."""
    from pyspark import cloudpickle

    return cloudpickle.loads(data)


def pickle_by_value(module: ModuleType) -> None:
    """Let functions of a module travel as they are: Spark's workers cannot import it."""
    _waiting.append(module)
    if "pyspark" in sys.modules:
        register_modules()


def register_modules() -> None:
    """Tell PySpark which modules' functions travel as they are. Every session is made with this."""
    from pyspark import cloudpickle

    while _waiting:
        cloudpickle.register_pickle_by_value(_waiting.pop())  # type: ignore[no-untyped-call]
