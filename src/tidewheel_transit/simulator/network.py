"""The city's lines as arrays: paths, stops, traffic lights and scheduled times, to be looked up for a whole fleet.

A line is a round of four paths: there, the turn at the far end, back, the turn at the near end. A path is points at
equal distances. Along it lie halts, where a vehicle may have to stand (stops, lights, the end of a turn), and marks,
the places where passing by is an event.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from tidewheel_transit.simulator.city import LINES, MODES, PLACES, Line, Mode
from tidewheel_transit.topics import EVENTS

__all__ = [
    "BOARDING",
    "EVENT_CODES",
    "HALT_END",
    "HALT_LIGHT",
    "HALT_STOP",
    "PATHS_PER_LINE",
    "POINT_SPACING",
    "RED",
    "RED_SECONDS",
    "Network",
    "Stop",
    "degrees",
    "network",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

EVENT_CODES: Final = {event: code for code, event in enumerate(EVENTS)}
HALT_STOP: Final = 0
HALT_LIGHT: Final = 1
HALT_END: Final = 2
POINT_SPACING: Final = 10.0
PATHS_PER_LINE: Final = 4
RED: Final = 0.35
"""How probable it is that a light is red."""
RED_SECONDS: Final = (4, 30)
BOARDING: Final = 6.0
"""Seconds that passengers take to get on and off, when they have gathered for as long as planned."""

_LATITUDE, _LONGITUDE = 60.2, 24.95
_METRES_PER_DEGREE = 111_320.0
_METRES_PER_LONGITUDE = _METRES_PER_DEGREE * float(np.cos(np.radians(_LATITUDE)))
_SPAN = 1e6  # longer than any path, so that path number * span + metres orders the places of all paths
_SLACK = 1.05  # timetables are a little slower than the vehicles
_TURN_SPEED = 5.0


def degrees(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Latitude and longitude of a place given in metres east and north of the city's origin."""
    return _LATITUDE + y / _METRES_PER_DEGREE, _LONGITUDE + x / _METRES_PER_LONGITUDE


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop."""

    number: int
    lat: float
    lon: float


@dataclass(slots=True)
class _Builder:
    """The arrays under construction."""

    points: list[Floats] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    first_halts: list[int] = field(default_factory=list)
    halts: list[tuple[float, int, int, float, float]] = field(default_factory=list)
    """Of each: metres along the path, kind, stop (or -1), speed on the way to it, scheduled seconds."""
    marks: list[tuple[float, int, int]] = field(default_factory=list)
    """Of each: path and metres in one number, event, halt."""
    tunnels: list[tuple[float, float]] = field(default_factory=list)
    stops: dict[tuple[object, ...], int] = field(default_factory=dict)
    stop_table: list[Stop] = field(default_factory=list)

    def stop(self, key: tuple[object, ...], at: Floats) -> int:
        """Return the stop of this key, which lines share; a new one gets a number of seven digits, as in Helsinki."""
        if key not in self.stops:
            lat, lon = degrees(at[:1], at[1:])
            district = 4 if lat[0] > 60.257 else 2 if lon[0] < 24.835 else 1
            self.stops[key] = len(self.stop_table)
            number = district * 1_000_000 + 10_101 + 11 * len(self.stop_table)
            self.stop_table.append(Stop(number, round(float(lat[0]), 6), round(float(lon[0]), 6)))
        return self.stops[key]

    def mark(self, metres: float, event: str, halt: int) -> None:
        self.marks.append((len(self.lengths) * _SPAN + metres, EVENT_CODES[event], halt))

    def close(self, points: Floats, tunnel: tuple[float, float]) -> None:
        self.points.append(points)
        self.tunnels.append(tunnel)
        self.lengths.append((len(points) - 1) * POINT_SPACING)


@dataclass(frozen=True, slots=True)
class Network:
    """The lines of the city. Paths, halts, marks and stops are numbered over all lines; arrays are by number."""

    lines: tuple[Line, ...]
    stops: tuple[Stop, ...]
    path_length: Floats
    path_points: Ints
    """The number of each path's first point."""
    path_halts: Ints
    """The number of each path's first halt; one more at the end."""
    path_tunnel: Floats
    """Two for each path: metres where its tunnel begins and ends (both 0: it has none)."""
    path_seconds: Floats
    """Scheduled running time."""
    x: Floats
    y: Floats
    heading: Floats
    halt_position: Floats
    halt_kind: Ints
    halt_stop: Ints
    halt_speed: Floats
    halt_seconds: Floats
    """Scheduled time from departure to departure; of a path's last halt: to arrival."""
    halt_next_stop: Ints
    """The stop that is reached next on the way to the halt, itself included; -1: none."""
    mark_key: Floats
    mark_event: Ints
    mark_halt: Ints

    def crossed(self, path: Ints, before: Floats, after: Floats) -> tuple[Ints, Ints]:
        """The marks that vehicles pass on the way from `before` (not included) to `after` (included): the place of
        the vehicle in `path`, and the mark; in the order of vehicle and way."""
        base = path * _SPAN
        first = np.searchsorted(self.mark_key, base + before, side="right")
        count = np.searchsorted(self.mark_key, base + after, side="right") - first
        vehicle = np.repeat(np.arange(len(path)), count)
        within = np.arange(len(vehicle)) - np.repeat(np.cumsum(count) - count, count)
        return vehicle, first[vehicle] + within

    def mark_position(self, mark: Ints) -> Floats:
        """Metres along its path."""
        return self.mark_key[mark] % _SPAN

    def place(self, path: Ints, metres: Floats) -> tuple[Floats, Floats, Floats]:
        """The location of a place on a path: metres east, metres north, heading in degrees."""
        steps = metres / POINT_SPACING
        whole = np.floor(steps).astype(np.int64)
        point = self.path_points[path] + whole
        end = np.minimum(point + 1, self.path_points[path] + (self.path_length[path] / POINT_SPACING).astype(np.int64))
        part = steps - whole
        x = self.x[point] + part * (self.x[end] - self.x[point])
        y = self.y[point] + part * (self.y[end] - self.y[point])
        return x, y, self.heading[point]

    def position_at(self, path: Ints, seconds: Floats) -> Floats:
        """Metres along the path where a vehicle should be so long after its departure."""
        first, last = self.path_halts[path], self.path_halts[path + 1] - 1
        key = path * _SPAN + np.clip(seconds, 0.0, self.path_seconds[path] - 1.0)
        keys = np.repeat(np.arange(len(self.path_length)), np.diff(self.path_halts)) * _SPAN + self.halt_seconds
        after = np.clip(np.searchsorted(keys, key, side="right"), first + 1, last)
        since = key - keys[after - 1]
        part = since / np.maximum(keys[after] - keys[after - 1], 1.0)
        here, there = self.halt_position[after - 1], self.halt_position[after]
        return here + part * (there - here)


