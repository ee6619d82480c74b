"""Make a processor by name, with its options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from tidewheel.errors import (
    DefinitionError,
)

if TYPE_CHECKING:
    from tidewheel.ingest.processor import Processor
from tidewheel.cli.options import _PROCESSORS, _SWITCHES, _WANTED

__all__ = ["make_processor"]


def make_processor(name: str | None, *, own: Sequence[str] = (), **options: Any) -> Processor:
    """A processor by its name: one of Tidewheel's own, or of the installed packages (entry points of the group
    `tidewheel.processors`). `options` are those of the command that were given; not every processor takes them. `own`
    are others that it takes, as text: NAME=VALUE."""
    from difflib import get_close_matches
    from importlib.metadata import EntryPoint, entry_points

    group = "tidewheel.processors"
    points = {own: EntryPoint(own, value, group) for own, value in _PROCESSORS.items()}
    points |= {point.name: point for point in entry_points(group=group) if point.name not in _PROCESSORS}
    if name is None:
        raise DefinitionError(f"which processor reads the messages? Name it: --processor {'|'.join(sorted(points))}")
    if name not in points:
        close = get_close_matches(name, points, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise DefinitionError(f"no processor {name!r}{hint} There are: {', '.join(sorted(points)) or 'none'}")
    make = points[name].load()
    taken = inspect.signature(make, eval_str=True).parameters
    given = {option: value for option, value in options.items() if value}
    strange = [option for option in given if option not in taken]
    if strange:
        raise DefinitionError(f"processor {name} takes no --{strange[0].rstrip('s')}; that is for --processor json")
    given |= _own_options(name, taken, own)
    missing = [
        each.name for each in taken.values() if each.default is inspect.Parameter.empty and each.name not in given
    ]
    if missing:
        wanted = " and ".join(f"--{each}" for each in missing)
        raise DefinitionError(f"processor {name} needs {wanted} (tidewheel ingest takes them)")
    processor: Processor = make(**given)
    return processor


def _own_options(name: str, taken: Mapping[str, inspect.Parameter], given: Sequence[str]) -> dict[str, Any]:
    """Options of a processor from text, as it declares them; one that takes several values may be given several times.

    >>> def tills(*, shops: Sequence[int] | None = None, closed: bool = False) -> None: ...
    >>> _own_options("tills", inspect.signature(tills, eval_str=True).parameters, ["shops=4", "shops=7", "closed=yes"])
    {'shops': [4, 7], 'closed': True}
    """
    kinds = {option: kind for option, each in taken.items() if (kind := _kind(each.annotation)) is not None}
    found: dict[str, Any] = {}
    for text in given:
        option, equals, value = text.partition("=")
        if not equals or not option:
            raise DefinitionError(f"--option needs a name and a value, such as part=north, got {text!r}")
        if option not in kinds:
            raise DefinitionError(f"processor {name} has no option {option!r}; there are: {', '.join(kinds) or 'none'}")
        kind, several = kinds[option]
        try:
            read = _SWITCHES[value] if kind is bool else kind(value)
        except (KeyError, ValueError):
            raise DefinitionError(f"--option {text}: the processor {name} wants {_WANTED[kind]} there") from None
        if not several and option in found:
            raise DefinitionError(f"--option {option} is given twice; the processor {name} takes one")
        found[option] = [*found.get(option, []), read] if several else read
    return found


def _kind(annotation: Any) -> tuple[Any, bool] | None:
    """The type of an option's value, and whether it takes several; None if it cannot be made of text.

    >>> _kind(Sequence[int] | None), _kind(bool), _kind(dict[str, str])
    ((<class 'int'>, True), (<class 'bool'>, False), None)
    """
    if annotation is inspect.Parameter.empty:
        return str, False
    if annotation in _WANTED:
        return annotation, False
    parts = [part for part in get_args(annotation) if part is not NoneType]
    if get_origin(annotation) in (Sequence, list) and parts[0] in _WANTED:
        return parts[0], True
    if get_origin(annotation) in (Union, UnionType):
        return next((kind for part in parts if (kind := _kind(part)) is not None), None)
    return None
