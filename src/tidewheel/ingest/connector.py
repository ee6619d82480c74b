"""Connectors bring in messages from anywhere and do not look into them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

from tidewheel.errors import PanicError, TidewheelError, panics_as_errors
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Processed
from tidewheel.threads import ServiceThread, failure_of, reason_of
from tidewheel.transport.events.event_pb2 import IngestReport
from tidewheel.transport.log.log_types import Receipt

__all__ = ["Connector", "Deliver", "Delivered", "State", "run_all"]

_logger = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0


State: TypeAlias = bytes | Callable[[Processed], bytes] | None
"""What a delivery leaves for the next, or what makes it of what became of the messages; None: as it was."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The outcome of the messages of one delivery."""

    receipt: Receipt
    """Where they are in the log."""
    topics: Mapping[str, int] = field(default_factory=dict)
    """How many went to each topic."""
    filtered: Mapping[str, int] = field(default_factory=dict)
    """How many each rule filtered."""
    dead: Mapping[str, int] = field(default_factory=dict)
    """How many became dead letters of each kind."""
    reasons: Sequence[str] = ()
    """Those of the first dead letters."""


class Deliver(Protocol):
    """The function that a connector delivers messages to; a `Pipeline` is one."""

    @property
    def state(self) -> bytes:
        """The state of the last delivery, also in an earlier process; empty at first."""

    def report(self) -> IngestReport:
        """Return the totals so far, earlier processes included."""

    def __call__(self, messages: Sequence[Message], *, repeated: int = 0, state: State = None) -> Delivered:
        """Deliver messages; returns when the log has them all. `LogError` if the log could not take them: it has none
        of them (or, after a failure with an unknown outcome, all of them: then `state` shows it).

        `repeated` counts messages that the connector left out because the log has them already. `state` is kept in
        the same transaction (None: stays as it is): a connector's note to its own successor. A function makes it of
        what became of the messages.
        """


@runtime_checkable
class Connector(Protocol):
    """Brings messages from somewhere. It acknowledges or forgets a message only when `deliver` has returned.

    One that has an attribute `resumes`, which is true, may be run again after a failure: what it has not acknowledged
    comes again, and nothing else does.
    """

    @property
    def name(self) -> str:
        """Its name in reports and errors."""

    def run(self, deliver: Deliver, stop: threading.Event) -> None:
        """Bring in messages until there are no more or `stop` is set, then deliver what was received and return."""


def run_all(
    pairs: Iterable[tuple[Connector, Deliver]],
    stop: threading.Event,
    *,
    on_failure: Callable[[Connector, Exception], object] = lambda connector, failure: None,
) -> list[tuple[Connector, Exception]]:
    """Run connectors side by side, each with its own pipeline, until all have ended; set `stop` to end them.

    A connector that fails is reported (logged, and to `on_failure`) at once and the others go on: one broken source
    must not cost the data of the rest. If nobody foresaw the failure and the connector resumes, it is run again after
    a while. The last failure of each is returned, so that the caller can exit with it.
    """
    failures: dict[int, tuple[Connector, Exception]] = {}

    def run(connector: Connector, deliver: Deliver) -> None:
        wait = _FIRST_WAIT
        while True:
            began = time.monotonic()
            try:
                with panics_as_errors():
                    connector.run(deliver, stop)
                return
            except BaseException as error:
                failure = failure_of(error, of=f"connector {connector.name}")
            failures[id(connector)] = connector, failure
            on_failure(connector, failure)
            foreseen = isinstance(failure, TidewheelError) and not isinstance(failure, PanicError)
            if foreseen or stop.is_set() or not getattr(connector, "resumes", False):
                _logger.error("connector %s stopped: %s", connector.name, reason_of(failure), exc_info=failure)
                return
            if time.monotonic() - began > _LONGEST_WAIT:
                wait = _FIRST_WAIT
            message = "connector %s stopped: %s; it is started again in %g s"
            _logger.error(message, connector.name, reason_of(failure), wait, exc_info=failure)
            if stop.wait(wait):
                return
            wait = min(2 * wait, _LONGEST_WAIT)

    threads = [ServiceThread(partial(run, *pair), name=f"connector {pair[0].name}") for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        # A join without a limit would hold back Ctrl-C until the connector ends.
        while thread.is_alive():
            thread.join(timeout=0.2)
        if thread.failure is not None:  # of what is around the connector
            raise thread.failure
    return list(failures.values())
