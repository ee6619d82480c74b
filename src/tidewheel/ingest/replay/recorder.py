"""Writing recordings: from any connector, acknowledged only when the disk has the messages."""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

from tidewheel.atomic_file import sync
from tidewheel.errors import DefinitionError, MalformedError, SetupError
from tidewheel.ingest.connector import Connector, Delivered, State
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Processed
from tidewheel.ingest.replay.recording import encode_line
from tidewheel.ingest.replay.segmented_files import compress_for, whole_size
from tidewheel.model.time import Duration, Instant, duration, now
from tidewheel.transport.events.event_pb2 import IngestReport
from tidewheel.transport.log.log_types import Receipt

__all__ = ["Recorder", "RecordingWriter", "record"]

_ENDING: Final = re.compile(r"(?:\.(?:jsonl|ndjson|json))?(?:\.gz|\.zst)?$")


class RecordingWriter:
    """Writes a recording, compressed if its name ends in .gz or .zst. What `append` was given is on the disk when it
    returns, readable whatever happens then.

    An existing recording is continued; an end that was never acknowledged, because its writer died, is cut off first.

    With `rotate_size` (bytes) or `rotate_age` it writes numbered files (`bus.000001.jsonl.gz`, ...), the next one when
    the current one has reached the size or was begun so long ago; a new writer continues with the last.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rotate_size: int | None = None,
        rotate_age: str | timedelta | Duration | None = None,
        clock: Callable[[], Instant] = now,
    ) -> None:
        self._given = Path(path)
        self._rotate_size = rotate_size
        self._rotate_age = None if rotate_age is None else duration(rotate_age, what="rotate_age", bare=True)
        for name, limit in (("rotate_size", rotate_size), ("rotate_age", self._rotate_age)):
            if limit is not None and limit <= 0:
                raise DefinitionError(f"{name} must be above 0, got {limit!r}")
        self._rotates = rotate_size is not None or rotate_age is not None
        self._compress = compress_for(path)
        self._clock = clock
        self._open(self._numbered(max(self._last_number(), 1)) if self._rotates else self._given)

    def append(self, messages: Sequence[Message]) -> None:
        """Write messages, all or none, durable on return."""
        if not messages:
            return
        if self._is_full():
            self._file.close()
            self._open(self._numbered(self._last_number() + 1))
        piece = self._compress(b"".join(encode_line(message) + b"\n" for message in messages))
        try:
            rest = memoryview(piece)
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError:
            # Half a piece in the middle would hide all that follows.
            self._file.truncate(self._size)
            raise
        self._size += len(piece)

    def close(self) -> None:
        """End the recording."""
        self._file.close()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, path: Path) -> None:
        self.path = path
        """The file that is being written."""
        self._began = self._clock()
        # Unbuffered: after a failed write nothing may be left over that a later one would bring along.
        self._file: BinaryIO = open(path, "a+b", buffering=0)  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._size = whole_size(self._file, path)
            self._file.truncate(self._size)
            os.fsync(self._file.fileno())
        except BlockingIOError:
            self._file.close()
            raise SetupError(f"another process is writing the recording {path}; give another file") from None
        except MalformedError as error:
            self._file.close()
            raise MalformedError(f"cannot continue the recording {path}: {error}; move it away") from None
        sync(path.parent)  # the name of a new file, not only what is in it

    def _is_full(self) -> bool:
        if self._size == 0:
            return False
        if self._rotate_size is not None and self._size >= self._rotate_size:
            return True
        return self._rotate_age is not None and self._clock() - self._began >= self._rotate_age

    def _numbered(self, number: int) -> Path:
        stem, ending = self._parts()
        return self._given.with_name(f"{stem}.{number:06d}{ending}")

    def _last_number(self) -> int:
        stem, ending = self._parts()
        pattern = re.compile(re.escape(stem) + r"\.([0-9]{6,})" + re.escape(ending))
        found = (pattern.fullmatch(name) for name in os.listdir(self._given.parent))
        return max((int(match[1]) for match in found if match), default=0)

    def _parts(self) -> tuple[str, str]:
        name = self._given.name
        ending = _ENDING.search(name)
        start = ending.start() if ending else len(name)
        return name[:start], name[start:]


class Recorder:
    """Delivers a connector's messages to a recording (see `Deliver`): a message is acknowledged when it is on disk.
    After a crash of this process a message may be recorded twice, but none is lost."""

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        self._report = IngestReport(source=f"recorder:{writer.path.name}")
        self._sequence = -1
        self._lock = threading.Lock()
        self.state = b""
        """What the connector's last delivery left for the next; of this process only."""

    def report(self) -> IngestReport:
        """Return the totals of this process; its topics are the files."""
        copy = IngestReport()
        copy.CopyFrom(self._report)
        return copy

    def __call__(self, messages: Sequence[Message], *, repeated: int = 0, state: State = None) -> Delivered:
        """Write the messages; returns when the disk has them."""
        with self._lock:
            self._writer.append(messages)
            self._sequence += 1
            self._report.repeated += repeated
            written = {self._writer.path.name: len(messages)} if messages else {}
            for name, count in written.items():
                self._report.received += count
                self._report.topics[name] += count
            if state is not None:
                self.state = state(Processed()) if callable(state) else state
            return Delivered(Receipt(self._sequence), topics=written)


def record(connector: Connector, writer: RecordingWriter, *, stop: threading.Event | None = None) -> IngestReport:
    """Record what a connector brings, until it ends or `stop` is set; returns the totals."""
    recorder = Recorder(writer)
    connector.run(recorder, stop if stop is not None else threading.Event())
    return recorder.report()
