"""An archive: topics of a log as Parquet files, by topic and by day and hour of event time.

    city.archive/topic=input.arrival/day=2026-03-02/hour=06/0-000000000000-000000012000.parquet

Columns are those of the events, as decoded, and where each was in the log (`_partition`, `_offset`, `_key`,
`_append_time`). A file's name says which offsets it is from. How far a topic is archived is in its file
`_progress.json`, which is replaced when all files of a step are on disk: what a killed archiver has begun is nothing to
readers, and the next one does it again. So every event is in the archive once.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa

from tidewheel.atomic_file import atomic_writer, write_atomically
from tidewheel.engine.datasource.batch_planner import OffsetRange
from tidewheel.engine.datasource.batch_reader import read_ranges
from tidewheel.engine.datasource.log_history import check_history, known_fingerprints
from tidewheel.engine.datasource.options import ReadOptions
from tidewheel.engine.datasource.reader_function import ReadInfo
from tidewheel.engine.execution.input import type_of
from tidewheel.engine.spark.arrow_schema import arrow_schema
from tidewheel.errors import CheckpointError, DefinitionError
from tidewheel.model.time import now
from tidewheel.transport.log.damage import pass_over
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import TopicInfo

__all__ = ["GROUP", "Archive", "Archiver"]

GROUP = "archive"
"""The consumer group whose positions tell how far archiving is; malformed records are in `dead.archive`."""

_VERSION = 1
_METADATA = ("_partition", "_offset", "_key", "_append_time")
_FILE = re.compile(r"(\d+)-(\d+)-(\d+)\.parquet")
_NO_TIME = "__HIVE_DEFAULT_PARTITION__"  # what readers of such folders take for null


@dataclass(frozen=True, slots=True)
class _Progress:
    """The progress of archiving a topic: the next offset of each partition, and what its files were made from. `topic`
    is the topic's id; old archives do not have it."""

    log: str
    type: str
    positions: Mapping[int, int] = field(default_factory=dict)
    topic: str | None = None
    fingerprints: Mapping[int, str] = field(default_factory=dict)
    """What lay before the positions, where the log could tell."""


class Archive:
    """The files of an archive's folder, for reading.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> folder = tempfile.mkdtemp()
    >>> log = open_log(folder + "/shop.tw")
    >>> receipt = log.append_rows("input.order", [{"amount": 12.5, "ts": "2026-01-31T12:00:00Z"}], time="ts")
    >>> with Archiver.open(log, folder + "/shop.archive", ["input.order"]) as archiver:  # as `tidewheel archive` does
    ...     archiver.step()
    1
    >>> archive = Archive(folder + "/shop.archive")
    >>> archive.topics(), archive.type("input.order"), archive.progress("input.order").positions
    (['input.order'], 'tidewheel.results.Input_Order', {0: 1})
    >>> pl.read_parquet(archive.files("input.order"))["amount"].to_list(), archive.place("input.order").name
    ([12.5], 'topic=input.order')
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    def topics(self) -> list[str]:
        """List the topics that it holds."""
        found = [path.parent.name for path in self.folder.glob("topic=*/_progress.json")]
        return sorted(name.removeprefix("topic=") for name in found)

    def type(self, topic: str) -> str:
        """Return the message type of a topic's events."""
        return self._need(topic).type

    def files(self, topic: str) -> list[str]:
        """List the finished files of a topic."""
        positions = self._need(topic).positions
        return [str(path) for path, partition, end in self._parts(topic) if end <= positions.get(partition, 0)]

    def _need(self, topic: str) -> _Progress:
        progress = self.progress(topic)
        if progress is None:
            there = ", ".join(self.topics()) or "nothing"
            raise DefinitionError(
                f"the archive {self.folder} does not hold the topic {topic!r}; it holds {there}. "
                f"To add it: tidewheel archive {topic} --to {self.folder}"
            )
        return progress

    def progress(self, topic: str) -> _Progress | None:
        """Return the progress of a topic; None if it has not been archived."""
        path = self.place(topic) / "_progress.json"
        if not path.exists():
            return None
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["version"] != _VERSION:
            raise CheckpointError(
                f"{path} is of version {fields['version']}, this Tidewheel reads version {_VERSION}; use the version "
                "that wrote it, or another folder"
            )
        positions = {int(part): end for part, end in fields["positions"].items()}
        before = {int(part): found for part, found in fields.get("fingerprints", {}).items()}
        return _Progress(fields["log"], fields["type"], positions, fields.get("topic"), before)

    def place(self, topic: str) -> Path:
        """Return the folder of a topic."""
        return self.folder / f"topic={topic}"

    def _parts(self, topic: str) -> Iterator[tuple[Path, int, int]]:
        """All files of a topic, finished or not: the partition, and the offset at which each ends."""
        for path in sorted(self.place(topic).glob("day=*/hour=*/*.parquet")):
            found = _FILE.fullmatch(path.name)
            if found is not None:
                yield path, int(found[1]), int(found[3])

    def __repr__(self) -> str:
        return f"Archive({str(self.folder)!r})"


