"""Disorder: when each message arrives. Clocks differ, modems stall, tunnels swallow, brokers repeat.

Made to the measure of the real fleet: arrival minus event time has its median at -0.47 s, p90 at -0.12 s, p99 at 9.3 s
and, tunnels apart, its maximum at 34.7 s.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["EARLIEST", "Disorder"]

Rows = npt.NDArray[np.void]

EARLIEST: Final = -1_200_000
"""No message arrives earlier than this after its event time (microseconds, as all times here)."""
_LATEST: Final = 34_700_000

_CLOCKS: Final = (
    (0.0, 0.02, 0.10, 0.50, 0.90, 0.98, 1.0),
    (-1.10, -0.92, -0.74, -0.484, -0.16, 0.0, 0.2),
)
"""Quantiles of the arrivals of the punctual: how far the vehicles' clocks are off, in seconds."""
_JITTER: Final = 0.03
_STALL: Final = 0.00096
"""How probable it is in each second that a vehicle's modem stalls."""
_STALL_SECONDS: Final = (2.0, 34.4)
_STRAY: Final = 0.002
"""How probable it is that a message alone is late, so that the next ones overtake it."""
_STRAY_SECONDS: Final = (0.5, 8.0)
_REPEAT: Final = 0.004
_REPEAT_SECONDS: Final = (0.01, 1.5)
_TUNNEL_BUNCH: Final = 1_500_000


class Disorder:
    """Gives rows their arrival times; keeps those that a tunnel holds until their vehicle is out of it."""

    def __init__(self, vehicles: int, rng: np.random.Generator, row: np.dtype[np.void]) -> None:
        self._rng = rng
        # Evenly drawn, so that a small fleet has the clocks of a large one.
        order = (rng.permutation(vehicles) + 0.5) / vehicles
        self._clock = np.interp(order, *_CLOCKS)
        self._stalled_from = np.zeros(vehicles, np.int64)
        self._stalled_until = np.zeros(vehicles, np.int64)
        self._held = np.empty(0, row)

    def arrive(self, rows: Rows, now: int) -> Rows:
        """The rows that are sent in this second (it begins at `now`), each with its arrival: those given that no
        tunnel holds, repeats of some, and the bunches of vehicles that have left a tunnel."""
        self._stall(now)
        vehicle, rng = rows["vehicle"], self._rng
        event_time = rows["event_time"]
        clock = (self._clock[vehicle] + rng.normal(0.0, _JITTER, len(rows))) * 1e6
        stray = np.where(rng.random(len(rows)) < _STRAY, rng.uniform(*_STRAY_SECONDS, len(rows)) * 1e6, 0.0)
        sent = event_time + (clock + stray).astype(np.int64)
        since, until = self._stalled_from[vehicle], self._stalled_until[vehicle]
        stalled = (event_time >= since) & (event_time < until)
        # What a modem has kept comes in a bunch, in its order.
        sent = np.where(stalled, np.maximum(sent, until + (event_time - since) // 500), sent)
        rows["arrival"] = np.clip(sent, event_time + EARLIEST, event_time + _LATEST)

        held = rows["held"]
        freed = self._free(rows, now)
        if held.any():
            self._held = np.concatenate([self._held, rows[held]])
        rows = np.concatenate([rows[~held], freed])
        repeated = rows[rng.random(len(rows)) < _REPEAT]
        repeated["arrival"] += (rng.uniform(*_REPEAT_SECONDS, len(repeated)) * 1e6).astype(np.int64)
        return np.concatenate([rows, repeated])

    def _stall(self, now: int) -> None:
        luck = self._rng.random(len(self._stalled_until))
        begins = np.flatnonzero((luck < _STALL) & (self._stalled_until <= now))
        self._stalled_from[begins] = now
        self._stalled_until[begins] = now + (self._rng.uniform(*_STALL_SECONDS, len(begins)) * 1e6).astype(np.int64)

    def _free(self, rows: Rows, now: int) -> Rows:
        """Of what tunnels hold, the rows of vehicles that are out."""
        inside = np.zeros(len(self._clock), bool)
        inside[rows["vehicle"][rows["held"]]] = True
        out = ~inside[self._held["vehicle"]]
        if not out.any():
            return np.empty(0, self._held.dtype)
        freed: Rows = self._held[out]
        self._held = self._held[~out]
        freed["arrival"] = now + _TUNNEL_BUNCH - (now - freed["event_time"]) // 1_000
        return freed
