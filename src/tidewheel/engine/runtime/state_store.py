"""The state of a key group in Spark's state store: frames by name, and one directory of the names."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Protocol, cast

import polars as pl

from tidewheel.engine.checkpoint.state_fingerprint import StateFingerprint
from tidewheel.engine.operators.operator import Store
from tidewheel.engine.runtime.arrow_ipc import from_bytes, to_bytes
from tidewheel.errors import CheckpointError

__all__ = ["KeyGroupState", "Entries", "MemoryEntries"]

_VERSION = 2
_DIRECTORY = ""
_STEPS = "state_fingerprint"  # no frame is called so: their names have a slash
_WORTH_PACKING = 4_096
_CACHE_BYTES = 64_000_000


class Entries(Protocol):
    """The interface of Spark's map state."""

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:
        """The value of a key."""

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:
        """Set the value of a key."""

    def removeKey(self, key: tuple[str]) -> None:
        """Remove a key."""


class KeyGroupState:
    """The state of one key group. Every call of the map is a round trip to Java, so the names are read once, writes
    wait for `save`, and what was written and removed in one batch costs nothing. The directory stores a digest of each
    frame: a worker that still has the frame from an earlier batch need not read it again.

    `state_fingerprint`: what the state is made for, where no `Checkpoint` holds that. It is in the directory of every
    key group from its first batch on, and another is refused."""

    def __init__(self, entries: Entries, state_fingerprint: StateFingerprint | None = None) -> None:
        self._entries = entries
        held = entries.getValue((_DIRECTORY,))
        fields: dict[str, Any] = {"version": _VERSION, "names": {}} if held is None else json.loads(held[0])
        if fields["version"] != _VERSION:
            raise CheckpointError(
                f"the state is of version {fields['version']}, this Tidewheel reads version {_VERSION}; "
                "use the version that wrote it, or start with a new checkpoint"
            )
        self._noted: Mapping[str, Any] | None = fields.get("state_fingerprint")
        self._state_fingerprint = self._noted if state_fingerprint is None else state_fingerprint.to_json()
        if state_fingerprint is not None and self._noted is not None:
            state_fingerprint.check(self._noted, self._steps)
        self._definition = (
            None if state_fingerprint is None or self._noted is not None else state_fingerprint.definition
        )
        self._digests: dict[str, str] = dict(fields["names"])
        self._names = sorted(self._digests)
        self._before = dict(self._digests)
        self.notes: dict[str, int] = fields.get("notes", {})
        """Numbers kept with the directory."""
        self._notes_before = dict(self.notes)
        self._written: dict[str, pl.DataFrame] = {}

    def _steps(self) -> Mapping[str, Any] | None:
        """The steps that it was made by."""
        held = self._entries.getValue((_STEPS,))
        return None if held is None else cast("Mapping[str, Any]", json.loads(bytes(held[0])))

    def store(self, prefix: str) -> Store:
        """Return the store of the frames with this prefix."""
        return _Part(self, prefix)

    def names(self, prefix: str) -> list[str]:
        """List the names with this prefix, without it, sorted. The number of other names does not affect the cost."""
        start, length = bisect_left(self._names, prefix), len(prefix)
        end = bisect_right(self._names, prefix, lo=start, key=lambda name: name[:length])
        return [name[length:] for name in self._names[start:end]]

    def get(self, name: str) -> pl.DataFrame | None:
        """The frame of this name."""
        if name in self._written:
            return self._written[name]
        digest = self._digests.get(name)
        if digest is None:
            return None
        frame = _recent.get(digest)
        if frame is None:
            held = self._entries.getValue((name,))
            if held is None:
                raise CheckpointError(f"the state lacks {name!r}, which it should have; the checkpoint is damaged")
            frame = from_bytes(bytes(held[0]))
            _recent.put(digest, frame)
        return frame

    def put(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a frame."""
        if name not in self._digests and name not in self._written:
            insort(self._names, name)
        self._written[name] = frame

    def remove(self, name: str) -> None:
        """Remove a frame."""
        digest, frame = self._digests.pop(name, None), self._written.pop(name, None)
        if digest is not None or frame is not None:
            del self._names[bisect_left(self._names, name)]

    def save(self) -> None:
        """Hand all changes to Spark, which commits them with the batch."""
        for name, frame in sorted(self._written.items()):
            data = to_bytes(frame)
            if len(data) >= _WORTH_PACKING:
                data = to_bytes(frame, compression="zstd")
            digest = hashlib.blake2b(data, digest_size=16).hexdigest()
            if self._before.get(name) != digest:
                self._entries.updateValue((name,), (data,))
            self._digests[name] = digest
            _recent.put(digest, frame)
        for name in sorted(self._before.keys() - self._digests.keys()):
            self._entries.removeKey((name,))
        changed = self._digests != self._before or self.notes != self._notes_before
        if changed or self._state_fingerprint != self._noted:
            directory = {"version": _VERSION, "names": self._digests, "notes": self.notes}
            if self._state_fingerprint is not None:
                directory["state_fingerprint"] = self._state_fingerprint
            if self._definition is not None:  # once: it is needed only to tell what differs
                self._entries.updateValue((_STEPS,), (json.dumps(self._definition).encode(),))
                self._definition = None
            self._entries.updateValue((_DIRECTORY,), (json.dumps(directory, sort_keys=True).encode(),))


class _Recent:
    """A cache of the frames that this process had lately, by the digest of their bytes, up to a size."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._frames: OrderedDict[str, tuple[pl.DataFrame, int]] = OrderedDict()

    def get(self, digest: str) -> pl.DataFrame | None:
        held = self._frames.get(digest)
        if held is None:
            return None
        self._frames.move_to_end(digest)
        return held[0]

    def put(self, digest: str, frame: pl.DataFrame) -> None:
        if digest in self._frames:
            return
        size = int(frame.estimated_size())
        self._frames[digest] = (frame, size)
        self._size += size
        while self._size > self._limit:
            _, (_, gone) = self._frames.popitem(last=False)
            self._size -= gone


_recent = _Recent(_CACHE_BYTES)


class MemoryEntries:
    """Spark's map state in this process's memory: for input that is read to its end at once, and for tests."""

    def __init__(self) -> None:
        self.values: dict[tuple[str], tuple[bytes]] = {}

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:
        return self.values.get(key)

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:
        self.values[key] = value

    def removeKey(self, key: tuple[str]) -> None:
        self.values.pop(key, None)


class _Part:
    """A store of an operator: a part of the key group's state."""

    def __init__(self, state: KeyGroupState, prefix: str) -> None:
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
