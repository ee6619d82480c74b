"""What state was made for: kept beside it where the checkpoint is the user's own, and no `Checkpoint` guards it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tidewheel.errors import CheckpointError

__all__ = ["MadeFor"]


@dataclass(frozen=True)
class MadeFor:
    """State means nothing to another number of buckets, nor to other steps, of which it has a digest. Without steps
    nothing is kept that depends on them.

    >>> MadeFor.of(8, {"result": {"keys": ["a"]}}).check(MadeFor.of(8, {"result": {"keys": ["a"]}}).to_json())
    """

    buckets: int
    steps: str | None = None

    @classmethod
    def of(cls, buckets: int, definition: Mapping[str, Any]) -> MadeFor:
        """For the steps of this definition, which JSON can hold."""
        text = json.dumps(definition, sort_keys=True)
        return cls(buckets, hashlib.blake2b(text.encode(), digest_size=8).hexdigest())

    def to_json(self) -> dict[str, Any]:
        """What `check` reads."""
        return asdict(self)

    def check(self, noted: Mapping[str, Any]) -> None:
        """Refuse state that was made for something else."""
        before = noted["buckets"]
        if before != self.buckets:
            raise CheckpointError(
                f"the checkpoint's state was made with {before} buckets, and now there are {self.buckets}: keys would "
                f"not find their state. Say df(buckets={before}), or set spark.sql.shuffle.partitions to what it was; "
                "or start with a new checkpoint"
            )
        if noted["steps"] != self.steps:
            raise CheckpointError(
                "the checkpoint's state was made by other steps: another input or time, other preparing steps, keys, "
                "windows, trigger, mode, aggregates or pattern, or another name (their digest was "
                f"{noted['steps']} and is {self.steps}). State cannot go on with others: use the steps of before, or "
                "start with a new checkpoint"
            )
