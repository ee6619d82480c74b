"""How long results take, against a plain list of all of them."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.serve_support import CELLS, counts, eventually, put
from tidewheel.model.time import now
from tidewheel.serve.layers.layer import Layer
from tidewheel.serve.view.latency import Latencies
from tidewheel_transit.transit_pb2 import VehiclePosition

SECOND = 1_000_000
MINUTE = 60 * SECOND

moments = st.lists(st.tuples(st.integers(1, 50_000), st.integers(0, 50_000)), min_size=1, max_size=8)
blocks = st.lists(st.tuples(st.lists(st.integers(-10_000, 200_000), max_size=20), st.integers(0, 400_000)), max_size=8)


def nearest_rank(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1]


@given(moments, blocks)
def test_every_result_counts_once_from_when_its_time_was_reached(moments, blocks):
    reached, when = ([*np.cumsum(column)] for column in zip(*moments, strict=True))
    latencies, taken = Latencies(), []
    for times, had in blocks:
        latencies.result(np.array(times, np.int64), had=had)
        for time in times:
            first = next((n for n, mark in enumerate(reached) if mark >= time), 0)
            if first > 0 and had >= when[first]:
                taken.append((had - when[first]) // 1_000)
    latencies.measure(reached, when, now=0)
    wanted = {f"p{share}": nearest_rank(taken, share / 100) for share in (50, 90, 99)} if taken else None
    assert latencies.percentiles() == wanted


def test_what_was_measured_counts_for_a_minute():
    latencies = Latencies()
    reached, when = [0, 1_000], [0, 5_000]
    for moment in (0, 30 * SECOND):
        latencies.result(np.array([500]), had=moment + 7_000)
        latencies.measure(reached, when, now=moment)
    assert latencies.percentiles() == {"p50": 2, "p90": 30_002, "p99": 30_002}
    latencies.measure(reached, when, now=MINUTE + 1)
    assert latencies.percentiles() == {"p50": 30_002, "p90": 30_002, "p99": 30_002}
    latencies.measure(reached, when, now=2 * MINUTE)
    assert latencies.percentiles() is None


def test_what_is_kept_does_not_grow_with_the_results():
    latencies = Latencies()
    latencies.result(np.arange(1, 100_001) * 10, had=3 * SECOND)
    latencies.measure([0, SECOND], [0, SECOND], now=0)
    assert [len(millis) for _, millis, _ in latencies._measured] == [1]
    assert latencies.percentiles() == {"p50": 2_000, "p90": 2_000, "p99": 2_000}


def positions(log, time):
    put(log, VehiclePosition, "input.vehicle-position", {"vehicle": [7]}, times=time)


def test_a_server_measures_each_timely_result_that_came_since_it_began(log, start):
    then = now() // SECOND * SECOND - 3_600 * SECOND  # a replay: event time tells nothing of the clock
    positions(log, then)
    positions(log, then + 10 * SECOND)
    counts(log, {CELLS["here"]: 1}, end=then + 5 * SECOND, watermark=then + 5 * SECOND)
    server = start(layers=[Layer(topic="analytics.vehicle-distribution", expiry=60_000)])
    status = server.feed.status
    eventually(lambda: status.latest.get("watermark") == (then + 5 * SECOND) // 1_000, "all is read")
    assert status.latest["latency"] is None  # nobody served what came before
    reached = now()
    positions(log, then + 20 * SECOND)
    positions(log, then + 30 * SECOND)
    counts(log, {CELLS["here"]: 1}, end=then + 4 * SECOND, pane_timing="LATE")
    counts(log, {CELLS["here"]: 1}, end=then + 20 * SECOND, watermark=then + 20 * SECOND)
    counts(log, {CELLS["there"]: 1}, end=then + 19 * SECOND, watermark=then + 21 * SECOND)  # behind the watermark
    counts(log, {CELLS["here"]: 1, CELLS["there"]: 1}, end=then + 30 * SECOND, watermark=then + 30 * SECOND)
    eventually(lambda: status.latest["watermark"] == (then + 30 * SECOND) // 1_000, "all is measured")
    assert sum(each.sum() for _, _, each in status.latencies._measured) == 3
    measured = status.latest["latency"]
    assert 0 <= measured["p50"] <= measured["p99"] <= (now() - reached) // 1_000
