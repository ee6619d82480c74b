"""The matcher on columns gives what the NFA gives key by key, however the events are cut into batches."""

from __future__ import annotations

import io
import itertools
import pickle
from collections import Counter
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.patterns.pattern_strategies import SCHEMA, events, patterns, policies
from tidewheel.errors import CheckpointError, DefinitionError, PatternError
from tidewheel.patterns.define.builder import Pattern, any_of, pattern
from tidewheel.patterns.define.policy import Policy
from tidewheel.patterns.define.references import collect, count, first, last, mean, previous
from tidewheel.patterns.define.references import max as greatest
from tidewheel.patterns.define.references import min as least
from tidewheel.patterns.define.references import sum as total
from tidewheel.patterns.nfa.harness import Harness
from tidewheel.patterns.nfa.reference import PatternReference
from tidewheel.patterns.vectorized.matcher import Matcher

END = 1_000
TYPES = {"key": pl.String(), "__time": pl.Int64(), "event": pl.Int64(), **SCHEMA}


def through_ipc(state: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The state as it is after it was written and read."""
    found = {}
    for name, frame in state.items():
        buffer = io.BytesIO()
        frame.write_ipc(buffer)
        buffer.seek(0)
        found[name] = pl.read_ipc(buffer)
    return found


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=TYPES).sort("key", "__time", maintain_order=True, nulls_last=False)


def run(matcher: Matcher, rows: list[dict[str, Any]], cuts: list[int]) -> dict[str, pl.DataFrame]:
    """In batches that end before these times; what comes out must be in order in each."""
    found: dict[str, list[pl.DataFrame]] = {"matches": [], "timed_out": [], "dropped": []}
    state: dict[str, pl.DataFrame] = {}
    before = -1
    for cut in [*sorted(cuts), END]:
        batch = frame([row for row in rows if before <= row["__time"] < cut])
        outputs, state = matcher.step(through_ipc(state), batch, cut)
        for name, output in outputs.items():
            times = output.columns[output.columns.index("match_end") + 1]
            assert output.rows() == output.sort(times, "key", maintain_order=True).rows()
            found[name].append(output)
        before = max(before, cut)
    return {name: pl.concat(frames) for name, frames in found.items()}


def expected(built: Pattern, rows: list[dict[str, Any]], limit: int) -> dict[str, Counter[Any]]:
    """Key by key, event by event, by the NFA alone."""
    found: dict[str, Counter[Any]] = {"matches": Counter(), "timed_out": Counter(), "dropped": Counter()}
    for key in {row["key"] for row in rows}:
        own = sorted((row for row in rows if row["key"] == key), key=lambda row: row["__time"])
        harness = Harness(built, SCHEMA, limit=limit)
        for row in own:
            harness.add({name: row[name] for name in SCHEMA}, time=row["__time"])
        harness.advance(END)

        def reported(stages: dict[str, list[int]], at: int, own: Any = own, key: Any = key) -> Any:
            numbers = sorted(number for numbers in stages.values() for number in numbers)
            taken = tuple((stage, tuple(own[one]["event"] for one in numbers)) for stage, numbers in stages.items())
            return key, own[numbers[0]]["__time"], own[numbers[-1]]["__time"], at, tuple(sorted(taken))

        for match, at in zip(harness.matches, harness.completed_at, strict=True):
            found["matches"][reported(match, at)] += 1
        for name in ("timed_out", "dropped"):
            for stages, at in getattr(harness, name):
                reached = max(stages, key=lambda stage: stages[stage][-1])
                key, start, end, at, taken = reported(stages, at)
                found[name][key, start, end, at, taken if name == "timed_out" else reached] += 1
    return found


def measured(built: Pattern) -> dict[str, pl.Expr]:
    return {f"of {stage}": collect(f"{stage}.event") for stage in built.stages}


def shown(name: str, output: pl.DataFrame, stages: tuple[str, ...]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in output.iter_rows(named=True):
        at = row[{"matches": "completed_at", "timed_out": "timed_out_at", "dropped": "dropped_at"}[name]]
        reported = (row["key"], row["match_start"], row["match_end"], at)
        if name == "dropped":
            found[(*reported, row["stage"])] += 1
        else:
            taken = ((stage, tuple(row[f"of {stage}"])) for stage in stages if row[f"of {stage}"])
            found[(*reported, tuple(sorted(taken)))] += 1
    return found


@pytest.mark.long
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    patterns() | patterns(gaps=True),
    st.lists(events(8), min_size=1, max_size=4),
    st.lists(st.integers(0, 25), max_size=6),
    st.sampled_from([1, 2, 3, 5, 100]),
    st.sampled_from([1, 2, 100]),
    st.data(),
)
def test_the_matcher_gives_what_the_nfa_gives(made, keys, cuts, limit, share, data):
    built = data.draw(policies(made[0]))
    try:
        built.check_ready()
    except DefinitionError:
        assume(False)
    names = [None, "a", "b", "c"]
    rows = [
        {"key": names[number], "__time": event["time"], "event": 100 * number + place, **{k: event[k] for k in SCHEMA}}
        for number, given in enumerate(keys)
        for place, event in enumerate(given)
    ]
    matcher = Matcher(built, keys=["key"], measures=measured(built), limit=limit)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidewheel.patterns.nfa.partial_match.EVENTS_EACH", share)
        found = run(matcher, rows, cuts)
        wanted = expected(built, rows, limit)
    for name, output in found.items():
        assert shown(name, output, built.stages) == wanted[name], name


# One by one -------------------------------------------------------------------------------------------------

FALL = pattern("high", pl.col("x") > 7).next("low", pl.col("x") < 3)


def batch(*rows: tuple[Any, int, int]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema={"k": pl.String, "__time": pl.Int64, "x": pl.Int64}, orient="row")


def test_a_match_may_span_batches_and_its_events_are_kept_until_then():
    matcher = Matcher(FALL, keys="k", measures={"drop": first("high.x") - last("low.x")})
    outputs, state = matcher.step({}, batch(("a", 1, 9), ("b", 1, 2)), 2)
    assert outputs["matches"].rows() == []
    assert state["events"].height == 1
    outputs, state = matcher.step(state, batch(("a", 5, 1)), 6)
    assert outputs["matches"].rows() == [("a", 1, 5, 5, 8)]
    assert state == {}


def test_no_keys_means_that_all_events_belong_together():
    outputs, state = Matcher(FALL).step({}, pl.DataFrame({"__time": [1, 2, 3], "x": [9, 1, 8]}), 4)
    assert outputs["matches"].rows() == [(1, 2, 2)]
    outputs, state = Matcher(FALL).step(state, pl.DataFrame({"__time": [5], "x": [0]}), 6)
    assert outputs["matches"].rows() == [(3, 5, 5)]


def test_time_runs_out_for_keys_without_events():
    matcher = Matcher(FALL.within("10 us"), keys="k")
    _, state = matcher.step(None, batch(("a", 1, 9), ("b", 5, 9)), 6)
    nothing = batch()
    outputs, state = matcher.step(state, nothing, 11)
    assert outputs["timed_out"].rows() == [("a", 1, 1, 11, "high")]
    outputs, state = matcher.step(state, nothing, 14)
    assert outputs["timed_out"].rows() == []
    outputs, state = matcher.step(state, nothing, 15)
    assert outputs["timed_out"].rows() == [("b", 5, 5, 15, "high")]
    assert state == {}


@pytest.mark.parametrize("x", [0, 2])
@pytest.mark.parametrize("cuts", [[], [1], [3], [5], [1, 3, 5]])
def test_an_event_that_closes_the_last_way_on_is_no_timeout_however_long_ago_others_closed(x, cuts):
    loop = pattern("a", pl.col("x") == 1).times(1, 2).consecutive()
    matcher = Matcher(loop.followed_by("b", pl.col("x") == 2, within="1 us"), keys="k")
    rows, state, reported = [("k", 0, 1), ("k", 5, x)], {}, []
    for begin, end in itertools.pairwise([0, *cuts, 10]):
        outputs, state = matcher.step(state, batch(*[row for row in rows if begin <= row[1] < end]), end)
        reported += outputs["timed_out"].rows()
    assert reported == []  # another `a` could still have come at 5
    assert state == {}
    reference = PatternReference(matcher, {"k": pl.String(), "x": pl.Int64()})
    assert reference.step(batch(*rows), watermark=10)["timed_out"] == []


def test_time_closes_the_last_way_on_if_an_event_closed_the_others_before():
    loop = pattern("a", pl.col("x") == 1).times(1, 2).consecutive()
    matcher = Matcher(loop.followed_by("b", pl.col("x") == 2, within="3 us"), keys="k")
    outputs, state = matcher.step({}, batch(("k", 0, 1), ("k", 2, 0)), 10)
    assert outputs["timed_out"].rows() == [("k", 0, 0, 3, "a")]
    assert state == {}


def test_measures_are_columns_of_their_types_also_when_nothing_matched():
    measures = {
        "n": count("low"),
        "all": count(),
        "sum": total("low.x"),
        "mean": mean("x"),
        "most": greatest("high.x"),
        "least": least("x"),
        "list": collect("x"),
    }
    matcher = Matcher(FALL, keys="k", measures=measures)
    schema = {"k": pl.String(), "x": pl.Int32()}
    types = matcher.schemas(schema)["matches"]
    assert types["mean"] == pl.Float64
    assert types["list"] == pl.List(pl.Int32)
    events = batch(("a", 1, 9), ("a", 2, 1)).with_columns(pl.col("x").cast(pl.Int32))
    outputs, _ = matcher.step({}, events, 3)
    assert dict(outputs["matches"].schema) == types
    assert outputs["matches"].rows() == [("a", 1, 2, 2, 1, 2, 1, 5.0, 9, 1, [9, 1])]
    outputs, _ = matcher.step({}, events.clear(), 3)
    assert dict(outputs["matches"].schema) == types


def test_partial_matches_beyond_the_limit_are_dropped_and_reported_and_other_keys_go_on():
    built = pattern("a", pl.col("x") > 0).followed_by_any("b", pl.col("x") == 0)
    rows = [("a", time, 1) for time in range(5)] + [("b", time, 1) for time in range(2)]
    matcher = Matcher(built, keys="k", limit=3)
    outputs, state = matcher.step({}, batch(*rows), 10)
    assert outputs["dropped"].select("k", "match_start", "dropped_at").rows() == [("a", 0, 3), ("a", 1, 4)]
    assert set(outputs["dropped"]["reason"]) == {"limit of partial matches reached"}
    outputs, _ = matcher.step(state, batch(("a", 11, 0), ("b", 11, 0)), 12)
    assert outputs["matches"].select("k", "match_start").rows() == [("a", 2), ("a", 3), ("a", 4), ("b", 0), ("b", 1)]


@pytest.mark.parametrize("cuts", [[], [4], [1, 2, 3, 4, 5]])
def test_of_partial_matches_that_took_the_same_events_the_earlier_stage_goes_first_however_events_are_cut(cuts):
    x = pl.col("x")
    either = any_of(pattern("p", x.is_in([1, 3])), pattern("q", x.is_in([2, 3])))
    built = pattern("s", x == 0).followed_by_any(either).not_followed_by("stop", x == 9).followed_by("end", x == 7)
    matcher = Matcher(built, keys="k", limit=3)
    rows, state, dropped = [("k", time, x) for time, x in enumerate([0, 2, 5, 9, 3, 3])], {}, []
    for begin, end in itertools.pairwise([0, *cuts, 6]):
        outputs, state = matcher.step(state, batch(*rows[begin:end]), end)
        dropped += outputs["dropped"].select("match_end", "stage").rows()
    assert dropped == [(0, "s"), (4, "p")]


def test_matches_that_are_held_back_count_towards_the_limit_and_come_out_when_what_holds_them_is_dropped():
    same = (pl.col("x") < 0) & (-pl.col("x") == last("a.x"))
    built = pattern("a", pl.col("x") > 0).followed_by("b", same).after_match("skip past last")
    matcher = Matcher(built, keys="k", limit=10)
    _, state = matcher.step({}, batch(("k", 0, 99)), 1)  # nothing ends this one
    held, matches, dropped = [], 0, []
    for begin in range(1, 201, 20):
        pairs = [("k", time, 1 if time % 2 else -1) for time in range(begin, begin + 20)]
        outputs, state = matcher.step(state, batch(*pairs), begin + 20)
        matches += outputs["matches"].height
        dropped += outputs["dropped"].select("match_start", "dropped_at", "reason").rows()
        held.append(state["held"].height if state else 0)
    assert dropped == [(0, 19, "limit of partial matches reached")]
    assert matches == 100
    assert held == [0] * 10


@pytest.mark.parametrize("limit", range(3, 10))
def test_what_began_before_a_match_holds_it_back_also_if_it_comes_to_nothing_within_the_batch(limit):
    chain = pattern("c", pl.col("x") >= 1).times(9).consecutive()
    pair = pattern("a", pl.col("x") == 2).followed_by_any("b", pl.col("x") == 3)
    matcher = Matcher(pattern(any_of(chain, pair)).after_match("skip to next"), keys="k", limit=limit)
    rows = batch(*[("k", time, x) for time, x in enumerate([1, 2, 3, 3, 3, 0, 0])])
    together, _ = matcher.step({}, rows, 7)
    state, one_by_one = {}, []
    for time in range(7):
        outputs, state = matcher.step(state, rows[time : time + 1], time + 1)
        one_by_one.append(outputs)
    for name, output in together.items():
        assert output.equals(pl.concat(outputs[name] for outputs in one_by_one))
    reference = PatternReference(matcher, {"k": pl.String(), "x": pl.Int64()}).step(rows, watermark=7)
    assert {name: len(reference[name]) for name in together} == {name: one.height for name, one in together.items()}


def test_a_loop_without_end_is_dropped_when_it_has_taken_too_many_events():
    loop = pattern("a", pl.col("x") == 1).next("b", pl.col("x") == 2).one_or_more().consecutive().greedy()
    matcher = Matcher(loop.next("c", pl.col("x") == 3), keys="k", limit=10)
    state, dropped = {}, []
    for begin in range(0, 4_000, 400):
        outputs, state = matcher.step(
            state, batch(*[("k", time, 2 if time else 1) for time in range(begin, begin + 400)]), begin + 400
        )
        dropped += outputs["dropped"].select("match_start", "match_end", "stage").rows()
    assert dropped == [(0, 1_000, "b")]  # a hundred events for each of the ten that there may be
    assert state == {}


def test_many_long_partial_matches_hold_a_bounded_number_of_events():
    loop = pattern("b", pl.col("x") == 2).one_or_more().consecutive().greedy().next("c", pl.col("x") == 3)
    matcher = Matcher(loop, keys="k", limit=300)
    rows = batch(*[("k", time, 2) for time in range(400)])
    outputs, state = matcher.step({}, rows, 400)
    open_ones = state["runs"]["__events"].list.len()
    assert open_ones.to_list() == sorted(open_ones, reverse=True)
    assert open_ones.sum() <= 100 * 300
    assert outputs["dropped"].height + len(open_ones) == 400
    reference = PatternReference(matcher, {"k": pl.String(), "x": pl.Int64()})
    reported = reference.step(rows, watermark=400)["dropped"]
    assert [(one["match_start"], one["event_time"]) for one in reported] == outputs["dropped"].select(
        "match_start", "dropped_at"
    ).rows()


def test_outputs_are_in_the_order_of_completion_then_key_then_start():
    built = pattern("a", pl.col("x") > 0).followed_by_any("b", pl.col("x") == 0)
    rows = [("a", 1, 1), ("a", 2, 1), ("a", 9, 0), ("b", 1, 1), ("b", 5, 0), ("b", 9, 0)]
    outputs, _ = Matcher(built, keys="k").step({}, batch(*rows), 10)
    order = outputs["matches"].select("completed_at", "k", "match_start").rows()
    assert order == [(5, "b", 1), (9, "a", 1), (9, "a", 2), (9, "b", 1)]


def test_a_state_of_another_version_or_pattern_is_refused():
    matcher = Matcher(FALL, keys="k")
    _, state = matcher.step({}, batch(("a", 1, 9)), 2)
    with pytest.raises(CheckpointError, match="version 99"):
        matcher.step({**state, "meta": state["meta"].with_columns(version=pl.lit(99))}, batch(), 3)
    other = Matcher(FALL.next("lower", pl.col("x") < 1), keys="k")
    with pytest.raises(CheckpointError, match="other stages"):
        other.step(state, batch(), 3)


def test_events_that_are_not_ordered_by_key_are_refused():
    with pytest.raises(ValueError, match="order of their keys"):
        Matcher(FALL, keys="k").step({}, batch(("a", 1, 9), ("b", 1, 1), ("a", 2, 1)), 3)


def test_unknown_columns_are_refused_with_those_that_are_known():
    with pytest.raises(DefinitionError, match=r"no column 'x'; they have k, speed"):
        Matcher(FALL, keys="k").schemas({"k": pl.String(), "speed": pl.Float64()})


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (pl.col("x") + 1, "must be true or false"),
        (pl.col("k") > 3, "condition"),
        (pl.col("k") - last("a.x") > 1, "condition"),
    ],
)
def test_conditions_that_do_not_fit_the_types_are_refused(condition, message):
    with pytest.raises(DefinitionError, match=message):
        Matcher(pattern("a", condition), keys="k").schemas({"k": pl.String(), "x": pl.Int64()})


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        ({"x": pl.col("x")}, 'say which, like last\\("low.x"\\)'),
        ({"x": previous("x")}, "previous is for conditions"),
        ({"x": first("middle.x")}, "those that may have taken events by then are high, low"),
        ({"k": first("high.x")}, "column of this name already"),
        ({"match_end": first("high.x")}, "column of this name already"),
        ({"__x": first("high.x")}, "does not begin with __"),
        ({"x": 3}, "expected an expression"),
    ],
)
def test_bad_measures_are_refused(measures, message):
    with pytest.raises(DefinitionError, match=message):
        Matcher(FALL, keys="k", measures=measures)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
def test_a_limit_is_a_whole_number(limit):
    with pytest.raises(DefinitionError, match="limit"):
        Matcher(FALL, limit=limit)


def test_a_skip_to_a_stage_that_is_missing_fails_if_it_is_told_to():
    built = pattern("a", pl.col("x") > 7).next("b", pl.col("x") == 5).optional().next("c", pl.col("x") < 3)
    rows = batch(("k", 1, 9), ("k", 2, 1))
    outputs, _ = Matcher(built.after_match("skip to last", stage="b"), keys="k").step({}, rows, 3)
    assert outputs["matches"].height == 1
    with pytest.raises(PatternError, match="has no event of it"):
        Matcher(built.after_match("skip to last", stage="b", missing="fail"), keys="k").step({}, rows, 3)


def test_a_matcher_can_be_pickled_after_it_was_used():
    matcher = Matcher(FALL, keys="k", measures={"drop": first("high.x")})
    _, state = matcher.step({}, batch(("a", 1, 9)), 2)
    again = pickle.loads(pickle.dumps(matcher))
    outputs, _ = again.step(state, batch(("a", 3, 0)), 4)
    assert outputs["matches"].rows() == [("a", 1, 3, 3, 9)]
    assert repr(again) == repr(matcher)
    assert again.pattern.policy == Policy()
