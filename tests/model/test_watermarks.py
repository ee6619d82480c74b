"""How far event time has come."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import DefinitionError
from tidewheel.model import watermarks
from tidewheel.model.block_stats import skew_bins, skew_bounds, summarize
from tidewheel.model.watermarks import advance

S = 1_000_000
T = 1_600_000_000 * S  # an instant to count from
HERE = ("a", 0)


def block(*event_times, at=T, future=60 * S, marks=()):
    return summarize(np.array(event_times, np.int64), append_time=at, future_tolerance=future, punctuations=marks)


def follow(strategy, batches, clocks=None):
    """The watermark after each batch of blocks of one partition; its memory goes through JSON as in a checkpoint."""
    state, marks = {}, []
    for number, blocks in enumerate(batches):
        clock = clocks[number] if clocks else T + number
        state, mark = advance({"a": strategy}, state, {HERE: blocks}, clock=clock)
        state = json.loads(json.dumps(state))
        marks.append(mark)
    return marks


def test_bounded_stays_behind_the_highest_event_time():
    strategy = watermarks.bounded("1 s")
    assert follow(strategy, [[block(T)], [block(T - 5 * S)], [block(T + 2 * S, T)]]) == [T - S, T - S, T + S]


def test_monotonic_is_the_highest_event_time_itself():
    assert follow(watermarks.monotonic(), [[block(T, T + 1)]]) == [T + 1]


def test_nothing_is_known_before_the_first_event():
    assert follow(watermarks.bounded("1 s"), [[], [block()], [block(T)]]) == [None, None, T - S]


def test_one_clock_from_the_future_does_not_move_it():
    far = T + 3600 * S
    assert follow(watermarks.bounded("1 s"), [[block(T, far)]]) == [T - S]
    assert follow(watermarks.bounded("1 s", future=None), [[block(T, far)]]) == [far - S]
    assert follow(watermarks.bounded("1 s"), [[block(far)]]) == [None]


def test_a_guard_stricter_than_the_blocks_holds_all_the_same():
    strategy = watermarks.monotonic(future="5 s")
    assert follow(strategy, [[block(T, T + 30 * S)]]) == [T]
    assert follow(strategy, [[block(T, T + 30 * S)], [block(T + 30 * S)]]) == [T, T]
    assert follow(strategy, [[block(T + 30 * S)]]) == [None]


SKEWS = st.lists(st.integers(-20_000, 20_000), min_size=1, max_size=8)


@given(SKEWS, st.integers(0, 12), st.integers(0, 15))
def test_no_event_from_the_future_moves_it_and_every_other_does(skews_ms, tolerance, future):
    times = [T + skew * 1_000 for skew in skews_ms]
    (mark,) = follow(watermarks.monotonic(future=f"{future} s"), [[block(*times, future=tolerance * S)]])
    believed = [time for time in times if time <= T + future * S]
    assert mark is None or mark <= max(believed)

    def width(time):  # of the bin of its skew, at most
        return abs(time - T) // 7 + 2_000

    clear = [time for time in times if time + width(time) <= T + future * S]
    if clear:
        assert mark is not None
        assert mark >= max(clear) - width(max(clear))


def test_each_block_is_plausible_by_its_own_clock():
    early, slow = block(T + 300 * S, at=T), block(T + 10 * S, at=T + 3600 * S)
    assert follow(watermarks.monotonic(), [[early, slow]]) == [T + 10 * S]
    marker = block(at=T, marks=[T + 300 * S])
    assert follow(watermarks.punctuated(), [[marker, block(T, at=T + 3600 * S)]]) == [None]


@given(st.lists(SKEWS, min_size=1, max_size=5), st.data())
def test_the_watermark_does_not_depend_on_how_blocks_were_cut_into_batches(groups, data):
    blocks = [block(*(T + n * S + skew * 1_000 for skew in group), at=T + n * S) for n, group in enumerate(groups)]
    strategy = data.draw(
        st.sampled_from([watermarks.bounded("1 s", future="3 s"), watermarks.percentile(80), watermarks.arrival("1 s")])
    )
    assert follow(strategy, [blocks])[-1] == follow(strategy, [[each] for each in blocks])[-1]


def test_punctuated_moves_by_markers_alone():
    strategy = watermarks.punctuated()
    assert follow(strategy, [[block(T)], [block(T, marks=[T - 3 * S, T - 9 * S])], [block(T + S)]]) == [
        None,
        T - 3 * S,
        T - 3 * S,
    ]


@given(st.lists(st.integers(-30_000, 500), min_size=200, max_size=600), st.sampled_from([50.0, 90.0, 99.0]))
def test_percentile_leaves_about_so_many_behind(skews_ms, percent):
    skews = np.array(skews_ms, np.int64) * 1_000
    (mark,) = follow(watermarks.percentile(percent), [[block(*(T + skews), at=T)]])
    late = np.mean(T + skews < mark)
    assert late <= (100 - percent) / 100
    # a bin is at most an eighth wide: a watermark an eighth (and a millisecond) later would leave too many behind
    later = mark + abs(mark - T) // 7 + 2_000
    assert np.mean(T + skews < later) >= (100 - percent) / 100 - 1 / len(skews) or later > T


def test_percentile_forgets_slowly():
    strategy = watermarks.percentile(90)
    slow, quick = np.full(1_000, T - 20 * S), np.full(60_000, T)
    marks = follow(strategy, [[block(*slow)], *[[block(*quick)]] * 30])
    assert marks[0] < T - 19 * S
    assert marks[-1] > T - S


def test_the_common_watermark_is_the_least_and_never_falls():
    strategies = {"a": watermarks.monotonic(), "b": watermarks.monotonic()}
    state, mark = advance(strategies, {}, {("a", 0): [block(T)], ("b", 0): []}, clock=T)
    assert mark is None  # nothing is known of b
    state, mark = advance(strategies, state, {("a", 0): [], ("b", 0): [block(T - 5)]}, clock=T)
    assert mark == T - 5
    state, mark = advance(strategies, state, {("a", 0): [], ("b", 0): [], ("b", 1): [block(T - 9)]}, clock=T)
    assert mark == T - 5


def test_an_idle_input_moves_with_the_clock_and_holds_nobody_back():
    strategies = {name: watermarks.monotonic(idle="10 s") for name in "ab"}
    state, _ = advance(strategies, {}, {("a", 0): [block(T)], ("b", 0): [block(T)]}, clock=T)
    state, mark = advance(strategies, state, {("a", 0): [block(T + 9 * S)], ("b", 0): []}, clock=T + 9 * S)
    assert mark == T  # b may still come
    state, mark = advance(strategies, state, {("a", 0): [block(T + 10 * S)], ("b", 0): []}, clock=T + 10 * S)
    assert mark == T + 10 * S  # b is idle
    state, mark = advance(strategies, state, {("a", 0): [], ("b", 0): []}, clock=T + 25 * S)
    assert mark == T + 25 * S  # all are


def test_an_input_with_more_to_read_is_not_idle():
    strategies = {name: watermarks.monotonic(idle="10 s") for name in "ab"}
    state, _ = advance(strategies, {}, {("a", 0): [block(T)], ("b", 0): [block(T)]}, clock=T)
    _, mark = advance(
        strategies,
        state,
        {("a", 0): [block(T + 60 * S)], ("b", 0): []},
        clock=T + 60 * S,
        behind=frozenset({("b", 0)}),
    )
    assert mark == T


@pytest.mark.parametrize(
    "make",
    [
        lambda: watermarks.bounded("-1 s"),
        lambda: watermarks.bounded("soon"),
        lambda: watermarks.bounded(None),
        lambda: watermarks.percentile(0),
        lambda: watermarks.percentile(101),
        lambda: watermarks.bounded("1 s", idle="-1 s"),
        lambda: watermarks.from_json({"kind": "magic"}),
        lambda: watermarks.from_json({"kind": "bounded", "dealy": 5}),
    ],
)
def test_strategies_that_make_no_sense_are_refused(make):
    with pytest.raises(DefinitionError, match="watermark"):
        make()


STORED = {
    '{"kind": "bounded", "idle": 3000000, "delay": 1000000}': watermarks.bounded("1 s", idle="3 s"),
    '{"kind": "bounded", "future": null}': watermarks.monotonic(future=None),
    '{"kind": "percentile", "future": 1000000, "percent": 95.0}': watermarks.percentile(95, future="1 s"),
    '{"kind": "percentile"}': watermarks.percentile(99),
    '{"kind": "punctuated"}': watermarks.punctuated(),
    '{"kind": "arrival", "delay": 2000000}': watermarks.arrival("2 s"),
    '{"kind": "control"}': watermarks.ControlTopic(),
    '{"kind": "read_ahead"}': watermarks.ReadAheadTopic(),
}
"""As checkpoints hold them: they must be read for ever."""


@pytest.mark.parametrize(("text", "strategy"), STORED.items(), ids=STORED)
def test_a_strategy_is_stored_as_it_always_was(text, strategy):
    assert json.dumps(strategy.to_json()) == text
    assert watermarks.from_json(json.loads(text)) == strategy


def test_every_kind_of_strategy_is_among_them():
    assert {json.loads(text)["kind"] for text in STORED} == set(watermarks.KINDS)


INSTANTS = st.integers(-(2**63) + 1, 2**63 - 1)


@given(st.lists(INSTANTS, max_size=20))
def test_the_skew_counts_every_event(times):
    found = block(*times)
    assert sum(found.skew.values()) == found.count


@given(st.integers(-(2**55), 2**55))
def test_a_skew_lies_within_its_bin(skew):
    low, high = skew_bounds(int(skew_bins(np.array([skew]))[0]))
    assert low <= skew <= high
    assert high - low <= max(2_000, abs(skew) // 7 + 2_000)
