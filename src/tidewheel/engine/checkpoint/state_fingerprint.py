"""A fingerprint of the query that state belongs to, kept with the state where the checkpoint is the user's own and no
`Checkpoint` guards it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewheel.engine.checkpoint.definition import differences, without_texts
from tidewheel.errors import CheckpointError

__all__ = ["StateFingerprint"]

# 3 knew users' objects by how they are shown, 2 steps by the names of classes; 1, which was not noted, expressions by
# polars' text of them.
_FORMAT = 4


@dataclass(frozen=True)
class StateFingerprint:
    """The number of key groups and a digest of the steps that state was made with: it is meaningless to others. The
    steps themselves are kept once, for error messages. Without steps, nothing is kept that depends on them.

    >>> fingerprint = StateFingerprint.of(8, {"result": {"keys": ["a"]}})
    >>> StateFingerprint.of(8, {"result": {"keys": ["a"]}}).check(fingerprint.to_json())
    """

    key_groups: int
    steps: str | None = None
    definition: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, key_groups: int, definition: Mapping[str, Any]) -> StateFingerprint:
        """Make the fingerprint of the steps of this definition, which JSON can hold."""
        text = json.dumps(without_texts(definition), sort_keys=True)
        return cls(key_groups, hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), definition)

    def to_json(self) -> dict[str, Any]:
        """The JSON that `check` reads."""
        return {"format": _FORMAT, "key_groups": self.key_groups, "steps": self.steps}

    def check(
        self, noted: Mapping[str, Any], definition: Callable[[], Mapping[str, Any] | None] = lambda: None
    ) -> None:
        """Refuse state that was made by a different query; `definition` returns the definition of that query."""
        if noted.get("format", 1) != _FORMAT:
            when = "an earlier" if noted.get("format", 1) < _FORMAT else "a later"
            raise CheckpointError(
                f"the checkpoint's state was written by {when} Tidewheel, and what it was made for is not known; go "
                "on with the Tidewheel that wrote it, or start with a new checkpoint"
            )
        before = noted["key_groups"]
        if before != self.key_groups:
            raise CheckpointError(
                f"the checkpoint's state was made with {before} key groups, and now there are {self.key_groups}: keys "
                f"would not find their state. Say df(key_groups={before}), or set spark.sql.shuffle.partitions to what "
                "it was; or start with a new checkpoint"
            )
        if noted["steps"] != self.steps:
            old, new = definition(), self.definition
            changes = differences(old, new) if old and new else ["steps that keep state became others that keep none"]
            raise CheckpointError(
                f"the checkpoint's state was made by other steps: {'; '.join(changes)}. State cannot be used "
                "with others: use the old steps, or start with a new checkpoint"
            )
