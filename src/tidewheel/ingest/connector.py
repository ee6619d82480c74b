"""Connectors: they bring messages in, from anywhere, and know nothing of what is in them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tidewheel.ingest.message import Message
from tidewheel.transport.event_pb2 import IngestReport
from tidewheel.transport.log import Receipt

__all__ = ["Connector", "Deliver", "Delivered", "run_all"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of the messages of one delivery: how many went to each topic, were filtered by each rule, and are
    dead letters of each kind."""

    receipt: Receipt
    topics: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)


class Deliver(Protocol):
    """What a connector hands its messages to; a `Pipeline` is one."""

    @property
    def state(self) -> bytes:
        """What the last delivery left for the next, also in an earlier process; empty at first."""

    def report(self) -> IngestReport:
        """The totals so far, earlier processes included."""

    def __call__(self, messages: Sequence[Message], *, repeated: int = 0, state: bytes | None = None) -> Delivered:
        """Returns only when the log has the messages, all of them; `LogError` if it could not take them, none of them
        (or, after a failure that left it open, all of them: then `state` tells).

        `repeated` counts messages that the connector left out because the log has them already. `state` is kept in
        the same transaction (None: stays as it is): a connector's note to its own successor.
        """


@runtime_checkable
class Connector(Protocol):
    """Brings messages from somewhere. It acknowledges or forgets a message only when `deliver` has returned."""

    @property
    def name(self) -> str:
        """For people: in reports and errors."""

    def run(self, deliver: Deliver, stop: threading.Event) -> None:
        """Bring messages until there are no more or `stop` is set, then deliver what was received and return."""


def run_all(pairs: Iterable[tuple[Connector, Deliver]], stop: threading.Event) -> list[tuple[Connector, Exception]]:
    """Run connectors side by side, each with its own pipeline, until all have ended; set `stop` to end them.

    A connector that fails is reported (logged) at once and the others go on: one broken source must not cost the
    data of the rest. The failures are returned, so that the caller can exit with them.
    """
    failures: list[tuple[Connector, Exception]] = []

    def run(connector: Connector, deliver: Deliver) -> None:
        try:
            connector.run(deliver, stop)
        except Exception as error:
            failures.append((connector, error))
            _logger.error("connector %s stopped: %s", connector.name, error)

    threads = [threading.Thread(target=run, args=pair, name=f"connector {pair[0].name}", daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        # A join without a limit would hold back Ctrl-C until the connector ends.
        while thread.is_alive():
            thread.join(timeout=0.2)
    return failures
