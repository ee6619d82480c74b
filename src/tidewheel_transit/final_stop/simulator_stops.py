"""Final stops from the simulator's timetable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from tidewheel.ingest import Key
from tidewheel_transit.simulator.network import HALT_STOP, PATHS_PER_LINE, Stop, network

__all__ = ["SimulatedFinalStops"]

_COPY = re.compile(r"[B-Z]\d*$")


class SimulatedFinalStops:
    """Answers for the simulator's lines: every journey of a line in one direction ends at the same stop.

    >>> import asyncio
    >>> asyncio.run(SimulatedFinalStops().ask(("1019", 1, "2025-10-09", "07:20")))
    {'final_stop': '1022718', 'final_lat': 60.148025, 'final_lon': 24.985845}
    """

    async def ask(self, key: Key) -> Mapping[str, Any] | None:
        """Return the final stop of a journey (route, direction, operating day, start)."""
        route, direction, _, _ = key
        ends = _ends()
        # Copies of the lines, which a large fleet runs on, have a letter behind the route; so have some routes.
        stop = ends.get((route, direction)) or ends.get((_COPY.sub("", route), direction))
        return None if stop is None else {"final_stop": str(stop.number), "final_lat": stop.lat, "final_lon": stop.lon}

    def __repr__(self) -> str:
        return "SimulatedFinalStops()"


@lru_cache(maxsize=1)
def _ends() -> Mapping[tuple[str, int], Stop]:
    """The last stop of each route and direction."""
    city = network()
    found = {}
    for number, line in enumerate(city.lines):
        for direction in (1, 2):
            path = number * PATHS_PER_LINE + 2 * (direction - 1)
            halts = np.arange(city.path_halts[path], city.path_halts[path + 1])
            last = halts[city.halt_kind[halts] == HALT_STOP][-1]
            found[line.route, direction] = city.stops[city.halt_stop[last]]
    return found
