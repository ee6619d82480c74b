"""A message, as a connector hands it to a processor."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel.model.time import Instant

__all__ = ["Message"]


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it came: where it was published, its bytes, and when it arrived here."""

    topic: str
    payload: bytes
    received_at: Instant
