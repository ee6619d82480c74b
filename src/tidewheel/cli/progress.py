"""Run work with a live status line and a graceful stop."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from tidewheel.cli.options import out, say
from tidewheel.model.time import Duration, Instant, now
from tidewheel.threads import failure_of

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Stop", "print_json", "run_with_progress", "start_text", "stoppable"]

_T = TypeVar("_T")
_REFRESH = 0.5
_PLAIN_REFRESH = 5.0
_PLAIN_SELDOM = 60.0
_ORPHAN_SECONDS = 60.0


class Stop(threading.Event):
    """Set when the command is to end; `signal` is the number of the signal that asked for it, if one did."""

    signal: int | None = None

    def unfinished(self) -> None:
        """End with the exit code of an interruption if a signal ended work that has an end of its own."""
        if self.signal is not None:
            raise typer.Exit(128 + self.signal)


end_with_stdin = False
"""Whether to stop when standard input ends. A program that starts a command and keeps a pipe to it need do nothing to
end it, not even be alive."""


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Let Ctrl-C and SIGTERM ask for a stop; a second Ctrl-C ends at once."""
    stop = Stop()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    if end_with_stdin:
        threading.Thread(target=_await_end_of_input, args=(stop,), name="standard input", daemon=True).start()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_with_progress(
    work: Callable[[], _T],
    *,
    stop: Stop,
    status: Callable[[], Mapping[str, Any]],
    line: Callable[[Mapping[str, Any]], str],
    length: Duration | None = None,
    as_json: bool = False,
) -> _T:
    """Run the work in a thread of its own and show its progress meanwhile; returns or raises what the work does.

    On a terminal one line is kept up to date, elsewhere one is printed when it says something else, less and less
    often. A status that fails is no reason to end the work.

    Args:
        work: What is done.
        stop: Set when it is to end.
        status: Gives how it is doing.
        line: Puts a status in words.
        length: After this long it is stopped.
        as_json: Print every status as JSON.
    """
    done = threading.Event()
    results: list[_T] = []
    errors: list[Exception] = []

    def do() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(failure_of(error, of="the work"))
        finally:
            done.set()

    # The main thread stays free: only it gets signals, and pyspark, started there, would take Ctrl-C for itself.
    threading.Thread(target=do, name="work", daemon=True).start()
    console = out(stderr=True)
    live = console.is_terminal and not as_json
    display: AbstractContextManager[Any] = (
        console.status(_one_line(_status_text(status, line)[1])) if live else nullcontext()
    )
    with display as shown:
        began = printed = time.monotonic()
        pause, said = _PLAIN_REFRESH, ""
        while not done.wait(_REFRESH):
            if length is not None and time.monotonic() - began >= length / 1_000_000:
                stop.set()
            now, text = _status_text(status, line)
            if as_json:
                if now is not None:
                    print_json(now)
            elif live:
                shown.update(_one_line(("stopping ... " if stop.is_set() else "") + text))
            elif text != said and time.monotonic() - printed >= pause:
                say(text)
                printed, said = time.monotonic(), text
                pause = min(1.5 * pause, _PLAIN_SELDOM)
    if errors:
        raise errors[0]
    return results[0]


def _status_text(
    status: Callable[[], Mapping[str, Any]], line: Callable[[Mapping[str, Any]], str]
) -> tuple[Mapping[str, Any] | None, str]:
    """The status and its words; None if it fails, and then the words say why."""
    try:
        now = status()
        return now, line(now)
    except Exception as error:  # the work goes on, whatever becomes of the line about it
        return None, f"how it is doing is not known: {error}"


def print_json(value: Any) -> None:
    """Print one object as one line, at once."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)


def start_text(since: Instant, *, first_batch: bool) -> str:
    """Describe what Spark is doing before the first results, since when, and how long that usually takes."""
    from tidewheel.transport.topics import run_states

    stage = run_states.FIRST_BATCH if first_batch else run_states.STARTING
    return run_states.start_text(run_states.RunState(stage, since), now=now())


def _one_line(text: str) -> Text:
    """Cut at the edge of the terminal: a live line that wraps leaves its rest behind."""
    from rich.text import Text

    return Text(text, no_wrap=True, overflow="ellipsis", end="")


def _await_end_of_input(stop: Stop) -> None:
    try:
        while os.read(0, 1024):
            pass
    except OSError:
        pass
    stop.set()
    # Whoever would have noticed that this process hangs is gone.
    time.sleep(_ORPHAN_SECONDS)
    os._exit(1)
