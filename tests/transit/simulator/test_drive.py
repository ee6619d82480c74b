from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from tests.transit.simulator_support import NOON
from tidewheel.errors import DefinitionError
from tidewheel.transport.open_log import open_log
from tidewheel_transit.simulator import Chunk, Simulator, drive

SECOND = 1_000_000


@dataclass
class World:
    """A clock that moves while one waits or works, and what was delivered when."""

    at: int = NOON
    work: list[int] = field(default_factory=list)
    """How long each delivery takes; the later ones take nothing."""
    delivered: list[tuple[int, Chunk]] = field(default_factory=list)

    def clock(self) -> int:
        return self.at

    def wait(self, seconds: float) -> bool:
        self.at += round(seconds * SECOND)
        return False

    def deliver(self, chunk: Chunk) -> None:
        self.delivered.append((self.at, chunk))
        self.at += self.work.pop(0) if self.work else 0

    def run(self, *, rate: float = 20, **options: object) -> int:
        simulator = Simulator(start=NOON, rate=rate)
        return drive(simulator, self.deliver, clock=self.clock, wait=self.wait, **options)  # type: ignore[arg-type]


def test_each_chunk_is_delivered_when_the_last_of_it_has_arrived() -> None:
    world = World()
    count = world.run(length=3 * SECOND)
    assert [at for at, _ in world.delivered] == [chunk.end for _, chunk in world.delivered]
    assert [chunk.end - NOON for _, chunk in world.delivered] == [500_000 * number for number in range(1, 7)]
    assert count == sum(len(chunk) for _, chunk in world.delivered) > 0


def test_at_double_speed_it_takes_half_the_time() -> None:
    world = World()
    world.run(length=8 * SECOND, speed=2.0)
    assert world.at == NOON + 4 * SECOND


def test_who_is_behind_catches_up_in_larger_chunks_and_loses_nothing() -> None:
    world = World(work=[4 * SECOND])
    world.run(length=10 * SECOND)
    chunks = [chunk for _, chunk in world.delivered]
    assert [chunk.start for chunk in chunks[1:]] == [chunk.end for chunk in chunks[:-1]]
    assert max(chunk.end - chunk.start for chunk in chunks) == 4 * SECOND
    assert world.at == NOON + 10 * SECOND
    assert sum(map(len, chunks)) == len(Simulator(start=NOON, rate=20).advance(NOON + 10 * SECOND))


def test_as_fast_as_possible_does_not_wait() -> None:
    world = World()
    world.run(length=20 * SECOND, speed=None, step=SECOND)
    assert world.at == NOON
    assert len(world.delivered) == 20


def test_it_stops_when_asked() -> None:
    world, stop = World(), threading.Event()

    def deliver(chunk: Chunk) -> None:
        world.deliver(chunk)
        if len(world.delivered) == 3:
            stop.set()

    simulator = Simulator(start=NOON, rate=20)
    drive(simulator, deliver, stop=stop, clock=world.clock, wait=world.wait)
    assert len(world.delivered) == 3


def test_a_step_of_nothing_is_refused() -> None:
    with pytest.raises(DefinitionError, match="step must be at least"):
        World().run(step=0)


def test_straight_to_the_log(tmp_path: object) -> None:
    with open_log(f"{tmp_path}/city.tw") as log:
        producer = log.producer("simulator")
        simulator = Simulator(start=NOON, rate=100)
        filtered = 0

        def deliver(chunk: Chunk) -> None:
            nonlocal filtered
            processed = chunk.records()
            producer.append(processed.topics)
            filtered += sum(processed.filtered.values())

        count = drive(simulator, deliver, speed=None, length=20 * SECOND)
        assert sum(topic.count for topic in log.topics() if topic.name.startswith("input.")) + filtered == count
