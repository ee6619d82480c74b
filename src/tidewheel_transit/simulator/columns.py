"""Turn rows of numbers into the columns of the transit messages, by looking up what each number stands for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel_transit.simulator.network import HALT_LIGHT, PATHS_PER_LINE, Network
from tidewheel_transit.simulator.reporter import LOCATIONS, NO_DELAY, NOTHING
from tidewheel_transit.simulator.timetable import Timetable
from tidewheel_transit.topics import EVENTS

__all__ = ["Names", "times", "to_columns"]

Ints = npt.NDArray[np.int64]

_TIME: Final = pa.timestamp("us", "UTC")
_OTHER_OPERATOR: Final = {18: 6}
"""Operators whose vehicles, some of them, give another number in the payload than in the topic."""
_FIRST_VEHICLE: Final = 101
_FIRST_LINE: Final = 1_001
_MINUTES: Final = 1_440
_EVENT_NAMES: Final = pa.array(EVENTS, pa.string())
_STARTS: Final = pa.array([f"{minute // 60:02}:{minute % 60:02}" for minute in range(_MINUTES)] + [None])
_LOCATIONS: Final = pa.array(LOCATIONS)
_JOURNEYS: Final = pa.array(["deadrun", "journey"])
_TEMPORALS: Final = pa.array(["ongoing", "upcoming"])
_IS_SIGN_IN: Final = np.array([home.topic == "input.sign-in" for home in EVENTS.values()])
_IS_LIGHT: Final = np.array([home.topic == "input.traffic-light" for home in EVENTS.values()])


@dataclass(frozen=True, slots=True)
class Names:
    """The values that the numbers of rows stand for. The last entry of each list that can miss is null."""

    mode: pa.Array
    operator: Ints
    vehicle: Ints
    key: pa.Array
    reported_operator: Ints
    line: Ints
    """By vehicle: which line of which copy it runs on; the next two are by this."""
    route: pa.Array
    designation: pa.Array
    headsign: pa.Array
    """By path."""
    stop: pa.Array
    """With END_OF_LINE and NOTHING at the end."""
    extra: pa.Array
    """By vehicle, then by halt."""

    @classmethod
    def of(cls, network: Network, timetable: Timetable, rng: np.random.Generator) -> Names:
        """Name everything: the vehicles of each operator are numbered, the copies of the lines get letters."""
        lines = network.lines
        operator = np.array([line.operator for line in lines])[timetable.line]
        vehicle = np.empty(len(operator), np.int64)
        for one in np.unique(operator):
            fleet = np.flatnonzero(operator == one)
            vehicle[fleet] = _FIRST_VEHICLE + rng.permutation(len(fleet))
        other = np.array([_OTHER_OPERATOR.get(line.operator, NOTHING) for line in lines])[timetable.line]
        suffixes = [_suffix(copy) for copy in range(int(timetable.copy.max()) + 1)]
        lights = [
            f'{{"sid":{1_000 + halt},"tlp-requesttype":"NORMAL","tlp-protocol":"KAR-MQTT"}}' if light else None
            for halt, light in enumerate(network.halt_kind == HALT_LIGHT)
        ]
        blocks = [f'{{"dr-type":1,"block":{1_000 + number}}}' for number in range(len(vehicle))]
        texts = pa.string()
        return cls(
            mode=pa.array([lines[line].mode for line in timetable.line], texts),
            operator=operator,
            vehicle=vehicle,
            key=pa.array([b"%04d/%05d" % pair for pair in zip(operator, vehicle, strict=True)], pa.binary()),
            reported_operator=np.where(rng.random(len(vehicle)) < 0.5, other, NOTHING),
            line=timetable.copy * len(lines) + timetable.line,
            route=pa.array([line.route + suffix for suffix in suffixes for line in lines] + [None], texts),
            designation=pa.array([line.designation + suffix for suffix in suffixes for line in lines] + [None], texts),
            headsign=pa.array(
                [*chain.from_iterable((line.places[-1], None, line.places[0], None) for line in lines), None], texts
            ),
            stop=pa.array([str(stop.number) for stop in network.stops] + ["EOL", None], texts),
            extra=pa.array([*blocks, *lights, None], texts),
        )


def _suffix(copy: int) -> str:
    """The suffix of a copy's routes: nothing, B, C, ... Z, B1, C1, ..."""
    if copy == 0:
        return ""
    again, letter = divmod(copy - 1, 25)
    return chr(ord("B") + letter) + (str(again) if again else "")


