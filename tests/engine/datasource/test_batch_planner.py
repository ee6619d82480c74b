"""What a batch reads, and what time it is in it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.engine_data import START, positions
from tidewheel.engine.datasource.batch_planner import first_offset, plan_batch, split
from tidewheel.engine.datasource.offset import Offset
from tidewheel.errors import CheckpointError, TopicNotFoundError
from tidewheel.model import watermarks
from tidewheel.transport.open_log import open_log
from tidewheel.transport.sqlite.log import SqliteLog

S = 1_000_000
TRUSTING = watermarks.bounded("1 s", future=None)


def plan(log, before, *, topics=("a",), limit=None, clock=10, tick=0, until=None, strategy=TRUSTING):
    strategies = dict.fromkeys(topics, strategy)
    return plan_batch(log, strategies, before, limit=limit, clock=clock, tick=tick, until=until)


def begin(log, *topics):
    return first_offset(log, topics or ["a"], "earliest", clock=0)


def test_a_backlog_is_worked_off_in_even_batches_of_whole_blocks(log):
    for number in range(10):
        log.append("a", positions(range(number * 100, number * 100 + 100)))
    offset, ends = begin(log), []
    while (after := plan(log, offset, limit=250)) is not offset:
        offset = after
        ends.append(offset.positions["a", 0])
    assert ends == [200, 400, 600, 800, 1_000]


def test_a_block_larger_than_the_limit_is_read_alone(log):
    log.append("a", positions(range(300)))
    log.append("a", positions(range(300, 310)))
    first = plan(log, begin(log), limit=5)
    assert first.positions["a", 0] == 300
    assert plan(log, first, limit=5).positions["a", 0] == 310


def test_topics_are_read_in_the_order_of_appending(log):
    for number in range(4):
        log.append("a", positions(range(number * 10, number * 10 + 10)))
        log.append("b", positions(range(number * 10, number * 10 + 10)))
    half = plan(log, begin(log, "a", "b"), topics="ab", limit=40)
    assert half.positions == {("a", 0): 20, ("b", 0): 20}


def test_the_watermark_moves_in_the_batch_that_holds_the_data(log):
    log.append("a", positions(range(10)))
    after = plan(log, begin(log), clock=77)
    assert (after.watermark, after.clock) == (START + 8 * S, 77)


def test_the_common_watermark_waits_for_the_slowest_topic(log):
    log.append("a", positions(range(10)))
    log.create_topic("b")
    after = plan(log, begin(log, "a", "b"), topics="ab")
    assert after.watermark is None
    log.append("b", positions(range(5)))
    assert plan(log, after, topics="ab").watermark == START + 3 * S


def test_without_news_there_is_no_batch(log):
    log.append("a", positions(range(10)))
    after = plan(log, begin(log))
    assert plan(log, after, clock=10**12) is after


def test_an_idle_stream_moves_its_watermark_by_the_clock_once_a_tick(log):
    strategy = watermarks.bounded("1 s", idle="5 s", future=None)
    log.append("a", positions(range(10)))
    read = plan(log, begin(log), clock=100 * S, strategy=strategy)
    assert plan(log, read, clock=104 * S, strategy=strategy) is read
    idle = plan(log, read, clock=106 * S, tick=S, strategy=strategy)
    assert idle.positions == read.positions
    assert idle.watermark == read.watermark + 6 * S
    assert plan(log, idle, clock=106 * S + S // 2, tick=S, strategy=strategy) is idle
    assert plan(log, idle, clock=107 * S, tick=S, strategy=strategy).watermark == read.watermark + 7 * S


def test_the_clock_never_goes_back(log):
    log.append("a", positions(range(10)))
    after = plan(log, begin(log), clock=500)
    log.append("a", positions(range(10, 20)))
    assert plan(log, after, clock=300).clock == 500


def test_until_is_the_end(log):
    log.append("a", positions(range(10)))
    until = {("a", 0): 10}
    log.append("a", positions(range(10, 20)))
    after = plan(log, begin(log), until=until)
    assert after.positions["a", 0] == 10
    assert plan(log, after, until=until) is after


def test_an_offset_survives_json(log):
    log.append("a", positions(range(10)))
    after = plan(log, begin(log), strategy=watermarks.percentile(99))
    again = Offset.from_json(json.loads(json.dumps(after.to_json())))
    assert again == after
    assert again.to_json() == after.to_json()


def test_an_offset_of_another_version_is_refused():
    with pytest.raises(CheckpointError, match="version 99"):
        Offset.from_json({"version": 99})


def test_the_positions_of_another_log_are_refused(log, tmp_path):
    log.append("a", positions(range(10)))
    with open_log(tmp_path / "other.tw") as other:
        other.append("a", positions(range(10)))
        with pytest.raises(CheckpointError, match="another log"):
            plan(other, begin(log))


@pytest.mark.parametrize("count", [60, 100, 120], ids=["shorter", "as long", "longer"])
def test_the_positions_of_a_topic_that_was_made_anew_are_refused(log, count):
    log.append("a", positions(range(100)))
    done = Offset.from_json(plan(log, begin(log)).to_json())
    planned = Offset.from_json(begin(log).to_json())
    log.delete_topic("a")
    log.append("a", positions(range(count)))
    message = r"'a' was deleted and created again.*id was 1, now it is 2.*new checkpoint"
    for until in (None, {("a", 0): count}):
        with pytest.raises(CheckpointError, match=message):
            plan(log, done, until=until)
    with pytest.raises(CheckpointError, match=message):
        split(log, planned, done, tasks=1, worth=1)


def test_positions_from_before_topics_had_ids_are_accepted_unless_the_topic_is_too_short_for_them(log):
    log.append("a", positions(range(100)))
    old = plan(log, begin(log)).to_json()
    del old["topics"]
    log.append("a", positions(range(100, 110)))
    after = plan(log, Offset.from_json(old))
    assert after.positions["a", 0] == 110
    assert after.topics == {"a": log.topic_info("a").id}
    log.delete_topic("a")
    log.append("a", positions(range(60)))
    for until in (None, {("a", 0): 60}):
        with pytest.raises(CheckpointError, match=r"created again.*not known.*ends at 60"):
            plan(log, Offset.from_json(old), until=until)


def test_a_missing_topic_is_named(log):
    log.create_topic("input.arrival")
    with pytest.raises(TopicNotFoundError, match=r"input\.arival.*input\.arrival"):
        begin(log, "input.arival")


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 60)), min_size=1, max_size=12),
    st.integers(1, 100),
    st.integers(1, 5),
    st.integers(1, 50),
)
@settings(max_examples=40)
def test_batches_and_their_shares_cover_every_record_once(tmp_path_factory, appends, limit, tasks, worth):
    with open_log(tmp_path_factory.mktemp("plan") / "x.tw", sync="normal") as log:
        ends = {"a": 0, "b": 0}
        for topic in ends:
            log.create_topic(topic)
        for topic, count in appends:
            log.append(topic, positions(range(count)))
            ends[topic] += count
        offset = begin(log, "a", "b")
        seen = []
        while (after := plan(log, offset, topics="ab", limit=limit)) is not offset:
            shares = split(log, offset, after, tasks=tasks, worth=worth)
            assert 1 <= len(shares) <= tasks
            for pieces in shares:
                seen += [(piece.topic, number) for piece in pieces for number in range(piece.start, piece.end)]
            offset = after
        assert sorted(seen) == sorted((topic, number) for topic, end in ends.items() for number in range(end))


CONTROL = {"a": TRUSTING, "control": watermarks.ControlTopic()}


def plan_with_control(log, before, *, limit, until=None):
    return plan_batch(log, CONTROL, before, limit=limit, clock=10, tick=0, until=until)


def test_a_control_topic_has_no_say_in_the_watermark(log):
    log.create_topic("control")
    log.append("a", positions(range(10)))
    first = plan_with_control(log, begin(log, "a", "control"), limit=None)
    assert first.watermark == START + 8 * S, "it is silent and holds nobody back"
    log.append("control", positions(range(500, 501)))
    second = plan_with_control(log, first, limit=None)
    assert second.positions["control", 0] == 1
    assert second.watermark == first.watermark, "and its own times move nothing"
    assert plan_with_control(log, second, limit=None) is second
    assert "control/0" not in second.memory["inputs"]


def test_a_control_topic_is_read_from_its_beginning(log):
    for topic in ("a", "control"):
        log.append(topic, positions(range(10)))
    offset = first_offset(log, ["a", "control"], "latest", clock=0, whole=["control"])
    assert offset.positions == {("a", 0): 10, ("control", 0): 0}


@pytest.mark.parametrize("size", [30, 40, 100])
@pytest.mark.parametrize("bounded", [False, True])
def test_a_record_of_a_control_topic_waits_for_all_that_was_appended_before_it(log, size, bounded):
    """Also where a small block would still fit into the batch, and where not all of the backlog was looked at."""
    said = {}
    for number in range(10):
        log.append("a", positions(range(number * size, number * size + size)))
        log.append("control", positions(range(number, number + 1)))
        said[number + 1] = (number + 1) * size  # what was said until then, and the events before the last of it
    until = {("a", 0): 10 * size, ("control", 0): 10} if bounded else None
    offset = begin(log, "a", "control")
    steps = 0
    while (after := plan_with_control(log, offset, limit=100, until=until)) is not offset:
        offset, steps = after, steps + 1
        heard, events = offset.positions["control", 0], offset.positions["a", 0]
        assert events >= said.get(heard, 0), "nothing is heard before its time"
        assert heard >= events // size - 1, "nor long after it"
    assert offset.positions == {("a", 0): 10 * size, ("control", 0): 10}
    assert steps > 3


def test_a_read_ahead_topic_is_read_first_and_all_of_it(log):
    """What it says is good for all times: also for events that were appended before it."""
    strategies = {"a": TRUSTING, "facts": watermarks.ReadAheadTopic()}
    for number in range(4):
        log.append("a", positions(range(number * 40, number * 40 + 40)))
    for number in range(10):
        log.append("facts", positions(range(number * 30, number * 30 + 30)))
    until = {("a", 0): 160, ("facts", 0): 300}
    offset, seen = begin(log, "a", "facts"), []
    while (after := plan_batch(log, strategies, offset, limit=100, clock=10, tick=0, until=until)) is not offset:
        offset = after
        seen.append((offset.positions["facts", 0], offset.positions["a", 0], offset.watermark))
        if offset.positions["facts", 0] < 300:
            assert offset.positions["a", 0] == 0
            assert offset.watermark is None
    assert seen[-1] == (300, 160, START + 158 * S)
    assert len(seen) > 4


def test_events_that_wait_for_a_read_ahead_topic_are_not_idle(log):
    idle = watermarks.bounded("1 s", idle="5 s", future=None)
    strategies = {"a": idle, "facts": watermarks.ReadAheadTopic()}
    log.append("a", positions(range(10)))
    log.create_topic("facts")
    read = plan_batch(log, strategies, begin(log, "a", "facts"), limit=10, clock=100 * S, tick=0)
    log.append("a", positions(range(10, 20)))
    log.append("facts", positions(range(300)))
    later = plan_batch(log, strategies, read, limit=10, clock=200 * S, tick=0)
    assert later.positions == {("a", 0): 10, ("facts", 0): 300}
    assert later.watermark == read.watermark


def test_by_the_logs_clock_a_read_ahead_topic_says_nothing_of_the_time(tmp_path):
    now = [100]
    with SqliteLog(tmp_path / "x.tw", clock=lambda: now[0]) as log:
        log.append("a", positions(range(10)))
        now[0] = 900
        log.append("facts", positions(range(10)))
        strategies = {"a": TRUSTING, "facts": watermarks.ReadAheadTopic()}
        after = plan_batch(log, strategies, begin(log, "a", "facts"), limit=None, clock=0, tick=0, by_log=True)
        assert after.positions == {("a", 0): 10, ("facts", 0): 10}
        assert after.clock == 100
