"""Type definitions travel with the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from tidewheel.topic_names import TYPES_TOPIC
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import DeadLetter, Punctuation
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.types import load_types, publish_types


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "city.tw") as opened:
        yield opened


def bell(*fields: str) -> type[Message]:
    """A type that only its maker has, with these fields."""
    file = descriptor_pb2.FileDescriptorProto(name="bell.proto", package="tower", syntax="proto3")
    message = file.message_type.add(name="Bell")
    for place, name in enumerate(fields, 1):
        message.field.add(
            name=name,
            number=place,
            type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tower.Bell"))


def registry(*types: type[Message]) -> TypeRegistry:
    made = TypeRegistry()
    made.register(*types)
    return made


def test_a_reader_decodes_a_type_it_has_never_heard_of(log: Log) -> None:
    Bell = bell("tone")
    assert publish_types(log, registry(Bell), ["tower.Bell"]) == ["tower.Bell"]
    event = codec.encode(codec.pack(Bell(tone="deep"), event_time=1))

    stranger = TypeRegistry()
    assert load_types(log, stranger) == ["tower.Bell"]
    assert codec.unpack(codec.decode(event), registry=stranger).tone == "deep"  # type: ignore[attr-defined]


def test_only_what_is_missing_or_different_is_written(log: Log) -> None:
    known = registry(bell("tone"), DeadLetter, Punctuation)
    assert publish_types(log, known, ["tower.Bell", "tidewheel.v1.DeadLetter"]) == [
        "tidewheel.v1.DeadLetter",
        "tower.Bell",
    ]
    assert publish_types(log, known, ["tower.Bell", "tidewheel.v1.DeadLetter"]) == []
    assert log.topic_info(TYPES_TOPIC).count == 2

    assert publish_types(log, registry(bell("tone", "weight")), ["tower.Bell"]) == ["tower.Bell"]
    reader = TypeRegistry()
    load_types(log, reader)
    assert reader.schema("tower.Bell").names == ["tone", "weight"]


def test_what_a_program_knows_itself_is_not_replaced(log: Log) -> None:
    publish_types(log, registry(bell("tone")), ["tower.Bell"])
    own = registry(bell("tone", "weight"))
    assert load_types(log, own) == []
    assert own.schema("tower.Bell").names == ["tone", "weight"]


def test_a_log_without_definitions_has_none(log: Log) -> None:
    assert load_types(log, TypeRegistry()) == []
    assert TYPES_TOPIC not in {topic.name for topic in log.topics()}


def test_records_that_define_nothing_do_no_harm(log: Log) -> None:
    other = codec.encode(codec.pack(Punctuation(), event_time=1))
    log.append(TYPES_TOPIC, records([b"\xff", b"{}", other], keys=[b"a", b"b", b"c"]))
    assert load_types(log, TypeRegistry()) == []
    assert publish_types(log, registry(bell("tone")), ["tower.Bell"]) == ["tower.Bell"]