@lru_cache(maxsize=1)
def network() -> Network:
    """The one city, laid out at first use."""
    builder = _Builder()
    for line in LINES:
        mode = MODES[line.mode]
        there = _lay_journey(builder, line, mode, line.places)
        _lay_turn(builder, there[-2:], _start_of(line.places[::-1]))
        back = _lay_journey(builder, line, mode, line.places[::-1])
        _lay_turn(builder, back[-2:], _start_of(line.places))
    return _arrays(builder)


def _start_of(places: tuple[str, ...]) -> Floats:
    start: Floats = _side(_segment(*places[:2]))[0]
    return start


def _hash(*names: str) -> float:
    """Between 0 and 1, the same on every machine."""
    return zlib.crc32("|".join(names).encode()) / 2**32


def _metres(place: str) -> Floats:
    lat, lon = PLACES[place]
    return np.array([(lon - _LONGITUDE) * _METRES_PER_LONGITUDE, (lat - _LATITUDE) * _METRES_PER_DEGREE])


def _segment(start: str, end: str) -> Floats:
    """Points of the way between two places, bent a little as streets are; the same for every line, and both ways."""
    first, last = sorted((start, end))
    a, b = _metres(first), _metres(last)
    length = float(np.hypot(*(b - a)))
    part = np.linspace(0.0, 1.0, max(2, int(length / POINT_SPACING)))
    normal = np.array([-(b - a)[1], (b - a)[0]]) / length
    bend = min(0.12 * length, 200.0) * (_hash(first, last, "bend") - 0.5)
    wave = min(0.08 * length, 120.0) * (_hash(first, last, "wave") - 0.5)
    aside = bend * np.sin(np.pi * part) + wave * np.sin(2 * np.pi * part)
    points: Floats = a + part[:, None] * (b - a) + aside[:, None] * normal
    return points if first == start else points[::-1]


def _side(points: Floats) -> Floats:
    """The path moved to its right side of the street."""
    ahead = np.gradient(points, axis=0)
    ahead /= np.maximum(np.hypot(ahead[:, 0], ahead[:, 1]), 1e-9)[:, None]
    moved: Floats = points + 4.0 * np.stack([ahead[:, 1], -ahead[:, 0]], axis=1)
    return moved


def _along(points: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])


def _even(points: Floats) -> Floats:
    """The same path with points at equal distances."""
    along = _along(points)
    at = np.arange(0.0, along[-1], POINT_SPACING)
    return np.stack([np.interp(at, along, points[:, 0]), np.interp(at, along, points[:, 1])], axis=1)


