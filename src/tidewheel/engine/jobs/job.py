"""Jobs: a function from streams to a result, with a name, parameters and everything around it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from google.protobuf.message import Message

from tidewheel.engine.streams.result import Result
from tidewheel.engine.streams.stream import Stream
from tidewheel.engine.streams.stream_factory import stream
from tidewheel.errors import DefinitionError
from tidewheel.model import watermarks
from tidewheel.model.watermarks import Strategy
from tidewheel.topic_names import analytics
from tidewheel.transport.events.registry import type_name
from tidewheel.transport.log.log import Log, check_topic_name

__all__ = ["Job", "Parameter", "job"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a job, as its signature has it."""

    name: str
    type: type
    default: Any

    def checked(self, value: Any, *, where: str) -> Any:
        """The value, if it is of the parameter's type; an int is accepted for a float.

        >>> Parameter("limit", float, 20.0).checked(12, where="job fast")
        12.0
        """
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if not isinstance(value, self.type) or (self.type is int and isinstance(value, bool)):
            raise DefinitionError(
                f"{where}: {self.name} must be {self.type.__name__}, got {value!r} ({type(value).__name__})"
            )
        return value


@dataclass(frozen=True)
class Job:
    """What is computed. `tidewheel.run` runs it, alone or together with others, and so does `tidewheel run`.

    >>> import polars as pl
    >>> from tidewheel.transport.open_log import open_log
    >>> @job("fast", reads="input.position")
    ... def fast(positions: Stream, *, limit: float = 20.0) -> Result:
    ...     "Vehicles that are too fast."
    ...     return positions.filter(pl.col("speed") > limit).key_by("vehicle").each_row()
    >>> fast.topic, fast.summary
    ('analytics.fast', 'Vehicles that are too fast.')
    >>> [(parameter.name, parameter.default) for parameter in fast.parameters]
    [('limit', 20.0)]
    >>> fast.configured({"limit": 15})
    {'limit': 15.0}
    >>> import tempfile
    >>> log = open_log(tempfile.mkdtemp() + "/city.tw")
    >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7, "speed": 12.5}
    >>> _ = log.append_rows("input.position", [row], time="event_time")
    >>> fast.on(log, limit=15.0).name
    'fast'
    """

    name: str
    """Topics and state are called after it."""
    reads: Mapping[str, str | type[Message] | None]
    """The topic, and the type of its messages; without one it is that of the events in the topic."""
    writes: str | type[Message] | None
    """The message type of the results; without one it is made of their columns."""
    function: Callable[..., Result]
    """Takes the stream and the parameters, gives the result."""
    key: tuple[str, ...] = ()
    """The columns that make the key of a result; those of the last `key_by` if none are named."""
    watermark: Strategy = field(default_factory=lambda: watermarks.bounded("1 s"))
    """How far event time has come."""
    retracting: bool | None = None
    """Whether rows may retract others; without it their columns tell."""

    @property
    def topic(self) -> str:
        """The default topic of the results."""
        return analytics(self.name)

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
        """Return the values of all parameters: those given, checked, and the defaults."""
        known = {parameter.name: parameter for parameter in self.parameters}
        strange = [name for name in given if name not in known]
        if strange:
            raise DefinitionError(
                f"job {self.name} has no parameter {strange[0]!r}; it has {', '.join(known) or 'none at all'}"
            )
        return {
            name: parameter.checked(given.get(name, parameter.default), where=f"job {self.name}")
            for name, parameter in known.items()
        }

    def on(self, log: Log, **parameters: Any) -> Result:
        """Return the job's result on a log, under its name: what `tidewheel.run` starts."""
        [(topic, of)] = self.reads.items()
        rows = stream(log, topic, type=of, watermark=self.watermark, retracting=self.retracting)
        result = self(rows, **parameters)
        return replace(result, name=self.name, writes=self.writes, key=self.key, parameters=self.configured(parameters))

    def __call__(self, rows: Stream, **parameters: Any) -> Result:
        """Call the function itself, on any stream with the right columns."""
        result: Any = self.function(rows, **self.configured(parameters))  # whatever it declares
        if not isinstance(result, Result):
            hint = "; rows as they are become a result with .each_row()" if isinstance(result, Stream) else ""
            raise DefinitionError(f"job {self.name}: its function must give a result, got {result!r}{hint}")
        return result

    def __repr__(self) -> str:
        reads = ", ".join(f"{topic}: {type_name(of)}" if of else topic for topic, of in self.reads.items())
        writes = f": {type_name(self.writes)}" if self.writes else ""
        return f"<Job {self.name}: {reads} → {self.topic}{writes}>"


def job(
    name: str,
    *,
    reads: str | Sequence[str] | Mapping[str, str | type[Message] | None],
    writes: str | type[Message] | None = None,
    key: str | tuple[str, ...] = (),
    watermark: Strategy | None = None,
    retracting: bool | None = None,
) -> Callable[[Callable[..., Result]], Job]:
    """Make a job of a function that takes the stream of a topic, and gives a result.

    The function's keyword-only arguments, each with a type (int, float, str or bool) and a default, are the job's
    parameters: `tidewheel run` offers them as options, and a TOML file may set them. Message types are classes, or full
    names of types that are installed or that the log knows.

    Args:
        name: That of the job: topics and state are called after it.
        reads: The topic, or the topic with the type of its messages: then the job can start before there is an event.
        writes: The message type of the results; by default one is made of their columns.
        key: The columns that make the key of a result; by default those of the last `key_by`.
        watermark: How far event time has come, as `tidewheel.stream` takes it.
        retracting: Whether rows may retract others, as `tidewheel.stream` takes it.

    >>> import polars as pl
    >>> @job("fast", reads="input.position")
    ... def fast(positions: Stream, *, limit: float = 20.0) -> Result:
    ...     '''Positions of vehicles faster than the limit.'''
    ...     return positions.filter(pl.col("speed") > limit).key_by("operator", "vehicle").each_row()
    >>> fast.topic, [parameter.name for parameter in fast.parameters], fast.summary
    ('analytics.fast', ['limit'], 'Positions of vehicles faster than the limit.')
    """
    named = [reads] if isinstance(reads, str) else reads
    topics = dict(named) if isinstance(named, Mapping) else dict.fromkeys(named)

    def make(function: Callable[..., Result]) -> Job:
        made = Job(
            name=name,
            reads=topics,
            writes=writes,
            function=function,
            key=(key,) if isinstance(key, str) else tuple(key),
            watermark=watermark or watermarks.bounded("1 s"),
            retracting=retracting,
        )
        _validate(made)
        return made

    return make


def _validate(made: Job) -> None:
    check_topic_name(made.topic)
    signature = inspect.signature(made.function)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    inputs = [parameter for parameter in signature.parameters.values() if parameter.kind in kinds]
    if len(made.reads) != 1:
        raise DefinitionError(
            f"job {made.name}: a job reads one topic, got {', '.join(made.reads) or 'none'}; streams cannot be joined, "
            "so make a job for each. Topics of one type are one stream for tidewheel.stream(log, [...]) and its results"
        )
    if len(inputs) != 1:
        raise DefinitionError(
            f"job {made.name}: the function takes {len(inputs)} streams, and a job reads one (parameters are "
            "keyword-only: put a * before them)"
        )
    for parameter in made.parameters:
        if parameter.type not in (int, float, str, bool) or parameter.default is inspect.Parameter.empty:
            raise DefinitionError(
                f"job {made.name}: the parameter {parameter.name} needs a type (int, float, str or bool) and a default"
            )
        parameter.checked(parameter.default, where=f"job {made.name}: the default")
