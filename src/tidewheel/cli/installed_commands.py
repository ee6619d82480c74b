"""Commands of other packages: entry points of the group `tidewheel.commands`. Each is imported when it is called, and
all of them for the list of commands; one that cannot be imported does not take the others with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tidewheel.cli.options import taught
from tidewheel.errors import SetupError

__all__ = ["CommandGroup", "command"]

_GROUP = "tidewheel.commands"
_PANEL = "__tidewheel_panel__"
_F = TypeVar("_F", bound=Callable[..., None])


def command(*, panel: str) -> Callable[[_F], _F]:
    """Say under which heading of `tidewheel --help` a command of another package stands. Without this decorator it
    stands under one with the name of its package.

    >>> @command(panel="Into the log")
    ... def scan() -> None:
    ...     "Read what the tills have sold."
    """

    def mark(function: _F) -> _F:
        setattr(function, _PANEL, panel)
        return function

    return mark


class CommandGroup(TyperGroup):
    """The commands that Tidewheel brings, and those of installed packages. No package can replace a built-in one."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List built-in commands, then those of packages."""
        return [*self.commands, *(name for name in _points() if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a built-in command, or import a package's."""
        own = super().get_command(ctx, cmd_name)
        points = _points().get(cmd_name, ())
        return own if own is not None or not points else _loaded(cmd_name, points)


@cache
def _points() -> dict[str, tuple[EntryPoint, ...]]:
    """What each name stands for: more than one thing if packages are at odds."""
    found: dict[str, list[EntryPoint]] = {}
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        found.setdefault(point.name, []).append(point)
    return {name: tuple(points) for name, points in found.items()}


def _loaded(name: str, points: Sequence[EntryPoint]) -> Any:
    if len({point.value for point in points}) > 1:
        packages = " and ".join(sorted(_package(point) for point in points))
        return _broken(name, f"the packages {packages} both offer a command {name!r}; remove one of them")
    point = points[0]
    package = _package(point)
    fix = f"fix or remove the package {package}"
    try:
        found = point.load()
        app = found if isinstance(found, typer.Typer) else _app_of(name, found, package) if callable(found) else None
        if app is not None:
            made = get_command(app)
            made.name = name
            return made
    except Exception as error:  # whatever is in there: the other commands must work
        said = str(error) or type(error).__name__
        return _broken(name, f"the command {name!r} of the package {package} cannot be loaded: {said}; {fix}")
    return _broken(name, f"the command {name!r} of the package {package} is no function and no typer app; {fix}")


def _app_of(name: str, function: Callable[..., None], package: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    panel = getattr(function, _PANEL, f"Of the package {package}")
    app.command(name, help=taught(function), rich_help_panel=panel)(function)
    return app


def _broken(name: str, why: str) -> Any:
    """A command that only reports why it cannot be loaded: in the list of commands, and when it is called, with
    whatever options."""

    def fail() -> None:
        raise SetupError(why)

    app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.command(
        name,
        help=why.replace("[", "\\["),
        rich_help_panel="Broken",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )(fail)
    return get_command(app)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value.partition(".")[0]
