"""Types made from columns: what was written once is read rightly, whatever columns a job has later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidewheel.errors import DefinitionError
from tidewheel.topic_names import TYPES_TOPIC
from tidewheel.transport.events import codec
from tidewheel.transport.events.codec import decode_columns, encode_columns
from tidewheel.transport.events.event_pb2 import TypeDefinition
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.events.schema_inference import define_message, generated_type_name
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.types import definitions, load_types, publish_types

PART = pa.struct({"x": pa.int64()})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "city.tw") as opened:
        yield opened


def write(log: Log, **columns: tuple[pa.DataType, Any]) -> pa.Array:
    """An event of a job that has these columns now."""
    made = TypeRegistry()
    schema = pa.schema({name: kind for name, (kind, _) in columns.items()})
    kind = define_message(made, "counts", schema, earlier=definitions(log))
    publish_types(log, made, [kind])
    row = pa.RecordBatch.from_pylist([{name: value for name, (_, value) in columns.items()}], schema=schema)
    return encode_columns(kind, row, event_time=pa.array([0]), registry=made)


def read(registry: TypeRegistry, value: pa.Array) -> dict[str, Any]:
    decoded = decode_columns("tidewheel.results.Counts", value, registry=registry)
    (row,) = decoded.columns.drop_columns(["event_time", "ingestion_time"]).to_pylist()
    return row


def loaded(log: Log) -> TypeRegistry:
    registry = TypeRegistry()
    load_types(log, registry)
    return registry


@pytest.mark.parametrize("definition", [b"\xff", b"", b"\n\x02\x12\x00"])
def test_a_definition_that_cannot_be_loaded_is_refused_by_name_and_need_not_hold_up_others(
    log: Log, definition: bytes
) -> None:
    value = write(log, vehicles=(pa.int64(), 5))
    bad = codec.encode(codec.pack(TypeDefinition(name="mine.Bad", file_descriptor_set=definition), event_time=0))
    log.append(TYPES_TOPIC, records([bad], keys=[b"mine.Bad"]))
    with pytest.raises(DefinitionError, match=r"'mine\.Bad' cannot be loaded: "):
        loaded(log).schema("mine.Bad")
    assert read(loaded(log), value) == {"vehicles": 5}
    registry, broken = TypeRegistry(), dict[str, str]()
    assert load_types(log, registry, broken=broken) == ["tidewheel.results.Counts"]
    assert read(registry, value) == {"vehicles": 5}
    assert [*broken] == ["mine.Bad"]


def test_columns_in_another_order_are_the_same_fields(log: Log) -> None:
    old = write(log, vehicles=(pa.int64(), 5), delay=(pa.int64(), -300))
    before = loaded(log)
    new = write(log, delay=(pa.int64(), -10), vehicles=(pa.int64(), 7))
    for registry in (before, loaded(log)):
        assert read(registry, old) == {"vehicles": 5, "delay": -300}
        assert read(registry, new) == {"vehicles": 7, "delay": -10}


def test_a_new_column_comes_last_and_one_that_is_gone_stays_readable(log: Log) -> None:
    old = write(log, vehicles=(pa.int64(), 5), delay=(pa.int64(), -300))
    new = write(log, speed=(pa.float64(), 2.5), delay=(pa.int64(), -10), part=(PART, {"x": 1}))
    registry = loaded(log)
    assert read(registry, old) == {"vehicles": 5, "delay": -300, "speed": None, "part": None}
    assert read(registry, new) == {"vehicles": None, "delay": -10, "speed": 2.5, "part": {"x": 1}}
    again = write(log, part=(PART, {"x": 2}), vehicles=(pa.int64(), 9))
    assert read(loaded(log), again) == {"vehicles": 9, "delay": None, "speed": None, "part": {"x": 2}}


@pytest.mark.parametrize(
    "other", [pa.string(), pa.int32(), pa.list_(pa.int64()), pa.timestamp("us", "UTC"), pa.struct({"y": pa.int64()})]
)
@pytest.mark.parametrize("kind", [pa.int64(), PART])
def test_a_column_of_another_type_is_refused(log: Log, kind: pa.DataType, other: pa.DataType) -> None:
    write(log, vehicles=(kind, None))
    with pytest.raises(DefinitionError, match=r"counts: .*'vehicles'.* of another type.*another topic"):
        write(log, vehicles=(other, None))
    assert loaded(log).schema("tidewheel.results.Counts").field("vehicles").type == kind


def test_who_has_loaded_a_type_gets_the_new_fields(log: Log) -> None:
    write(log, vehicles=(pa.int64(), 5))
    reader = loaded(log)
    assert load_types(log, reader) == []
    new = write(log, vehicles=(pa.int64(), 6), delay=(pa.int64(), 1))
    assert load_types(log, reader) == ["tidewheel.results.Counts"]
    assert read(reader, new) == {"vehicles": 6, "delay": 1}


def test_every_name_gives_another_type() -> None:
    letters = "ab.-_3A"
    names = ["".join(some) for count in range(1, 6) for some in product(letters, repeat=count)]
    types = {generated_type_name(name) for name in names}
    assert len(types) == len(names)
    assert all(re.fullmatch(r"tidewheel\.results\.[A-Za-z][A-Za-z0-9_]*", name) for name in types)


def test_a_definition_that_is_fixed_is_loaded(log: Log) -> None:
    bad = codec.encode(codec.pack(TypeDefinition(name="tidewheel.results.Counts"), event_time=0))
    log.append(TYPES_TOPIC, records([bad], keys=[b"tidewheel.results.Counts"]))
    registry = loaded(log)
    with pytest.raises(DefinitionError, match=r"cannot be loaded"):
        registry.schema("tidewheel.results.Counts")
    with pytest.raises(DefinitionError, match=r"definition of message type 'tidewheel\.results\.Counts' is broken"):
        write(log, vehicles=(pa.int64(), 5))
    log.delete_topic(TYPES_TOPIC)
    value = write(log, vehicles=(pa.int64(), 5))
    load_types(log, registry)
    assert read(registry, value) == {"vehicles": 5}
