"""Where in a partition a moment of the log's clock is."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from tidewheel.model.time import Instant
from tidewheel.transport.log import Log, Partition

__all__ = ["offset_at"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def offset_at(log: Log, part: Partition, when: Instant) -> int:
    """The offset of the first record that was appended at that moment or after it."""
    return log.position(*part, _EPOCH + timedelta(microseconds=max(0, when)))
