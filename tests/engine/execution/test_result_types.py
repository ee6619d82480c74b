"""A job whose columns change goes on writing what can be read, or is refused."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.engine.execution.targets import Target, prepared_targets
from tidewheel.engine.spark.worker import registry_for
from tidewheel.errors import DefinitionError
from tidewheel.topic_names import TYPES_TOPIC
from tidewheel.transport.events import codec
from tidewheel.transport.events.codec import decode_columns, encode_columns, punctuation
from tidewheel.transport.events.event_pb2 import TypeDefinition
from tidewheel.transport.events.registry import TypeRegistry, types
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.types import load_types, publish_types
from tidewheel_transit.transit_pb2 import VehiclePosition

TOPIC = "analytics.speeds"


@pytest.fixture
def log(tmp_path):
    with open_log(tmp_path / "city.tw") as opened:
        yield opened


def prepare(log, topic=TOPIC, **aggregates):
    """What is done before a job with these aggregates starts; returns the type of its results."""
    positions = tw.stream(
        log, "input.vehicle-position", type=VehiclePosition, watermark=tw.watermarks.bounded("1 s")
    ).key_by("vehicle")
    result = positions.window(tw.windows.tumbling("10 s")).aggregate(**aggregates).named("speeds")
    (target,) = prepared_targets(
        {result: {"results": Target(log.topic(topic))}}, log, ["input.vehicle-position"]
    ).values()
    return target.type


def registry(log):
    made = TypeRegistry()
    load_types(log, made)
    return made


def write(log, kind, topic=TOPIC, **columns):
    frame = pl.DataFrame({name: [value] for name, value in columns.items()})
    values = encode_columns(kind, frame, event_time=pl.Series([0]).to_arrow(), registry=registry(log))
    log.append(topic, records(values))


def test_columns_in_another_order_are_read_as_they_were_written(log):
    kind = prepare(log, count=tw.agg.count(), delay=tw.agg.sum("delay"))
    write(log, kind, count=5, delay=-300)
    kind = prepare(log, delay=tw.agg.sum("delay"), top=tw.agg.max("speed"), count=tw.agg.count())
    write(log, kind, count=7, delay=-10, top=2.5)
    values = pa.concat_arrays([batch.records.column("value") for batch in log.read(TOPIC, 0, 0)])
    read = pl.DataFrame(decode_columns(kind, values, registry=registry(log)).columns)
    assert read.select("count", "delay", "top").rows() == [(5, -300, None), (7, -10, 2.5)]


def test_another_type_of_a_column_is_refused_as_long_as_results_are_there(log):
    prepare(log, value=tw.agg.count())
    prepare(log, value=tw.agg.max("speed"))  # nothing is written yet
    kind = prepare(log, value=tw.agg.count())
    write(log, kind, value=5)
    with pytest.raises(DefinitionError, match=r"analytics\.speeds: .*'value'.*of another type"):
        prepare(log, value=tw.agg.max("speed"))
    log.delete_topic(TOPIC)
    prepare(log, value=tw.agg.max("speed"))


def test_topics_whose_names_are_alike_have_types_of_their_own(log):
    topics = ["analytics.a-b", "analytics.a.b", "analytics.a_b", "analytics.aB"]
    kinds = {topic: prepare(log, topic, value=tw.agg.count()) for topic in topics[:2]}
    kinds |= {topic: prepare(log, topic, value=tw.agg.max("speed")) for topic in topics[2:]}
    assert len(set(kinds.values())) == len(topics)
    for number, (topic, kind) in enumerate(kinds.items()):
        write(log, kind, topic, value=number)
    for number, (topic, kind) in enumerate(kinds.items()):
        (batch,) = log.read(topic, 0, 0)
        decoded = decode_columns(kind, batch.records.column("value"), registry=registry(log))
        assert decoded.columns["value"].to_pylist() == [number]


def test_results_keep_the_type_that_an_earlier_version_named_otherwise(log):
    old = TypeRegistry()
    fields = pa.schema({"value": pa.int64(), "vehicle": pa.int32()})
    kind = define_message(old, "a-b", fields, full="tidewheel.results.AnalyticsAB")
    publish_types(log, old, [kind])
    write(log, kind, "analytics.a-b", value=7)
    log.append("analytics.a-b", pa.concat_batches([punctuation(number) for number in range(300)]))
    assert prepare(log, "analytics.a-b", value=tw.agg.count(), top=tw.agg.max("speed")) == kind
    assert prepare(log, "analytics.a.b", value=tw.agg.max("speed")) != kind
    (batch, _) = log.read("analytics.a-b", 0, 0)
    assert decode_columns(kind, batch.records.column("value"), registry=registry(log)).columns["value"][0].as_py() == 7
    with pytest.raises(DefinitionError, match=r"analytics\.a-b: .*'value'.*of another type"):
        prepare(log, "analytics.a-b", value=tw.agg.max("speed"))


def test_a_broken_definition_of_another_type_stops_nobody(log):
    kind = prepare(log, count=tw.agg.count())
    bad = codec.encode(codec.pack(TypeDefinition(name="mine.Bad", file_descriptor_set=b"\xff"), event_time=0))
    log.append(TYPES_TOPIC, records([bad], keys=[b"mine.Bad"]))
    assert prepare(log, count=tw.agg.count()) == kind
    assert "count" in registry_for(log.address, kind).schema(kind).names
    with pytest.raises(DefinitionError, match=r"'mine\.Bad' cannot be loaded.*Register the type anew"):
        registry_for(log.address, "mine.Bad").schema("mine.Bad")


PLAIN = define_message(types, "mute.result", pa.schema({"vehicle": pa.int32(), "n": pa.int64()}))
TOLD = define_message(
    types, "telling.result", pa.schema({"n": pa.int64(), "vehicle": pa.int32(), "retraction": pa.bool_()})
)


@pytest.mark.parametrize("mode", ["value", "delta", "retracting"])
def test_a_message_without_a_place_for_retractions_is_refused_for_results_that_are_retracted(log, mode):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition).key_by("vehicle")
    result = moves.window(tw.windows.tumbling("5 s")).accumulate(mode).aggregate(n=tw.agg.count()).named("counts")

    def prepare(kind):
        topic = log.topic("analytics.counts")
        return prepared_targets({result: {"results": Target(topic, kind)}}, log, ["input.vehicle-position"])

    assert prepare(TOLD)
    if mode != "retracting":
        assert prepare(PLAIN)
        return
    with pytest.raises(DefinitionError, match=r"has no field 'retraction', and counts may retract results.*Add `bool"):
        prepare(PLAIN)


@pytest.mark.parametrize("mode", ["value", "delta", "retracting"])
def test_so_it_is_behind_a_stage_that_takes_results_back(log, mode):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition).key_by("vehicle")
    first = (
        moves.window(tw.windows.tumbling("5 s"), lateness="5 s").accumulate("retracting").aggregate(m=tw.agg.count())
    )
    second = first.key_by("vehicle").window(tw.windows.tumbling("10 s"), lateness="5 s").accumulate(mode)
    result = second.aggregate(n=tw.agg.sum("m")).named("counts")

    def prepare(kind):
        topic = log.topic("analytics.counts")
        return prepared_targets({result: {"results": Target(topic, kind)}}, log, ["input.vehicle-position"])

    assert prepare(TOLD)
    if mode == "delta":
        assert prepare(PLAIN)
        return
    with pytest.raises(
        DefinitionError, match=r'no field .retraction.*or use accumulate\("delta"\), or .*; if it reads'
    ):
        prepare(PLAIN)
