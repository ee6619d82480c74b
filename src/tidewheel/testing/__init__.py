"""Testing a pipeline: a script of what arrives and how time moves, and what must come out of it.

A script runs on the reference interpreter, which is quick and obviously right, or on Spark, which is what will run:

>>> from tidewheel import agg, windows
>>> def totals(events):
...     return events.key_by("key").window(windows.tumbling("10 s")).aggregate(total=agg.sum("value"))
>>> script = Script().add(at="12:00:01", key="a", value=5).watermark("12:00:11").add(at="12:00:02", key="a", value=7)
>>> script.run(totals) == [pane("a", "12:00:00", "12:00:10", total=5, timing="ON_TIME")]
True
>>> script.run(totals).late
[row(at='12:00:02', key='a', value=7, late_reason='too late', late_by='9 s')]

Times without a date are on 2026-01-01, in UTC.
"""

from __future__ import annotations

from tidewheel.patterns.nfa.harness import Harness
from tidewheel.testing.bundles import Bundle
from tidewheel.testing.rows import Outcome, Row, pane, row
from tidewheel.testing.script import Script

__all__ = ["Bundle", "Harness", "Outcome", "Row", "Script", "pane", "row"]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports
