"""Threads that do not end in silence."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidewheel.errors import TidewheelError

__all__ = ["ServiceThread", "failure_of", "reason_of"]

_logger = logging.getLogger(__name__)


def reason_of(error: BaseException) -> str:
    """Describe an error in one line.

    >>> reason_of(TidewheelError("no such log")), reason_of(KeyError("speed")), reason_of(SystemExit())
    ('no such log', "KeyError: 'speed'", 'SystemExit')
    """
    kind = type(error).__name__
    return str(error) if isinstance(error, TidewheelError) else f"{kind}: {error}" if str(error) else kind


def failure_of(error: BaseException, *, of: str) -> Exception:
    """The error to end with: `sys.exit` in some thread must not end the command as if all were well.

    >>> failure_of(SystemExit(0), of="connector mqtt")
    TidewheelError('connector mqtt ended: SystemExit: 0')
    """
    if isinstance(error, Exception):
        return error
    failure = TidewheelError(f"{of} ended: {reason_of(error)}")
    failure.__cause__ = error
    return failure


class ServiceThread(threading.Thread):
    """A thread for work that others rely on. Whatever ends it, including a panic or `sys.exit`, is logged and kept as
    `failure`: its owner checks that, and starts another, or ends with an exit code.

    >>> thread = ServiceThread(lambda: None, name="work")
    >>> thread.start()
    >>> thread.join()
    >>> thread.failure is None
    True
    """

    def __init__(self, work: Callable[[], object], *, name: str, daemon: bool = True) -> None:
        super().__init__(name=name, daemon=daemon)
        self._work = work
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.failure = failure_of(error, of=self.name)
            _logger.error("%s ended: %s", self.name, reason_of(error), exc_info=not isinstance(error, TidewheelError))
