"""Count results while they arrive, for commands that show progress."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tidewheel.errors import DataLossError

if TYPE_CHECKING:
    from tidewheel.transport.log.log import Log
    from tidewheel.transport.log.log_types import Partition

__all__ = ["ResultCount"]


class ResultCount:
    """Counts the results that have come into topics since it was made; markers do not count."""

    def __init__(self, log: Log, topics: Sequence[str]) -> None:
        self._log = log
        self._topics = topics
        self._at: dict[Partition, int] = {}
        self._count = 0
        self()
        self._count = 0

    def __call__(self) -> int:
        """Return the number of results so far."""
        for info in self._log.topics():
            for number, end in enumerate(info.next_offsets if info.name in self._topics else ()):
                start = max(self._at.get((info.name, number), 0), info.first_offsets[number])
                if end <= start:
                    continue
                with suppress(DataLossError):  # they have just left by retention, uncounted
                    blocks = self._log.blocks(info.name, number, start, end=end, on_damage=lambda _: None)
                    for block in blocks:
                        self._count += block.summary.count - len(block.summary.punctuations)
                self._at[info.name, number] = end
        return self._count
