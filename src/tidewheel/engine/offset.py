"""The offset of a batch: all time is in it.

When a batch is planned, its positions, its watermark and its clock are decided together and become one JSON object,
which Spark checkpoints. A batch that is run again therefore sees the same records, watermark and clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewheel.errors import CheckpointError
from tidewheel.model.time import Instant
from tidewheel.transport.log import Partition

__all__ = ["Offset"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a batch ends: next offsets, watermark, clock, and the watermark strategies' memory."""

    log: str
    positions: Mapping[Partition, int]
    clock: Instant
    watermark: Instant | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What Spark keeps."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), position in sorted(self.positions.items()):
            topics.setdefault(topic, {})[str(partition)] = position
        return {
            "version": _VERSION,
            "log": self.log,
            "positions": topics,
            "watermark": self.watermark,
            "clock": self.clock,
            "memory": dict(self.memory),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Offset:
        """What Spark kept."""
        version = fields.get("version")
        if version != _VERSION:
            raise CheckpointError(
                f"the checkpoint holds offsets of version {version}, this Tidewheel reads version {_VERSION}; "
                "use the version that wrote it, or start with a new checkpoint"
            )
        return cls(
            log=fields["log"],
            positions={
                (topic, int(partition)): position
                for topic, partitions in fields["positions"].items()
                for partition, position in partitions.items()
            },
            clock=fields["clock"],
            watermark=fields["watermark"],
            memory=fields["memory"],
        )
