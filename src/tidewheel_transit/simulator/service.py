"""Service: what vehicles do at stops and between journeys: doors, waiting, departures, sign-ins, and the day's end."""

from __future__ import annotations

from typing import Final

import numpy as np

from tidewheel_transit.simulator.fleet import DRIVING, NEVER, OFF, STANDING, Fleet, Happenings, Ints
from tidewheel_transit.simulator.motion import move
from tidewheel_transit.simulator.network import BOARDING, PATHS_PER_LINE

__all__ = ["pass_second"]

_MOST_WAITING: Final = 3.0
"""Times as many passengers as planned are the most that gather at a stop."""
_INCIDENT: Final = 0.0015
_INCIDENT_SECONDS: Final = (60, 300)
_TIMING_POINT: Final = 4
"""At every so many halts a vehicle waits for its time when it is early."""
_LONGEST_WAIT: Final = 180
_TOO_LATE: Final = 1_200
"""A vehicle that would depart later than this leaves the journey out."""
_HURRY: Final = 120
"""So long before its departure a vehicle must be in service."""
_RELIEF: Final = 0.2
_REASSIGNMENT: Final = 0.08


def pass_second(fleet: Fleet, seconds_of_day: float) -> Happenings:
    """Simulate one second for the whole fleet; returns what happened in it."""
    happenings = Happenings()
    fleet.now += 1
    standing, turned = move(fleet, seconds_of_day, happenings)
    _serve(fleet, happenings)
    _stand(fleet, standing, seconds_of_day, happenings)
    _finish_turns(fleet, turned, happenings)
    _wake(fleet, happenings)
    return happenings


def _stand(fleet: Fleet, vehicle: Ints, seconds_of_day: float, happenings: Happenings) -> None:
    """Let vehicles that have come to a stop open their doors, let people on and off, and leave."""
    rng, now = fleet.rng, fleet.now
    goal = fleet.goal[vehicle]
    happenings.add("ars", vehicle, halt=goal, journey=fleet.path[vehicle], part=0.55)
    here = fleet.timetable.copy[vehicle] * len(fleet.network.halt_position) + goal
    # Passengers gather until a vehicle comes: who is late gets later, and who follows it closely catches up.
    waiting = (now - fleet.last_served[here]) / fleet.timetable.planned_headway(vehicle, seconds_of_day)
    fleet.last_served[here] = now
    dwell = fleet.dwell[vehicle] + BOARDING * np.minimum(waiting, _MOST_WAITING) + rng.exponential(2.0, len(vehicle))
    trouble = rng.random(len(vehicle)) < _INCIDENT
    open_at = now + 1 + rng.integers(0, 2, len(vehicle))
    close_at = open_at + dwell.astype(np.int64) + 1
    leave_at = close_at + 2 + np.where(trouble, rng.integers(*_INCIDENT_SECONDS, len(vehicle)), 0)

    scheduled = fleet.scheduled(vehicle, goal)
    timing = (goal % _TIMING_POINT == 0) & (goal != fleet.last_halt(vehicle))
    leave_at = np.where(timing, np.maximum(leave_at, np.minimum(scheduled, now + _LONGEST_WAIT)), leave_at)
    fleet.doing[vehicle] = STANDING
    fleet.served[vehicle] = True
    fleet.delay[vehicle] = scheduled - now
    fleet.sign_at[vehicle] = NEVER
    fleet.open_at[vehicle] = open_at
    fleet.close_at[vehicle] = close_at
    fleet.wait_at[vehicle] = np.where(leave_at > close_at + 4, close_at + 1, NEVER)
    fleet.leave_at[vehicle] = leave_at


def _serve(fleet: Fleet, happenings: Happenings) -> None:
    """Process events at the stops: sign-in, doors, waiting, leaving."""
    now = fleet.now
    vehicle = np.flatnonzero(fleet.doing == STANDING)
    _sign_in(fleet, vehicle[fleet.sign_at[vehicle] == now], happenings)
    for event, due, part in (
        ("doo", fleet.open_at, 0.3),
        ("wait", fleet.wait_at, 0.4),
        ("doc", fleet.close_at, 0.45),
    ):
        who = vehicle[due[vehicle] == now]
        happenings.add(event, who, halt=fleet.goal[who], journey=fleet.path[who], part=part)
    leaving = vehicle[fleet.leave_at[vehicle] == now]
    at_end = fleet.goal[leaving] == fleet.last_halt(leaving)
    _end_journeys(fleet, leaving[at_end], happenings)
    _depart(fleet, leaving[~at_end], happenings)


