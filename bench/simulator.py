"""The simulator: how many events a second it can make, and bring into the log."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench.figures import Figure, with_aim
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.transport.open_log import open_log
from tidewheel_transit.hfp import HfpProcessor
from tidewheel_transit.simulator import Chunk, Simulator

__all__ = ["simulating"]

_START = 1_760_000_000_000_000  # a weekday morning
_RATE = 50_000
_SECOND = 1_000_000


def simulating(folder: Path, *, seconds: int, repeat: int) -> list[Figure]:
    """A fleet of 50,000 events a second, in chunks of a second as fast as possible, in each form that it can have."""
    simulator = Simulator(start=_START, rate=_RATE, rush_hours=False)
    simulator.advance(_START)  # what is before the start is made here
    group = f"Simulating a fleet that sends {_RATE:,} events a second"
    with open_log(folder / "simulated.tw") as log:
        pipeline = Pipeline(log, HfpProcessor(), source="simulator")
        forms: dict[str, Callable[[Chunk], object]] = {
            "as columns": lambda chunk: chunk.frame,
            "as encoded records": lambda chunk: chunk.records(),
            "into the log": lambda chunk: pipeline.deliver_processed(chunk.records(), received=len(chunk)),
            "as MQTT messages": lambda chunk: chunk.messages(),
        }
        return [
            with_aim(
                group, name, _rate(simulator, form, seconds, repeat), "events/s", least=_RATE, aim=f"at least {_RATE:,}"
            )
            for name, form in forms.items()
        ]


def _rate(simulator: Simulator, form: Callable[[Chunk], object], seconds: int, repeat: int) -> float:
    """Events a second, in the best of a few stretches; the city goes on meanwhile."""
    rates = []
    for _ in range(repeat):
        made = 0
        begin = time.perf_counter()
        for _ in range(seconds):
            chunk = simulator.advance(simulator.position + _SECOND)
            form(chunk)
            made += len(chunk)
        rates.append(made / (time.perf_counter() - begin))
    return max(rates)
