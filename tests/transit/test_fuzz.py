"""Fuzzed messages into every processor and the decoder: nothing crashes, and every one is accounted for."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.hfp_messages import BODY, STOP_TIMES, topic
from tests.support.ingest_support import dead_letters
from tidewheel.errors import MalformedError
from tidewheel.ingest.message import Message
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.ingest.processor import Processed, Processor, Replayable
from tidewheel.ingest.processors.events import EventProcessor
from tidewheel.ingest.replay.recording import RecordedMessage, read_recording
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import Event, Punctuation
from tidewheel_transit.hfp import HfpProcessor
from tidewheel_transit.topics import EVENTS, TOPICS
from tidewheel_transit.transit_pb2 import Arrival, VehiclePosition

MADE_UP = 30_000
RECORDED = 8_000
BATCH = 500
RECEIVED_AT = 1_772_432_130_250_000

NUMBERS = ("1e999", "-1e999", "NaN", "Infinity", "1e-400", "0.1e+3", "-0", "00", "1.", "1.5", "91", "2147483648")
TIMES = "2026-13-45T99:99:99Z 0001-01-01T00:00:00+23:59 9999-12-31T23:59:59.999999999Z 1969-12-31T23:59:59Z 2026-03-02"
ABSURD = [
    *NUMBERS,
    *(str(2**63), str(2**64), "9" * 30, "-" + "9" * 20, "9" * 5_000),
    *(f'"{time}"' for time in TIMES.split()),
    *("true", "null", "null", '""', '"x"', "[]", "{}", '"\\ud800"', '"\\u0000"', "[[[[[[", '{"a":{"b":[1]}}'),
]
PIECES = [b'"', b"{", b"}", b",", b":", b"\\", b"\x00", b"\xff", b"\xed\xa0\x80", b"null", b"1e309", b"\n", b"[" * 999]
LEVELS = ["", "x", "+", "#", "0", "99999", "²", "٣٣٣٣", "\ud800", "\x00", "a" * 500, "vp", "deadrun", "upcoming"]


def hfp_topic(choose: random.Random, event: str) -> str:
    name = topic(
        event,
        journey=choose.choice(["journey"] * 4 + ["deadrun"]),
        temporal=choose.choice(["ongoing"] * 9 + ["upcoming"]),
        mode=choose.choice(["bus", "tram"]),
        vehicle=f"{choose.randrange(2_000):05d}",
    )
    return name if choose.random() < 0.7 else mutated_topic(choose, name)


def mutated_topic(choose: random.Random, name: str) -> str:
    levels = name.split("/")
    for _ in range(choose.randint(1, 3)):
        place = choose.randrange(len(levels))
        levels[place : place + choose.randint(0, 2)] = choose.choices(LEVELS, k=choose.randint(0, 2))
    return "/".join(levels)


def hfp_payload(choose: random.Random, event: str) -> bytes:
    return payload_of(choose, event.upper(), BODY | STOP_TIMES)


def payload_of(choose: random.Random, event: str, body: dict[str, object]) -> bytes:
    """As JSON, with some values absurd."""
    fields = {name: json.dumps(value) for name, value in body.items()}
    for _ in range(choose.choice([0, 1, 1, 2, 5])):
        fields[choose.choice([*fields, "strange"])] = choose.choice(ABSURD)
    if choose.random() < 0.02:
        fields["tst"] = fields["tsi"] = "null"
    text = ",".join(f'"{name}":{value}' for name, value in fields.items())
    return f'{{"{event}":{{{text}}}}}'.encode()


def envelope(choose: random.Random) -> bytes:
    message = choose.choice(
        [VehiclePosition(mode="bus", lat=60.1, route="1071"), Arrival(stop="12"), Punctuation(epoch="x")]
    )
    event = codec.pack(message, event_time=choose.choice([0, 1_772_432_130_250_000, -1, 2**55, None]))
    if choose.random() < 0.2:
        event.event_time.nanos = choose.choice([-1, 10**9, 2**31 - 1])
    if choose.random() < 0.1:
        event.event_time.seconds = choose.choice([2**63 - 1, -(2**63), 2**40])
    if choose.random() < 0.1:
        event.details.type_url = choose.choice(["", "x", "type.googleapis.com/no.Such", "/tidewheel.v1.Event"])
    return codec.encode(event, format="json") if choose.random() < 0.1 else event.SerializeToString()


def mutated(choose: random.Random, payload: bytes) -> bytes:
    """Cut, flipped, spliced, or as it is."""
    what = choose.randrange(6)
    place = choose.randrange(len(payload) + 1)
    if what == 0:
        return payload[:place]
    if what == 1:
        return payload[place:]
    if what == 2 and payload:
        changed = bytearray(payload)
        for _ in range(choose.randint(1, 4)):
            changed[choose.randrange(len(changed))] ^= 1 << choose.randrange(8)
        return bytes(changed)
    if what == 3:
        return payload[:place] + choose.choice(PIECES) + payload[place + choose.randint(0, 3) :]
    return payload


def fuzzed(choose: random.Random) -> Message:
    kind = choose.random()
    event = choose.choice(["vp", "vp", *EVENTS])
    if kind < 0.15:
        payload = choose.randbytes(choose.randrange(200))
    elif kind < 0.55:
        payload = mutated(choose, hfp_payload(choose, event))
    else:
        payload = mutated(choose, envelope(choose))
    name = choose.choice([lambda: hfp_topic(choose, event), lambda: "input.fuzz", lambda: choose.choice(LEVELS)])
    return Message(name() if kind >= 0.55 else hfp_topic(choose, event), payload, RECEIVED_AT)


@cache
def made_up() -> Sequence[Message]:
    choose = random.Random("fuzz")
    return [fuzzed(choose) for _ in range(MADE_UP)]


@cache
def recorded(folder: Path) -> Sequence[Message]:
    """Messages of real recordings, cut, mutated and with absurd values; and so the events that were made of them."""
    choose = random.Random("recorded")
    paths = sorted(folder.glob("*.jsonl.gz"))
    real = [item for path in paths for item in read_recording(path) if isinstance(item, RecordedMessage)]
    processed = HfpProcessor().process([Message(each.topic, each.payload, 0) for each in real])
    events = [value for batch in processed.topics.values() for value in batch.column("value").to_pylist()]
    found = []
    for _ in range(RECORDED // 2):
        each = choose.choice(real)
        payload = each.payload
        if choose.random() < 0.5:
            ((event, body),) = json.loads(payload).items()
            payload = payload_of(choose, event, body)
        name = each.topic if choose.random() < 0.7 else mutated_topic(choose, each.topic)
        found.append(Message(name, mutated(choose, payload), RECEIVED_AT))
        found.append(Message("input.fuzz", mutated(choose, choose.choice(events)), RECEIVED_AT))
    return found


@pytest.fixture(params=["made up", "recorded"])
def messages(request: pytest.FixtureRequest) -> Sequence[Message]:
    if request.param == "made up":
        return made_up()
    return recorded(request.getfixturevalue("shared") / "data" / "hfp")


def batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    return (messages[first : first + BATCH] for first in range(0, len(messages), BATCH))


def _processors() -> dict[str, Callable[[], Processor]]:
    installed = {point.name: point.load() for point in entry_points(group="tidewheel.processors")}
    assert "hfp" in installed
    return {**installed, "events": EventProcessor}


@pytest.mark.parametrize("name", sorted(_processors()))
def test_every_processor_accounts_for_every_fuzzed_message(name, messages, log):
    processor = _processors()[name]()
    pipeline = Pipeline(log, processor)
    for batch_of in batches(messages):
        pipeline(batch_of)
        if isinstance(processor, Replayable):
            for message in batch_of[:50]:
                processor.event_time(message)
                processor.moved(message, by=123_456_789, copy=7)
    report = pipeline.report()
    assert report.received == len(messages)
    assert report.received == sum(sum(part.values()) for part in (report.topics, report.filtered, report.dead))
    assert "processor-failed" not in report.dead
    assert len(report.dead) >= 2
    # Or the fuzz would be too wild to reach what is behind the checks.
    assert sum(report.topics.values()) > len(messages) // 50
    for topic_name, count in report.topics.items():
        values = pa.concat_arrays([batch.records["value"] for batch in log.read(topic_name, 0, 0)])
        assert len(values) == count
        assert not codec.decode_envelopes(values).errors
        if topic_name in TOPICS:
            assert not codec.decode_columns(TOPICS[topic_name], values).errors
    letters = dead_letters(log, name)
    assert len(letters) == sum(report.dead.values())
    assert all(letter.reason for letter in letters)
    came = Counter((message.topic.encode(errors="replace").decode(), message.payload) for message in messages)
    assert Counter((letter.topic, letter.raw) for letter in letters) <= came


@pytest.mark.parametrize("name", sorted(_processors()))
def test_a_fuzzed_message_fares_among_others_as_it_does_alone(name, messages):
    processor = _processors()[name]()
    for batch_of in islice(batches(messages), 5):
        alone = sum((_fates(processor.process([message])) for message in batch_of), Counter())
        assert _fates(processor.process(batch_of)) == alone


def _fates(processed: Processed) -> Counter[tuple[Any, ...]]:
    """What became of messages, all of it."""
    fates: Counter[tuple[Any, ...]] = Counter({("filtered", rule): n for rule, n in processed.filtered.items()})
    fates.update((dead.message, dead.kind, dead.reason) for dead in processed.dead)
    for topic_name, batch in processed.topics.items():
        # Times as numbers: Python's have not room for all of them.
        plain = [each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in batch.columns]
        fates.update(zip(repeat(topic_name), *(each.to_pylist() for each in plain), strict=False))
    return fates


def test_the_processor_finds_each_kind_of_fault():
    choose = random.Random("kinds")
    kinds = {dead.kind for dead in HfpProcessor().process([fuzzed(choose) for _ in range(5_000)]).dead}
    assert kinds == {"bad-topic", "unknown-event", "unknown-mode"} | {
        "bad-json",
        "bad-value",
        "event-mismatch",
        "no-time",
    }


def test_the_decoder_accounts_for_every_fuzzed_value(messages):
    good = 0
    for batch in batches(messages):
        values = [message.payload for message in batch]
        array = pa.array(values, pa.binary())
        envelopes = codec.decode_envelopes(array)
        assert len(envelopes.rows) + len(envelopes.errors) == BATCH
        decoded = codec.decode_columns(VehiclePosition, array)
        assert len(decoded.rows) + len(decoded.errors) + decoded.markers == BATCH
        good += len(decoded.rows)
        outcomes = Counter(_decoded(value) is not None for value in values)
        assert outcomes[True] + outcomes[False] == BATCH
        assert outcomes[True] > 0
    assert good > len(messages) // 50


def _decoded(value: bytes) -> Event | None:
    """The event, or None if it is refused as it should be; anything else that is raised is a fault."""
    try:
        return codec.decode(value)
    except MalformedError:
        return None


@pytest.mark.parametrize("name", [b'"mode\\ud800"', b'"mode\xed\xa0\x80"'], ids=["escaped", "raw"])
def test_the_decoder_refuses_half_a_character_in_the_name_of_a_field(name):
    event = codec.encode(codec.pack(VehiclePosition(mode="bus"), event_time=0), format="json")
    with pytest.raises(MalformedError):
        codec.decode(event.replace(b'"mode"', name))