def _sign_in(fleet: Fleet, vehicle: Ints, happenings: Happenings) -> None:
    for event, flag, part in (("ba", fleet.reassigned, 0.05), ("da", fleet.relieved, 0.1)):
        who = vehicle[flag[vehicle]]
        flag[who] = False
        happenings.add(event, who, halt=fleet.goal[who], journey=np.full(len(who), -1), part=part)
    happenings.add("vja", vehicle, halt=fleet.goal[vehicle], journey=fleet.path[vehicle], part=0.2)
    fleet.signed[vehicle] = True
    fleet.odometer[vehicle] = 0.0
    fleet.delay[vehicle] = 0


def _depart(fleet: Fleet, vehicle: Ints, happenings: Happenings) -> None:
    goal = fleet.goal[vehicle]
    happenings.add("pde", vehicle, halt=goal, journey=fleet.path[vehicle], part=0.6)
    fleet.last_served[fleet.timetable.copy[vehicle] * len(fleet.network.halt_position) + goal] = fleet.now
    fleet.delay[vehicle] = fleet.scheduled(vehicle, goal) - fleet.now
    fleet.doing[vehicle] = DRIVING
    fleet.goal[vehicle] += 1
    fleet.choose(vehicle)


def _end_journeys(fleet: Fleet, vehicle: Ints, happenings: Happenings) -> None:
    """At the last stop, sign out and drive round to the next first stop, without passengers."""
    halt = fleet.goal[vehicle]
    happenings.add("vjout", vehicle, halt=halt, journey=fleet.path[vehicle], part=0.7)
    luck = fleet.rng.random(len(vehicle))
    for event, flag, probability, part in (
        ("dout", fleet.relieved, _RELIEF, 0.75),
        ("bout", fleet.reassigned, _REASSIGNMENT, 0.8),
    ):
        who = luck < probability
        flag[vehicle[who]] = True
        happenings.add(event, vehicle[who], halt=halt[who], journey=np.full(who.sum(), -1), part=part)
    fleet.signed[vehicle] = False
    fleet.path[vehicle] += 1
    fleet.goal[vehicle] = fleet.network.path_halts[fleet.path[vehicle]]
    fleet.metres[vehicle] = 0.0
    fleet.halting[vehicle] = True
    fleet.doing[vehicle] = DRIVING


def _finish_turns(fleet: Fleet, vehicle: Ints, happenings: Happenings) -> None:
    """At the first stop of the next journey, wait for its time, which may be past, or go out of service."""
    if not vehicle.size:
        return
    here = fleet.path[vehicle] % PATHS_PER_LINE
    fleet.path[vehicle] += np.where(here == PATHS_PER_LINE - 1, 1 - PATHS_PER_LINE, 1)
    fleet.goal[vehicle] = fleet.network.path_halts[fleet.path[vehicle]]
    fleet.metres[vehicle] = 0.0
    next_ = fleet.next_journey(vehicle, fleet.departure[vehicle] + 1)
    if (next_.time < fleet.now - _TOO_LATE).any():
        after = np.where(next_.time < fleet.now - _TOO_LATE, fleet.now, next_.time)
        next_ = fleet.next_journey(vehicle, after)
    fleet.await_departure(vehicle, next_, next_.run)

    home = vehicle[~next_.run]
    for event, flag, part in (("dout", fleet.relieved, 0.85), ("bout", fleet.reassigned, 0.9)):
        who = home[~flag[home]]
        happenings.add(event, who, halt=fleet.goal[who], journey=np.full(len(who), -1), part=part)
    fleet.doing[home] = OFF
    fleet.wake_at[home] = next_.time[~next_.run] - _HURRY + 1


def _wake(fleet: Fleet, happenings: Happenings) -> None:
    """Bring vehicles into service that have a departure soon."""
    vehicle = np.flatnonzero((fleet.doing == OFF) & (fleet.wake_at <= fleet.now))
    if not vehicle.size:
        return
    next_ = fleet.next_journey(vehicle, np.full(len(vehicle), fleet.now + _HURRY))
    starts = next_.run & (next_.time <= fleet.now + 2 * _HURRY)
    # A departure that is not run is looked beyond as soon as it is too near to be made.
    fleet.wake_at[vehicle] = next_.time - np.where(next_.run, 2 * _HURRY, _HURRY - 1)
    who = vehicle[starts]
    for event, flag, part in (("ba", fleet.reassigned, 0.05), ("da", fleet.relieved, 0.1)):
        flag[who] = False
        happenings.add(event, who, halt=fleet.goal[who], journey=np.full(len(who), -1), part=part)
    fleet.await_departure(vehicle, next_, starts)
