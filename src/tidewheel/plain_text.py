"""Text that was made for programs, as people read it: nothing of what is behind it, such as where a plugin is
installed or where in memory a function is. Operators describe themselves with it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

__all__ = ["function_name", "plain"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PLUGIN = re.compile(r"""\.[^()\[\]"]*\.(?:so|pyd|dylib|dll):""")  # a path stands where a method would
_LITERAL = re.compile(r"\bdyn (?:int|float): ")


def plain(text: str) -> str:
    """Return text that was made for programs without what is of no use to people.

    >>> plain('sum([(col("a")) * (dyn int: 2)]), <function f at 0x7f00>, col("b").lib/x/y.abi3.so:cell()')
    'sum([(col("a")) * (2)]), <function f>, col("b").cell()'
    """
    return _LITERAL.sub("", _PLUGIN.sub(".", _ADDRESS.sub("", text)))


def function_name(function: Callable[..., Any]) -> str:
    """What a function is called; an object that can be called by its class.

    >>> function_name(functools.partial(max, 3)), function_name(plain)
    ('max', 'plain')
    """
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
