"""Append times of the embedded log, also when the machine's clock was wrong.

A partition's append times never fall: readers find their place by time, and plan batches in its order. So one append
with a clock in 2099 would give every later one that time, too; nothing would ever be old enough for retention. Once the
clock is right again, the times that it gave in the future become the present, which keeps the order. Retention by age,
which would remove everything when the clock leaps ahead, goes by the time before until the clock has proved itself.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tidewheel.model.block_stats import BlockStats
from tidewheel.model.clock_jump import JUMP, is_ahead
from tidewheel.model.time import Duration, Instant, duration, format_duration, format_instant, instant
from tidewheel.transport.log.block_header import encode_header
from tidewheel.transport.sqlite.blocks import blocks_appended_after

__all__ = ["AppendClock", "last_append", "correct_append_times", "proved_clock"]

_TRUSTED_SINCE: Instant = instant("2025-01-01T00:00:00Z")
"""A clock before this is wrong itself (a machine without a battery begins in 1970), and corrects nothing."""
_NEVER_BEFORE: Duration = duration("365 d")
"""How far ahead times must be where nothing before them tells that they are wrong."""

_logger = logging.getLogger(__name__)


class AppendClock:
    """Gives the time of an append, notes when it leaps ahead, and corrects the log when it was wrong."""

    def __init__(self, path: Path, clock: Callable[[], Instant]) -> None:
        self._path = path
        self._clock = clock
        self._warned = False

    def now(self, connection: sqlite3.Connection, *, appends: bool = True) -> Instant:
        """The time for an append in this transaction. What appends nothing says nothing of the time that passed."""
        now = self._clock()
        last = last_append(connection) if appends else None
        if last is None:
            return now
        if is_ahead(now, last):
            connection.executemany(
                "INSERT OR REPLACE INTO property (name, value) VALUES (?, ?)",
                [("jumped_to", now), ("jumped_from", last)],
            )
            _logger.warning(
                "%s: it is %s after the log's last append (%s). If this machine's clock is wrong, set it right: the "
                "log's times are corrected then. Retention by age waits for %s.",
                self._path,
                format_duration(now - last),
                format_instant(last),
                format_duration(JUMP),
            )
        elif is_ahead(last, now):
            corrected = correct_append_times(connection, now)
            if corrected:
                _logger.warning(
                    "%s: the times of %d blocks were up to %s ahead of this machine's clock, and are corrected",
                    self._path,
                    corrected,
                    format_duration(last - now),
                )
            elif not self._warned:
                self._warned = True
                _logger.warning(
                    "%s: this machine's clock (%s) is %s behind the log's last append, and is not believed: what is "
                    "appended gets the last append's time. Set the clock right.",
                    self._path,
                    format_instant(now),
                    format_duration(last - now),
                )
        return now


def last_append(connection: sqlite3.Connection) -> Instant | None:
    """The time of the log's last append."""
    found: Instant | None = connection.execute("SELECT max(last_append) FROM partition").fetchone()[0]
    return found


def proved_clock(connection: sqlite3.Connection, now: Instant) -> Instant:
    """The time that is certain: now, or if the clock leapt ahead a short time ago, the last append's before that."""
    noted = dict(connection.execute("SELECT name, value FROM property WHERE name LIKE 'jumped%'"))
    if "jumped_to" in noted and 0 <= now - noted["jumped_to"] < JUMP:
        return int(noted["jumped_from"])
    return now


def correct_append_times(connection: sqlite3.Connection, now: Instant) -> int:
    """Let what was appended with a clock in the future be appended now; returns how many blocks that were.

    Nothing is changed if it may be this clock that is wrong: the times must have leapt over it.
    """
    parts = connection.execute("SELECT topic, number FROM partition WHERE last_append > ?", (now + JUMP,)).fetchall()
    before, after = _around(connection, now)
    if not parts or after is None or now < _TRUSTED_SINCE or not is_ahead(after, now):
        return 0
    if after - (now if before is None else before) <= (_NEVER_BEFORE if before is None else JUMP):
        return 0
    count = 0
    for topic, partition in parts:
        ahead = blocks_appended_after(connection, topic, partition, now)
        for block in ahead:
            place = block.place._replace(append_time=now)
            corrected = replace(block.header, summary=_appended_at(block.header.summary, now))
            connection.execute(
                "UPDATE block SET append_time = ?, header = ? WHERE topic = ? AND partition = ? AND first_offset = ?",
                (now, encode_header(corrected, place), topic, partition, block.first_offset),
            )
        connection.execute(
            "UPDATE partition SET last_append = ? WHERE topic = ? AND number = ?", (now, topic, partition)
        )
        count += len(ahead)
    connection.execute("DELETE FROM property WHERE name LIKE 'jumped%'")
    return count


def _around(connection: sqlite3.Connection, now: Instant) -> tuple[Instant | None, Instant | None]:
    """The last append time up to now, and the first after it, in the whole log."""
    before, after = connection.execute(
        "SELECT max((SELECT max(append_time) FROM block "
        "WHERE block.topic = partition.topic AND partition = number AND append_time <= ?1)), "
        "min((SELECT min(append_time) FROM block "
        "WHERE block.topic = partition.topic AND partition = number AND append_time > ?1)) FROM partition",
        (now,),
    ).fetchone()
    return before, after


def _appended_at(summary: BlockStats, now: Instant) -> BlockStats:
    """The same records, appended now. How far their times are from that was never counted."""
    limit = now + summary.future_tolerance
    known = (summary.max_event_time, summary.max_plausible, summary.min_event_time)
    plausible = [time for time in known if time is not None and time <= limit]
    return replace(summary, append_time=now, skew={}, max_plausible=max(plausible, default=None))
