"""A running job: progress, graceful stop, and the error that ended it."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.engine.checkpoint.checkpoint_file import REMEDY
from tidewheel.engine.datasource.backfill import SuspendedFlows
from tidewheel.engine.datasource.offset import Offset
from tidewheel.engine.execution.progress import Progress, progress_rows
from tidewheel.engine.execution.watch import watch
from tidewheel.engine.runtime.exchange import attributed
from tidewheel.errors import (
    CheckpointError,
    DamagedLogError,
    DataLossError,
    DefinitionError,
    FlowError,
    JobError,
    LogError,
    MalformedError,
)
from tidewheel.html import counted, fragment, heading, table
from tidewheel.model.time import duration, now, short_instant
from tidewheel.model.watermark_hold import Holder, holders
from tidewheel.threads import ServiceThread, failure_of
from tidewheel.transport.log.damage import DamageCount
from tidewheel.transport.log.log import Log
from tidewheel.transport.topics.held_watermarks import HeldWatermarks

__all__ = ["Progress", "Run", "translate_error", "java_pid"]

_LOOK = 0.02  # seconds between two looks at whether a run has ended
_STATE = "rocksdbSstFileSize"


class Run:
    """A running job. It goes on until `stop`, until an `available_now` run has read everything, or until it fails.

    >>> import tempfile
    >>> import tidewheel as tw
    >>> folder = tempfile.mkdtemp()
    >>> log = tw.open_log(folder + "/city.tw")
    >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7, "speed": 12.5}
    >>> _ = log.append_rows("input.position", [row], time="event_time")
    >>> rows = tw.stream(log, "input.position").select("vehicle", "speed").key_by("vehicle").each_row()
    >>> run = tw.run(rows.named("rows"), log=log, checkpoint=folder + "/state", available_now=True)
    >>> run.wait(timeout=60), run.active, run.failed
    (True, False, {})
    >>> run.progress().events, run.progress().lag
    (1, 0)
    >>> run.watch()  # while it goes on, a line each time that something has changed
    <Run ...
    >>> again = rows.start(results=log.topic("analytics.more"), checkpoint=folder + "/more")  # until it is stopped
    >>> again.stop()
    """

    def __init__(
        self,
        name: str,
        topics: Collection[str],
        log: Log,
        query: StreamingQuery,
        checkpoint: Checkpoint,
        *,
        restart_without_failed: Callable[[PySparkException], StreamingQuery | None] | None = None,
        live: bool = True,
        damaged: DamageCount | None = None,
    ) -> None:
        self.name = name
        self.topics = topics
        self.query = query
        self._restart_without_failed = restart_without_failed
        self._restarting = threading.Lock()
        self._stopping = False
        self._over = threading.Event()
        self._broke: Exception | None = None
        self._log = log
        self._checkpoint = checkpoint
        self._damaged = damaged
        self._live = live
        self._held = HeldWatermarks(log)
        self._counted = -1
        self._events = 0
        self._latest = Progress()
        self._lock = threading.Lock()
        # Spark remembers only the last hundred batches: they must be counted before they are forgotten.
        ServiceThread(self._watch, name=f"progress of {name}").start()

    @property
    def active(self) -> bool:
        """Whether the run is active, also while it restarts without a job that failed."""
        return not self._over.is_set()

    def wait(self, timeout: float | None = None, *, stop_on: Collection[signal.Signals] = ()) -> bool:
        """Wait until the run ends or the timeout passes; return whether it ended. `JobError` if it failed.

        A signal of `stop_on` stops it meanwhile: `run.wait(stop_on={signal.SIGTERM})` finishes the batch at hand and
        returns. As everywhere in Python, only the main thread can ask for signals.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        seen: list[int] = []
        before = {each: signal.signal(each, lambda number, _: seen.append(number)) for each in stop_on}
        try:
            # A look at a flag now and then is all that this thread does: a handler of signals, which interrupts it, may
            # do whatever it likes, even call `stop`. In a call to Java, or holding a lock, it could not.
            while self.active and not seen:
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                time.sleep(_LOOK)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
        if self.active:
            self.stop()
        if self._broke is not None:
            raise self._broke
        return True

    def stop(self, timeout: float = 60.0) -> None:
        """Finish the current batch and end. A batch that takes longer than `timeout` seconds is left unfinished: the
        next run repeats it. May be called from a signal handler."""
        self._stopping = True
        if self.active:
            # In a thread of its own, because the calling one may be interrupted in a call to Java.
            ServiceThread(lambda: self._stop(timeout), name=f"stop of {self.name}").start()
        self.wait()

    def _stop(self, timeout: float) -> None:
        with self._restarting:
            query = self.query  # no other one is begun from here on
        with suppress(Py4JError, ConnectionError):  # Java is gone, and the query with it
            if query.isActive:
                with suppress(OSError):  # a full disk must not keep it from ending
                    self._checkpoint.stop_file.touch()
                deadline = time.monotonic() + timeout
                quiet = 0
                while query.isActive and quiet < 3 and time.monotonic() < deadline:
                    status = query.status
                    idle = not status["isDataAvailable"] and status["message"].startswith("Waiting")
                    quiet = quiet + 1 if idle else 0
                    time.sleep(0.05)
                query.stop()

    @property
    def failed(self) -> Mapping[str, str]:
        """The jobs that failed and were taken out, with the errors. When the run is started again, they resume where
        they stopped."""
        suspended_flows = SuspendedFlows.read(self._checkpoint.backfill_file)
        return {flow: str(fields["reason"]) for flow, fields in suspended_flows.suspended.items()}

    def progress(self) -> Progress:
        """Return the current progress, and commit it to the log, as the consumer group with the job's name."""
        self._latest = self._progress()
        return self._latest

    def watch(self, *, every: str | timedelta = "1 s") -> None:
        """Show its progress until it has ended: in a notebook a table that is kept up to date, elsewhere a line each
        time that something has changed. `JobError` if it failed. An interrupt (Ctrl-C, the notebook's stop button) ends
        the watching, not the run."""
        watch(self, duration(every, what="every"))

    def _progress(self) -> Progress:
        with self._lock:
            last = self._count()
        if last is None:
            return Progress(lag=self._lag({}))
        positions: dict[tuple[str, int], int] = {}
        watermark = clock = None
        held: tuple[Holder, ...] = ()
        for source in last["sources"]:
            offset = _offset(source.get("endOffset"))
            if offset is not None:
                positions.update(offset.positions)
                watermark, clock = offset.watermark, offset.clock
                # What reads to an end waits for nobody: it ends. What runs by the log's clock has no present.
                if self._live and self.active:
                    ahead = 0 if offset.wall is None else offset.clock - offset.wall
                    held = holders(offset.memory, now=now(), ahead=ahead)
        held = tuple(each for each in held if self._has_read_all(each, positions))
        if positions:
            self._log.commit(self.name, positions)
        with self._lock:
            self._held.report(self.name, held, now=now())
        took = float(last.get("durationMs", {}).get("triggerExecution", 0))
        return Progress(
            batches=int(last["batchId"]) + 1,
            events=self._events,
            rate=1_000 * self._records_between(last["sources"]) / took if took else 0.0,
            batch_ms=took,
            lag=self._lag(positions),
            watermark=watermark,
            clock=clock,
            damaged=0 if self._damaged is None else self._damaged(),
            held_by=held,
            state=sum(int(operator.get("customMetrics", {}).get(_STATE, 0)) for operator in last["stateOperators"]),
        )

    def _count(self) -> Mapping[str, Any] | None:
        """Add up what the batches since the last call did; returns the last batch's report."""
        last: Mapping[str, Any] | None = None
        for report in self.query.recentProgress:
            fields = json.loads(report.json)
            if fields["numInputRows"] > 0 and fields["batchId"] > self._counted:
                self._counted = fields["batchId"]
                self._events += self._records_between(fields["sources"])
            last = fields
        return last

    def _watch(self) -> None:
        """Count the batches until the query has ended, however it does: the one thread that waits for Spark."""
        try:
            while not self._ended():
                with suppress(LogError):  # it may be busy; there is a next time
                    self.progress()
            self.progress()
        except (Py4JError, ConnectionError) as error:  # Java is gone, and the query with it
            if not self._stopping:
                self._broke = JobError(
                    f"job {self.name}: Spark ended under it ({str(error).splitlines()[0]}); started again, it goes "
                    "on after the last batch that was finished"
                )
        except BaseException as error:
            self._broke = failure_of(error, of=f"the watch over job {self.name}")
        finally:
            try:
                with suppress(LogError):
                    self._held.report(self.name, (), now=now())
                self._checkpoint.release()
            finally:
                self._over.set()

    def _ended(self) -> bool:
        """Wait a second for the query to end, by itself or by `stop`; returns whether it has. Raises the error of a
        query that failed."""
        query = self.query
        try:
            ended = query.awaitTermination(1)
        except PySparkException as error:
            if self._restarted(query, error):
                return False
            with suppress(LogError):
                self.progress()
            raise translate_error(self.name, error, self._checkpoint) from error
        return bool(ended) and query is self.query

    def _restarted(self, query: StreamingQuery, error: PySparkException) -> bool:
        """Restart the query without the flow that failed; returns whether the others continue."""
        with self._restarting:
            if query is not self.query:
                return True  # somebody else has seen it before
            restart = self._restart_without_failed
            found = None if restart is None or self._stopping else restart(error)
            if found is None:
                return False
            with self._lock:
                self.query = found
            return True

    def _has_read_all(self, holder: Holder, positions: Mapping[tuple[str, int], int]) -> bool:
        """Whether the run has read all of what holds the watermark; else the watermark waits for the run itself."""
        ends = self._log.topic_info(holder.topic).next_offsets
        return positions.get((holder.topic, holder.partition), 0) >= ends[holder.partition]

    def _lag(self, positions: Mapping[tuple[str, int], int]) -> int:
        known = positions or self._log.committed(self.name)
        infos = [self._log.topic_info(topic) for topic in self.topics]
        firsts = {(info.name, number): first for info in infos for number, first in enumerate(info.first_offsets)}
        return sum(self._log.counts({part: known.get(part, first) for part, first in firsts.items()}).values())

    def _records_between(self, sources: Sequence[Mapping[str, Any]]) -> int:
        """The number of records that a batch read, including those that Spark never saw as rows."""
        count = 0
        for source in sources:
            start, end = _offset(source.get("startOffset")), _offset(source.get("endOffset"))
            before = {} if start is None else start.positions
            after = {} if end is None else end.positions
            count += sum(self._log.counts({part: before.get(part, 0) for part in after}, after).values())
        return count

    @property
    def _state(self) -> str:
        """The state of the run, as far as it is known without asking Spark or the log."""
        if self.active:
            return "stopping" if self._stopping else "running"
        return "ended" if self._broke is None else "failed"

    def __repr__(self) -> str:
        latest = self._latest
        numbers = (
            f"{counted(latest.batches, 'batch', 'batches')}, {counted(latest.events, 'event')}, lag {latest.lag:,}"
        )
        watermark = "" if latest.watermark is None else f", watermark {short_instant(latest.watermark)}"
        return f"<Run of {self.name}: {self._state}, {numbers}{watermark}>"

    def _repr_html_(self) -> str:
        rows = [("state", self._state), *progress_rows(self._latest)]
        rows += [] if self._broke is None else [("failure", str(self._broke))]
        return fragment(heading("Run", f"of {self.name}"), table((), rows))


