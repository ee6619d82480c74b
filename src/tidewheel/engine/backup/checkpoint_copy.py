"""A copy of a checkpoint's folder that is brought up to date until it shows one moment.

Spark puts its files in place by renaming them, writes the parts of a snapshot of state before the file that names them,
and deletes old versions as it goes. A copy that was made file by file shows no moment at all. But if two looks at the
whole folder show the same files, then that is what it held at every moment between them, and what it holds under a lock
under which no batch can be finished goes with what the log holds.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tidewheel.engine.backup.file_copy import Stamp, copy_file, stamp_of
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.errors import CheckpointError

__all__ = ["CheckpointCopy", "move_paths"]

_TEMPORARY = re.compile(r"\..*\.tmp(\.crc)?")
_OWN_TEMPORARY = re.compile(r"lock|stop|.*\.new")
_SCHEMAS = "_stateSchema/"


class CheckpointCopy:
    """The copy of a checkpoint. Spark's own checkpoints, which no Tidewheel job made, are copied as well."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source = source
        self.target = target
        self.files: dict[str, tuple[int, str]] = {}
        """Of each file its size and SHA-256, by its path in the folder."""
        self._known: dict[str, Stamp] = {}
        self._spark = "spark/" if (source / "tidewheel.json").exists() else ""
        if not self._spark and not (source / "metadata").is_file():
            what = "is no folder" if not source.is_dir() else "holds no checkpoint (neither a job's nor one of Spark's)"
            raise CheckpointError(f"{source} {what}; name the folder that was given to the job as its checkpoint")

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return sum(stamp.size for stamp in self._scan().values())

    def refresh(self, *, progress: Callable[[int], None] | None = None) -> bool:
        """Bring it up to date; True if nothing had changed, so that it shows the moment between this look and the one
        before."""
        found = self._scan()
        if found == self._known:
            return True
        for name in self._known.keys() - found.keys():
            (self.target / name).unlink()
            del self._known[name], self.files[name]
        for name, stamp in found.items():
            if self._known.get(name) == stamp:
                continue
            try:
                self._known[name], size, summed = copy_file(self.source / name, self.target / name, progress=progress)
            except FileNotFoundError:
                if not (self.source / name).exists():  # deleted since: the next look will not find it
                    continue
                raise
            self.files[name] = (size, summed)
        return False

    def await_consistency(self, deadline: float) -> bool:
        """Bring it up to date until it shows one moment; False if that took too long."""
        while not self.refresh():
            if time.monotonic() > deadline:
                return False
        return True

    def _scan(self) -> dict[str, Stamp]:
        found = dict(_walk(self.source, ""))
        commits = f"{self._spark}commits/"
        done = [int(rest) for name in found if name.startswith(commits) and (rest := name[len(commits) :]).isdigit()]
        last = max(done, default=-1)
        return {name: stamp for name, stamp in found.items() if not self._left_out(name, last)}

    def _left_out(self, name: str, last: int) -> bool:
        base = name.rpartition("/")[2]
        if _TEMPORARY.fullmatch(base) or (name == base and self._spark and _OWN_TEMPORARY.fullmatch(name)):
            return True
        # State of a batch that is not done is written while it is copied, and nobody goes on from it.
        return name.startswith(f"{self._spark}state/") and Checkpoint.is_unfinished(base, last)


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, Stamp]]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        if prefix:
            return  # it has just been deleted
        raise CheckpointError(f"the checkpoint {folder} is gone") from None
    for entry in entries:
        if entry.is_dir():
            yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
            continue
        try:
            yield prefix + entry.name, stamp_of(entry.stat())
        except FileNotFoundError:
            continue


def move_paths(copy: Path, folder: Path) -> None:
    """Let the checkpoint in `copy`, which will be at `folder`, name its own files: Spark notes where the schemas of
    state are as whole paths, and would look for them, or even find them, where the checkpoint was."""
    for path in list(copy.rglob("_metadata/v2/[!.]*")):  # without Hadoop's checksums beside them
        operator = path.parents[2]
        head, _, text = path.read_text(encoding="utf-8").partition("\n")
        if not text.startswith("{"):
            continue
        fields = json.loads(text)
        home = folder / operator.relative_to(copy)
        for store in fields.get("stateStoreInfo", []):
            store["stateSchemaFilePaths"] = [
                f"file:{home}/{_SCHEMAS}{old.rpartition(_SCHEMAS)[2]}" if _SCHEMAS in old else old
                for old in store.get("stateSchemaFilePaths", [])
            ]
        moved = f"{head}\n{json.dumps(fields, separators=(',', ':'))}"
        if moved != f"{head}\n{text}":
            path.write_text(moved, encoding="utf-8")
            for sums in (f".{path.name}.crc", f"{path.name}.crc"):  # those of the text before
                path.with_name(sums).unlink(missing_ok=True)
