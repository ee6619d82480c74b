"""Jobs: a function from input topics to a result topic, with a name, parameters and everything around it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from google.protobuf.message import Message
from pyspark.sql import DataFrame

from tidewheel.errors import DefinitionError
from tidewheel.model import watermarks
from tidewheel.model.watermarks import Strategy
from tidewheel.transport.registry import type_name

__all__ = ["Job", "Parameter", "installed_jobs", "job"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a job, as its signature has it."""

    name: str
    type: type
    default: Any


@dataclass(frozen=True)
class Job:
    """What is computed; `tidewheel.start` runs it."""

    name: str
    reads: Mapping[str, type[Message]]
    writes: type[Message]
    function: Callable[..., Any]
    key: tuple[str, ...] = ()
    watermark: Strategy = field(default_factory=lambda: watermarks.bounded("1 s"))

    @property
    def topic(self) -> str:
        """Where the results go unless told otherwise."""
        return f"analytics.{self.name}"

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The function's keyword-only arguments."""
        signature = inspect.signature(self.function, eval_str=True)
        return tuple(
            Parameter(parameter.name, parameter.annotation, parameter.default)
            for parameter in signature.parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        )

    def configured(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters: those given, checked, over the defaults."""
        known = {parameter.name: parameter for parameter in self.parameters}
        strange = [name for name in given if name not in known]
        if strange:
            raise DefinitionError(
                f"job {self.name} has no parameter {strange[0]!r}; it has {', '.join(known) or 'none at all'}"
            )
        values = {}
        for name, parameter in known.items():
            value = given.get(name, parameter.default)
            if not isinstance(value, parameter.type) or (parameter.type is int and isinstance(value, bool)):
                raise DefinitionError(
                    f"job {self.name}: {name} must be {parameter.type.__name__}, got {value!r} ({type(value).__name__})"
                )
            values[name] = value
        return values

    def __call__(self, *inputs: DataFrame, **parameters: Any) -> DataFrame:
        """The function itself, on any DataFrames with the right columns."""
        made: DataFrame = self.function(*inputs, **self.configured(parameters))
        return made

    def __repr__(self) -> str:
        reads = ", ".join(f"{topic}: {type_name(of)}" for topic, of in self.reads.items())
        return f"<Job {self.name}: {reads} → {self.topic}: {type_name(self.writes)}>"


def job(
    name: str,
    *,
    reads: Mapping[str, type[Message]],
    writes: type[Message],
    key: str | tuple[str, ...] = (),
    watermark: Strategy | None = None,
) -> Callable[[Callable[..., Any]], Job]:
    """Make a job of a function that takes one DataFrame for each input topic, in the order of `reads`, and gives the
    rows of the result: `event_time` and the fields of `writes`.

    Keyword-only arguments, each with a type and a default, are the job's parameters: `tidewheel run` offers them as
    options. `key` names the columns that make the key of a result.

    >>> from tidewheel.apps.transit.transit_pb2 import VehiclePosition
    >>> @job("fast", reads={"input.vehicle-position": VehiclePosition}, writes=VehiclePosition)
    ... def fast(positions: DataFrame, *, limit: int = 20) -> DataFrame:
    ...     '''Positions of vehicles faster than the limit.'''
    ...     return positions.where(positions.speed > limit)
    >>> fast.topic, [parameter.name for parameter in fast.parameters], fast.summary
    ('analytics.fast', ['limit'], 'Positions of vehicles faster than the limit.')
    """

    def make(function: Callable[..., Any]) -> Job:
        made = Job(
            name=name,
            reads=dict(reads),
            writes=writes,
            function=function,
            key=(key,) if isinstance(key, str) else tuple(key),
            watermark=watermark or watermarks.bounded("1 s"),
        )
        _validate(made)
        return made

    return make


def _validate(made: Job) -> None:
    signature = inspect.signature(made.function)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    inputs = [parameter for parameter in signature.parameters.values() if parameter.kind in kinds]
    if not made.reads or len(inputs) != len(made.reads):
        raise DefinitionError(
            f"job {made.name}: the function takes {len(inputs)} DataFrames and reads {len(made.reads)} topics; "
            "they must be as many, in the same order (parameters are keyword-only: put a * before them)"
        )
    for parameter in made.parameters:
        if parameter.type not in (int, float, str, bool) or parameter.default is inspect.Parameter.empty:
            raise DefinitionError(
                f"job {made.name}: the parameter {parameter.name} needs a type (int, float, str or bool) and a default"
            )


def installed_jobs() -> dict[str, Job]:
    """All jobs of the installed packages (entry points of the group `tidewheel.jobs`, each naming a module)."""
    found: dict[str, Job] = {}
    for point in entry_points(group="tidewheel.jobs"):
        module = point.load()
        if not isinstance(module, ModuleType):
            raise DefinitionError(
                f"the entry point {point.name!r} of tidewheel.jobs must name a module, got {module!r}"
            )
        for value in vars(module).values():
            if isinstance(value, Job):
                found[value.name] = value
    return dict(sorted(found.items()))
