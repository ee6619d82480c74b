"""Actual and expected rows: they are compared by the fields that are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tidewheel.html import details, fragment, heading, table
from tidewheel.model.panes import END_OF_TIME, Timing
from tidewheel.model.time import Duration, Instant, duration, format_duration, format_instant, instant

__all__ = ["MIDNIGHT", "Outcome", "Row", "Rows", "Time", "as_text", "at_time", "pane", "row"]

_DAY = "2026-01-01"
MIDNIGHT: Instant = instant(f"{_DAY}T00:00:00Z")
"""Where scripts begin."""

Time = str | datetime | int
_OWN = ("key", "start", "end", "timing", "index", "first", "last", "event_time", "retraction", "aggregates")
_AGGREGATE = "aggregate "
"""What is put before the name of an aggregate that is called like a field of panes."""
_ENDS = ("match_start", "match_end")


def at_time(time: Time, what: str = "time") -> Instant:
    """A time as scripts give it.

    >>> at_time("12:00:01") == at_time("12:00:01.000") == at_time("2026-01-01T12:00:01Z")
    True
    """
    if isinstance(time, str) and "-" not in time and ":" in time:
        time = f"{_DAY}T{time.strip()}"
    return instant(time, what=what)


def as_text(time: Instant) -> str:
    """A time as scripts give it.

    >>> as_text(at_time("12:00:01")), as_text(at_time("2025-06-30T12:00:01.5Z"))
    ('12:00:01', '2025-06-30T12:00:01.500000Z')
    """
    if time >= END_OF_TIME:
        return "the end"
    text = format_instant(time)
    text = text.replace(".000000Z", "Z")
    return text.removeprefix(f"{_DAY}T").removesuffix("Z") if text.startswith(f"{_DAY}T") else text


class Row:
    """A row that came out, or one that is expected: equal to another if all fields that both were given are equal, and
    one of them has no field that the other lacks. `pane` and `row` make them.

    >>> found = row(at="12:00:02", key="a", value=7)
    >>> found["value"], found == row(value=7), found == row(value=8)
    (7, True, False)
    """

    __slots__ = ("_fields", "_kind")

    def __init__(self, kind: str, fields: Mapping[str, Any]) -> None:
        self._kind = kind
        self._fields = dict(fields)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        mine, theirs = self._fields, other._fields
        if self._kind != other._kind or not (mine.keys() <= theirs.keys() or theirs.keys() <= mine.keys()):
            return False
        return all(mine[name] == theirs[name] for name in mine.keys() & theirs.keys())

    __hash__ = None  # type: ignore[assignment]  # rows that are equal to one another need not be equal to a third

    def __repr__(self) -> str:
        shown = dict(self._fields)
        leading = []
        if self._kind == "pane":
            leading = [repr(shown.pop("key")), *(repr(_bound(shown.pop(name))) for name in ("start", "end"))]
            if not shown["retraction"]:
                del shown["retraction"]
            awkward = {name[len(_AGGREGATE) :]: shown.pop(name) for name in self._fields if name.startswith(_AGGREGATE)}
            if awkward:
                shown["aggregates"] = awkward
        fields = [f"{name}={_shown(name, value)!r}" for name, value in shown.items()]
        return f"{self._kind}({', '.join([*leading, *fields])})"

    def _repr_html_(self) -> str:
        return fragment(_table([self]))


def pane(
    key: Any,
    start: Time | None,
    end: Time | None,
    *,
    timing: str | None = None,
    index: int | None = None,
    first: bool | None = None,
    last: bool | None = None,
    event_time: Time | None = None,
    retraction: bool = False,
    aggregates: Mapping[str, Any] | None = None,
    **more: Any,
) -> Row:
    """Make the expected result of a window. Fields that are not given are not compared, but a retraction must be given
    as one.

    Args:
        key: The key; a tuple of several, None of none.
        start: When the window begins; None if it has no bounds.
        end: When it ends.
        timing: EARLY, ON_TIME or LATE.
        index: The number of the pane in its window.
        first: Whether it is the first pane.
        last: Whether it is the last pane.
        event_time: The event time of the result.
        retraction: Whether it retracts an earlier pane.
        aggregates: Those that are called like another argument.
        more: The other aggregates, by name.

    >>> pane("a", "12:00:00", "12:00:10", total=5) == pane("a", "12:00", "12:00:10", total=5, timing="ON_TIME")
    True
    """
    fields = {
        "key": key[0] if isinstance(key, tuple) and len(key) == 1 else key if key != () else None,
        "start": None if start is None else at_time(start, "start of the window"),
        "end": None if end is None else at_time(end, "end of the window"),
        **{f"{_AGGREGATE}{name}" if name in _OWN else name: value for name, value in (aggregates or {}).items()},
        **more,
        "timing": None if timing is None else Timing(timing).value,
        "index": index,
        "first": first,
        "last": last,
        "event_time": None if event_time is None else at_time(event_time, "event_time"),
        "retraction": retraction,
    }
    optional = ("timing", "index", "first", "last", "event_time")
    return Row("pane", {name: value for name, value in fields.items() if value is not None or name not in optional})


def row(**columns: Any) -> Row:
    """Make an expected row of any output, by its columns; `at` is its event time. A late row has `late_reason` and
    `late_by`, a match `match_start` and `match_end`.

    >>> row(at="12:00:02", key="a", value=7) == row(at="12:00:02", key="a")
    True
    """
    fields = dict(columns)
    if fields.get("at") is not None:
        fields["at"] = at_time(fields["at"], "at")
    for name in _ENDS:
        if isinstance(fields.get(name), (str, datetime, int)):
            fields[name] = at_time(fields[name], name)
    if fields.get("late_by") is not None:
        fields["late_by"] = duration(fields["late_by"], what="late_by", bare=True)
    return Row("row", fields)


class Rows(list[Row]):
    """Rows, which a notebook shows as a table.

    >>> Rows([row(n=1)])
    [row(n=1)]
    """

    def _repr_html_(self) -> str:
        return fragment(heading("Rows", f"{len(self):,}"), _table(self))


class Outcome(Rows):
    """The output of a run: the results, in order; `late`, in the order of their times; and the further `outputs`, by
    name.

    >>> found = Outcome([row(n=1)], late=[row(n=2)], outputs={"duplicates": [row(n=3)]})
    >>> found.panes == [row(n=1)], found.late, found.outputs["duplicates"]
    (True, [row(n=2)], [row(n=3)])
    """

    def __init__(
        self, results: Iterable[Row], late: Iterable[Row] = (), outputs: Mapping[str, Sequence[Row]] | None = None
    ) -> None:
        super().__init__(results)
        self.late: list[Row] = Rows(late)
        self.outputs: dict[str, list[Row]] = {name: Rows(rows) for name, rows in (outputs or {}).items()}

    @property
    def panes(self) -> list[Row]:
        """The results."""
        return Rows(self)

    def _repr_html_(self) -> str:
        others = {"late": self.late, **self.outputs}
        folded = [details(f"{name}: {len(rows):,}", _table(rows), shown=True) for name, rows in others.items() if rows]
        return fragment(heading("Results", f"{len(self):,}"), _table(self), *folded)


def _table(rows: Sequence[Row]) -> str:
    """Rows in columns; those that retract an earlier one are crossed out."""
    names = list(dict.fromkeys(name for each in rows for name in each._fields))
    retracted = [bool(each._fields.get("retraction")) for each in rows]
    if not any(retracted):
        names = [name for name in names if name != "retraction"]
    cells = [[_cell(each, name) for name in names] for each in rows]
    return table([name.removeprefix(_AGGREGATE) for name in names], cells, faint=retracted)


def _cell(of: Row, name: str) -> Any:
    value = of._fields.get(name)
    if of._kind == "pane" and name in ("start", "end"):
        return _bound(value)
    return _shown(name, value)


def _bound(time: Instant | None) -> str | None:
    return None if time is None else as_text(time)


def _shown(name: str, value: Any) -> Any:
    if name in ("at", "event_time", *_ENDS) and isinstance(value, int):
        return as_text(value)
    if name == "late_by" and isinstance(value, int):
        return format_duration(value)
    return value


def micros(value: datetime | timedelta | int | None) -> Instant | Duration | None:
    """Times and durations as numbers."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return None if value is None else instant(value)
