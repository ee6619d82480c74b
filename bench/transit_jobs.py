"""The ten transit jobs as one query in a process of its own, which tells every few seconds how it is doing."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from bench.processes import residents
from tidewheel.engine.execution.running_query import Run, java_pid
from tidewheel.engine.execution.session import end_spark, session
from tidewheel.engine.jobs.job import Job
from tidewheel.engine.jobs.run import run as run_jobs
from tidewheel.model.time import now
from tidewheel.topic_names import INPUT, kind_of
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log
from tidewheel_transit import jobs as transit

__all__ = ["JOBS", "RUN", "JobsProcess", "Sample"]

JOBS: Final[tuple[Job, ...]] = (
    transit.vehicle_distribution,
    transit.delay_distribution,
    transit.final_stop_distribution,
    transit.flow_direction,
    transit.emergency_stop,
    transit.emergency_stop_sql,
    transit.journeys,
    transit.bunching,
    transit.closing_in,
    transit.geofences,
)
RUN: Final = "transit"
"""What the run is called in the log."""

_SILENCE_SECONDS: Final = 180.0
_QUIET: Final = 3
"""So many looks in a row must find nothing to do before all is taken to be done."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How the run is doing at a moment (`at`, seconds of a clock that does not go back). Sizes are in bytes.

    `came`: records in the input topics, also in those that no job reads. `lag`: records that are not done. `waited`:
    for how many seconds the oldest of them has been in the log. `behind`: how far the watermark is behind the clock, in
    seconds. `workers` are all processes that Java has started. `state`: what Spark says that the state takes in memory;
    `stored`: what the checkpoint takes on disk.
    """

    at: float
    came: int
    lag: int
    waited: float
    behind: float
    batch_ms: float
    batches: int
    events: int
    driver: int
    java: int
    workers: int
    state: int
    stored: int
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def memory(self) -> int:
        """Of all processes."""
        return self.driver + self.java + self.workers


class JobsProcess:
    """Started when made, with the jobs at work when it returns."""

    def __init__(self, address: str, checkpoint: Path, *, period: float) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(address, str(checkpoint), period, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.samples: list[Sample] = []
        try:
            self._sampled()
        except RuntimeError:
            self.kill()
            raise

    def watch(self, seconds: float, look: Callable[[Sample], object] = lambda _: None) -> None:
        """Take samples for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._pipe.poll(left):
                look(self._sampled())

    def drain(self, timeout: float) -> Sample:
        """Until all that is in the log is done; then the run is stopped. The last sample."""
        self._pipe.send(timeout)
        while True:
            found = self._receive()
            if found is None:
                break
            self.samples.append(found)
        self._process.join(60)
        self.kill()
        return self.samples[-1]

    def kill(self) -> None:
        """End it and all that it started at once."""
        assert self._process.pid is not None
        started = residents(self._process.pid)
        self._process.kill()
        self._process.join()
        for process in started:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _sampled(self) -> Sample:
        found = self._receive()
        assert found is not None
        self.samples.append(found)
        return found

    def _receive(self) -> Sample | None:
        if not self._pipe.poll(_SILENCE_SECONDS):
            raise RuntimeError(f"the jobs have reported nothing for {_SILENCE_SECONDS:.0f} s")
        try:
            found = self._pipe.recv()
        except EOFError:
            self._process.join(10)
            raise RuntimeError(f"the process of the jobs ended with {self._process.exitcode}") from None
        if isinstance(found, str):
            raise RuntimeError(f"the jobs failed: {found}")
        assert found is None or isinstance(found, Sample)
        return found


def _work(address: str, checkpoint: str, period: float, pipe: Connection) -> None:
    """What the process does: tells a sample when it has started and then every `period` seconds, until it is told how
    long it may take to finish; then None when it has."""
    try:
        with open_log(address) as log:
            spark = session()
            run = run_jobs(*JOBS, log=log, checkpoint=checkpoint, name=RUN, spark=spark)
            look = _Look(run, log, Path(checkpoint), java_pid(spark))
            pipe.send(look())
            while not pipe.poll(period):
                pipe.send(look())
            deadline = time.monotonic() + float(pipe.recv())
            quiet = 0
            while quiet < _QUIET and time.monotonic() < deadline:
                time.sleep(1)
                sample = look()
                pipe.send(sample)
                quiet = quiet + 1 if sample.lag == 0 else 0
            run.stop()
            pipe.send(look())
            pipe.send(None)
        end_spark()
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
        raise


@dataclass(frozen=True)
class _Look:
    """Takes samples."""

    run: Run
    log: Log
    checkpoint: Path
    java: int

    def __call__(self) -> Sample:
        if not self.run.active:
            self.run.wait()  # raises what broke it
        progress = self.run.progress()
        sizes = residents(os.getpid())
        status = Path("/proc/self/statm").read_text(encoding="utf-8").split()
        moment = now()
        return Sample(
            at=time.monotonic(),
            came=sum(sum(info.next_offsets) for info in self.log.topics() if kind_of(info.name) == INPUT),
            lag=progress.lag,
            waited=(moment - self._oldest(moment)) / 1e6,
            behind=0.0 if progress.watermark is None else (moment - progress.watermark) / 1e6,
            batch_ms=progress.batch_ms,
            batches=progress.batches,
            events=progress.events,
            driver=int(status[1]) * os.sysconf("SC_PAGE_SIZE"),
            java=sizes.get(self.java, 0),
            workers=sum(size for process, size in sizes.items() if process != self.java),
            state=self._state(),
            stored=_stored(self.checkpoint),
            failed=dict(self.run.failed),
        )

    def _oldest(self, moment: int) -> int:
        """When the oldest record came that is not done; now if there is none."""
        found = [moment]
        committed = self.log.committed(self.run.name)
        for topic in self.run.topics:
            for number, first in enumerate(self.log.topic_info(topic).first_offsets):
                position = committed.get((topic, number), first)
                found += [b.summary.append_time for b in self.log.blocks(topic, number, position, limit=1)]
        return min(found)

    def _state(self) -> int:
        reports: list[Any] = [json.loads(report.json) for report in self.run.query.recentProgress[-1:]]
        return sum(int(each["memoryUsedBytes"]) for report in reports for each in report["stateOperators"])


def _stored(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # old versions are cleaned up meanwhile
    return total
