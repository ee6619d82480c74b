"""Files that Tidewheel keeps beside a checkpoint of Spark's: JSON with a checksum, written whole or not at all."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from tidewheel.atomic_file import sync, sync_folder, write_atomically
from tidewheel.errors import CheckpointError

__all__ = ["REMEDY", "check_crc", "read_json", "sync_files", "sync_folder", "write_json"]

REMEDY = (
    "Put back a copy of the checkpoint that is as new as the log; or start with a new checkpoint into topics of its "
    "own (--version NAME, or result.named(...)); or delete the checkpoint and the topics that it wrote (tidewheel "
    "topics TOPIC --delete) and start anew"
)
"""What to do about a checkpoint that cannot go on."""

_CHECKSUM = "checksum"
_MAGIC = b"crc\0"


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Write an object with its checksum, durable on return: readers find the old one or the new one."""
    text = json.dumps({**fields, _CHECKSUM: _checksum(fields)}, indent=2, sort_keys=True)
    write_atomically(path, text.encode())


def sync_files(folder: Path, names: Iterable[str]) -> None:
    """Make files of Spark's durable; those that are not there are passed over."""
    found = [path for path in (folder / name for name in names) if path.exists()]
    for path in found:
        sync(path)
    if found:
        sync_folder(folder)


def read_json(path: Path, *, needs: Collection[str]) -> dict[str, Any] | None:
    """Read what `write_json` wrote, or None if there is no file. Earlier versions wrote no checksums: then it must have
    these fields, at least."""
    try:
        fields = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        raise _damaged(path, "it is not JSON") from None
    if not isinstance(fields, dict):
        raise _damaged(path, "it is no JSON object")
    noted = fields.pop(_CHECKSUM, None)
    if noted is not None and noted != _checksum(fields):
        raise _damaged(path, "its checksum does not match")
    missing = [name for name in needs if name not in fields]
    if missing:
        raise _damaged(path, f"it lacks {missing[0]!r}")
    return fields


def check_crc(path: Path) -> bytes:
    """The bytes of a file of Spark's, checked against the checksums that Hadoop keeps beside it, if it does. They are
    not forced to the disk: after a power failure there may be an empty file, or one of zeros."""
    data = path.read_bytes()
    try:
        sums = path.with_name(f".{path.name}.crc").read_bytes()
    except FileNotFoundError:
        return data
    if not any(sums):
        return data
    chunk = int.from_bytes(sums[4:8], "big")
    if not sums.startswith(_MAGIC) or chunk == 0:
        raise _damaged(path, f"the file of its checksums, .{path.name}.crc, is no such file")
    found = b"".join(zlib.crc32(data[start : start + chunk]).to_bytes(4, "big") for start in range(0, len(data), chunk))
    if found != sums[8:]:
        raise _damaged(path, f"its checksums (.{path.name}.crc) do not match")
    return data


def _checksum(fields: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True).encode()):08x}"


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"the file {path} of the checkpoint is damaged: {why}. {REMEDY}")
