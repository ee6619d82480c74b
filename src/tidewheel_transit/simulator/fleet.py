"""The fleet: the state of every vehicle, in columns, and where each is when the simulation begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tidewheel_transit.simulator.city import MODES
from tidewheel_transit.simulator.network import (
    EVENT_CODES,
    HALT_LIGHT,
    HALT_STOP,
    PATHS_PER_LINE,
    RED,
    Network,
)
from tidewheel_transit.simulator.timetable import Departures, Timetable

__all__ = ["DRIVING", "NEVER", "OFF", "STANDING", "Fleet", "Happenings"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OFF: Final = 0
"""Out of service: it sends nothing."""
DRIVING: Final = 1
"""On its way; also where traffic holds it."""
STANDING: Final = 2
"""At a stop."""

NEVER: Final = -1
_LAYOVER: Final = 900
"""A vehicle that departs within so many seconds of the beginning is at its stop already."""
_LATE: Final = 45.0
"""How late vehicles are at the beginning, on average."""


@dataclass(slots=True)
class Happenings:
    """The events of vehicles in one second."""

    vehicle: list[Ints] = field(default_factory=list)
    event: list[Ints] = field(default_factory=list)
    halt: list[Ints] = field(default_factory=list)
    journey: list[Ints] = field(default_factory=list)
    """The path of the journey that it belongs to; -1: a deadrun."""
    part: list[Floats] = field(default_factory=list)
    """When in the second, from 0 to 1."""

    def add(self, event: str | Ints, vehicle: Ints, *, halt: Ints, journey: Ints, part: float | Floats) -> None:
        """Note events of one kind (or of a code for each)."""
        if len(vehicle):
            self.vehicle.append(vehicle)
            self.event.append(np.full(len(vehicle), EVENT_CODES[event]) if isinstance(event, str) else event)
            self.halt.append(halt)
            self.journey.append(journey)
            self.part.append(np.full(len(vehicle), part) if isinstance(part, float) else part)


class Fleet:
    """The vehicles and the second they are in. Every attribute that is an array is by vehicle; times are seconds since
    1970, lengths metres, speeds m/s."""

    def __init__(self, network: Network, timetable: Timetable, rng: np.random.Generator, now: int) -> None:
        self.network = network
        self.timetable = timetable
        self.rng = rng
        self.now = now
        self.count = len(timetable.line)

        modes = [MODES[line.mode] for line in network.lines]
        line = timetable.line
        self.acceleration = np.array([mode.acceleration for mode in modes])[line]
        self.braking = np.array([mode.braking for mode in modes])[line]
        self.length = np.array([mode.length for mode in modes])[line]
        self.serving = np.array([mode.serving for mode in modes])[line]
        self.dwell = np.array([mode.dwell for mode in modes])[line]

        count = self.count
        self.doing = np.full(count, OFF)
        self.path = np.zeros(count, np.int64)
        self.metres = np.zeros(count)
        self.speed = np.zeros(count)
        self.change = np.zeros(count)
        """Of the speed in this second."""
        self.goal = np.zeros(count, np.int64)
        """The next halt."""
        self.halting = np.ones(count, bool)
        """Whether it must stand at its goal."""
        self.pace = np.ones(count)
        """How well traffic flows for it; 1: as the street allows."""
        self.hard = np.zeros(count)
        """With how much it brakes in an emergency; 0: it does not."""
        self.held_until = np.zeros(count, np.int64)
        self.served = np.ones(count, bool)
        """Whether it stood at the last stop."""
        self.signed = np.zeros(count, bool)
        """Whether it is signed in to a journey; if not, it is on a deadrun."""
        self.sign_at = np.full(count, NEVER)
        self.wait_at = np.full(count, NEVER)
        self.open_at = np.full(count, NEVER)
        self.close_at = np.full(count, NEVER)
        self.leave_at = np.full(count, NEVER)
        self.wake_at = np.full(count, now)
        self.relieved = np.zeros(count, bool)
        """Whether the driver has left and the next one will sign in."""
        self.reassigned = np.zeros(count, bool)
        """Whether the block of journeys has ended and the next one will be signed in to."""
        self.departure = np.zeros(count, np.int64)
        self.day = np.zeros(count, np.int64)
        self.start = np.zeros(count, np.int64)
        self.delay = np.zeros(count, np.int64)
        """Against the timetable at the last stop: negative = late."""
        self.odometer = np.zeros(count)
        self.last_served = np.full((timetable.copy.max() + 1) * len(network.halt_position), now - 300)
        """When a vehicle last stood at each halt of each copy of the lines."""
        self._place()

    def _place(self) -> None:
        """Put every vehicle where its timetable has it, more or less late."""
        every = np.arange(self.count)
        last = self.timetable.last_departure(self.now)
        late = self.rng.exponential(_LATE, self.count) - 15.0
        path = self.timetable.line * PATHS_PER_LINE + 2 * last.direction
        since = self.now - last.time - np.maximum(late, 0.0)
        on_way = last.run & (since > 5.0) & (since < self.network.path_seconds[path] - 30.0)

        self.path = np.where(on_way, path, self.timetable.line * PATHS_PER_LINE + 2 * (1 - last.direction))
        self.goal = self.network.path_halts[self.path].copy()
        resting = every[~on_way]
        next_ = self.next_journey(resting, np.full(len(resting), self.now))
        soon = next_.run & (next_.time - self.now < _LAYOVER)
        self.await_departure(resting, next_, soon)

        going = every[on_way]
        self.departure[going], self.day[going], self.start[going] = last.time[going], last.day[going], last.start[going]
        self.doing[going] = DRIVING
        self.signed[going] = True
        self.delay[going] = -late[going].astype(np.int64)
        self.metres[going] = self.network.position_at(path[going], since[going])
        self.odometer[going] = self.metres[going]
        while (behind := going[self.network.halt_position[self.goal[going]] <= self.metres[going] + 1.0]).size:
            self.goal[behind] += 1
        self.choose(going)
        room = self.network.halt_position[self.goal[going]] - self.metres[going]
        street = self.network.halt_speed[self.goal[going]]
        self.speed[going] = np.minimum(0.8 * street, np.sqrt(self.braking[going] * room))

    def last_halt(self, vehicle: Ints) -> Ints:
        """The halts at the ends of their paths."""
        result: Ints = self.network.path_halts[self.path[vehicle] + 1] - 1
        return result

    def scheduled(self, vehicle: Ints, halt: Ints) -> Ints:
        """The scheduled time at a halt of the journey: a whole minute."""
        minutes = (self.network.halt_seconds[halt] // 60).astype(np.int64)
        result: Ints = self.departure[vehicle] + 60 * minutes
        return result

    def choose(self, vehicle: Ints) -> None:
        """Decide whether these vehicles must stop at their goals."""
        luck = self.rng.random(len(vehicle))
        goal = self.goal[vehicle]
        kind = self.network.halt_kind[goal]
        probability = np.where(kind == HALT_STOP, self.serving[vehicle], np.where(kind == HALT_LIGHT, RED, 1.0))
        self.halting[vehicle] = (luck < probability) | (goal == self.last_halt(vehicle))

    def next_journey(self, vehicle: Ints, after: Ints) -> Departures:
        """The next departures of vehicles that are at the beginning of a journey's path."""
        return self.timetable.next_departure(vehicle, self.path[vehicle] % PATHS_PER_LINE // 2, after)

    def await_departure(self, vehicle: Ints, departures: Departures, which: Bools) -> None:
        """Let some of the vehicles wait at their first stop until they depart, late if they arrived late."""
        vehicle = vehicle[which]
        leave = np.maximum(departures.time[which], self.now + 25)
        early = self.rng.integers(0, 40, len(vehicle))
        self.doing[vehicle] = STANDING
        self.signed[vehicle] = False
        self.departure[vehicle] = departures.time[which]
        self.day[vehicle] = departures.day[which]
        self.start[vehicle] = departures.start[which]
        self.leave_at[vehicle] = leave
        self.close_at[vehicle] = leave - 2
        self.open_at[vehicle] = np.maximum(self.now + 10, leave - 30 - early)
        self.sign_at[vehicle] = np.maximum(self.now + 2, leave - 80 - early)
        self.wait_at[vehicle] = self.sign_at[vehicle] + 4
