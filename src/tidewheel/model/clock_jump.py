"""Clocks that were wrong for a while: how far ahead a time must be to be called wrong."""

from __future__ import annotations

from tidewheel.model.time import Duration, Instant, duration

__all__ = ["JUMP", "is_ahead"]

JUMP: Duration = duration("1 d")
"""Times further ahead of a clock than this were given by a clock that was wrong; and a clock that is further ahead of
the last time that it gave may be. Less than this puts itself right soon enough."""


def is_ahead(time: Instant, clock: Instant) -> bool:
    """Whether a time cannot have been given by this clock.

    >>> is_ahead(JUMP + 1, 0), is_ahead(JUMP, 0)
    (True, False)
    """
    return time - clock > JUMP
