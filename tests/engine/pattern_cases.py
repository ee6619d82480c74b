"""Generated patterns with events that come out of order, in batches; and outputs as plain rows, to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
from hypothesis import strategies as st

from tests.patterns import pattern_strategies
from tidewheel.engine.operators.operator import LATE, RESULTS
from tidewheel.engine.operators.patterns.recognizer import DROPPED, TIMED_OUT
from tidewheel.errors import DefinitionError
from tidewheel.model.panes import END_OF_TIME
from tidewheel.patterns.define.references import collect, count, last, mean
from tidewheel.patterns.define.references import sum as total
from tidewheel.patterns.vectorized.matcher import Matcher

INSTANT = pl.Datetime("us", "UTC")
SCHEMA = {"event_time": INSTANT, "key": pl.String(), "number": pl.Int64(), **pattern_strategies.SCHEMA}
KEYS = [None, "a", "b", "c", "d"]
Row = dict[str, Any]
Batch = tuple[list[Row], int | None]
"""Rows as they come, with their time, and the watermark after them."""


def matcher_of(pattern: Any, limit: int = 10_000) -> Matcher | None:
    """With measures that tell which events were taken; None for what is no whole pattern."""
    taken = {f"of_{stage}": collect(f"{stage}.number") for stage in pattern.stages}
    others = {"n": count(), "sum": total("x"), "mean": mean("x"), "end": last("number") * 2}
    try:
        return Matcher(pattern, keys=["key"], measures={**taken, **others}, limit=limit)
    except DefinitionError:
        return None


@st.composite
def matchers(draw: Any, *, unit: int = 1) -> Matcher | None:
    """Any pattern with any policy and limit."""
    made, _ = draw(pattern_strategies.patterns(unit=unit))
    return matcher_of(draw(pattern_strategies.policies(made)), draw(st.sampled_from([1, 2, 3, 5, 100, 100, 100])))


@st.composite
def rows(draw: Any, *, most: int = 12, keys: int = 4, unit: int = 1) -> list[Row]:
    """Events of several keys, in the order in which they come, which is not that of their times."""
    found: list[tuple[int, Row]] = []
    for key in KEYS[: draw(st.integers(2, keys))]:
        for event in draw(pattern_strategies.events(most, unit=unit)):
            row = {"time": event["time"], "key": key, **{name: event[name] for name in pattern_strategies.SCHEMA}}
            found.append((event["time"] + draw(st.integers(0, 6)) * unit, row))
    found.sort(key=lambda one: one[0])
    return [{**row, "number": number} for number, (_, row) in enumerate(found)]


@st.composite
def batches(draw: Any) -> list[Batch]:
    """The same in batches, with a watermark that some come too late for, and the end."""
    left = draw(rows())
    delay = draw(st.sampled_from([0, 2, 4, 6, 6]))
    highest = 0
    found: list[Batch] = []
    while left:
        size = draw(st.integers(1, 8))
        here, left = left[:size], left[size:]
        highest = max([highest, *(row["time"] for row in here)])
        found.append((here, draw(st.sampled_from([None, highest - delay, highest - delay]))))
    return [*found, ([], END_OF_TIME)]


def frame_of(some: Iterable[Row]) -> pl.DataFrame:
    """Rows as a stage gets them."""
    given = list(some)
    times = pl.Series("event_time", [row["time"] for row in given], dtype=pl.Int64).cast(INSTANT)
    columns = {name: [row[name] for row in given] for name in SCHEMA if name != "event_time"}
    return pl.DataFrame({"event_time": times, **columns}, schema=SCHEMA)


def plain(outputs: Mapping[str, pl.DataFrame]) -> dict[str, list[str]]:
    """The rows of each output as text: matches in their order, the others in any."""
    found = {}
    for name in (RESULTS, TIMED_OUT, DROPPED):
        frame = outputs.get(name)
        times = [one for one in ("event_time", "match_start", "match_end") if frame is not None]
        found[name] = [] if frame is None else _text(frame.with_columns(pl.col(times).cast(pl.Int64)).to_dicts())
    late = outputs.get(LATE)
    found[LATE] = [] if late is None else _text(late.select("number", "late_reason").to_dicts())
    return {name: reported if name == RESULTS else sorted(reported) for name, reported in found.items()}


def expected(outputs: Mapping[str, Sequence[Row]]) -> dict[str, list[str]]:
    """What the reference gives, in the same words."""
    found = {RESULTS: _text(outputs["matches"])}
    found |= {name: sorted(_text(outputs[name])) for name in (TIMED_OUT, DROPPED)}
    late = [{"number": row["number"], "late_reason": row["reason"]} for row in outputs["late"]]
    return {**found, LATE: sorted(_text(late))}


def _text(given: Iterable[Row]) -> list[str]:
    return [repr(sorted(row.items())) for row in given]
