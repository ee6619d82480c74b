"""The whole chain at work for a while: the simulator, the log, the lookup worker, and all transit jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench.transit_account import Account, accounts
from bench.transit_jobs import JOBS, RUN, JobsProcess, Sample
from bench.trends import slope
from tidewheel.topic_names import INPUT, dead, kind_of
from tidewheel.transport.open_log import open_log
from tidewheel_transit.commands.demo_parts import Part

__all__ = ["RATE", "Outcome", "Soak", "Stretch"]

RATE: Final = 700
"""Events a second of the whole fleet, as the mean of a day: volume factor 1."""

_END_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Stretch:
    """What was seen while events came in at `rate` a second for some time. Its first third is for settling down: growth
    is told from the second third on."""

    rate: float
    samples: Sequence[Sample]

    @property
    def seconds(self) -> float:
        """From the first sample to the last."""
        return self.samples[-1].at - self.samples[0].at

    @property
    def settled(self) -> list[Sample]:
        """The samples from the second third on."""
        return [sample for sample in self.samples if sample.at >= self.samples[0].at + self.seconds / 3]

    @property
    def reached(self) -> float:
        """Events that came in a second: the simulator may be behind what was asked."""
        return (self.samples[-1].came - self.samples[0].came) / self.seconds

    def slope(self, of: Callable[[Sample], float]) -> float:
        """How much something grows a second."""
        return slope([sample.at for sample in self.settled], [of(sample) for sample in self.settled])

    def third(self, number: int, of: Callable[[Sample], float]) -> float:
        """The median in the first (0), the middle or the last third (2)."""
        begin = self.samples[0].at + number * self.seconds / 3
        found = [of(sample) for sample in self.samples if begin <= sample.at <= begin + self.seconds / 3]
        return float(np.median(found))


@dataclass(frozen=True)
class Outcome:
    """What became of all that came in, when all of it was done."""

    came: int
    accounts: Sequence[Account]
    dead: int
    unanswered: int
    """Requests for final stops that got no answer."""


class Soak:
    """The jobs and the lookup worker at work on a log in a folder. Simulated traffic comes when it is asked for."""

    def __init__(self, folder: Path, say: Callable[[str], object], *, period: float = 2.0) -> None:
        self._address = str(folder / "city.tw")
        self._say = say
        self._log = open_log(self._address)
        say("starting the jobs")
        self._jobs = JobsProcess(self._address, folder / "checkpoint", period=period)
        self._worker = Part("ask", "final-stop", "--provider", "simulator", "--log", self._address)

    def __enter__(self) -> Soak:
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.kill()
        self._worker.kill()
        self._log.close()

    def stretch(self, seconds: float, *, rate: float = RATE, warm_up: float = 0.0) -> Stretch:
        """Simulate a fleet in real time, with all of its disorder and repeats; what is seen after the warm-up."""
        length = f"{warm_up + seconds:g}s"
        before = self._came()
        simulator = Part("simulate", "--log", self._address, "--rate", f"{rate:g}", "--steady", "--for", length)
        try:
            self._await_more(simulator, before)
            self._watch(warm_up, rate)
            begun = len(self._jobs.samples)
            self._watch(seconds, rate)
            found = self._jobs.samples[begun:]
            if simulator.wait(_END_SECONDS) != 0:
                raise RuntimeError(f"the simulator did not end in good order: {simulator.said}")
        finally:
            simulator.kill()
        return Stretch(rate, found)

    def catch_up(self, timeout: float) -> None:
        """Until hardly anything is left to do."""
        deadline = time.monotonic() + timeout
        while self._jobs.samples[-1].lag > RATE and time.monotonic() < deadline:
            self._watch(1.0, 0.0)

    def finish(self, timeout: float) -> Outcome:
        """Let the jobs do what came in, stop them, and account for every event."""
        self._say("finishing what came in")
        self._checked(self._jobs.drain(timeout))
        self._worker.stop()
        if self._worker.wait(_END_SECONDS) != 0:
            raise RuntimeError(f"the lookup worker did not end in good order: {self._worker.said}")
        self._say("accounting for every event")
        status, topics = self._worker.status, self._log.topics()
        return Outcome(
            came=self._came(),
            accounts=accounts(self._log, JOBS),
            dead=sum(info.count for info in topics if info.name in (dead(RUN), dead("simulator"))),
            unanswered=int(status["unknown"]) + int(status["failed"]) + int(status["open"]),
        )

    def _watch(self, seconds: float, rate: float) -> None:
        self._jobs.watch(seconds, lambda sample: self._say(_line(self._checked(sample), rate)))

    def _checked(self, sample: Sample) -> Sample:
        if sample.failed:
            raise RuntimeError(f"jobs were taken out: {dict(sample.failed)}")
        if self._worker.code is not None:
            raise RuntimeError(f"the lookup worker ended: {self._worker.said}")
        return sample

    def _came(self) -> int:
        return sum(sum(info.next_offsets) for info in self._log.topics() if kind_of(info.name) == INPUT)

    def _await_more(self, simulator: Part, before: int) -> None:
        """Until events come: what is measured begins with them."""
        while self._came() <= before:
            if simulator.code is not None:
                raise RuntimeError(f"the simulator ended at once: {simulator.said}")
            self._watch(0.2, 0.0)


def _line(sample: Sample, rate: float) -> str:
    return (
        f"{rate:,.0f} events/s: lag {sample.lag:,} ({sample.waited:.1f} s), batch {sample.batch_ms / 1_000:.1f} s, "
        f"{sample.memory / 1e6:,.0f} MB, {sample.batches:,} batches"
    )
