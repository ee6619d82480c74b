"""A stage behind a stream: what it may not follow, and the result that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidewheel.engine.operators.operator import Operation
from tidewheel.engine.runtime.flow import Stage
from tidewheel.errors import DefinitionError

if TYPE_CHECKING:
    from tidewheel.engine.streams.result import Result
    from tidewheel.engine.streams.stream import Stream

__all__ = ["append_stage", "unretracted"]


def append_stage(stream: Stream, keys: Sequence[str], operation: Operation) -> Result:
    """Append a stage to a stream; refuse what the operation cannot follow."""
    from tidewheel.engine.streams.result import Result, result_schema

    if stream.stages and (reason := stream.stages[-1].operation.refused_in_front) is not None:
        raise DefinitionError(reason)
    if stream.retracting and not operation.follows_retractions:
        raise DefinitionError(
            f"{operation!r}: the rows before it may be retracted, which {operation.noun} cannot follow; "
            f"{unretracted(stream)}"
        )
    if any(op.output is not None for op in stream.ops):
        raise DefinitionError(f"{operation!r}: results were set apart before it; call apart on the last result")
    stage = Stage(stream.ops, tuple(keys), operation, dict(stream.schema))
    return Result(
        stream.input, (*stream.stages, stage), (), result_schema(stage), operation.retracts(stream.retracting)
    )


def unretracted(stream: Stream) -> str:
    """Say how to have rows none of which is retracted."""
    advice = next(filter(None, (stage.operation.unretracted for stage in stream.stages)), None)
    if advice is not None:
        return f"in the stage before it, {advice}"
    return "say stream(..., retracting=False) if none of its rows has a retraction that is true"