def to_columns(rows: npt.NDArray[np.void], names: Names) -> dict[str, pa.Array]:
    """The columns of all message types; what only stops, lights or sign-ins have is null in the others."""
    vehicle = rows["vehicle"].astype(np.int64)
    deadrun = rows["journey"] == NOTHING
    path = np.where(deadrun, len(names.headsign) - 1, rows["journey"])
    line = names.line[vehicle]
    direction = path % PATHS_PER_LINE // 2
    start = np.where(deadrun, _MINUTES, rows["start"])
    named_line = np.where(deadrun, len(names.route) - 1, line)
    reported = np.where(deadrun, NOTHING, names.reported_operator[vehicle])
    scheduled = _numbers(rows["scheduled"], pa.int64(), missing=rows["scheduled"] == NOTHING).cast(_TIME)
    whole = pa.int32()
    return {
        "mode": names.mode.take(pa.array(vehicle)),
        "operator": _numbers(names.operator[vehicle], whole),
        "vehicle": _numbers(names.vehicle[vehicle], whole),
        "lat": _numbers(rows["lat"], pa.float64(), missing=np.isnan(rows["lat"])),
        "lon": _numbers(rows["lon"], pa.float64(), missing=np.isnan(rows["lon"])),
        "speed": _numbers(rows["speed"], pa.float32(), missing=np.isnan(rows["speed"])),
        "acc": _numbers(rows["acc"], pa.float32(), missing=np.isnan(rows["acc"])),
        "heading": _numbers(rows["heading"], whole, missing=rows["heading"] == NOTHING),
        "route": names.route.take(pa.array(named_line)),
        "direction": _numbers(direction + 1, whole, missing=deadrun),
        "start": _STARTS.take(pa.array(start)),
        "operating_day": _days(rows["day"], deadrun),
        "delay": _numbers(rows["delay"], whole, missing=rows["delay"] == NO_DELAY),
        "odometer": _numbers(rows["odometer"], whole),
        "stop": names.stop.take(_from_end(rows["stop"], len(names.stop))),
        "next_stop": names.stop.take(_from_end(rows["next_stop"], len(names.stop))),
        "headsign": names.headsign.take(pa.array(path)),
        "designation": names.designation.take(pa.array(named_line)),
        "journey_number": _numbers(2 * start + direction + 1, whole, missing=deadrun),
        "line": _numbers(_FIRST_LINE + line, whole, missing=deadrun),
        "doors": _numbers(rows["doors"], whole),
        "location_source": _LOCATIONS.take(pa.array(rows["location"])),
        "occupancy": _numbers(np.zeros(len(rows)), whole),
        "event": _EVENT_NAMES.take(pa.array(rows["event"])),
        "journey": _JOURNEYS.take(pa.array((~deadrun).astype(np.int8))),
        "temporal": _TEMPORALS.take(pa.array(rows["upcoming"].astype(np.int8))),
        "reported_operator": _numbers(reported, whole, missing=reported == NOTHING),
        "reported_vehicle": pa.nulls(len(rows), whole),
        "extra": _extra(rows, vehicle, names),
        "scheduled_arrival": scheduled,
        "scheduled_departure": scheduled,
    }


def times(rows: npt.NDArray[np.void], field: str) -> pa.Array:
    """A field of microseconds as instants."""
    return pa.array(rows[field]).cast(_TIME)


def _numbers(values: npt.NDArray[Any], type_: pa.DataType, *, missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(values.astype(type_.to_pandas_dtype()), type_, mask=missing)


def _from_end(numbers: npt.NDArray[np.int32], length: int) -> pa.Array:
    """NOTHING (-1) and END_OF_LINE (-2) are counted from the end of the list."""
    return pa.array(np.where(numbers < 0, length + numbers, numbers))


def _days(days: npt.NDArray[np.int32], deadrun: npt.NDArray[np.bool_]) -> pa.Array:
    unique, which = np.unique(days, return_inverse=True)
    texts = pa.concat_arrays([pa.array(unique, pa.date32()).cast(pa.string()), pa.nulls(1, pa.string())])
    return texts.take(pa.array(np.where(deadrun, len(unique), which)))


def _extra(rows: npt.NDArray[np.void], vehicle: Ints, names: Names) -> pa.Array:
    light, sign_in = _IS_LIGHT[rows["event"]], _IS_SIGN_IN[rows["event"]]
    nothing = len(names.extra) - 1
    return names.extra.take(
        pa.array(np.where(light, len(names.vehicle) + rows["extra"], np.where(sign_in, vehicle, nothing)))
    )