def _offset(given: Any) -> Offset | None:
    return Offset.from_json(json.loads(given) if isinstance(given, str) else given) if given else None


def java_pid(spark: SparkSession) -> int:
    """The process that Spark's Java runs in."""
    java = spark.sparkContext._jvm
    assert java is not None
    return int(java.java.lang.ProcessHandle.current().pid())


_FULL = "No space left on device"
_OURS = re.compile(r"tidewheel\.errors\.(\w+): (.*)")
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (CheckpointError, DamagedLogError, DataLossError, DefinitionError, MalformedError)
}
_KINDS["DamagedBlockError"] = DamagedLogError  # where it is, is in the text
# What Spark, Hadoop and RocksDB say of files of a checkpoint that are not as they were written, or not there.
_DAMAGE = re.compile(
    r"(ChecksumException: .*|(?:RocksDBException: )?Corruption: .*|ZipException: .*|"
    r"\[?CANNOT_LOAD_STATE_STORE\.(?:CANNOT_READ_\w+|CANNOT_FIND_\w+|UNEXPECTED_FILE_SIZE|INVALID_\w+|"
    r"AUTO_SNAPSHOT_REPAIR_FAILED).*)"
)
_STATE_ERROR = re.compile(r"\[?CANNOT_LOAD_STATE_STORE\.\w+.*")
"""It may be damage, or something that passes, such as a lock that was not to be had in time."""


