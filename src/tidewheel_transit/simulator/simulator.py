"""The simulator: a city's fleet, second by second, and the order in which its messages arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

import tidewheel as tw
from tidewheel_transit.simulator.chunk import Chunk
from tidewheel_transit.simulator.columns import Names
from tidewheel_transit.simulator.disorder import EARLIEST, Disorder
from tidewheel_transit.simulator.fleet import OFF, Fleet
from tidewheel_transit.simulator.network import network
from tidewheel_transit.simulator.reporter import ROW, Reporter
from tidewheel_transit.simulator.service import pass_second
from tidewheel_transit.simulator.timetable import BUSIEST, service_days, timetable

__all__ = ["HIGHEST_RATE", "Simulator"]

Rows = npt.NDArray[np.void]

HIGHEST_RATE: Final = 100_000
_EVENTS_PER_VEHICLE: Final = 1.077
"""A second, with the position among them."""
_SECOND: Final = 1_000_000
_WARM_UP: Final = 5
"""So many seconds before its start the simulator begins, so that messages are under way when it does."""


class Simulator:
    """A city's vehicles, each with a position a second and an event at every stop.

    `rate` is the number of events a second, as the mean of a day: the fleet is as large as that takes. With
    `rush_hours` a day has its peaks (1.6 times the mean, at 08:05 and 16:08 in Helsinki) and its quiet night; without
    them the rate is the same at every hour. The simulation begins at `start`, and the same seed, rate and start give
    the same bytes, however they are cut into chunks.

    >>> simulator = Simulator(seed=7, rate=50, start=1_760_000_000_000_000)
    >>> chunk = next(simulator.chunks(seconds=2.0))
    >>> chunk.frame["event"].mode().to_list()
    ['vp']
    """

    def __init__(self, *, start: tw.time.Instant, seed: int = 7, rate: float = 700.0, rush_hours: bool = True) -> None:
        if not 1 <= rate <= HIGHEST_RATE:
            raise tw.errors.DefinitionError(
                f"rate must be between 1 and {HIGHEST_RATE:,} events a second, got {rate!r}"
            )
        if seed < 0:
            raise tw.errors.DefinitionError(f"seed must be 0 or more, got {seed!r}")
        self.start, self.seed, self.rate, self.rush_hours = start, seed, rate, rush_hours
        self.position = start
        """What arrives before this has been taken."""
        # A generator for each part, so that a change of one leaves the others as they were.
        plans, names, moves, reports, arrivals = (np.random.default_rng([seed, part]) for part in range(5))
        vehicles = max(1, round(rate / _EVENTS_PER_VEHICLE * (BUSIEST if rush_hours else 1.0)))
        schedule = timetable(network(), vehicles, plans, rush_hours=rush_hours)
        self.vehicles = vehicles
        self._names = Names.of(network(), schedule, names)
        self._fleet = Fleet(network(), schedule, moves, start // _SECOND - _WARM_UP)
        self._reporter = Reporter(self._fleet, reports)
        self._disorder = Disorder(vehicles, arrivals, ROW)
        self._under_way = np.empty(0, ROW)
        """Rows that others may still overtake."""
        self._arrived: list[Rows] = []
        """Rows in their final order, not yet taken."""
        self._settled: tw.time.Instant = start - 1
        """All that arrives before this is in `_arrived`, or taken."""
        self._midnight = 0

    def __repr__(self) -> str:
        return f"Simulator(start={self.start}, seed={self.seed}, rate={self.rate}, rush_hours={self.rush_hours})"

    def chunks(self, *, seconds: float = 1.0) -> Iterator[Chunk]:
        """The messages in successive chunks of so many seconds, without end; continues where the last call left off."""
        length = round(seconds * _SECOND)
        if length < 1:
            raise tw.errors.DefinitionError(f"seconds must be above 0, got {seconds!r}")
        while True:
            yield self.advance(self.position + length)

    def advance(self, end: tw.time.Instant) -> Chunk:
        """The messages from the last chunk's end on and before `end`."""
        if end < self.position:
            back, position = tw.time.format_instant(end), tw.time.format_instant(self.position)
            raise tw.errors.DefinitionError(f"cannot go back to {back}: what arrives before {position} is taken")
        while self._settled < end:
            self._step()
        arrived = np.concatenate(self._arrived) if len(self._arrived) > 1 else self._arrived[0]
        first, last = np.searchsorted(arrived["arrival"], [self.position, end])
        self._arrived = [arrived[last:]]
        start, self.position = self.position, end
        return Chunk(start, end, arrived[first:last], self._names)

    def _step(self) -> None:
        """Let one second pass."""
        fleet = self._fleet
        was_active = fleet.doing != OFF
        happenings = pass_second(fleet, self._seconds_of_day(fleet.now + 1))
        rows = self._disorder.arrive(self._reporter.report(was_active, happenings), fleet.now * _SECOND)
        rows = np.concatenate([self._under_way, rows])
        # The next second's events are at this second's end at the earliest.
        self._settled = fleet.now * _SECOND + EARLIEST
        settled = rows["arrival"] < self._settled
        ready, self._under_way = rows[settled], rows[~settled]
        self._arrived.append(ready[np.argsort(ready["arrival"], kind="stable")])

    def _seconds_of_day(self, now: int) -> int:
        if not self._midnight or now % 900 == 0:
            self._midnight = int(service_days(np.array([now]))[1][0])
        return now - self._midnight
