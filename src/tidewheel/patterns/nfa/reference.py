"""Patterns the slow and obvious way: one key, one event, one match at a time."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from tidewheel.model.columns import TIME
from tidewheel.model.reference.process import key_order, rejection
from tidewheel.model.time import Instant
from tidewheel.patterns.compile.accumulators import reference_type
from tidewheel.patterns.compile.extremes import greater, lesser
from tidewheel.patterns.define.references import Reference, resolve
from tidewheel.patterns.nfa.harness import Harness, Stages
from tidewheel.patterns.vectorized.match_step import REASON
from tidewheel.patterns.vectorized.matcher import Matcher

__all__ = ["PatternReference"]

Key = tuple[Any, ...]
Row = dict[str, Any]

_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "count": len,
    "sum": lambda values: builtins.sum(_there(values)),
    "min": lambda values: functools.reduce(lesser, _there(values)) if _there(values) else None,
    "max": lambda values: functools.reduce(greater, _there(values)) if _there(values) else None,
    "mean": lambda values: builtins.sum(_there(values)) / len(_there(values)) if _there(values) else None,
    "collect": list,
}


class PatternReference:
    """The reference for patterns. Holds all keys; rows have a column `__time` (µs).

    >>> from tidewheel.patterns.define.builder import pattern
    >>> from tidewheel.patterns.define.references import last
    >>> fall = pattern("high", pl.col("x") > 7).next("low", pl.col("x") < 3)
    >>> reference = PatternReference(Matcher(fall, measures={"to": last("low.x")}), {"x": pl.Int64()})
    >>> reference.step(pl.DataFrame({"x": [1, 9], "__time": [2, 1]}), watermark=3)["matches"]
    [{'match_start': 1, 'match_end': 2, 'to': 1, 'event_time': 2}]
    """

    def __init__(self, matcher: Matcher, schema: Mapping[str, pl.DataType]) -> None:
        self.matcher = matcher
        self.schema = {name: schema[name] for name in matcher.columns}
        self.watermark: Instant | None = None
        self.pending: list[tuple[Instant, Row]] = []
        self.keys: dict[Key, _OneKey] = {}
        self.references = resolve(matcher.measures.values(), matcher.pattern.stages, what="measures")

    def step(self, rows: pl.DataFrame | None, *, watermark: Instant | None) -> dict[str, list[Row]]:
        """Take some rows and the time; give the rows of each output: `matches`, `timed_out`, `dropped`, and `late`."""
        late = []
        for row in rows.to_dicts() if rows is not None else []:
            reason, by = rejection(row[TIME], self.watermark)
            if reason is None:
                self.pending.append((row[TIME], row))
            else:
                late.append({**row, "reason": reason, "late_by": by})
        known = [time for time in (self.watermark, watermark) if time is not None]
        self.watermark = max(known, default=None)
        outputs: dict[str, list[Row]] = {"matches": [], "timed_out": [], "dropped": [], "late": late}
        if self.watermark is None:
            return outputs
        passed = [event for event in self.pending if event[0] < self.watermark]
        self.pending = [event for event in self.pending if event[0] >= self.watermark]
        for time, row in sorted(passed, key=lambda event: event[0]):
            key = tuple(row[name] for name in self.matcher.keys)
            if key not in self.keys:
                self.keys[key] = _OneKey(Harness(self.matcher.pattern, self.schema, limit=self.matcher.limit))
            self.keys[key].add(time, row)
        for key, one in sorted(self.keys.items(), key=lambda item: key_order(item[0])):
            one.harness.advance(self.watermark)
            named = dict(zip(self.matcher.keys, key, strict=True))
            for stages, at in one.new_matches():
                outputs["matches"].append(
                    {**named, **one.ends(stages), **self._measures(one, stages), "event_time": at}
                )
            for stages, at in one.new("timed_out"):
                fields = {**named, **one.ends(stages), "stage": _latest(stages)}
                outputs["timed_out"].append({**fields, **self._measures(one, stages), "event_time": at})
            for stages, at in one.new("dropped"):
                fields = {**named, **one.ends(stages), "stage": _latest(stages), "reason": REASON}
                outputs["dropped"].append({**fields, "event_time": at})
        for name in ("matches", "timed_out", "dropped"):
            outputs[name].sort(key=lambda row: row["event_time"])
        return outputs

    def _measures(self, one: _OneKey, stages: Stages) -> Row:
        if not self.matcher.measures:
            return {}
        values = {name: [self._value(one, stages, reference)] for name, reference in self.references.items()}
        types = {name: reference_type(reference, self.schema) for name, reference in self.references.items()}
        row = pl.DataFrame(values, schema=types)
        return row.select(measure.alias(name) for name, measure in self.matcher.measures.items()).to_dicts()[0]

    @staticmethod
    def _value(one: _OneKey, stages: Stages, reference: Reference) -> Any:
        numbers = _events(stages) if reference.stage is None else stages.get(reference.stage, [])
        column = reference.column
        return _FUNCTIONS[reference.function]([None if column is None else one.rows[n][column] for n in numbers])


class _OneKey:
    """The events of a key, its NFA, and how much of its output was given."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.rows: list[Row] = []
        self.times: list[Instant] = []
        self._given = {"matches": 0, "timed_out": 0, "dropped": 0}

    def add(self, time: Instant, row: Row) -> None:
        self.harness.add(row, time=time)
        self.rows.append(row)
        self.times.append(time)

    def new_matches(self) -> list[tuple[Stages, Instant]]:
        harness, given = self.harness, self._given["matches"]
        self._given["matches"] = len(harness.matches)
        found = zip(harness.order[given:], harness.matches[given:], harness.completed_at[given:], strict=True)
        return [(stages, at) for _, stages, at in sorted(found, key=lambda match: match[0])]

    def new(self, name: str) -> list[tuple[Stages, Instant]]:
        found: list[tuple[Stages, Instant]] = getattr(self.harness, name)
        given, self._given[name] = self._given[name], len(found)
        return sorted(found[given:], key=lambda one: (one[1], _events(one[0])))

    def ends(self, stages: Stages) -> Row:
        events = _events(stages)
        return {"match_start": self.times[events[0]], "match_end": self.times[events[-1]]}


def _events(stages: Stages) -> list[int]:
    return sorted(number for numbers in stages.values() for number in numbers)


def _latest(stages: Stages) -> str:
    return builtins.max(stages, key=lambda stage: stages[stage][-1])


def _there(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]
