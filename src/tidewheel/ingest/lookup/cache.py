"""A cache of the keys that were asked for lately."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

from tidewheel.ingest.lookup.limits import Limits
from tidewheel.model.process.lookup import Key
from tidewheel.model.time import Instant

__all__ = ["Cache", "Kind"]

Kind = Literal["answer", "unknown", "failed"]


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: Kind
    known_at: Instant
    seen: Instant


class Cache:
    """The keys whose outcome is written down, with its kind: answers are good for `cache_age`, the others are tried
    again sooner. Outcomes themselves are in the log; here they would only take up memory.

    Times are given, never taken: `now` is the lookup worker's clock, `seen` the event time of an event with the key.
    What is older than an age by either of them is forgotten, so that a replay, in which days pass in minutes, asks anew
    before the jobs forget.

    >>> cache = Cache(Limits(retry_failed="30 s"))
    >>> cache.put(("550",), "failed", now=0, seen=0)
    >>> cache.is_known(("550",), now=29_000_000, seen=0), cache.is_known(("550",), now=30_000_000, seen=0)
    (True, False)
    """

    def __init__(self, limits: Limits) -> None:
        ages = {"answer": limits.cache_age, "unknown": limits.retry_unknown, "failed": limits.retry_failed}
        self._ages = {kind: int(age) for kind, age in ages.items()}
        self._size = limits.cache_size
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()

    def put(self, key: Key, kind: Kind, *, now: Instant, seen: Instant) -> None:
        """Remember an outcome."""
        self._entries[key] = _Entry(kind, now, seen)
        self._entries.move_to_end(key)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def is_known(self, key: Key, *, now: Instant, seen: Instant) -> bool:
        """Whether a key need not be asked for."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        age = self._ages[entry.kind]
        if now - entry.known_at >= age or seen - entry.seen >= age:
            del self._entries[key]
            return False
        self._entries.move_to_end(key)
        return True

    def __len__(self) -> int:
        return len(self._entries)
