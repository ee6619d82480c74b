"""Watching a run: its progress, kept up to date until it has ended."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from tidewheel.errors import DefinitionError
from tidewheel.model.time import Duration, format_duration

__all__ = ["Watched", "watch"]


class Watched(Protocol):
    """A run that ends some time, and shows how far it has come."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, at most so many seconds; returns whether it has."""


def watch(run: Watched, every: Duration) -> None:
    """Show its progress until it has ended or is interrupted. Raises what it failed with."""
    if every <= 0:
        raise DefinitionError(f"watch: every must be greater than 0, got {format_duration(every)}")
    show = _shown_in_notebook(run) or _printed(run)
    try:
        while not run.wait(every / 1_000_000):
            show()
    except KeyboardInterrupt:
        return
    finally:
        show()


def _shown_in_notebook(run: Watched) -> Callable[[], None] | None:
    """Return a function that updates one display; None outside a notebook."""
    ipython: Any = sys.modules.get("IPython")  # a notebook has imported it
    shell = None if ipython is None else ipython.get_ipython()
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # type: ignore[import-not-found]

    handle = display(run, display_id=True)
    return lambda: handle.update(run)


def _printed(run: Watched) -> Callable[[], None]:
    last = ""

    def show() -> None:
        nonlocal last
        text = repr(run)
        if text != last:
            print(text, flush=True)
            last = text

    return show
