"""Commands with many options: a dataclass has them, and the command gets it filled."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["option_parameters", "with_options"]

_Options = TypeVar("_Options")


def option_parameters(options: type) -> dict[str, inspect.Parameter]:
    """The fields of a dataclass of options, as the parameters that typer makes options of."""
    return dict(inspect.signature(options, eval_str=True).parameters)


def with_options(options: type[_Options]) -> Callable[[Callable[[_Options], None]], Callable[..., None]]:
    """Make a command with an option for each field of a dataclass; the function gets the dataclass."""

    def decorate(function: Callable[[_Options], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**given: Any) -> None:
            function(options(**given))

        parameters = option_parameters(options)
        command.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        command.__annotations__ = {name: each.annotation for name, each in parameters.items()}
        del command.__wrapped__  # whose signature is another one
        return command

    return decorate
