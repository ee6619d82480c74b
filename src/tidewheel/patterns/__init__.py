"""Event patterns: which events, in what order, make a match.

A pattern is built from stages (`pattern`, `any_of`, `all_of`), with conditions over the event and over the events taken
so far (`measures.first`, `measures.last`, ...). A `Matcher` finds its matches in batches of events of many keys; a
`Harness` steps its NFA for one key, event by event.
"""

from __future__ import annotations

from tidewheel.patterns.define.builder import Pattern, all_of, any_of, pattern
from tidewheel.patterns.define.trends import falling, monotonic, rising
from tidewheel.patterns.nfa.harness import Harness
from tidewheel.patterns.vectorized.matcher import Matcher

__all__ = [
    "Harness",
    "Matcher",
    "Pattern",
    "all_of",
    "any_of",
    "falling",
    "monotonic",
    "pattern",
    "rising",
]
