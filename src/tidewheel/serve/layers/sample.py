"""A sample: the results of a topic from which its layer is made."""

from __future__ import annotations

import logging

import polars as pl

from tidewheel.errors import LogError
from tidewheel.serve.view.decode import Decoder
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.log.damage import pass_over
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import TopicInfo

__all__ = ["Sample"]

_logger = logging.getLogger(__name__)
_BLOCKS = 20
_ROWS = 200
_REACH = 4_096


class Sample:
    """Some rows of each of the last few blocks. It grows with the topic: one that began with the first block ends as if
    it had begun later."""

    def __init__(self, log: Log, registry: TypeRegistry) -> None:
        self._log = log
        self._decode = Decoder(registry)
        self._at: dict[int, int] = {}
        self._frames: list[pl.DataFrame] = []
        self._seen = 0

    @property
    def full(self) -> bool:
        """Whether there is enough of it to infer a layer."""
        return len(self._frames) >= _BLOCKS

    @property
    def rows(self) -> pl.DataFrame:
        """The results so far, of the type that the last of them has; none if none could be decoded."""
        if not self._frames:
            return pl.DataFrame()
        kind = self._frames[-1].schema
        return pl.concat([frame for frame in self._frames if frame.schema == kind])

    def grow(self, info: TopicInfo) -> bool:
        """Look at what has come to the topic since the last time; returns whether there was a result, or what should
        have been one."""
        before = self._seen
        for number, end in enumerate(info.next_offsets):
            try:
                self._read(info, number, end)
            except LogError as error:  # it left while it was read: the next time there is another beginning
                _logger.info("%s: %s", info.name, error)
                self._at.pop(number, None)
        return self._seen > before

    def _read(self, info: TopicInfo, number: int, end: int) -> None:
        start = self._at.get(number)
        if start is None:
            start = self._beginning(info.name, number, info.first_offsets[number], end)
        if start < end:
            for batch in self._log.read(info.name, number, start, end=end, on_damage=pass_over):
                found = self._decode(batch)
                self._frames = [*self._frames, *(frame.tail(_ROWS) for frame in found.frames)][-_BLOCKS:]
                self._seen += len(found.frames) + found.bad
        self._at[number] = end

    def _beginning(self, topic: str, number: int, first: int, end: int) -> int:
        """The start of the last few blocks that hold more than a marker, searched from the end: jobs that seldom find
        something write many blocks with nothing else."""
        reach = _REACH
        while True:
            start = max(first, end - reach)
            blocks = self._log.blocks(topic, number, start, end=end, on_damage=pass_over) if start < end else []
            filled = [block.first_offset for block in blocks if block.summary.count > len(block.summary.punctuations)]
            if len(filled) >= _BLOCKS or start == first:
                return max(first, filled[-_BLOCKS:][0]) if filled else end
            reach *= 8
