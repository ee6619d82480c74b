"""The reporter: what the vehicles' equipment makes of a second: rows of noisy positions and events."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tidewheel_transit.simulator.fleet import OFF, STANDING, Bools, Fleet, Floats, Happenings, Ints
from tidewheel_transit.simulator.network import EVENT_CODES, degrees
from tidewheel_transit.topics import EVENTS

__all__ = ["END_OF_LINE", "LOCATIONS", "NO_DELAY", "NOTHING", "ROW", "Reporter"]

ROW: Final = np.dtype(
    [
        ("arrival", np.int64),
        ("event_time", np.int64),
        ("vehicle", np.int32),
        ("event", np.int8),
        ("journey", np.int32),
        ("day", np.int32),
        ("start", np.int16),
        ("stop", np.int32),
        ("next_stop", np.int32),
        ("lat", np.float64),
        ("lon", np.float64),
        ("speed", np.float32),
        ("acc", np.float32),
        ("heading", np.int16),
        ("delay", np.int32),
        ("odometer", np.int32),
        ("doors", np.int8),
        ("location", np.int8),
        ("upcoming", np.bool_),
        ("level", np.int8),
        ("scheduled", np.int64),
        ("extra", np.int32),
        ("held", np.bool_),
    ]
)
"""A message in the making. Times are microseconds since 1970; `journey` is the path of the journey; `day` counts from
1970, `start` is the minute of the day; `extra` is the halt of a light. What is missing is NaN or NOTHING."""

NOTHING: Final = -1
END_OF_LINE: Final = -2
NO_DELAY: Final = np.iinfo(np.int32).min
LOCATIONS: Final = ("GPS", "ODO", "N/A")
_GPS, _ODO, _UNKNOWN = range(3)

_DEP: Final = EVENT_CODES["dep"]
_VP: Final = EVENT_CODES["vp"]
_AT_STOP: Final = np.array(["scheduled_arrival" in home.message.DESCRIPTOR.fields_by_name for home in EVENTS.values()])
_DRIFT: Final = 0.97
_NOISE: Final = 0.5
"""Of a position, in metres a second; with the drift it comes to about 2 m."""
_LOST: Final = 0.0015
"""How probable it is that a position is not known."""
_HOLDING: Final = 0.12
"""So much of the fleet keeps its messages in a tunnel and sends them afterwards; the rest send them without a place."""
_UNSCHEDULED: Final = 0.08
"""So much of the fleet does not send the timetable's times."""
_SECOND: Final = 1_000_000