def translate_error(job: str, error: PySparkException, checkpoint: Checkpoint | None = None) -> Exception:
    """Strip the error of a job of the layers that carried it; for a damaged checkpoint name the file, too."""
    text = str(error)
    if _FULL in text:
        return JobError(
            f"job {job}: a disk is full, that of the checkpoint or Spark's temporary one ({_FULL}); make room and "
            "start it again: it goes on after the last batch that was finished"
        )
    ours = _OURS.findall(text)
    if ours:
        name, message = ours[-1]
        if name == FlowError.__name__:
            flow, reason = attributed(message)
            return FlowError(f"job {job}: {message}", flow=flow, reason=reason)
        return _KINDS.get(name, JobError)(f"job {job}: {message}")
    damage, state = _DAMAGE.findall(text), _STATE_ERROR.findall(text)
    if damage or state:
        try:
            if checkpoint is not None:
                checkpoint.check_files(state=True)
        except CheckpointError as found:
            return CheckpointError(f"job {job}: {found}")
    if damage:
        return CheckpointError(
            f"job {job}: a file of the checkpoint is damaged or missing ({damage[-1].strip()}). {REMEDY}"
        )
    lines = [line.strip() for line in text.splitlines() if re.match(r"^\w[\w.]*(Error|Exception): ", line.strip())]
    return JobError(f"job {job} failed: {lines[-1] if lines else text.splitlines()[0]}")
