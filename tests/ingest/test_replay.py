"""Replay: recordings at their own pace or any other, again and again, moved in time and multiplied."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.hfp_messages import AT, hfp, row, rows, topic
from tests.support.ingest_support import NumberProcessor, dead_letters, number
from tidewheel.errors import DefinitionError
from tidewheel.ingest.connector import Connector, Delivered
from tidewheel.ingest.message import Message
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.ingest.replay.recorder import RecordingWriter
from tidewheel.ingest.replay.recording import encode_line
from tidewheel.ingest.replay.replay import Replay
from tidewheel.model.time import duration, format_instant, instant
from tidewheel.transport.log.log_types import Receipt
from tidewheel.transport.open_log import open_log
from tidewheel_transit.hfp import HfpProcessor

PROCESSOR = HfpProcessor()
START = instant(AT)
SECOND = 1_000_000


class Clock:
    """A clock that only waiting moves; it stops the replay when its time is over."""

    def __init__(self, *, at: int = 5_000 * SECOND, stop_at: int | None = None) -> None:
        self.at = at
        self.stop = threading.Event()
        self._stop_at = stop_at

    def __call__(self) -> int:
        return self.at

    def wait(self, seconds: float) -> bool:
        self.at += round(seconds * SECOND)
        if self._stop_at is not None and self.at >= self._stop_at:
            self.stop.set()
        return self.stop.is_set()


class Sink:
    """Takes what a connector delivers and notes when."""

    state = b""

    def __init__(self, clock: Clock, *, takes: int = 0) -> None:
        self._clock = clock
        self._takes = takes
        self.batches: list[tuple[int, list[Message]]] = []

    def __call__(self, messages: Sequence[Message], *, repeated: int = 0, state: bytes | None = None) -> Delivered:
        self.batches.append((self._clock.at, list(messages)))
        self._clock.at += self._takes
        return Delivered(Receipt(len(self.batches)))

    @property
    def messages(self) -> list[Message]:
        return [message for _, batch in self.batches for message in batch]


def at(seconds: float, *, arrives: float | None = None, event: str = "vp", vehicle: int = 817) -> Message:
    """A message of so many seconds after the start, arriving half a second later or as given."""
    event_time = START + round(seconds * SECOND)
    arrival = event_time + SECOND // 2 if arrives is None else START + round(arrives * SECOND)
    name = topic(event, vehicle=f"{vehicle:05d}")
    return hfp(
        event, topic=name, veh=vehicle, tst=format_instant(event_time), tsi=event_time // SECOND, received_at=arrival
    )


def recorded(path: Path, messages: Sequence[Message]) -> Path:
    with RecordingWriter(path) as writer:
        writer.append(messages)
    return path


def replayed(*paths: Path, clock: Clock | None = None, takes: int = 0, **options) -> Sink:
    clock = clock or Clock()
    sink = Sink(clock, takes=takes)
    Replay(paths, processor=PROCESSOR, clock=clock, wait=clock.wait, **options).run(sink, clock.stop)
    return sink


@pytest.fixture
def tram(tmp_path: Path) -> Path:
    """Ten seconds of a vehicle, one message a second, the fifth of them late."""
    return recorded(tmp_path / "tram.jsonl.gz", [at(n) for n in (0, 1, 2, 3)] + [at(5), at(4, arrives=6)] + [at(9)])


def test_it_is_a_connector(tram):
    assert isinstance(Replay([tram], processor=PROCESSOR), Connector)


@pytest.mark.parametrize("speed", [1, 0.5, 10.0])
def test_messages_come_at_their_time_by_the_speed(tram, speed):
    clock = Clock()
    began = clock.at
    sink = replayed(tram, clock=clock, speed=speed)
    for when, batch in sink.batches:
        for message in batch:
            due = began + (message.received_at - START - SECOND // 2) / speed
            assert 0 <= when - due <= 50_000  # never early, and late only to go together with others
    assert sink.messages == list(Replay(tram, processor=PROCESSOR).messages())
    assert len(sink.messages) == 7


def test_as_fast_as_possible_waits_for_nothing(tram):
    clock = Clock()
    began = clock.at
    sink = replayed(tram, clock=clock, speed="max")
    assert clock.at == began
    assert [len(batch) for _, batch in sink.batches] == [7]


def test_without_options_the_messages_are_those_that_were_recorded(tram):
    assert replayed(tram).messages == [at(n) for n in (0, 1, 2, 3)] + [at(5), at(4, arrives=6), at(9)]


def test_a_slow_log_makes_batches_larger_and_is_caught_up_with(tmp_path):
    path = recorded(tmp_path / "a.jsonl", [at(n / 100) for n in range(1_000)])
    clock = Clock()
    began = clock.at
    sink = replayed(path, clock=clock, takes=SECOND)
    assert len(sink.messages) == 1_000
    assert max(len(batch) for _, batch in sink.batches) >= 100
    assert clock.at - began <= 12 * SECOND


def test_batches_have_a_limit(tmp_path):
    path = recorded(tmp_path / "a.jsonl", [at(0)] * 2_500)
    assert [len(batch) for _, batch in replayed(path, speed="max").batches] == [1_000, 1_000, 500]


def test_a_replay_that_is_stopped_brings_nothing_that_is_not_due(tram):
    clock = Clock()
    clock = Clock(stop_at=clock.at + round(2.5 * SECOND))
    assert replayed(tram, clock=clock).messages == [at(0), at(1), at(2)]


def test_a_message_whose_arrival_was_not_recorded_arrives_at_its_event_time(tmp_path):
    lines = [encode_line(at(n)).replace(b'"received_at":"', b'"received_at":null,"_":"') for n in (0, 2, 1)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    sink = replayed(tmp_path / "a.jsonl")
    assert [message.received_at - START for message in sink.messages] == [0, 2 * SECOND, 1 * SECOND]
    assert [message.payload for message in sink.messages] == [at(n).payload for n in (0, 2, 1)]
    assert [when - sink.batches[0][0] for when, _ in sink.batches] == [0, 2 * SECOND]


def without_arrivals(path: Path, seconds: Sequence[float]) -> Path:
    lines = [encode_line(at(n)).replace(b'"received_at":"', b'"received_at":null,"_":"') for n in seconds]
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.mark.parametrize("wrong", [[0], [7], [19], [3, 4], [0, 1, 12]])
@pytest.mark.parametrize("clock", [400_000_000, -1_000_000_000, 90])
def test_a_wrong_clock_holds_nothing_up(tmp_path, wrong, clock):
    times = [clock if n in wrong else n for n in range(20)]
    sink = replayed(without_arrivals(tmp_path / "a.jsonl", times))
    assert [message.payload for message in sink.messages] == [at(n).payload for n in times]
    right = [n for n in range(20) if n not in wrong]
    came = {message.payload: when for when, batch in sink.batches for message in batch}
    assert [came[at(n).payload] - came[at(right[0]).payload] for n in right] == [(n - right[0]) * SECOND for n in right]
    assert sink.batches[-1][0] - sink.batches[0][0] <= 20 * SECOND


@pytest.mark.parametrize("clock", [400_000_000, -1_000_000_000])
def test_a_wrong_clock_in_the_beginning_moves_nothing_astray(tmp_path, clock):
    path = without_arrivals(tmp_path / "a.jsonl", [clock, *range(1, 20)])
    start = instant("2027-05-05T08:00:00Z")
    sink = replayed(path, clock=Clock(at=start), now=True)
    times = [PROCESSOR.event_time(message) for message in sink.messages[1:]]
    assert times == [start + n * SECOND for n in range(19)]


def test_a_pause_stays_a_pause(tmp_path):
    times = [*range(15), *range(20_000, 20_015)]
    sink = replayed(without_arrivals(tmp_path / "a.jsonl", times))
    assert [when - sink.batches[0][0] for when, _ in sink.batches] == [n * SECOND for n in times]


def test_messages_far_from_each_other_keep_their_distance(tmp_path):
    times = [n * 600 for n in range(30)]
    sink = replayed(without_arrivals(tmp_path / "a.jsonl", times))
    assert [when - sink.batches[0][0] for when, _ in sink.batches] == [n * SECOND for n in times]


def test_recordings_are_merged_by_arrival(tmp_path):
    one = recorded(tmp_path / "one.jsonl", [at(n) for n in (1, 3, 5)])
    other = recorded(tmp_path / "other.jsonl.zst", [at(n, vehicle=9) for n in (0, 2, 4)])
    assert replayed(one, other).messages == [at(n, vehicle=817 if n % 2 else 9) for n in range(6)]


def test_a_limit_ends_it(tram):
    assert replayed(tram, limit=3).messages == [at(0), at(1), at(2)]
    assert replayed(tram, limit=20, loop=True).messages[:7] == replayed(tram).messages
    assert len(replayed(tram, limit=20, loop=True).messages) == 20


def test_an_endless_loop_moves_each_round_by_the_length(tram):
    sink = replayed(tram, loop=True, limit=21)
    first, second, third = (sink.messages[start : start + 7] for start in (0, 7, 14))
    assert first == replayed(tram).messages
    for earlier, later in ((first, second), (second, third)):
        for before, after in zip(earlier, later, strict=True):
            assert PROCESSOR.event_time(after) - PROCESSOR.event_time(before) == 10 * SECOND
            assert after.received_at - before.received_at == 10 * SECOND
    arrivals = [when for when, _ in sink.batches]
    assert arrivals == sorted(arrivals)
    assert len({message.payload for message in sink.messages}) == 21


def test_an_empty_recording_ends_even_an_endless_loop(tmp_path):
    assert replayed(recorded(tmp_path / "a.jsonl", []), loop=True).messages == []


def test_a_recording_without_a_single_message_ends_even_an_endless_loop(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"broken\nmore\n")
    assert [message.payload for message in replayed(path, loop=True).messages] == [b"broken", b"more"]


def test_times_can_be_moved_to_now(tram):
    clock = Clock(at=instant("2031-05-06T07:08:09.000010Z"))
    began = clock.at
    sink = replayed(tram, clock=clock, now=True)
    assert PROCESSOR.event_time(sink.messages[0]) == began
    for before, after in zip(replayed(tram).messages, sink.messages, strict=True):
        by = PROCESSOR.event_time(after) - PROCESSOR.event_time(before)
        assert by == began - START
        assert after.received_at - before.received_at == by
    assert row(PROCESSOR.process(sink.messages[:1]))["operating_day"] == "2031-05-06"


@pytest.mark.parametrize("volume", [2, 5])
def test_volume_is_so_many_fleets_side_by_side(tmp_path, volume):
    fleet = [at(n, vehicle=vehicle) for n in range(10) for vehicle in (3, 4)]
    path = recorded(tmp_path / "a.jsonl", fleet)
    sink = replayed(path, volume=volume, stagger="700 ms")
    one, many = rows(PROCESSOR.process(fleet)), rows(PROCESSOR.process(sink.messages))
    assert len(many) == volume * len(one)
    assert len({each["key"] for each in many}) == volume * len({each["key"] for each in one})
    places = Counter((each["lat"], each["lon"]) for each in one)
    assert Counter((each["lat"], each["lon"]) for each in many) == {place: volume * n for place, n in places.items()}
    for copy in range(volume):
        own = [each for each in many if each["vehicle"] // 100_000 == copy]
        for before, after in zip(one, own, strict=True):
            assert instant(after["event_time"]) - instant(before["event_time"]) == copy * 700_000
            assert after["ingestion_time"] - after["event_time"] == before["ingestion_time"] - before["event_time"]
    arrivals = [message.received_at for message in sink.messages]
    assert arrivals == sorted(arrivals)


def test_all_options_together_and_twice_are_the_same(tram, tmp_path):
    other = recorded(tmp_path / "other.jsonl", [at(n / 7, vehicle=5, event="ars") for n in range(50)])

    def once() -> list[Message]:
        return replayed(tram, other, speed=0.5, loop=True, now=True, volume=4, limit=700).messages

    assert once() == once()
    assert len(once()) == 700
    assert PROCESSOR.process(once()).dead == []


def test_what_cannot_be_read_is_brought_once_as_a_message_that_says_so(tmp_path):
    good = [encode_line(at(n)) for n in range(3)]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([b"broken first", good[0], b"\xff", good[1], good[2][:-5]]))
    sink = replayed(path, volume=3, loop=True, limit=30, speed="max")
    dead = PROCESSOR.process(sink.messages).dead
    assert [each.message.payload for each in dead] == [b"broken first", b"\xff", good[2][:-5]]
    assert [each.kind for each in dead] == ["bad-topic"] * 3
    assert "a.jsonl:1 not a line of a recording: JSON is malformed" in dead[0].reason
    assert dead[2].message.topic.startswith("a.jsonl:5 ")


def test_what_the_processor_cannot_read_is_moved_in_its_arrival_alone(tmp_path):
    strange = Message("elsewhere", b"?", at(2).received_at)
    path = recorded(tmp_path / "a.jsonl", [at(1), strange, at(3)])
    sink = replayed(path, volume=2, stagger="4 s", speed="max")
    assert [message for message in sink.messages if message.topic == "elsewhere"] == [
        strange,
        Message("elsewhere", b"?", strange.received_at + 4 * SECOND),
    ]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"speed": 0}, "speed must be a number above 0"),
        ({"speed": -1.0}, "speed must be a number above 0"),
        ({"speed": float("nan")}, "speed must be a number above 0"),
        ({"speed": "fast"}, "speed must be a number above 0"),
        ({"speed": "max", "now": True}, "speed max overtakes the clock.*leave out one of the two"),
        ({"speed": 1.1, "now": True}, r"speed 1\.1 overtakes the clock"),
        ({"volume": 0}, "volume must be at least 1"),
        ({"limit": -1}, "limit must not be negative"),
        ({"stagger": "-1 s"}, "stagger must not be negative"),
    ],
)
def test_options_that_make_no_sense_are_refused(tram, options, reason):
    with pytest.raises(DefinitionError, match=reason):
        Replay([tram], processor=PROCESSOR, **options)


def test_a_recording_that_is_not_there_is_refused_when_it_is_named(tmp_path):
    with pytest.raises(DefinitionError, match=r"there is no recording .*missing"):
        Replay([tmp_path / "missing.jsonl"], processor=PROCESSOR)
    with pytest.raises(DefinitionError, match="nothing to replay"):
        Replay([], processor=PROCESSOR)


def test_a_processor_that_cannot_move_messages_can_replay_them_as_they_are(tmp_path):
    messages = [number(n) for n in range(5)]
    path = recorded(tmp_path / "a.jsonl", messages)
    processor = NumberProcessor()
    assert list(Replay([path], processor=processor).messages()) == messages
    for options in ({"loop": True}, {"now": True}, {"volume": 2}):
        with pytest.raises(DefinitionError, match="processor numbers cannot move messages in time"):
            Replay([path], processor=processor, **options)


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(-2, 30)), min_size=1, max_size=20),
    st.integers(1, 4),
    st.integers(0, 3_000_000),
    st.booleans(),
)
@settings(deadline=None, max_examples=50)
def test_every_event_keeps_its_own_lateness(tmp_path_factory, times, volume, stagger, now):
    events = [at(seconds, arrives=seconds + late) for seconds, late in times]
    messages = sorted(events, key=lambda message: message.received_at)
    path = recorded(tmp_path_factory.mktemp("replay") / "a.jsonl", messages)
    options = {"volume": volume, "stagger": f"{stagger} us", "now": now, "clock": Clock(at=3 * START)}
    found = list(Replay([path], processor=PROCESSOR, **options).messages())
    lateness = Counter(message.received_at - PROCESSOR.event_time(message) for message in messages)
    assert Counter(message.received_at - PROCESSOR.event_time(message) for message in found) == {
        late: volume * n for late, n in lateness.items()
    }
    assert [message.received_at for message in found] == sorted(message.received_at for message in found)


def test_real_recordings_reach_the_log_and_every_message_is_accounted_for(shared, tmp_path):
    paths = sorted((shared / "data" / "hfp").glob("*.jsonl.gz"))
    with open_log(tmp_path / "city.tw") as log:
        pipeline = Pipeline(log, PROCESSOR)
        Replay(paths, processor=PROCESSOR, speed="max").run(pipeline, threading.Event())
        report = pipeline.report()
        assert report.received == 5_237 + 22_685 + 3_690 + 110
        assert dict(report.filtered) == {"upcoming": 12}
        assert dict(report.dead) == {}
        assert dict(report.topics) == {info.name: info.count for info in log.topics() if info.name.startswith("input.")}
        assert sum(report.topics.values()) == report.received - 12


def test_a_broken_recording_reaches_the_log_as_dead_letters(tmp_path, tram):
    whole = tram.read_bytes()
    tram.write_bytes(whole[:-10])
    with open_log(tmp_path / "city.tw") as log:
        pipeline = Pipeline(log, PROCESSOR)
        Replay(tram, processor=PROCESSOR, speed="max").run(pipeline, threading.Event())
        report = pipeline.report()
        (letter,) = dead_letters(log, "hfp")
        assert "the recording ends here: the gzip data is cut off" in letter.topic
        assert report.received == sum(report.topics.values()) + 1


def test_a_real_recording_is_the_same_at_any_speed(shared):
    path = shared / "data" / "hfp" / "tram6_bus550_2020.jsonl.gz"
    fast = replayed(path, speed="max", limit=2_000)
    assert replayed(path, speed=60, limit=2_000).messages == fast.messages
    assert list(islice(Replay(path, processor=PROCESSOR).messages(), 2_000)) == fast.messages


def test_the_wall_clock_is_used_unless_told_otherwise(tmp_path):
    path = recorded(tmp_path / "a.jsonl", [at(0), at(0.2)])
    sink = Sink(Clock())
    began = instant("2020-01-01")
    Replay(path, processor=PROCESSOR, now=True).run(sink, threading.Event())
    assert PROCESSOR.event_time(sink.messages[0]) > began + duration("1000 d")
