"""A checkpoint as Spark writes one, by a job that does nothing else: for backups at any moment of many batches."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log

PRODUCER = "spark:q"
KEPT = 5


def put(path: Path, text: str) -> None:
    """Spark's way: a file is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.TID1.tmp")
    fresh.write_text(text)
    fresh.rename(path)


class Job:
    """Batches that append what they read, in the order in which Spark does things."""

    def __init__(self, log: Log, folder: Path) -> None:
        self.log = log
        self.folder = folder
        self.checkpoint = Checkpoint(folder)
        self.checkpoint.acquire({"job": folder.name, "log": log.identity})
        self.spark = folder / "spark"
        put(self.spark / "metadata", "{}")
        self.producer = log.producer(PRODUCER)
        self.number = 0

    def batch(self) -> None:
        """One batch."""
        number, state = self.number, self.spark / "state" / "0" / "0"
        self.log.append("input", records([b"event %d" % number]))
        put(self.spark / "offsets" / str(number), json.dumps({"end": self.log.topic_info("input").next_offsets[0]}))
        put(state / f"{number + 1}.changelog", f"changes of {number}" * 200)
        if number % 3 == 0:  # a snapshot: its parts are written in place, before what names them
            for part in range(4):
                (state / "SSTs").mkdir(exist_ok=True)
                (state / "SSTs" / f"{number + 1}-{part}.sst").write_text(f"part {part}" * 500)
            put(state / f"{number + 1}.zip", json.dumps([f"{number + 1}-{part}.sst" for part in range(4)]))
        self.producer.append({"results": records([b"result %d" % number])}, sequence=number)
        put(self.spark / "commits" / str(number), "{}")
        for old in (self.spark / "offsets", self.spark / "commits"):
            (old / str(number - KEPT)).unlink(missing_ok=True)
        gone = number + 1 - KEPT - 3
        for path in [*state.glob(f"{gone}.*"), *(state / "SSTs").glob(f"{gone}-*")]:
            path.unlink()
        self.number += 1


def last_commit(folder: Path) -> int:
    """The last batch that is done: commits of earlier ones are purged, so none can be waited for by its number."""
    return max((int(path.name) for path in (folder / "spark" / "commits").glob("[0-9]*")), default=-1)


def check(log: Log, folder: Path) -> int:
    """A log and a checkpoint that go together; tells the last batch that is done."""
    spark = folder / "spark"
    done = last_commit(folder)
    planned = {int(path.name): json.loads(path.read_text())["end"] for path in (spark / "offsets").glob("[0-9]*")}
    written = log.producer(PRODUCER, fence=False).sequence
    assert done <= written, "what the checkpoint has done is in the log"
    assert written <= max(planned, default=-1), "what the log has of the job is a batch that the checkpoint knows"
    assert written <= done + 1
    assert max(planned.values(), default=0) <= log.topic_info("input").next_offsets[0], (
        "nothing is beyond the log's end"
    )
    state = spark / "state" / "0" / "0"
    if done >= 0:
        assert (state / f"{done + 1}.changelog").exists(), "there is state to go on from"
        assert not (state / f"{done + 2}.changelog").exists()
        snapshots = list(state.glob("*.zip"))
        assert snapshots
        for path in snapshots:
            for part in json.loads(path.read_text()):
                assert (state / "SSTs" / part).stat().st_size == 3_000, "a snapshot has all its parts"
    return done


def killed_at(number: int, function: Callable[[], object], *folders: Path) -> bool:
    """Call a function in a process that is killed (SIGKILL) before its `number`th change of a file in these folders;
    False if it came to its end before."""
    pid = os.fork()
    if pid == 0:
        left = number
        changes = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "open"}

        def watch(event: str, given: tuple[object, ...]) -> None:
            nonlocal left
            if event not in changes or not isinstance(given[0], str | os.PathLike):
                return
            if event == "open" and not (isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)):
                return
            if any(Path(given[0]).is_relative_to(folder) for folder in folders):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        try:
            function()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


if __name__ == "__main__":
    with open_log(sys.argv[1], sync="normal") as opened:
        job = Job(opened, Path(sys.argv[2]))
        while True:
            job.batch()
