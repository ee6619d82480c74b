"""Find what holds a watermark back: inputs whose own watermark has not moved for a while, though others' have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidewheel.model.time import Duration, Instant, approximate_duration, duration

__all__ = ["HELD_AFTER", "IDLE_HINT", "Holder", "hold_text", "holders"]

HELD_AFTER: Duration = duration("10 s")
"""An input that has not moved for so long is reported."""

IDLE_HINT = (
    'if it may be silent, let it not be waited for: watermark=tw.watermarks.bounded("1 s", idle="1 min"); if it should '
    "not be, look at what writes to it (a partition that no key falls into stays empty: use fewer partitions)"
)
"""What to do about it, for people."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An input partition that holds the watermark. `since`: when its own watermark moved last, or when it was first
    waited for; `mark`: where that is, None if it never moved. `fed`: when it last had records.

    >>> Holder("input.door", 2, since=0, mark=None, fed=0).place
    'input.door/2'
    """

    topic: str
    partition: int
    since: Instant
    mark: Instant | None
    fed: Instant

    @property
    def place(self) -> str:
        """The partition as text."""
        return f"{self.topic}/{self.partition}"


def holders(state: Mapping[str, Any], *, now: Instant, ahead: Duration = 0) -> tuple[Holder, ...]:
    """Find the inputs that hold the watermark of this state (see `watermarks.advance`) now; none if it moves. `ahead`:
    how far the clock of the state is ahead of `now`'s."""
    found = []
    for key in state.get("slowest", ()):
        memory = state["inputs"][key]
        topic, _, number = key.rpartition("/")
        fed, since = memory["fed"] - ahead, memory.get("moved", memory["fed"]) - ahead
        if now - since >= HELD_AFTER:
            found.append(Holder(topic, int(number), since, memory.get("mark"), fed))
    return tuple(found)


def hold_text(held: Sequence[Holder], *, now: Instant) -> str:
    """Describe what holds the watermark; empty if nothing.

    >>> hold_text([Holder("input.door", 2, since=0, mark=None, fed=0)], now=60_000_000)
    'held by input.door/2 for 1 min: never an event'
    """
    if not held:
        return ""
    first = min(held, key=lambda each: each.since)
    more = f" and {len(held) - 1} more" if len(held) > 1 else ""
    waited = max(0, now - first.since)
    if first.fed > first.since:
        why = "events, but none whose time moves it"
    else:
        why = "never an event" if first.mark is None else "no event since"
    return f"held by {first.place}{more} for {approximate_duration(waited)}: {why}"
