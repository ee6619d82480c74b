"""Exact repeats: the same row again, with the same event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidewheel.errors import DefinitionError
from tidewheel.model.columns import TIME
from tidewheel.model.panes import rejection
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant, duration, format_duration

__all__ = ["ExactDuplicates", "ExactDuplicatesReference"]

Row = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class ExactDuplicates:
    """Keep the first row, in the order of arrival, of those that are equal in these columns and in their event time.

    Equal rows have one time, so none has to wait for another: a row is passed on in the batch that brings it, also if
    it is behind the watermark, up to the horizon. So long the rows are remembered, too; what comes later is late. None
    of this depends on how the rows were cut into batches, but for what is late.

    >>> ExactDuplicates(("sensor", "reading"), horizon="1 min")
    ExactDuplicates(('sensor', 'reading'), horizon='1 min')
    """

    stored: ClassVar[StoredFields] = StoredFields("columns", "horizon", micros=("horizon",))

    columns: tuple[str, ...]
    horizon: Duration | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", duration(self.horizon, what="horizon of deduplicate", bare=True))
        if self.horizon_micros < 0:
            raise DefinitionError(
                f"horizon of deduplicate must not be negative, got {format_duration(self.horizon_micros)}"
            )

    @property
    def horizon_micros(self) -> Duration:
        """The horizon in microseconds."""
        return int(self.horizon)

    def __repr__(self) -> str:
        return f"ExactDuplicates({self.columns!r}, horizon={format_duration(self.horizon_micros)!r})"


class ExactDuplicatesReference:
    """The slow and obvious way: one row after the other. Rows have a column `__time` (µs)."""

    def __init__(self, dedup: ExactDuplicates) -> None:
        self.dedup = dedup
        self.watermark: Instant | None = None
        self.seen: set[tuple[Any, ...]] = set()

    def step(
        self, rows: Sequence[Row], *, watermark: Instant | None
    ) -> tuple[list[Row], list[Row], list[tuple[Row, str, Duration | None]]]:
        """Return the rows that are kept, the repeats, and those that are late, with the reason and by how much."""
        kept: list[Row] = []
        repeats: list[Row] = []
        late: list[tuple[Row, str, Duration | None]] = []
        for row in rows:
            time = row[TIME]
            reason, by = rejection(time, self.watermark, lateness=self.dedup.horizon_micros)
            if reason is not None:
                late.append((row, reason, by))
                continue
            values = (time, *(repr(row[name]) for name in self.dedup.columns))  # by repr: NaN is not equal to itself
            (repeats if values in self.seen else kept).append(row)
            self.seen.add(values)
        known = [mark for mark in (self.watermark, watermark) if mark is not None]
        self.watermark = max(known, default=None)
        return kept, repeats, late
