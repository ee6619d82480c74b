"""Activity: when something last came to a log. While nothing comes, nothing that is shown gets old."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidewheel.model.time import Instant
from tidewheel.serve.view.log_positions import offset_at
from tidewheel.topic_names import ANALYTICS, INPUT, kind_of
from tidewheel.transport.log.damage import pass_over
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Block, Partition, TopicInfo

__all__ = ["Activity", "active_at", "last_filled"]

_FOLLOWED = (INPUT, ANALYTICS)
_REACH = 1_024


class Activity:
    """Looks at the inputs and results of a log. Markers do not count: a job that waits gives them too."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._ends: dict[Partition, int] = {}
        self._looked = False
        self.last: Instant | None = None
        """When something last came, by the server's clock; None if nothing ever did."""

    def look(self, infos: Iterable[TopicInfo], *, now: Instant) -> None:
        """Look at the log: records since the last look arrived now; for those of the first look, the log knows when."""
        for part, first, end in _parts(infos):
            known = self._ends.get(part, first if self._looked else None)
            if known is not None and first <= known <= end:
                if any(map(_filled, _blocks(self._log, part, known, end))):
                    self.heard(now)
            elif (block := last_filled(self._log, part, first, end)) is not None:
                self.heard(min(now, block.summary.append_time))
            self._ends[part] = end
        self._looked = True

    def heard(self, when: Instant) -> None:
        """Note that something came at that time."""
        self.last = when if self.last is None else max(when, self.last)

    def clock(self, now: Instant) -> Instant:
        """The clock of expiry: it stands still while the log is at rest."""
        return now if self.last is None else min(now, self.last)


def active_at(log: Log, at: Instant) -> Instant:
    """The clock of expiry at an earlier time, from the log."""
    last: Instant | None = None
    for part, first, end in _parts(log.topics()):
        block = last_filled(log, part, first, min(end, offset_at(log, part, at + 1)))
        if block is not None:
            last = max(block.summary.append_time, last or 0)
    return at if last is None else min(at, last)


def last_filled(log: Log, part: Partition, first: int, end: int) -> Block | None:
    """The last block before an offset that holds more than markers, found from behind; None if there is none."""
    reach = _REACH
    while True:
        start = max(first, end - reach)
        found = next(filter(_filled, reversed(_blocks(log, part, start, end))), None)
        if found is not None or start == first:
            return found
        reach *= 8


def _parts(infos: Iterable[TopicInfo]) -> Iterable[tuple[Partition, int, int]]:
    for info in infos:
        if kind_of(info.name) in _FOLLOWED:
            for number, end in enumerate(info.next_offsets):
                yield (info.name, number), info.first_offsets[number], end


def _blocks(log: Log, part: Partition, start: int, end: int) -> Sequence[Block]:
    return log.blocks(*part, start, end=end, on_damage=pass_over) if start < end else []


def _filled(block: Block) -> bool:
    return block.summary.count > len(block.summary.punctuations)
