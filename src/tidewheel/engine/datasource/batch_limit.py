"""The limits on the bytes that a batch reads and that a task holds at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line needs the limit before it needs Arrow
    from tidewheel.transport.log.log_types import Block

__all__ = ["AT_ONCE_BYTES", "MAX_BYTES", "raw_size"]

MAX_BYTES = 256 << 20
"""Bytes of keys and values that a batch reads at most, by default; a larger block is a batch by itself."""

AT_ONCE_BYTES = 64 << 20
"""Bytes of records that a task decodes and works on at a time, however large the batch was planned."""

_RATIO = 4
"""About how much blocks are compressed whose header does not say it."""


def raw_size(block: Block) -> int:
    """The bytes of a block's keys and values when they are read."""
    return block.summary.raw_size or _RATIO * block.size
