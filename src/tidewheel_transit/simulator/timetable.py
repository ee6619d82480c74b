"""Timetables: which vehicle runs when. Blocks of journeys there and back, more of them at rush hours and few at night.

Each vehicle goes round on one line all day. Its departures are whole minutes that follow from its place in the round,
so a departure is computed, never looked up. Whether it is run depends on the hour: some vehicles run from morning to
night, others only when many are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from tidewheel_transit.simulator.city import MODES
from tidewheel_transit.simulator.network import PATHS_PER_LINE, Network

__all__ = ["BUSIEST", "Departures", "Timetable", "demand", "service_days", "timetable"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_ZONE: Final = "Europe/Helsinki"
_DAY: Final = 86_400
_FIRST: Final = 4 * 3_600 + 1_800
"""The operating day begins at half past four, in seconds after its midnight, and lasts a day."""

# Local time and how much runs then; the mean over the day is 1.
_HOURS: Final = (0, 1, 2, 4, 5, 6, 7, 8 + 5 / 60, 9, 10, 12, 14, 15, 16 + 8 / 60, 17, 18, 19, 20, 21, 22, 23, 24)
_DEMAND: Final = (
    0.46, 0.25, 0.12, 0.15, 0.50, 1.04, 1.42, 1.545, 1.43, 1.30, 1.26, 1.33,
    1.48, 1.605, 1.52, 1.36, 1.17, 1.02, 0.91, 0.80, 0.64, 0.46,
)  # fmt: skip
BUSIEST: Final = max(_DEMAND)

_LAYOVER: Final = 300
_LAYOVER_SHARE: Final = 0.1
_FLEET_OF_A_CITY: Final = 1_150
"""So many vehicles run the lines at good headways; more need another copy of the lines."""


def demand(seconds: Floats) -> Floats:
    """The amount of service, relative to the mean of the day, at so many seconds after the operating day's midnight.

    >>> demand(np.array([3.0, 8.1, 12.0, 16.1]) * 3600).round(2).tolist()
    [0.14, 1.54, 1.26, 1.6]
    """
    result: Floats = np.interp(seconds % _DAY, np.array(_HOURS) * 3_600.0, _DEMAND)
    return result


def service_days(instants: Ints) -> tuple[Ints, Ints]:
    """The operating days at instants (seconds since 1970): their numbers since 1970, and the instants of their
    midnights, that is of twelve hours before noon, so that a day on which the clocks change is like every other.

    >>> days, midnights = service_days(np.array([1_760_000_000]))  # 2025-10-09 11:53:20 in Helsinki
    >>> days.tolist(), (1_760_000_000 - midnights).tolist()
    ([20370], [42800])
    """
    local = pl.Series(instants * 1_000_000).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(_ZONE)
    days = (local.dt.replace_time_zone(None) - timedelta(seconds=_FIRST)).dt.date()
    noons = (days.cast(pl.Datetime("us")) + timedelta(hours=12)).dt.replace_time_zone(_ZONE)
    return days.to_physical().to_numpy().astype(np.int64), noons.dt.epoch("s").to_numpy() - _DAY // 2


class Departures(NamedTuple):
    """Departures of some vehicles."""

    direction: Ints
    """0: there, 1: back."""
    time: Ints
    """Seconds since 1970."""
    day: Ints
    """The operating day, since 1970."""
    start: Ints
    """The minute of the day, which passengers know it by."""
    run: npt.NDArray[np.bool_]
    """Whether it is run: not when few vehicles are needed."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """The blocks of a fleet; arrays are by vehicle."""

    line: Ints
    copy: Ints
    """Which copy of the city's lines it runs on."""
    legs: Ints
    """Two for each vehicle: seconds from a departure there to the next one back, and on to the next one there."""
    phase: Ints
    """Seconds after the operating day's beginning of the first departure."""
    rank: Floats
    """Between 0 and 1: it runs when so much of the fleet is needed."""
    headway: Floats
    """Seconds between the vehicles of its line when all run."""
    rush_hours: bool

    def next_departure(self, vehicle: Ints, direction: Ints, after: Ints) -> Departures:
        """The first departures of these vehicles in a direction at or after instants (seconds since 1970)."""
        round_trip = self.legs[vehicle].sum(axis=1)
        offset = _FIRST + self.phase[vehicle] + direction * self.legs[vehicle, 0]
        days, midnights = service_days(after)
        departure = midnights + offset
        departure += np.maximum(0, -((departure - after) // round_trip)) * round_trip
        over = departure >= midnights + _FIRST + _DAY
        if over.any():
            days[over], midnights[over] = service_days(midnights[over] + _FIRST + _DAY + _DAY // 2)
            departure = np.where(over, midnights + offset, departure)
        return self._departures(vehicle, direction, departure, days, midnights)

    def last_departure(self, at: int) -> Departures:
        """The latest departures of all vehicles at or before an instant; those of an earlier operating day are not
        run."""
        vehicle = np.arange(len(self.line))
        days, midnights = service_days(np.full(len(vehicle), at))
        since = at - midnights - _FIRST - self.phase
        into = since % self.legs.sum(axis=1)
        direction = (into >= self.legs[:, 0]).astype(np.int64)
        departure = at - into + direction * self.legs[:, 0]
        found = self._departures(vehicle, direction, departure, days, midnights)
        return found._replace(run=found.run & (since >= 0))

    def _departures(self, vehicle: Ints, direction: Ints, time: Ints, day: Ints, midnight: Ints) -> Departures:
        middle = time - midnight + self.legs[vehicle, direction] / 2
        return Departures(direction, time, day, (time - midnight) // 60 % 1_440, self._is_run(vehicle, middle))

    def planned_headway(self, vehicle: Ints, seconds_of_day: float) -> Floats:
        """Seconds between the vehicles of their lines at that time of the day."""
        running = float(demand(np.array(seconds_of_day))) / BUSIEST if self.rush_hours else 1.0
        result: Floats = self.headway[vehicle] / running
        return result

    def _is_run(self, vehicle: Ints, seconds: Floats) -> npt.NDArray[np.bool_]:
        if not self.rush_hours:
            return np.ones(len(vehicle), bool)
        result: npt.NDArray[np.bool_] = self.rank[vehicle] < demand(seconds) / BUSIEST
        return result


def timetable(network: Network, vehicles: int, rng: np.random.Generator, *, rush_hours: bool) -> Timetable:
    """Distribute vehicles over the lines, on as many copies of them as needed."""
    legs = _legs(network)
    headways = np.array([MODES[line.mode].headway for line in network.lines])
    copies = -(-vehicles // _FLEET_OF_A_CITY)
    share = np.tile(legs.sum(axis=1) / headways, copies)
    wanted = share * vehicles / share.sum()
    counts = np.floor(wanted).astype(np.int64)
    counts[np.argsort(counts - wanted, kind="stable")[: vehicles - counts.sum()]] += 1

    of_line = np.repeat(np.arange(len(counts)), counts)
    slot = np.arange(vehicles) - np.repeat(np.cumsum(counts) - counts, counts)
    count = counts[of_line]
    line = of_line % len(network.lines)
    phase = (slot * legs[line].sum(axis=1) // count) // 60 * 60
    # The halving order spreads those that run at any hour evenly over the round.
    spread = np.lexsort((_reversed_bits(slot), of_line))
    order = np.empty(vehicles, np.int64)
    order[spread] = slot
    rank = (order + rng.random(len(counts))[of_line]) / count
    headway = legs[line].sum(axis=1) / count
    return Timetable(line, of_line // len(network.lines), legs[line], phase, rank, headway, rush_hours)


def _legs(network: Network) -> Ints:
    seconds = network.path_seconds.reshape(-1, PATHS_PER_LINE)[:, [0, 2]]
    return np.ceil((seconds * (1 + _LAYOVER_SHARE) + _LAYOVER) / 60).astype(np.int64) * 60


def _reversed_bits(values: Ints, bits: int = 16) -> Ints:
    result = np.zeros_like(values)
    for bit in range(bits):
        result |= ((values >> bit) & 1) << (bits - 1 - bit)
    return result
