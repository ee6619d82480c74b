"""Recordings as the input of a batch: in a log of their own, which is gone when the batch is done."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidewheel.cli.connectors import Account, account_line
from tidewheel.cli.options import ExitCode, opened_log, say
from tidewheel.cli.processors import make_processor
from tidewheel.cli.progress import Stop, run_with_progress
from tidewheel.errors import DefinitionError
from tidewheel.topic_names import DEAD, kind_of

if TYPE_CHECKING:
    from tidewheel.transport.events.event_pb2 import IngestReport
    from tidewheel.transport.log.log import Log

__all__ = ["RecordingInput", "check_recordings", "recording_input"]

_LOOKED_AT = 100  # lines, of which one at least must be a message
_OTHERS = {
    b"SQLite format 3": "It looks like a log: read that with --log, and leave out --input",
    b"PAR1": "It looks like a file of an archive: name the folder of the archive",
}


class RecordingInput:
    """The messages of recordings as records in a log, with counts of what became of them."""

    def __init__(self, log: Log, report: IngestReport) -> None:
        self.log = log
        self._report = report

    def account(self) -> dict[str, Any]:
        """Count the messages: how many there were, and how many are in each topic, filtered by each rule, and dead
        letters of each kind."""
        report = self._report
        parts = {"topics": report.topics, "filtered": report.filtered, "dead": report.dead}
        return {"received": report.received, **{name: dict(sorted(part.items())) for name, part in parts.items()}}

    def write_dead_letters(self, log: Log, topic: str) -> int:
        """Write the dead letters to a topic; return their number."""
        from tidewheel.transport.events.codec import decode_envelopes
        from tidewheel.transport.log.log_types import records

        count = 0
        for info in self.log.topics():
            for number, first in enumerate(info.first_offsets if kind_of(info.name) == DEAD else ()):
                for batch in self.log.read(info.name, number, first):
                    values = batch.records.column("value")
                    log.append(topic, records(values, event_times=decode_envelopes(values).columns["event_time"]))
                    count += len(values)
        return count


def check_recordings(paths: Sequence[Path]) -> None:
    """Refuse files that are not recordings before any of them is read."""
    from tidewheel.ingest.replay.recording import BadLine, read_recording

    for path in paths:
        try:
            found = list(islice(read_recording(path), _LOOKED_AT))
            beginning = path.open("rb").read(16)
        except OSError as error:
            raise DefinitionError(f"the recording {path} cannot be read: {error}") from None
        if not found:
            raise DefinitionError(f"the recording {path} is empty: it has no message")
        bad = [item for item in found if isinstance(item, BadLine)]
        if len(bad) == len(found):
            hint = next((hint for magic, hint in _OTHERS.items() if beginning.startswith(magic)), None)
            raise DefinitionError(
                f"{path} is no recording: {bad[0].place} {bad[0].reason}. "
                + (hint or "A recording has a message as JSON in each line, as tidewheel record writes it")
            )


@contextmanager
def recording_input(
    paths: Sequence[Path], processor: str | None, *, beside: Log, name: str, stop: Stop, as_json: bool
) -> Iterator[RecordingInput]:
    """Process recordings into a temporary log beside this one, with their own event times, and remove that log at the
    end. `name` is the run's name in status lines."""
    from tidewheel.ingest.connector import run_all
    from tidewheel.ingest.pipeline import Pipeline
    from tidewheel.ingest.replay.replay import Replay

    chosen = make_processor(processor)
    replay = Replay(paths, processor=chosen, speed="max")
    with _place(Path(beside.address)) as place, opened_log(place, sync="normal") as log:
        pipeline = Pipeline(log, chosen, source="recording")
        account = Account(pipeline.report)

        def status() -> Mapping[str, Any]:
            return {"job": name, "state": "reading", **account()}

        failures = run_with_progress(
            lambda: run_all([(replay, pipeline)], stop), stop=stop, status=status, line=account_line, as_json=as_json
        )
        say(account_line(account()))
        if failures:
            raise failures[0][1]
        if stop.is_set():
            say(f"{name}: stopped before all was read; nothing was written")
            stop.unfinished()
            raise typer.Exit(ExitCode.FAILED)
        yield RecordingInput(log, pipeline.report())


@contextmanager
def _place(log: Path) -> Iterator[str]:
    """A log in a new folder beside this one, where there is room for events; in place of those that killed commands
    have left."""
    start = f"{log.name}.recording-"
    for old in log.parent.iterdir():
        if old.name.startswith(start):
            with suppress(OSError), open(old / "lock", "r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if the command is still there
                shutil.rmtree(old)
    folder = Path(tempfile.mkdtemp(prefix=start, dir=log.parent))
    try:
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield str(folder / "recording.tw")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
