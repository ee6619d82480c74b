"""Flows that were taken out come back through what they missed."""

from __future__ import annotations

import pytest
from orders import INPUT, put

from tidewheel.engine.lanes import Roster, plan_lanes, where
from tidewheel.engine.offset import Offset
from tidewheel.engine.planning import first_offset, plan_batch
from tidewheel.model import watermarks

STRATEGIES = {INPUT: watermarks.bounded("1 s", future=None)}


@pytest.fixture
def offsets(log):
    """Where each of four batches of one block begins and ends."""
    for second in (10, 20, 30, 40):
        put(log, (second, "fi", 1))
    found = [first_offset(log, [INPUT], "earliest", clock=0)]
    for number in range(4):
        found.append(plan_batch(log, STRATEGIES, found[-1], limit=1, clock=number + 1, tick=0))
    return found


def plan(log, before, after, roster, clock=9):
    return plan_lanes(log, STRATEGIES, before, after, roster, limit=1, clock=clock)


def position(offset: Offset) -> int:
    return offset.positions[INPUT, 0]


def test_without_lanes_nothing_changes(log, offsets):
    assert plan(log, offsets[1], offsets[2], Roster()) is offsets[2]
    assert plan(log, offsets[2], offsets[2], Roster()) is offsets[2]


def test_a_flow_catches_up_batch_by_batch_and_then_goes_on_with_the_others(log, offsets):
    roster = Roster().suspend("late", "it broke", offsets[1]).resume()
    (name,) = roster.lanes
    at = offsets[4]
    spans = []
    while True:
        planned = plan(log, at, at, roster)
        if planned is at:
            break
        at = Offset.from_json(planned.to_json())  # as Spark keeps it
        lane = at.lanes.get(name)
        if lane is not None:
            spans.append(
                (position(lane.start), position(lane.end), lane.start.watermark, lane.end.watermark, lane.done)
            )
    assert spans == [
        (1, 2, 9_000_000, 19_000_000, False),
        (2, 3, 19_000_000, 29_000_000, False),
        (3, 4, 29_000_000, 39_000_000, True),
    ]
    put(log, (50, "fi", 1))
    after = plan_batch(log, STRATEGIES, at, limit=1, clock=10, tick=0)
    following = plan(log, at, after, roster)
    assert following.ended_lanes == (name,)
    assert following.lanes == {}
    assert plan(log, following, following, roster) is following, "a lane is begun once"
    for second in (60, 70, 80):
        put(log, (second, "fi", 1))
        after = plan_batch(log, STRATEGIES, following, limit=1, clock=second, tick=0)
        following = Offset.from_json(plan(log, following, after, roster).to_json())
        assert following.lanes == {}, "nor is it begun again later"
        assert following.ended_lanes == (name,)


def test_a_flow_that_fails_again_stays_where_it_was(log, offsets):
    roster = Roster().suspend("late", "it broke", offsets[1]).resume()
    assert where(offsets[4], "late", roster).positions == offsets[1].positions
    first = plan(log, offsets[4], offsets[4], roster)
    assert position(where(first, "late", roster)) == 2
    assert position(where(first, "other", roster)) == 4
    again = roster.suspend("late", "it broke again", where(first, "late", roster))
    assert again.lanes == {}
    assert again.suspended["late"]["reason"] == "it broke again"
    resumed = again.resume()
    (lane,) = plan(log, first, first, resumed).lanes.values()
    assert (position(lane.start), position(lane.end)) == (2, 3)


def test_a_flow_that_is_out_is_not_taken_out_again_further_on(log, offsets):
    resumed = Roster().suspend("late", "it broke", offsets[1]).resume()
    out = resumed.suspend("late", "again", where(offsets[3], "late", resumed))
    # The others could not be started at once: whoever tries next finds it out, and its lane gone.
    twice = out.suspend("late", "again", where(offsets[3], "late", out))
    assert twice == out
    assert position(Offset.from_json(twice.suspended["late"]["since"])) == 1


def test_the_roster_survives_in_its_file(tmp_path, offsets):
    path = tmp_path / "flows.json"
    assert Roster.read(path) == Roster()
    roster = Roster().suspend("late", "it broke", offsets[1])
    roster.write(path)
    assert Roster.read(path) == roster
