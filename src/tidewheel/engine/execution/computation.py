"""The interface of a query for starting it; a `Result` implements it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from google.protobuf.message import Message

from tidewheel.engine.checkpoint.state_fingerprint import StateFingerprint
from tidewheel.engine.execution.input import DataFrameInput, LogInput, definition
from tidewheel.engine.runtime.flow import Flow, Stage

__all__ = ["C", "Computation", "definition_of", "state_fingerprint_of"]


class Computation(Protocol):
    """A flow over an input, with the schemas of its outputs and the names of its results."""

    @property
    def name(self) -> str | None:
        """The name after which topics and state are called."""

    @property
    def input(self) -> LogInput | DataFrameInput:
        """The input that its rows come from."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Its operators, in their order."""

    @property
    def writes(self) -> str | type[Message] | None:
        """The message type of its results."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make the key of a result."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the job that made it."""

    @property
    def retracting(self) -> bool:
        """Whether its results may be retracted."""

    def flow(self) -> Flow:
        """Make the flow that runs."""

    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of every output."""


C = TypeVar("C", bound=Computation)


def definition_of(result: Computation) -> Mapping[str, Any]:
    """The part of a query that must not change while there is state: stored in the checkpoint and compared."""
    parameters = {"parameters": dict(result.parameters)} if result.parameters else {}
    return {**parameters, **definition(result.input), **result.flow().definition()}


def state_fingerprint_of(result: Computation, key_groups: int) -> StateFingerprint:
    """The fingerprint of the state of a query whose checkpoint is the user's own."""
    flow = result.flow()
    if not flow.keeps_state:
        return StateFingerprint(key_groups)
    return StateFingerprint.of(key_groups, {flow.name: definition_of(result)})  # state is kept under the flow's name
