"""A batch's offset: positions, watermark, clock.

When a batch is planned, its positions, its watermark and its clock are decided together and become one JSON object,
which Spark checkpoints. A batch that is run again therefore sees the same records, watermark and clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidewheel.errors import CheckpointError
from tidewheel.model.time import Instant
from tidewheel.transport.log.log_types import Partition

__all__ = ["CatchUp", "Offset"]

_T = TypeVar("_T")
_VERSION = 2


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a batch: next offsets, watermark, clock, and the state of the watermark strategies."""

    log: str
    positions: Mapping[Partition, int]
    clock: Instant
    watermark: Instant | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    catch_ups: Mapping[str, CatchUp] = field(default_factory=dict)
    """Flows that are behind the others, by the name of their catch-up, and what this batch gives them."""
    ended_catch_ups: tuple[str, ...] = ()
    """The catch-ups that there were: each is begun once."""
    topics: Mapping[str, str] = field(default_factory=dict)
    """The ids of the topics that the positions are of; those of offsets from before there were ids are not known."""
    fingerprints: Mapping[Partition, str] = field(default_factory=dict)
    """What lay before the positions, where the log could tell (see `Log.fingerprints`)."""
    wall: Instant | None = None
    """The right clock, where `clock` goes on from what a wrong one once was."""

    def to_json(self) -> dict[str, Any]:
        """Write it as JSON, as Spark checkpoints it."""
        return {
            "version": _VERSION,
            "log": self.log,
            "positions": _by_topic(self.positions),
            "watermark": self.watermark,
            "clock": self.clock,
            "memory": dict(self.memory),
            **(
                {"catch_ups": {name: catch_up.to_json() for name, catch_up in self.catch_ups.items()}}
                if self.catch_ups
                else {}
            ),
            **({"ended_catch_ups": list(self.ended_catch_ups)} if self.ended_catch_ups else {}),
            **({"topics": dict(sorted(self.topics.items()))} if self.topics else {}),
            **({"fingerprints": _by_topic(self.fingerprints)} if self.fingerprints else {}),
            **({"wall": self.wall} if self.wall is not None else {}),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Offset:
        """Read it from the JSON that Spark checkpointed."""
        version = fields.get("version")
        if version != _VERSION:
            raise CheckpointError(
                f"the checkpoint holds offsets of version {version}, this Tidewheel reads version {_VERSION}; "
                "use the version that wrote it, or start with a new checkpoint"
            )
        return cls(
            log=fields["log"],
            positions=_by_partition(fields["positions"]),
            clock=fields["clock"],
            watermark=fields["watermark"],
            memory=fields["memory"],
            catch_ups={name: CatchUp.from_json(catch_up) for name, catch_up in fields.get("catch_ups", {}).items()},
            ended_catch_ups=tuple(fields.get("ended_catch_ups", ())),
            topics=fields.get("topics", {}),
            fingerprints=_by_partition(fields.get("fingerprints", {})),
            wall=fields.get("wall"),
        )


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The progress of resumed flows through what they missed: from `start` to `end` in this batch. `done`: they have
    caught up and continue with the others."""

    flows: tuple[str, ...]
    start: Offset
    end: Offset
    done: bool

    def to_json(self) -> dict[str, Any]:
        """Write it as JSON, as Spark checkpoints it."""
        return {
            "flows": list(self.flows),
            "start": self.start.to_json(),
            "end": self.end.to_json(),
            "done": self.done,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> CatchUp:
        """Read it from the JSON that Spark checkpointed."""
        return cls(
            tuple(fields["flows"]),
            Offset.from_json(fields["start"]),
            Offset.from_json(fields["end"]),
            bool(fields["done"]),
        )


def _by_topic(values: Mapping[Partition, _T]) -> dict[str, dict[str, _T]]:
    found: dict[str, dict[str, _T]] = {}
    for (topic, partition), value in sorted(values.items(), key=lambda item: item[0]):
        found.setdefault(topic, {})[str(partition)] = value
    return found


def _by_partition(values: Mapping[str, Mapping[str, _T]]) -> dict[Partition, _T]:
    return {(topic, int(number)): value for topic, numbers in values.items() for number, value in numbers.items()}
