"""The event processor: events in their envelope go to the log as they are."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.errors import DefinitionError
from tidewheel.ingest.message import Message
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.ingest.processor import Processed, Processor
from tidewheel.ingest.processors.events import EventProcessor
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import DeadLetter, Event, Punctuation
from tidewheel.transport.events.registry import TypeRegistry, types
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import Arrival, Door, VehiclePosition

PROCESSOR = EventProcessor()
AT = 1_772_432_130_250_000
ARRIVED = AT + 600_000
DOOR = Door(mode="bus", operator=22, vehicle=817, event="doo", lat=60.2)


def event(message=DOOR, *, at: int | None = AT, ingested: int | None = None) -> Event:
    return codec.pack(message, event_time=at, ingestion_time=ingested)


def sent(what: Event | bytes, *, topic: str = "input.door", format: str = "binary") -> Message:
    return Message(topic, codec.encode(what, format=format) if isinstance(what, Event) else what, ARRIVED)


def events(processed: Processed, topic: str = "input.door") -> list[Event]:
    assert not processed.dead, processed.dead
    return [codec.decode(value) for value in processed.topics[topic].column("value").to_pylist()]


def test_it_is_a_processor():
    assert isinstance(PROCESSOR, Processor)


@pytest.mark.parametrize("format", ["binary", "json"])
def test_an_event_in_either_encoding_is_appended_in_binary(format):
    (batch,) = PROCESSOR.process([sent(event(ingested=AT), format=format)]).topics.values()
    assert batch.column("value").to_pylist() == [codec.encode(event(ingested=AT))]
    assert batch.column("key").to_pylist() == [None]
    assert batch.column("event_time").cast("int64").to_pylist() == [AT]


@pytest.mark.parametrize("format", ["binary", "json"])
def test_an_event_without_ingestion_time_gets_the_time_of_its_arrival(format):
    (found,) = events(PROCESSOR.process([sent(event(), format=format)]))
    assert found == event(ingested=ARRIVED)


def test_an_ingestion_time_that_is_there_stays():
    (found,) = events(PROCESSOR.process([sent(event(ingested=AT + 1))]))
    assert found == event(ingested=AT + 1)


@pytest.mark.parametrize("topic", ["input.door", "tidewheel/input.door", "/a/b/input.door"])
def test_the_topic_is_the_last_level_of_where_it_was_published(topic):
    assert list(PROCESSOR.process([sent(event(), topic=topic)]).topics) == ["input.door"]


def test_types_can_have_their_own_topics():
    processor = EventProcessor(topics={Door: "doors", Arrival: "input.arrivals"})
    processed = processor.process(
        [sent(event(), topic="anywhere"), sent(event(Arrival()), topic="x/y"), sent(event(VehiclePosition()))]
    )
    assert {topic: batch.num_rows for topic, batch in processed.topics.items()} == {
        "doors": 1,
        "input.arrivals": 1,
        "input.door": 1,
    }
    assert processor.types == (Door, Arrival)


@pytest.mark.parametrize("topic", ["", "door", "analytics.a", "dead.hfp", "__types", "input.", "input.Ä", "input.a b"])
def test_only_input_topics_can_be_reached_by_name(topic):
    (dead,) = PROCESSOR.process([sent(event(), topic=topic)]).dead
    assert dead.kind == "bad-topic"
    assert "does not look like input.name" in dead.reason


def test_only_so_many_topics_can_be_reached_by_name():
    processor = EventProcessor(topics={Arrival: "input.arrival"}, max_topics=3)
    bad = sent(event(at=None), topic="input.bad")
    processed = processor.process([bad, *(sent(event(), topic=f"input.{n}") for n in range(5_000))])
    assert sorted(processed.topics) == ["input.0", "input.1", "input.2"]
    assert {dead.kind for dead in processed.dead[1:]} == {"bad-topic"}
    assert "3 topics" in processed.dead[1].reason
    again = [sent(event(), topic="input.1"), sent(event(Arrival()), topic="x"), sent(event(), topic="input.7")]
    processed = processor.process(again)
    assert sorted(processed.topics) == ["input.1", "input.arrival"]
    assert [dead.message.topic for dead in processed.dead] == ["input.7"]
    with pytest.raises(DefinitionError, match="max_topics"):
        EventProcessor(max_topics=-1)


def test_events_of_unknown_types_survive_as_they_are():
    unknown = event()
    unknown.details.type_url = "type.googleapis.com/shop.v7.Order"
    unknown.details.value = b"\xff\xff not what we know"
    (found,) = events(PROCESSOR.process([sent(unknown)]))
    assert found.details == unknown.details
    (found,) = events(PROCESSOR.process([sent(unknown, format="json")]))
    assert found.details == unknown.details


def test_fields_of_a_newer_version_survive():
    newer = codec.encode(event(ingested=AT)) + b"\xfa\x01\x03new"  # field 31, a text
    (batch,) = PROCESSOR.process([sent(newer)]).topics.values()
    assert batch.column("value").to_pylist() == [newer]


def test_markers_are_punctuations_of_their_topic():
    marker = event(Punctuation(epoch="monday"))
    (batch,) = PROCESSOR.process([sent(event()), sent(marker)]).topics.values()
    assert batch.column("punctuation").cast("int64").to_pylist() == [None, AT]


BROKEN = event()
BROKEN.details.value = b"\xff\xff"
DEAD = [
    (b"", "bad-event", "has no details"),
    (b"\xff", "bad-event", "varint"),
    (b"{", "bad-event", "not an event as JSON"),
    (b"{}", "bad-event", "has no details"),
    (b'{"details":' * 5_000, "bad-event", "not an event as JSON"),
    (codec.encode(event(), format="json").replace(b'"mode"', b'"mode\\ud800"'), "bad-event", "not an event as JSON"),
    (codec.encode(event(), format="json").replace(b'"mode"', b'"m\xed\xa0\x80"'), "bad-event", "not an event as JSON"),
    (b'{"event_time":"soon"}', "bad-event", "not an event as JSON"),
    (codec.encode(event(at=None)), "bad-event", "has no event_time"),
    (Event(event_time=Timestamp(seconds=1)).SerializeToString(), "bad-event", "has no details"),
    (codec.encode(BROKEN), "bad-details", "tidewheel.transit.v1.Door: "),
    (b'{"event_time":"2026-01-01T00:00:00Z","details":{"@type":"x/shop.Order","n":1}}', "bad-event", "shop.Order"),
]


@pytest.mark.parametrize(("payload", "kind", "reason"), DEAD, ids=range(len(DEAD)))
def test_what_is_malformed_is_dead_with_a_kind_and_a_reason_and_harms_no_other(payload, kind, reason):
    processed = PROCESSOR.process([sent(event()), sent(payload), sent(event(), format="json")])
    (dead,) = processed.dead
    assert (dead.message, dead.kind) == (sent(payload), kind)
    assert reason in dead.reason
    assert processed.topics["input.door"].num_rows == 2


def test_the_order_of_a_topic_is_kept():
    mixed = [
        sent(event(Door(vehicle=n) if n % 3 else Punctuation(), at=n), format="json" if n % 2 else "binary")
        for n in range(50)
    ]
    (batch,) = PROCESSOR.process(mixed).topics.values()
    assert batch.column("event_time").cast("int64").to_pylist() == list(range(50))


def test_no_messages_are_nothing():
    assert PROCESSOR.process([]).count == 0


def test_subscriptions_must_be_a_list():
    assert EventProcessor(subscriptions=["a/+", "b/+"]).subscriptions == ("a/+", "b/+")
    with pytest.raises(DefinitionError, match="subscriptions must be a list"):
        EventProcessor(subscriptions="a/+")


@given(
    st.lists(st.binary(max_size=40) | st.builds(bytes.__add__, st.just(codec.encode(event())), st.binary(max_size=6)))
)
@settings(deadline=None, max_examples=50)
def test_whatever_comes_is_a_record_or_dead(payloads):
    processed = PROCESSOR.process([sent(payload) for payload in payloads])
    assert processed.count == len(payloads)
    for batch in processed.topics.values():
        assert not codec.decode_envelopes(batch.column("value")).errors


def test_a_dead_letter_of_another_system_is_an_event_like_any_other():
    letter = sent(event(DeadLetter(reason="no")), topic="input.theirs")
    assert len(events(PROCESSOR.process([letter]), "input.theirs")) == 1


def test_an_envelope_in_an_envelope_is_dead():
    (dead,) = PROCESSOR.process([sent(event(event()))]).dead
    assert dead.kind == "bad-details"
    assert "which is the envelope's" in dead.reason


def order_type(package):
    """A message type that no installed package knows."""
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    field = file.message_type.add(name="Order").field.add(name="article", number=1)
    field.type, field.label = field.TYPE_STRING, field.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))


def test_types_that_only_the_log_knows_are_read_as_json_and_checked(tmp_path):
    order, elsewhere = order_type("shop_of_events"), TypeRegistry()
    with open_log(tmp_path / "shop.tw") as log:
        pipeline = Pipeline(log, EventProcessor())
        elsewhere.register(order, log=log)  # after the pipeline has begun
        written = codec.pack(order(article="tea"), event_time=AT)
        as_json = codec.encode(written, format="json", registry=elsewhere)
        assert b"tea" in as_json
        broken = Event(event_time=written.event_time)
        broken.details.type_url, broken.details.value = "/shop_of_events.Order", b"\x0a\xff"
        delivered = pipeline(
            [sent(as_json, topic="input.order"), sent(written, topic="input.order"), sent(broken, topic="input.order")]
        )
        assert (delivered.topics, delivered.dead) == ({"input.order": 2}, {"bad-details": 1})
        (batch,) = log.read("input.order", 0, 0)
        found = [codec.unpack(codec.decode(value), registry=elsewhere) for value in batch.records["value"].to_pylist()]
        assert [each.article for each in found] == ["tea", "tea"]
    assert "shop_of_events.Order" not in types
