"""The progress of a run, as numbers and as text."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel.html import fragment, table
from tidewheel.model.time import Duration, Instant, approximate_duration, now, short_instant
from tidewheel.model.watermark_hold import Holder, hold_text

__all__ = ["Progress", "progress_rows"]


@dataclass(frozen=True, slots=True, repr=False)
class Progress:
    """The progress of a run. `rate`: events per second in the last batch, which took `batch_ms`. `lag`: records in the
    input topics that it has not finished. `watermark` and `clock` are in microseconds since 1970; they are displayed as
    times. `held_by`: the input partitions that hold the watermark, if it has not moved for a while. `state`: bytes in
    the files of Spark's state store, as of its last snapshot.

    >>> Progress(batches=3, events=1_200, rate=400.0, batch_ms=750.0, watermark=60_000_000, clock=61_500_000)
    Progress(batches=3, events=1,200, rate=400/s, batch=750 ms, lag=0, watermark=1970-01-01T00:01:00Z, behind=1.5 s)
    """

    batches: int = 0
    events: int = 0
    rate: float = 0.0
    batch_ms: float = 0.0
    lag: int = 0
    watermark: Instant | None = None
    clock: Instant | None = None
    state: int = 0
    damaged: int = 0
    """Records that it went on without, because their blocks are damaged (`skip_damaged`)."""
    held_by: tuple[Holder, ...] = ()

    @property
    def behind(self) -> Duration | None:
        """How far the watermark was behind the clock of the last batch, in microseconds.

        >>> Progress(watermark=60_000_000, clock=61_500_000).behind
        1500000
        """
        return None if self.watermark is None or self.clock is None else self.clock - self.watermark

    def __repr__(self) -> str:
        shown = [
            ("batches", f"{self.batches:,}"),
            ("events", f"{self.events:,}"),
            ("rate", f"{self.rate:,.0f}/s"),
            ("batch", _took(self.batch_ms)),
            ("lag", f"{self.lag:,}"),
            ("watermark", "none yet" if self.watermark is None else short_instant(self.watermark)),
        ]
        shown += [] if self.behind is None else [("behind", approximate_duration(self.behind))]
        shown += [("state", _bytes(self.state))] if self.state else []
        shown += [("damaged", f"{self.damaged:,}")] if self.damaged else []
        shown += [("held_by", ", ".join(each.place for each in self.held_by))] if self.held_by else []
        return f"Progress({', '.join(f'{name}={text}' for name, text in shown)})"

    def _repr_html_(self) -> str:
        return fragment(table((), progress_rows(self)))


def progress_rows(progress: Progress) -> list[tuple[str, str]]:
    """Format progress as pairs of name and text."""
    behind = "" if progress.behind is None else f" ({approximate_duration(progress.behind)} behind the clock)"
    watermark = "none yet" if progress.watermark is None else short_instant(progress.watermark) + behind
    rows = [
        ("batches", f"{progress.batches:,}"),
        ("events", f"{progress.events:,}"),
        ("last batch", f"{_took(progress.batch_ms)}, {progress.rate:,.0f} events/s"),
        ("lag", f"{progress.lag:,} records not finished"),
        ("watermark", watermark),
        ("state", _bytes(progress.state)),
    ]
    rows += [("damaged", f"{progress.damaged:,} records left out")] if progress.damaged else []
    rows += [("waits", hold_text(progress.held_by, now=now()))] if progress.held_by else []
    return rows


def _took(batch_ms: float) -> str:
    return approximate_duration(round(batch_ms * 1_000))


def _bytes(size: int) -> str:
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= length:
            return f"{size / length:.1f} {unit}"
    return f"{size} bytes"
