from __future__ import annotations

import threading

import pytest

from tidewheel.errors import DefinitionError
from tidewheel.ingest.replay.pacer import Pacer

SECOND = 1_000_000


class Clock:
    """A clock that moves only while somebody waits, and notes for how long."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.waits: list[float] = []

    def __call__(self) -> int:
        return self.at

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.at += round(seconds * SECOND)
        return False


def test_moments_come_at_their_distance_from_the_origin() -> None:
    clock = Clock(at=500 * SECOND)
    pacer = Pacer(100 * SECOND, clock=clock, wait=clock.wait)
    assert pacer.wait_for(100 * SECOND)
    assert pacer.wait_for(103 * SECOND)
    assert pacer.wait_for(104 * SECOND)
    assert clock.waits == [3.0, 1.0]
    assert clock.at == 504 * SECOND


def test_speed_divides_the_waits() -> None:
    clock = Clock()
    pacer = Pacer(0, speed=4.0, clock=clock, wait=clock.wait)
    assert pacer.wait_for(0)
    assert pacer.wait_for(10 * SECOND)
    assert clock.waits == [2.5]


def test_what_is_behind_is_not_waited_for() -> None:
    clock = Clock()
    pacer = Pacer(0, clock=clock, wait=clock.wait)
    pacer.begin()
    clock.at = 10 * SECOND
    assert pacer.behind(4 * SECOND) == 6 * SECOND
    assert pacer.behind(11 * SECOND) == 0
    assert pacer.wait_for(4 * SECOND)
    assert pacer.wait_for(9 * SECOND)
    assert clock.waits == []
    assert pacer.wait_for(11 * SECOND)
    assert clock.waits == [1.0]


def test_without_a_speed_nothing_is_waited_for() -> None:
    clock = Clock()
    pacer = Pacer(0, speed=None, clock=clock, wait=clock.wait)
    assert pacer.wait_for(1_000 * SECOND)
    assert clock.waits == []
    assert pacer.behind(0) == 0


def test_a_wait_that_ends_early_goes_on() -> None:
    clock = Clock()

    def doze(seconds: float) -> bool:
        return clock.wait(min(seconds, 0.4))

    assert Pacer(0, clock=clock, wait=doze).wait_for(SECOND)
    assert clock.at == SECOND


def test_setting_stop_ends_a_wait_at_once() -> None:
    stop = threading.Event()
    pacer = Pacer(0, stop=stop)
    results: list[bool] = []
    waiting = threading.Thread(target=lambda: results.append(pacer.wait_for(3_600 * SECOND)))
    waiting.start()
    stop.set()
    waiting.join(timeout=60)
    assert results == [False]
    assert pacer.stopped
    assert not pacer.wait_for(0)


@pytest.mark.parametrize("speed", [0, -1.0, float("nan")])
def test_a_speed_that_goes_nowhere_is_refused(speed: float) -> None:
    with pytest.raises(DefinitionError, match="speed must be above 0"):
        Pacer(0, speed=speed)