class Reporter:
    """The equipment of all vehicles."""

    def __init__(self, fleet: Fleet, rng: np.random.Generator) -> None:
        self._fleet = fleet
        self._rng = rng
        count = fleet.count
        self._phase = rng.integers(0, 1_000, count) * 1_000
        self._holds = rng.random(count) < _HOLDING
        self._unscheduled = rng.random(count) < _UNSCHEDULED
        self._odometer_error = rng.normal(1.0, 0.004, count)
        self._east = rng.normal(0.0, 2.0, count)
        self._north = rng.normal(0.0, 2.0, count)
        self._lat = np.full(count, -1)
        self._lon = np.full(count, -1)
        self._next_stop = np.full(count, NOTHING)

    def report(self, was_active: Bools, happenings: Happenings) -> npt.NDArray[np.void]:
        """Make the rows of this second: first every vehicle's position, then what else happened; arrivals are not
        set."""
        fleet = self._fleet
        vehicle = np.flatnonzero(was_active | (fleet.doing != OFF))
        positions = self._positions(vehicle)
        if not happenings.vehicle:
            return positions
        slots = np.empty(fleet.count, np.int64)
        slots[vehicle] = np.arange(len(vehicle))
        others = self._others(positions, slots, happenings)
        return np.concatenate([positions, others])

    def _positions(self, vehicle: Ints) -> npt.NDArray[np.void]:
        fleet, rng, network = self._fleet, self._rng, self._fleet.network
        count = len(vehicle)
        path, metres, now = fleet.path[vehicle], fleet.metres[vehicle], fleet.now
        signed, standing, goal = fleet.signed[vehicle], fleet.doing[vehicle] == STANDING, fleet.goal[vehicle]
        tunnel = network.path_tunnel[path]
        underground = signed & (metres > tunnel[:, 0]) & (metres < tunnel[:, 1])
        holds = underground & self._holds[vehicle]
        lost = rng.random(count) < _LOST

        rows = np.empty(count, ROW)
        rows["event_time"] = now * _SECOND + self._phase[vehicle]
        rows["vehicle"] = vehicle
        rows["event"] = _VP
        rows["journey"] = np.where(signed, path, NOTHING)
        rows["day"] = fleet.day[vehicle]
        rows["start"] = fleet.start[vehicle]
        at_stop = standing & signed
        rows["stop"] = np.where(at_stop, network.halt_stop[goal], NOTHING)
        ended = at_stop & (goal == fleet.last_halt(vehicle))
        rows["next_stop"] = np.where(ended, END_OF_LINE, np.where(signed, network.halt_next_stop[goal], NOTHING))
        self._measure(rows, vehicle, unknown=(underground & ~holds) | lost)
        rows["location"] = np.where(lost, _UNKNOWN, np.where(underground, _ODO, _GPS))
        rows["delay"] = np.where(signed, fleet.delay[vehicle], NO_DELAY)
        rows["odometer"] = fleet.odometer[vehicle] * self._odometer_error[vehicle]
        rows["doors"] = (fleet.open_at[vehicle] <= now) & (now < fleet.close_at[vehicle])
        rows["upcoming"] = at_stop & (now < fleet.wait_at[vehicle]) & (metres == 0.0)
        rows["scheduled"] = NOTHING
        rows["extra"] = NOTHING
        rows["held"] = holds
        return rows

    def _measure(self, rows: npt.NDArray[np.void], vehicle: Ints, *, unknown: Bools) -> None:
        """Place, speed and heading as the instruments have them."""
        fleet, rng, count = self._fleet, self._rng, len(vehicle)
        speed, change = fleet.speed[vehicle], fleet.change[vehicle]
        moving = speed > 0.0
        for drift in (self._east, self._north):
            drift[vehicle] = _DRIFT * drift[vehicle] + np.where(moving, _NOISE, 0.1) * rng.standard_normal(count)
        x, y, heading = fleet.network.place(fleet.path[vehicle], fleet.metres[vehicle])
        lat, lon = degrees(x + self._east[vehicle], y + self._north[vehicle])
        lat, lon = np.rint(lat * 1e6) / 1e6, np.rint(lon * 1e6) / 1e6
        rows["level"] = self._level(vehicle, lat, lon, rows["next_stop"], unknown)
        rows["lat"] = np.where(unknown, np.nan, lat)
        rows["lon"] = np.where(unknown, np.nan, lon)
        shaken = np.where(moving, rng.normal(0.0, 0.05, count), 0.0)
        blind = unknown & (rng.random(count) < 0.3)
        rows["speed"] = np.where(blind, np.nan, np.round(np.maximum(speed + shaken, 0.0), 2))
        noisy_change = np.where(moving, change + rng.normal(0.0, 0.03, count), change)
        rows["acc"] = np.where(blind, np.nan, np.round(noisy_change, 2) + 0.0)
        heading = np.rint(heading + np.where(moving, rng.normal(0.0, 2.0, count), 0.0)) % 360.0
        rows["heading"] = np.where(blind, NOTHING, heading)

    def _level(self, vehicle: Ints, lat: Floats, lon: Floats, next_stop: Ints, unknown: Bools) -> Ints:
        """The first digit of the coordinates that has changed since the last message; 0 also if the rest of the topic
        has, or if there are no coordinates."""
        level = np.full(len(vehicle), 5)
        digits = [(np.floor(lat * 1e5).astype(np.int64), self._lat), (np.floor(lon * 1e5).astype(np.int64), self._lon)]
        for now, before in digits:
            for digit in (4, 3, 2, 1, 0):
                unit = 10 ** (5 - digit)
                changed = now // unit != before[vehicle] // unit
                level = np.where(changed, np.minimum(level, digit), level)
            before[vehicle] = np.where(unknown, -1, now)
        level[unknown | (self._next_stop[vehicle] != next_stop)] = 0
        self._next_stop[vehicle] = next_stop
        return level

    def _others(self, positions: npt.NDArray[np.void], slots: Ints, happenings: Happenings) -> npt.NDArray[np.void]:
        """The rows of the events: each like its vehicle's position in the same second, except for its own fields."""
        fleet, network = self._fleet, self._fleet.network
        vehicle = np.concatenate(happenings.vehicle)
        event, halt = np.concatenate(happenings.event), np.concatenate(happenings.halt)
        journey, part = np.concatenate(happenings.journey), np.concatenate(happenings.part)
        jitter = self._rng.random(len(vehicle)) * 0.04
        rows = positions[slots[vehicle]]
        rows["event_time"] -= 1_000_000 - 1_000 * np.floor(np.minimum(part + jitter, 0.999) * 1_000).astype(np.int64)
        rows["event"] = event
        rows["journey"] = journey
        signed = journey != NOTHING
        rows["stop"] = np.where(signed, network.halt_stop[halt], NOTHING)
        onward = np.where(event == _DEP, network.halt_next_stop[fleet.goal[vehicle]], network.halt_next_stop[halt])
        rows["next_stop"] = np.where(signed, onward, NOTHING)
        rows["delay"] = np.where(signed, fleet.delay[vehicle], NO_DELAY)
        rows["upcoming"] = False
        has_time = _AT_STOP[event] & ~self._unscheduled[vehicle]
        rows["scheduled"] = np.where(has_time, fleet.scheduled(vehicle, halt) * _SECOND, NOTHING)
        rows["extra"] = halt
        return rows
