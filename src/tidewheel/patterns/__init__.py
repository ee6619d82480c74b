"""Event patterns: which events, in what order, make a match.

A pattern is built from stages (`pattern`, `any_of`, `all_of`), with conditions over the event and over the events taken
so far (`first`, `last`, `previous`, `count`, `sum`, ...). A `Matcher` finds its matches in batches of events of many
keys; a `Harness` steps its automaton for one key, event by event.
"""

from __future__ import annotations

from tidewheel.patterns.harness import Harness
from tidewheel.patterns.matcher import Matcher
from tidewheel.patterns.pattern import Pattern, all_of, any_of, pattern
from tidewheel.patterns.references import collect, count, first, last, max, mean, min, previous, sum
from tidewheel.patterns.trends import falling, monotonic, rising

__all__ = [
    "Harness",
    "Matcher",
    "Pattern",
    "all_of",
    "any_of",
    "collect",
    "count",
    "falling",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "monotonic",
    "pattern",
    "previous",
    "rising",
    "sum",
]
