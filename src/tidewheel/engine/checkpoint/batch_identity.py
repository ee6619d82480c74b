"""What a batch of a query is known by: its number, and a digest of the offsets that it lies between.

The number alone does not tell a batch that Spark repeats from another one under the same number, which comes after an
older copy of the checkpoint was put back.

A query that notes every batch, also those that write nothing, shows the opposite as well: results that the checkpoint
knows of and the log does not have, after an older copy of the log was put back.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tidewheel.engine.checkpoint.checkpoint_file import REMEDY, check_crc, sync_files
from tidewheel.errors import CheckpointError
from tidewheel.transport.log.log import Log, Producer

__all__ = ["BatchIdentity", "check_results", "has_written", "producer_name", "wrote_before"]

_VERSION = 1
_REMEMBERED = 100
"""Batches whose digests are kept: as many as Spark keeps the offsets of."""


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """A batch by its number and digest; the digest is None where the checkpoint's offsets cannot be seen."""

    number: int
    digest: str | None = None

    @classmethod
    def of(cls, checkpoint: str | None, number: int) -> BatchIdentity:
        """The batch of this number, as the checkpoint of its query has it."""
        folder = _folder(checkpoint)
        if folder is None:
            return cls(number)
        end = _sources(folder / "offsets" / str(number))
        if end is None:
            return cls(number)
        start = (_sources(folder / "offsets" / str(number - 1)) if number else None) or b""
        return cls(number, hashlib.blake2b(start + b"\0" + end, digest_size=8).hexdigest())

    def is_repeat(self, producer: Producer, checkpoint: str | None) -> bool:
        """Whether this very batch was written before; `CheckpointError` if it was another one of the same number."""
        if self.number > producer.sequence:
            return False
        known = _digests(producer.state).get(self.number)
        if known is None or self.digest is None:
            # Spark repeats only the last batch that it began. Of that one, earlier versions left no digest.
            if self.number == producer.sequence:
                return True
            why = f"the log has batches up to number {producer.sequence} of it"
        elif known == self.digest:
            return True
        else:
            why = "the log has a batch of that number between other offsets"
        raise CheckpointError(
            f"the checkpoint {checkpoint or ''} is older than the results in the log: it gives batch {self.number}, "
            f"and {why}. A copy from earlier was put back, or its last files were lost when the machine went down; to "
            f"go on would lose results. {REMEDY}"
        )

    def make_durable(self, checkpoint: str | None) -> None:
        """Force this batch's offsets, and the commit of the one before, to the disk: the log is to count on them. With
        the first of them also the query's id."""
        folder = _folder(checkpoint)
        if folder is not None:
            if self.number == 0:
                sync_files(folder, ["metadata"])
            sync_files(folder / "offsets", [str(self.number)])
            sync_files(folder / "commits", [str(self.number - 1)])

    def added_to(self, state: bytes, *, wrote: bool = True) -> bytes:
        """The producer's state with this batch. `wrote`: it or one before it has written results."""
        known = {**_digests(state), **({} if self.digest is None else {self.number: self.digest})}
        kept = sorted(known)[-_REMEMBERED:]
        fields = {"version": _VERSION, "batches": {str(number): known[number] for number in kept}, "wrote": wrote}
        return json.dumps(fields).encode()


def has_written(log: Log, checkpoint: str) -> bool:
    """Whether the query of this checkpoint has written results."""
    query = _query(Path(checkpoint))
    return query is not None and wrote_before(log.producer(producer_name(query), fence=False))


def wrote_before(producer: Producer) -> bool:
    """Whether a query has written results. Earlier versions noted no other batches."""
    return producer.sequence >= 0 and bool(_fields(producer.state).get("wrote", True))


def check_results(log: Log, checkpoint: str) -> None:
    """Refuse a checkpoint that knows of batches which the log does not: `CheckpointError`. Its query must note every
    batch in the log."""
    done = max((int(path.name) for path in (Path(checkpoint) / "commits").glob("[0-9]*")), default=-1)
    query = _query(Path(checkpoint))
    if done < 0 or query is None:
        return
    producer = log.producer(producer_name(query), fence=False)
    if producer.sequence < done:
        raise CheckpointError(
            f"the log {log.address} is older than the checkpoint {checkpoint}: it has the results of batches up to "
            f"number {producer.sequence}, and those up to number {done} are done. A copy of the log from earlier "
            f"was put back; to go on would lose their results. {REMEDY}"
        )


def producer_name(query: str) -> str:
    """The producer under whose name a query of Spark's writes."""
    return f"spark:{query}"


def _digests(state: bytes) -> dict[int, str]:
    return {int(number): str(digest) for number, digest in _fields(state).get("batches", {}).items()}


def _fields(state: bytes) -> dict[str, Any]:
    """What a state holds; nothing if it is of a newer version: the numbers still count."""
    try:
        fields: dict[str, Any] = json.loads(state)
        return fields if fields["version"] == _VERSION else {}
    except (ValueError, KeyError, TypeError):
        return {}


def _query(folder: Path) -> str | None:
    """The id of a checkpoint's query; None if it has never started."""
    path = folder / "metadata"
    try:
        return str(json.loads(check_crc(path))["id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"the file {path} of the checkpoint is damaged: it names no query. {REMEDY}") from None


def _folder(checkpoint: str | None) -> Path | None:
    """The checkpoint's folder, if it is one on this machine."""
    if not checkpoint:
        return None
    if checkpoint.startswith("file:"):
        return Path(unquote(urlparse(checkpoint).path))
    return None if "://" in checkpoint else Path(checkpoint)


def _sources(path: Path) -> bytes | None:
    """The sources' offsets in a file of Spark's: after its version and what it notes of time and settings."""
    try:
        data = check_crc(path)
    except FileNotFoundError:
        return None
    return b"\n".join(data.splitlines()[2:])