class Archiver:
    """Writes topics of a log to an archive, from where the last one stopped. One at a time."""

    def __init__(self, log: Log, archive: Archive, topics: Sequence[str], *, skip_damaged: bool = False) -> None:
        self._log = log
        self._skip_damaged = skip_damaged
        self._archive = archive
        self._topics = {topic: self._resumed(topic) for topic in topics}

    @classmethod
    @contextmanager
    def open(
        cls, log: Log, folder: str | Path, topics: Sequence[str], *, skip_damaged: bool = False
    ) -> Iterator[Archiver]:
        """Lock the archive, and move aside unfinished files of a killed archiver. `skip_damaged`: skip records whose
        blocks are damaged; `dead.archive` reports them."""
        archive = Archive(folder)
        archive.folder.mkdir(parents=True, exist_ok=True)
        with open(archive.folder / "_lock", "a", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CheckpointError(
                    f"another process writes the archive {archive.folder}; stop it first, or use another folder"
                ) from None
            yield cls(log, archive, topics, skip_damaged=skip_damaged)

    @property
    def lag(self) -> int:
        """The number of records in the topics that are not archived."""
        positions = {
            (topic, partition): progress.positions.get(partition, 0)
            for topic, progress in self._topics.items()
            for partition in range(self._log.topic_info(topic).partitions)
        }
        return sum(self._log.counts(positions).values())

    def step(self, *, limit: int = 200_000) -> int:
        """Archive available records, about `limit` of each partition; returns how many."""
        return sum(self._step(topic, limit) for topic in self._topics)

    def _resumed(self, topic: str) -> _Progress:
        log, archive = self._log, self._archive
        info = log.topic_info(topic)
        progress = archive.progress(topic)
        if progress is None:
            firsts = {part: log.position(topic, part, "earliest") for part in range(info.partitions)}
            progress = _Progress(log.identity, type_of(log, [topic]), firsts, info.id)
        if progress.log != log.identity:
            raise CheckpointError(
                f"{archive.place(topic)} was archived from another log than {log.address!r}: its offsets mean nothing "
                "here. Use another folder"
            )
        self._check(info, progress)
        for path, partition, end in archive._parts(topic):
            if end > progress.positions.get(partition, 0):
                path.unlink()
        return progress

    def _check(self, info: TopicInfo, progress: _Progress) -> None:
        """Offsets are of a topic, not of its name: another one of that name begins at 0 again."""
        beyond = any(end > info.next_offsets[partition] for partition, end in progress.positions.items())
        if progress.topic not in (None, info.id) or (beyond and progress.topic is None):
            raise CheckpointError(
                f"topic {info.name!r} was deleted and created again since it was archived in "
                f"{self._archive.place(info.name)}: its offsets begin again. Use another folder"
            )
        check_history(
            self._log,
            {(info.name, part): end for part, end in progress.positions.items()},
            {(info.name, part): found for part, found in progress.fingerprints.items()},
            ends={(info.name, part): end for part, end in enumerate(info.next_offsets)},
            reader=f"its archive {self._archive.place(info.name)}",
            fix="Restore the log that the archive was made of, or use another folder",
        )

    def _step(self, topic: str, limit: int) -> int:
        progress = self._topics[topic]
        info = self._log.topic_info(topic)
        self._check(info, progress)
        options = ReadOptions(
            log=self._log.address,
            topics=(topic,),
            types={topic: progress.type},
            malformed="dead",
            skip_damaged=self._skip_damaged,
            group=GROUP,
            metadata=_METADATA,
        )
        positions = dict(progress.positions)
        count = 0
        for partition in range(info.partitions):
            start = positions.get(partition, 0)
            on_damage = pass_over if self._skip_damaged else None
            blocks = self._log.blocks(topic, partition, start, limit=limit, on_damage=on_damage)
            if blocks:
                end = blocks[-1].next_offset
                self._write(options, OffsetRange(topic, partition, start, end))
                positions[partition] = end
                count += self._log.counts({(topic, partition): start}, {(topic, partition): end})[topic, partition]
        if count:
            ends = {(topic, partition): end for partition, end in positions.items()}
            before = {part: found for (_, part), found in known_fingerprints(self._log, ends).items()}
            moved = _Progress(progress.log, progress.type, positions, info.id, before)
            self._note(topic, moved)
            self._topics[topic] = moved
            self._log.commit(GROUP, ends)
        return count

    def _write(self, options: ReadOptions, span: OffsetRange) -> None:
        schema = arrow_schema(options.schema())  # type: ignore[arg-type]  # no transform: these are columns
        batches = list(read_ranges(self._log, options, [span], ReadInfo(None, None, now(), 0, 1), schema))
        frame = pl.from_arrow(pa.Table.from_batches(batches, schema=schema))
        assert isinstance(frame, pl.DataFrame)
        time = pl.col("event_time").dt
        placed = frame.with_columns(
            time.strftime("%Y-%m-%d").fill_null(_NO_TIME).alias("__day"),
            time.strftime("%H").fill_null(_NO_TIME).alias("__hour"),
        )
        name = f"{span.partition}-{span.start:012}-{span.end:012}.parquet"
        for (day, hour), part in placed.partition_by("__day", "__hour", as_dict=True, maintain_order=True).items():
            folder = self._archive.place(span.topic) / f"day={day}" / f"hour={hour}"
            folder.mkdir(parents=True, exist_ok=True)
            # A name that begins with a dot is nobody's file yet.
            with atomic_writer(folder / name, hidden=True) as file:
                part.drop("__day", "__hour").write_parquet(file, compression="zstd")

    def _note(self, topic: str, progress: _Progress) -> None:
        path = self._archive.place(topic) / "_progress.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = {
            "version": _VERSION,
            "log": progress.log,
            "type": progress.type,
            "topic": progress.topic,
            "positions": {str(part): end for part, end in sorted(progress.positions.items())},
            "fingerprints": {str(part): found for part, found in sorted(progress.fingerprints.items())},
        }
        write_atomically(path, json.dumps(fields, indent=2).encode())
