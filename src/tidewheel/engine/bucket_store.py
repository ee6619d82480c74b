"""The state of a bucket in Spark's state store: frames by name, and one directory of the names."""

from __future__ import annotations

import json
from typing import Any, Protocol

import polars as pl

from tidewheel.engine.frames import from_bytes, to_bytes
from tidewheel.engine.operator import Store
from tidewheel.errors import CheckpointError

__all__ = ["BucketState", "Entries", "MemoryEntries"]

_VERSION = 1
_DIRECTORY = ""
_WORTH_PACKING = 4_096


class Entries(Protocol):
    """What Spark's map state offers."""

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:
        """The value of a key."""

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:
        """Set the value of a key."""

    def removeKey(self, key: tuple[str]) -> None:
        """Forget a key."""


class BucketState:
    """All that is kept for one bucket. Every call of the map is a round trip to Java, so the names are read once,
    writes wait for `save`, and what was written and removed in one batch costs nothing."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        held = entries.getValue((_DIRECTORY,))
        fields: dict[str, Any] = {"version": _VERSION, "names": []} if held is None else json.loads(held[0])
        if fields["version"] != _VERSION:
            raise CheckpointError(
                f"the state is of version {fields['version']}, this Tidewheel reads version {_VERSION}; "
                "use the version that wrote it, or start with a new checkpoint"
            )
        self._names = set(fields["names"])
        self._before = frozenset(self._names)
        self.notes: dict[str, int] = fields.get("notes", {})
        """Numbers kept with the directory."""
        self._notes_before = dict(self.notes)
        self._written: dict[str, pl.DataFrame] = {}

    def store(self, prefix: str) -> Store:
        """The part of it whose names begin so."""
        return _Part(self, prefix)

    def names(self, prefix: str) -> list[str]:
        """The names that begin so, without that beginning, sorted."""
        return sorted(name[len(prefix) :] for name in self._names if name.startswith(prefix))

    def get(self, name: str) -> pl.DataFrame | None:
        """The frame of this name."""
        if name in self._written:
            return self._written[name]
        if name not in self._names:
            return None
        held = self._entries.getValue((name,))
        return None if held is None else from_bytes(bytes(held[0]))

    def put(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a frame."""
        self._names.add(name)
        self._written[name] = frame

    def remove(self, name: str) -> None:
        """Forget a frame."""
        self._names.discard(name)
        self._written.pop(name, None)

    def save(self) -> None:
        """Hand all changes to Spark, which commits them with the batch."""
        for name in sorted(self._before - self._names):
            self._entries.removeKey((name,))
        for name, frame in sorted(self._written.items()):
            data = to_bytes(frame)
            if len(data) >= _WORTH_PACKING:
                data = to_bytes(frame, compression="zstd")
            self._entries.updateValue((name,), (data,))
        if self._names != self._before or self.notes != self._notes_before:
            directory = {"version": _VERSION, "names": sorted(self._names), "notes": self.notes}
            self._entries.updateValue((_DIRECTORY,), (json.dumps(directory).encode(),))


class MemoryEntries:
    """Spark's map state in this process's memory: for input that is read to its end at once, and for tests."""

    def __init__(self) -> None:
        self.values: dict[tuple[str], tuple[bytes]] = {}

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:
        """The value of a key."""
        return self.values.get(key)

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:
        """Set the value of a key."""
        self.values[key] = value

    def removeKey(self, key: tuple[str]) -> None:
        """Forget a key."""
        self.values.pop(key, None)


class _Part:
    """A store of an operator: a part of the bucket's state."""

    def __init__(self, state: BucketState, prefix: str) -> None:
        self._state = state
        self._prefix = prefix

    def names(self) -> list[str]:
        return self._state.names(self._prefix)

    def get(self, name: str) -> pl.DataFrame | None:
        return self._state.get(self._prefix + name)

    def put(self, name: str, frame: pl.DataFrame) -> None:
        self._state.put(self._prefix + name, frame)

    def remove(self, name: str) -> None:
        self._state.remove(self._prefix + name)