def _lay_journey(builder: _Builder, line: Line, mode: Mode, places: tuple[str, ...]) -> Floats:
    """Lay out one direction of a line; returns its points."""
    segments = [_side(_segment(start, end)) for start, end in pairwise(places)]
    street = np.concatenate(segments)
    points = _even(street)
    longest = (len(points) - 1) * POINT_SPACING
    ends = np.cumsum([0] + [len(segment) for segment in segments])
    bounds = np.minimum(_along(street)[np.maximum(ends - 1, 0)], longest)
    bounds[-1] = longest

    stops: list[tuple[float, tuple[object, ...], float]] = []
    for (start, end), begin, finish in zip(pairwise(places), bounds[:-1], bounds[1:], strict=True):
        first, last = sorted((start, end))
        speed = mode.speeds[0] + (mode.speeds[1] - mode.speeds[0]) * _hash(first, last, "speed")
        count = max(1, round((finish - begin) / mode.spacing)) if mode.spacing else 1
        stops.append((begin, (line.mode, start, start < end), speed))
        for number in range(1, count):
            place = number if start == first else count - number
            key = (line.mode, first, last, place, count, start < end)
            stops.append((begin + (finish - begin) * number / count, key, speed))
    stops.append((longest, (line.mode, places[-1], places[-2] < places[-1]), stops[-1][2]))
    _lay_halts(builder, mode, points, stops)

    tunnel = (0.0, 0.0)
    if line.tunnel:
        mouths = sorted(bounds[places.index(place)] for place in line.tunnel)
        tunnel = (mouths[0] + 60.0, mouths[1] - 60.0)
    builder.close(points, tunnel)
    return points


def _lay_halts(
    builder: _Builder, mode: Mode, points: Floats, stops: list[tuple[float, tuple[object, ...], float]]
) -> None:
    builder.first_halts.append(len(builder.halts))
    seconds, before = 0.0, 0.0
    for number, (metres, key, _) in enumerate(stops):
        speed = stops[max(0, number - 1)][2]
        left = seconds
        if number:
            change = speed / (2 * mode.acceleration) + speed / (2 * mode.braking)
            distance = metres - before
            needed = speed * change
            seconds += (
                distance / speed + change * mode.serving
                if distance >= needed
                else 2 * (distance * change / speed) ** 0.5
            ) * _SLACK
            if mode.lights and number % 2 and distance >= 320.0:
                seconds += RED * (sum(RED_SECONDS) / 2 + change) * _SLACK
                light = (before + metres) / 2
                builder.mark(light - 110.0, "tlr", len(builder.halts))
                builder.mark(light - 95.0, "tla", len(builder.halts))
                builder.halts.append((light, HALT_LIGHT, -1, speed, (left + seconds) / 2))
        halt = len(builder.halts)
        if number:
            builder.mark(max(metres - 150.0, before + 45.0), "due", halt)
            builder.mark(metres - 30.0, "arr", halt)
            if number < len(stops) - 1:
                seconds += mode.serving * (mode.dwell + BOARDING + 4.0) * _SLACK
        if number < len(stops) - 1:
            builder.mark(metres + 15.0, "pas", halt)
            builder.mark(metres + 30.0, "dep", halt)
        at = points[min(int(metres / POINT_SPACING), len(points) - 1)]
        builder.halts.append((metres, HALT_STOP, builder.stop(key, at), speed, seconds))
        before = metres


def _lay_turn(builder: _Builder, end: Floats, start: Floats) -> None:
    """Lay out the way from a journey's last stop round to the first of the next, without passengers."""
    ahead = (end[1] - end[0]) / max(float(np.hypot(*(end[1] - end[0]))), 1e-9)
    aside = np.array([ahead[1], -ahead[0]])
    corners = [end[1], end[1] + 90 * ahead, end[1] + 130 * ahead - 30 * aside, start + 90 * ahead - 20 * aside, start]
    points = _even(np.array(corners))
    builder.first_halts.append(len(builder.halts))
    length = (len(points) - 1) * POINT_SPACING
    builder.halts.append((length, HALT_END, -1, _TURN_SPEED, length / _TURN_SPEED))
    builder.close(points, (0.0, 0.0))


def _arrays(builder: _Builder) -> Network:
    points = np.concatenate(builder.points)
    ahead = np.concatenate([np.gradient(path, axis=0) for path in builder.points])
    position, kind, stop, speed, seconds = (np.array(column) for column in zip(*builder.halts, strict=True))
    first_halts = np.array([*builder.first_halts, len(builder.halts)])
    next_stop = stop.copy()
    for halt in range(len(stop) - 2, -1, -1):
        if next_stop[halt] < 0 and kind[halt] == HALT_LIGHT:
            next_stop[halt] = next_stop[halt + 1]
    marks = sorted(builder.marks)
    mark_key, mark_event, mark_halt = (np.array(column) for column in zip(*marks, strict=True))
    return Network(
        lines=LINES,
        stops=tuple(builder.stop_table),
        path_length=np.array(builder.lengths),
        path_points=np.cumsum([0] + [len(path) for path in builder.points[:-1]]),
        path_halts=first_halts,
        path_tunnel=np.array(builder.tunnels),
        path_seconds=seconds[first_halts[1:] - 1],
        x=points[:, 0].copy(),
        y=points[:, 1].copy(),
        heading=np.degrees(np.arctan2(ahead[:, 0], ahead[:, 1])) % 360.0,
        halt_position=position,
        halt_kind=kind,
        halt_stop=stop,
        halt_speed=speed,
        halt_seconds=seconds,
        halt_next_stop=next_stop,
        mark_key=mark_key,
        mark_event=mark_event,
        mark_halt=mark_halt,
    )
