"""Flows that were taken out come back through what they missed."""

from __future__ import annotations

import pytest

from tests.engine.orders import INPUT, put
from tidewheel.engine.datasource.backfill import SuspendedFlows, plan_catch_up, where
from tidewheel.engine.datasource.batch_planner import first_offset, plan_batch
from tidewheel.engine.datasource.offset import Offset
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


def plan(log, before, after, suspended_flows, clock=9):
    return plan_catch_up(log, STRATEGIES, before, after, suspended_flows, limit=1, clock=clock)


def position(offset: Offset) -> int:
    return offset.positions[INPUT, 0]


def test_without_catch_ups_nothing_changes(log, offsets):
    assert plan(log, offsets[1], offsets[2], SuspendedFlows()) is offsets[2]
    assert plan(log, offsets[2], offsets[2], SuspendedFlows()) is offsets[2]


def test_a_flow_catches_up_batch_by_batch_and_then_goes_on_with_the_others(log, offsets):
    suspended_flows = SuspendedFlows().suspend("late", "it broke", offsets[1]).resume()
    (name,) = suspended_flows.catch_ups
    at = offsets[4]
    spans = []
    while True:
        planned = plan(log, at, at, suspended_flows)
        if planned is at:
            break
        at = Offset.from_json(planned.to_json())  # as Spark keeps it
        catch_up = at.catch_ups.get(name)
        if catch_up is not None:
            spans.append(
                (
                    position(catch_up.start),
                    position(catch_up.end),
                    catch_up.start.watermark,
                    catch_up.end.watermark,
                    catch_up.done,
                )
            )
    assert spans == [
        (1, 2, 9_000_000, 19_000_000, False),
        (2, 3, 19_000_000, 29_000_000, False),
        (3, 4, 29_000_000, 39_000_000, True),
    ]
    put(log, (50, "fi", 1))
    after = plan_batch(log, STRATEGIES, at, limit=1, clock=10, tick=0)
    following = plan(log, at, after, suspended_flows)
    assert following.ended_catch_ups == (name,)
    assert following.catch_ups == {}
    assert plan(log, following, following, suspended_flows) is following, "a catch-up is begun once"
    for second in (60, 70, 80):
        put(log, (second, "fi", 1))
        after = plan_batch(log, STRATEGIES, following, limit=1, clock=second, tick=0)
        following = Offset.from_json(plan(log, following, after, suspended_flows).to_json())
        assert following.catch_ups == {}, "nor is it begun again later"
        assert following.ended_catch_ups == (name,)


def test_a_flow_that_fails_again_stays_where_it_was(log, offsets):
    suspended_flows = SuspendedFlows().suspend("late", "it broke", offsets[1]).resume()
    assert where(offsets[4], "late", suspended_flows).positions == offsets[1].positions
    first = plan(log, offsets[4], offsets[4], suspended_flows)
    assert position(where(first, "late", suspended_flows)) == 2
    assert position(where(first, "other", suspended_flows)) == 4
    again = suspended_flows.suspend("late", "it broke again", where(first, "late", suspended_flows))
    assert again.catch_ups == {}
    assert again.suspended["late"]["reason"] == "it broke again"
    resumed = again.resume()
    (catch_up,) = plan(log, first, first, resumed).catch_ups.values()
    assert (position(catch_up.start), position(catch_up.end)) == (2, 3)


def test_a_flow_that_is_out_is_not_taken_out_again_further_on(log, offsets):
    resumed = SuspendedFlows().suspend("late", "it broke", offsets[1]).resume()
    out = resumed.suspend("late", "again", where(offsets[3], "late", resumed))
    # The others could not be started at once: whoever tries next finds it out, and its catch-up gone.
    twice = out.suspend("late", "again", where(offsets[3], "late", out))
    assert twice == out
    assert position(Offset.from_json(twice.suspended["late"]["since"])) == 1


def test_suspended_flows_survive_in_their_file(tmp_path, offsets):
    path = tmp_path / "flows.json"
    assert SuspendedFlows.read(path) == SuspendedFlows()
    suspended_flows = SuspendedFlows().suspend("late", "it broke", offsets[1])
    suspended_flows.write(path)
    assert SuspendedFlows.read(path) == suspended_flows
