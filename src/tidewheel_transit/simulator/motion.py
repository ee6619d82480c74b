"""Motion: one second of driving for all vehicles at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from tidewheel_transit.simulator.fleet import DRIVING, OFF, Bools, Fleet, Floats, Happenings, Ints
from tidewheel_transit.simulator.network import EVENT_CODES, HALT_END, HALT_LIGHT, HALT_STOP, RED_SECONDS
from tidewheel_transit.simulator.timetable import demand

__all__ = ["move"]

_ARRIVED: Final = 0.6
_FAST: Final = 10.5
_EMERGENCY: Final = 3e-4
"""How probable a hard braking is in each second at speed: one in a few hours of each vehicle."""
_DECELERATION: Final = (3.0, 5.5)
_CONGESTION: Final = 0.12
_PAS: Final = EVENT_CODES["pas"]


def move(fleet: Fleet, seconds_of_day: float, happenings: Happenings) -> tuple[Ints, Ints]:
    """Move every vehicle that drives by one second and note the marks that it passes. Returns the vehicles that now
    stand at a stop, and those that have come to the end of a turn."""
    network, rng = fleet.network, fleet.rng
    _flow(fleet, seconds_of_day)
    fleet.change[:] = 0.0
    vehicle = np.flatnonzero(fleet.doing == DRIVING)
    before, metres = fleet.speed[vehicle], fleet.metres[vehicle]
    goal, halting, braking = fleet.goal[vehicle], fleet.halting[vehicle], fleet.braking[vehicle]
    ahead = network.halt_position[goal] - metres
    room = np.minimum(np.where(halting, ahead, np.inf), _clear_way(fleet)[vehicle])

    hard = _brake_hard(fleet, vehicle, before, room)
    street = network.halt_speed[goal] * fleet.pace[vehicle]
    wanted = np.minimum(np.minimum(before + fleet.acceleration[vehicle], street), _safe(before, room, braking))
    wanted = np.where(fleet.held_until[vehicle] > fleet.now, 0.0, wanted)
    speed = np.maximum(np.maximum(wanted, before - braking), 0.0)
    speed = np.where(hard > 0, np.maximum(before - hard, 0.0), speed)
    stopped = vehicle[(hard > 0) & (speed == 0.0)]
    fleet.hard[stopped] = 0.0
    fleet.held_until[stopped] = fleet.now + rng.integers(5, 16, len(stopped))

    way = (before + speed) / 2
    arrived = halting & (ahead - way < _ARRIVED)
    way = np.where(arrived, ahead, way)
    speed = np.where(arrived, 0.0, speed)
    passed = ~halting & (way >= ahead)

    fleet.speed[vehicle] = speed
    fleet.change[vehicle] = speed - before
    fleet.metres[vehicle] = metres + way
    fleet.odometer[vehicle] += way
    _note_marks(fleet, vehicle, metres, way, happenings)

    kind = network.halt_kind[goal]
    at_light = vehicle[arrived & (kind == HALT_LIGHT)]
    fleet.held_until[at_light] = fleet.now + rng.integers(*RED_SECONDS, len(at_light))
    fleet.served[vehicle[passed & (kind == HALT_STOP)]] = False
    onward = np.concatenate([at_light, vehicle[passed]])
    fleet.goal[onward] += 1
    fleet.choose(onward)
    return vehicle[arrived & (kind == HALT_STOP)], vehicle[arrived & (kind == HALT_END)]


def _flow(fleet: Fleet, seconds_of_day: float) -> None:
    """Traffic has its moods, worse ones at rush hours."""
    usual = 1.0 - _CONGESTION * max(0.0, float(demand(np.array(seconds_of_day))) - 0.8)
    fleet.pace += 0.01 * (usual - fleet.pace) + 0.012 * fleet.rng.standard_normal(fleet.count)
    np.clip(fleet.pace, 0.6, 1.1, out=fleet.pace)


def _safe(speed: Floats, room: Floats, braking: Floats) -> Floats:
    """The highest speed after this second from which ordinary braking still ends within the room.

    This second takes (speed + v) / 2 metres and braking then v² / (2 * braking): solved for v.
    """
    inside = braking**2 - 4 * braking * speed + 8 * braking * room
    result: Floats = (np.sqrt(np.maximum(inside, 0.0)) - braking) / 2
    return np.maximum(result, 0.0)


def _clear_way(fleet: Fleet) -> Floats:
    """How far each vehicle may go until it stands behind the next one of its line; infinite if none is before it."""
    room = np.full(fleet.count, np.inf)
    vehicle = np.flatnonzero((fleet.doing != OFF) & (fleet.metres > 0.0) & fleet.signed)
    track = fleet.timetable.copy[vehicle] * len(fleet.network.path_length) + fleet.path[vehicle]
    order = np.argsort(track * 1e6 + fleet.metres[vehicle], kind="stable")
    track, vehicle = track[order], vehicle[order]
    behind, before = vehicle[:-1], vehicle[1:]
    gap = fleet.metres[before] - fleet.metres[behind] - fleet.length[before]
    room[behind] = np.where(track[:-1] == track[1:], np.maximum(gap, 0.0), np.inf)
    return room


def _brake_hard(fleet: Fleet, vehicle: Ints, speed: Floats, room: Floats) -> Floats:
    """With how much each vehicle brakes in an emergency, some of which begin now; 0: none."""
    luck = fleet.rng.random(len(vehicle))
    begins: Bools = (luck < _EMERGENCY) & (speed >= _FAST) & (room > 60.0) & (fleet.hard[vehicle] == 0.0)
    startled = vehicle[begins]
    fleet.hard[startled] = fleet.rng.uniform(*_DECELERATION, len(startled))
    result: Floats = fleet.hard[vehicle]
    return result


def _note_marks(fleet: Fleet, vehicle: Ints, metres: Floats, way: Floats, happenings: Happenings) -> None:
    path = fleet.path[vehicle]
    which, mark = fleet.network.crossed(path, metres, metres + way)
    event, halt = fleet.network.mark_event[mark], fleet.network.mark_halt[mark]
    # Passing the mark behind a stop is an event only for those that did not stand at the stop.
    real = (event != _PAS) | ~fleet.served[vehicle[which]]
    which, mark, event, halt = which[real], mark[real], event[real], halt[real]
    part = (fleet.network.mark_position(mark) - metres[which]) / way[which]
    happenings.add(event, vehicle[which], halt=halt, journey=path[which], part=np.clip(part, 0.0, 0.999))
