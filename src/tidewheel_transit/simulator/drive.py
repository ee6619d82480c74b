"""Driving a simulator against the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import tidewheel as tw
from tidewheel.ingest import Pacer
from tidewheel_transit.simulator.chunk import Chunk
from tidewheel_transit.simulator.simulator import Simulator

__all__ = ["drive"]

_LARGEST: Final = 10_000_000
"""A simulator that is behind catches up in chunks of at most this length."""


def drive(
    simulator: Simulator,
    deliver: Callable[[Chunk], object],
    *,
    speed: float | None = 1.0,
    step: tw.time.Duration = 500_000,
    length: tw.time.Duration | None = None,
    stop: threading.Event | None = None,
    clock: Callable[[], tw.time.Instant] = tw.time.now,
    wait: Callable[[float], bool] | None = None,
) -> int:
    """Deliver what the simulator's fleet sends, each chunk when the last of it has arrived; returns how many events.

    Chunks are `step` long, longer when delivering is behind, so that it catches up. It ends when `stop` is set or
    `length` of simulated time has passed. `speed`, `clock` and `wait` are those of `Pacer`: at speed 1, a simulator
    that starts now sends its events now; None: as fast as possible.
    """
    if step < 1:
        raise tw.errors.DefinitionError(f"step must be at least 1 µs, got {step!r}")
    pacer = Pacer(simulator.position, speed=speed, stop=stop, clock=clock, wait=wait)
    end = None if length is None else simulator.position + length
    delivered = 0
    while end is None or simulator.position < end:
        behind = round(pacer.behind(simulator.position + step) * (speed or 0.0))
        until = simulator.position + min(step + behind, max(step, _LARGEST))
        if end is not None:
            until = min(until, end)
        if not pacer.wait_for(until):
            break
        chunk = simulator.advance(until)
        deliver(chunk)
        delivered += len(chunk)
    return delivered
