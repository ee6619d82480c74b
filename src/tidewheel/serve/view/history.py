"""The last hour of results by key: columns in memory, compressed, within a bound.

Rows gather for a while and are then packed: sorted by key into a few buckets, each compressed by itself, so that the
history of a key opens only its bucket of each pack.
"""

from __future__ import annotations

import io
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from tidewheel.model.time import Duration, Instant

__all__ = ["HOUR", "History", "StoredHistory"]

HOUR: Duration = 3_600_000_000
_BUCKETS = 16
_PACK_ROWS = 30_000
_PACK_TIME: Duration = 60_000_000


@dataclass(frozen=True, slots=True)
class _Pack:
    first: Instant
    last: Instant
    rows: int
    buckets: tuple[bytes | None, ...]

    @property
    def size(self) -> int:
        return sum(len(bucket) for bucket in self.buckets if bucket is not None)


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """The stored history of a layer at a moment: the results in event-time order, of one key and time only the last,
    unless it was a retraction. `since` and `until` are event times, both included."""

    packs: tuple[_Pack, ...]
    loose: tuple[pl.DataFrame, ...]

    def of_key(self, key: str, *, since: Instant | None = None, until: Instant | None = None) -> pl.DataFrame:
        """The history of one key."""
        found = [rows.filter(pl.col("@k") == key) for rows in self._frames(_bucket(key))]
        return _in_order(found, since, until)

    def all(self, *, since: Instant | None = None) -> pl.DataFrame:
        """The history of all keys."""
        return _in_order(list(self._frames(None)), since, None)

    def _frames(self, bucket: int | None) -> Iterator[pl.DataFrame]:
        for pack in self.packs:
            for number, data in enumerate(pack.buckets):
                if data is not None and bucket in (None, number):
                    yield pl.read_ipc_stream(io.BytesIO(data))
        yield from self.loose


class History:
    """The prepared rows of the last hour (by arrival), of each layer; all layers together within `limit` bytes.

    >>> history = History(limit=1_000_000)
    >>> rows = pl.DataFrame({"@k": ["a", "b", "a"], "@t": [1, 1, 2], "@arrival": [5, 5, 6], "@back": [False] * 3})
    >>> history.add("layer", rows)
    >>> history.of("layer").of_key("a")["@t"].to_list()
    [1, 2]
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._packs: dict[str, deque[_Pack]] = {}
        self._loose: dict[str, list[pl.DataFrame]] = {}
        self.rows = 0
        """How many there are, packed or not; likewise `packed_rows` and `packed_bytes`."""
        self.packed_rows = 0
        self.packed_bytes = 0

    def add(self, layer: str, rows: pl.DataFrame) -> None:
        """Add rows of a layer, in the order of the log."""
        if not rows.height:
            return
        # Objects (fields of fields) cannot be packed, and are not what is plotted.
        rows = rows.drop([name for name, kind in rows.schema.items() if kind == pl.Object])
        loose = self._loose.setdefault(layer, [])
        loose.append(rows)
        self.rows += rows.height
        reach = int(rows["@arrival"].max()) - int(loose[0]["@arrival"].min())  # type: ignore[arg-type]  # numbers
        if reach >= _PACK_TIME or sum(frame.height for frame in loose) >= _PACK_ROWS:
            self._pack(layer)

    def clear(self, layer: str) -> None:
        """Forget the history of a layer."""
        self.rows -= sum(frame.height for frame in self._loose.pop(layer, []))
        for pack in self._packs.pop(layer, ()):
            self._forget(pack)

    def trim(self, *, now: Instant) -> None:
        """Remove what is older than an hour, and the oldest of the rest until the limit is met."""
        for layer in [*self._loose]:
            if int(self._loose[layer][0]["@arrival"][0]) < now - 2 * _PACK_TIME:  # nothing came that would pack it
                self._pack(layer)
        for packs in self._packs.values():
            while packs and packs[0].last < now - HOUR:
                self._forget(packs.popleft())
        while self.packed_bytes > self._limit:
            oldest = min((packs for packs in self._packs.values() if packs), key=lambda packs: packs[0].first)
            self._forget(oldest.popleft())

    def of(self, layer: str) -> StoredHistory:
        """The current history of a layer. It does not change, so that it can be read while more arrives."""
        return StoredHistory(tuple(self._packs.get(layer, ())), tuple(self._loose.get(layer, ())))

    def _pack(self, layer: str) -> None:
        loose = self._loose.pop(layer)
        # A layer may hold messages of two types: columns that only one has are null in the other.
        rows = pl.concat(loose, how="diagonal_relaxed") if len(loose) > 1 else loose[0]
        arrival = rows["@arrival"]
        keys = rows.select("@k").unique()
        numbers = pl.Series("@bucket", [_bucket(key) for key in keys["@k"].to_list()], pl.UInt8)
        rows = rows.join(keys.with_columns(numbers), on="@k", how="left", maintain_order="left")
        buckets: list[bytes | None] = [None] * _BUCKETS
        for (number,), part in rows.partition_by("@bucket", as_dict=True, include_key=False).items():
            target = io.BytesIO()
            part.sort("@k", maintain_order=True).write_ipc_stream(target, compression="zstd")
            buckets[number] = target.getvalue()
        pack = _Pack(int(arrival.min()), int(arrival.max()), rows.height, tuple(buckets))  # type: ignore[arg-type]
        packs = self._packs.setdefault(layer, deque())
        packs.append(pack)
        if len(packs) > 1 and packs[-2].first > pack.first:  # what came before the server began is read afterwards
            self._packs[layer] = deque(sorted(packs, key=lambda each: each.first))
        self.packed_rows += pack.rows
        self.packed_bytes += pack.size

    def _forget(self, pack: _Pack) -> None:
        self.rows -= pack.rows
        self.packed_rows -= pack.rows
        self.packed_bytes -= pack.size


def _bucket(key: str) -> int:
    return zlib.crc32(key.encode()) % _BUCKETS


def _in_order(frames: list[pl.DataFrame], since: Instant | None, until: Instant | None) -> pl.DataFrame:
    rows = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame(schema=_NONE)
    if since is not None:
        rows = rows.filter(pl.col("@t") >= since)
    if until is not None:
        rows = rows.filter(pl.col("@t") <= until)
    rows = rows.sort("@t", "@arrival", maintain_order=True).unique(["@k", "@t"], keep="last", maintain_order=True)
    return rows.filter(~pl.col("@back"))


_NONE = {"@k": pl.String, "@t": pl.Int64, "@arrival": pl.Int64, "@back": pl.Boolean}
