"""Topics as DataFrames: `format("tidewheel")`."""

from __future__ import annotations

import base64
import json
import pickle
import sys
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from tests.engine.engine_data import START, positions
from tests.engine.topic_frames import POSITION, reader
from tidewheel.engine.datasource.batch_planner import OffsetRange
from tidewheel.engine.datasource.batch_reader import read_ranges
from tidewheel.engine.datasource.options import ReadOptions
from tidewheel.engine.datasource.reader_function import ReadInfo, reader_function
from tidewheel.engine.spark.arrow_schema import arrow_schema
from tidewheel.errors import TidewheelError
from tidewheel.model import watermarks
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import DeadLetter
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.topics.types import publish_types


def collect_stream(frame, folder, **trigger):
    """Everything that the stream has now, and how many rows each of its batches had."""
    rows, sizes = [], []

    def keep(batch, _):
        some = batch.collect()
        rows.extend(some)
        sizes.append(len(some))

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder))
    query.trigger(**(trigger or {"availableNow": True})).start().awaitTermination()
    return rows, sizes


def test_a_topic_is_read_into_columns(spark, log):
    log.append("a", positions(range(5)))
    frame = reader(spark, log)
    rows = frame.orderBy("vehicle").collect()
    assert [row.vehicle for row in rows] == [0, 1, 2, 3, 4]
    assert rows[3].event_time.astimezone(timezone.utc) == datetime.fromtimestamp(START / 1e6 + 3, timezone.utc)
    assert rows[3].lat == pytest.approx(60.1003)
    assert rows[3].route is None
    assert dict(frame.dtypes)["speed"] == "float"


def test_blocks_whose_type_is_known_and_others_are_read_together(spark, log, tmp_path):
    log.append("a", positions(range(5)))
    log.append("a", positions(range(5, 10), typed=False))
    strange = codec.encode(codec.pack(DeadLetter(reason="none"), event_time=START))
    log.append("a", records([strange], type="tidewheel.v1.DeadLetter"))
    log.append("a", positions(range(10, 15)))
    for options in ({}, {"maxEventsPerBatch": 5}):
        frame = reader(spark, log, stream=True, malformed="keep", **options)
        rows, _ = collect_stream(frame, tmp_path / f"c{len(options)}")
        assert sorted(row.vehicle for row in rows if row._error is None) == list(range(15))
        (error,) = (row._error for row in rows if row._error is not None)
        assert error == f"carries tidewheel.v1.DeadLetter, expected {POSITION}"


def test_without_a_type_the_records_come_as_they_are(spark, log):
    log.append("a", records([b"\xff\x00", b""], keys=[b"k", None]))
    rows = reader(spark, log, of=None).orderBy("offset").collect()
    assert [(row.topic, row.partition, row.offset, row.key, bytes(row.value)) for row in rows] == [
        ("a", 0, 0, b"k", b"\xff\x00"),
        ("a", 0, 1, None, b""),
    ]


def test_several_topics_and_partitions_are_one_dataframe_with_metadata(spark, log):
    log.create_topic("a", partitions=3)
    batch = positions(range(60))
    keyed = batch.set_column(0, "key", pa.array([str(number).encode() for number in range(60)]))
    log.append("a", keyed)
    log.append("b", positions(range(100, 105)))
    rows = reader(spark, log, topics="a, b", metadata="_topic,_partition,_offset,_key,_clock,_append_time").collect()
    assert sorted(row.vehicle for row in rows) == [*range(60), *range(100, 105)]
    assert {row._partition for row in rows if row._topic == "a"} == {0, 1, 2}
    assert all(bytes(row._key) == str(row.vehicle).encode() for row in rows if row._topic == "a")
    assert len({(row._topic, row._partition, row._offset) for row in rows}) == 65
    assert len({row._clock for row in rows}) == 1


def test_available_now_works_off_a_backlog_in_even_batches_and_ends(spark, log, tmp_path):
    for number in range(10):
        log.append("a", positions(range(number * 100, number * 100 + 100)))
    rows, sizes = collect_stream(reader(spark, log, stream=True, maxEventsPerBatch=300), tmp_path / "c")
    assert sizes == [300, 300, 300, 100]
    assert [row.vehicle for row in rows] == list(range(1_000))
    log.append("a", positions(range(1_000, 1_050)))
    rows, sizes = collect_stream(reader(spark, log, stream=True, maxEventsPerBatch=300), tmp_path / "c")
    assert [row.vehicle for row in rows] == list(range(1_000, 1_050))


def test_a_stream_starts_at_the_end_or_at_a_time_if_told_to(spark, log, tmp_path):
    log.append("a", positions(range(5)))
    between = datetime.now(timezone.utc)
    log.append("a", positions(range(5, 9)))
    for start, expected in (("latest", []), (between.isoformat(), [5, 6, 7, 8])):
        rows, _ = collect_stream(reader(spark, log, stream=True, startFrom=start), tmp_path / start)
        assert [row.vehicle for row in rows] == expected


def test_the_offsets_hold_positions_watermark_and_clock(spark, log, tmp_path):
    log.append("a", positions(range(5)))
    strategy = json.dumps(watermarks.bounded("2 s", future=None).to_json())
    collect_stream(reader(spark, log, stream=True, watermark=strategy), tmp_path / "c")
    offset = json.loads((tmp_path / "c" / "offsets" / "0").read_text().splitlines()[-1])
    assert offset["positions"] == {"a": {"0": 5}}
    assert offset["watermark"] == START + 2_000_000
    assert offset["log"] == log.identity
    assert abs(offset["clock"] / 1e6 - datetime.now(timezone.utc).timestamp()) < 300


def test_a_group_notes_how_far_a_stream_has_come(spark, log, tmp_path):
    for number in range(3):
        log.append("a", positions(range(number * 10, number * 10 + 10)))
    collect_stream(reader(spark, log, stream=True, group="g", maxEventsPerBatch=10), tmp_path / "c")
    # Spark tells the source of a finished batch when it begins the next
    assert log.committed("g")["a", 0] >= 20


def with_a_bad_record(log):
    log.append("a", positions(range(3)))
    log.append("a", records([b"\xffnot an event"]))
    log.append("a", positions(range(3, 6)))


def test_a_malformed_record_stops_a_read_and_is_named(spark, log):
    with_a_bad_record(log)
    with pytest.raises(PySparkException, match=r"topic 'a' partition 0 offset 3.*malformed=keep"):
        reader(spark, log).collect()


def test_malformed_records_can_be_kept_beside_the_others(spark, log):
    with_a_bad_record(log)
    rows = reader(spark, log, malformed="keep", metadata="_offset").orderBy("_offset").collect()
    assert [row.vehicle for row in rows] == [0, 1, 2, None, 3, 4, 5]
    assert bytes(rows[3]._raw) == b"\xffnot an event"
    assert rows[3]._error
    assert rows[2]._error is None


def test_malformed_records_can_go_to_the_dead_letters_once(spark, log, tmp_path):
    with_a_bad_record(log)
    for attempt in ("first", "again"):  # the same batch, read by two queries of the group
        frame = reader(spark, log, stream=True, malformed="dead", group="g")
        rows, _ = collect_stream(frame, tmp_path / attempt)
        assert [row.vehicle for row in rows] == [0, 1, 2, 3, 4, 5]
    (batch,) = log.read("dead.g", 0, 0)
    (value,) = batch.records["value"].to_pylist()
    letter = codec.unpack(codec.decode(value))
    assert isinstance(letter, DeadLetter)
    assert (letter.source, letter.topic, letter.raw) == ("g", "a", b"\xffnot an event")
    assert letter.reason


def test_dead_letters_do_not_depend_on_how_a_batch_is_shared_out(log):
    for number in range(6):
        log.append("a", records([b"\xffbad", *positions(range(number, number + 2))["value"].to_pylist(), b"\xffworse"]))
    options = ReadOptions.of({"log": log.address, "topics": "a", "type": POSITION, "malformed": "dead", "group": "g"})
    info = ReadInfo(None, None, 0, 0, 1)
    for pieces in (
        [OffsetRange("a", 0, 0, 24)],
        [OffsetRange("a", 0, 0, 12), OffsetRange("a", 0, 12, 24)],
        [OffsetRange("a", 0, 8, 24)],
    ):
        rows = list(read_ranges(log, options, pieces, info, arrow_schema(options.schema())))
        assert sum(batch.num_rows for batch in rows) == 2 * len(range(pieces[0].start, 24, 4))
    assert log.topic_info("dead.g").count == 12


@pytest.mark.parametrize("anew", ["a", "dead.g"])
def test_dead_letters_of_a_topic_that_was_made_anew_are_written(log, anew):
    options = ReadOptions.of({"log": log.address, "topics": "a", "type": POSITION, "malformed": "dead", "group": "g"})

    def read(raw):
        if "a" not in {topic.name for topic in log.topics()}:
            log.append("a", records([raw]))
        for _ in range(2):  # as a task that runs again
            list(read_ranges(log, options, [OffsetRange("a", 0, 0, 1)], ReadInfo(None, None, 0, 0, 1), schema))
        letters = [value for batch in log.read("dead.g", 0, 0) for value in batch.records["value"].to_pylist()]
        return [codec.unpack(codec.decode(value)).raw for value in letters]

    schema = arrow_schema(options.schema())
    assert read(b"\xfffirst") == [b"\xfffirst"]
    log.delete_topic(anew)
    assert read(b"\xffsecond") == ([b"\xfffirst", b"\xffsecond"] if anew == "a" else [b"\xfffirst"])


def test_markers_are_no_rows(spark, log):
    log.append("a", positions(range(3)))
    log.append("a", codec.punctuation(START))
    assert reader(spark, log).count() == 3


def test_a_type_that_only_the_log_knows_is_decoded(spark, log):
    file = descriptor_pb2.FileDescriptorProto(name="user.proto", package="user", syntax="proto3")
    message = file.message_type.add(name="Reading")
    message.field.add(name="celsius", number=1, type=1, label=1)
    message.field.add(name="count", number=2, type=4, label=1)  # unsigned: Spark has no such type
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    reading = message_factory.GetMessageClass(pool.FindMessageTypeByName("user.Reading"))
    registry = TypeRegistry()
    registry.register(reading)
    publish_types(log, registry, ["user.Reading"])
    value = codec.encode(codec.pack(reading(celsius=21.5, count=2**64 - 1), event_time=START))
    log.append("a", records([value]))
    (row,) = reader(spark, log, of="user.Reading").collect()
    assert (row.celsius, int(row["count"])) == (21.5, 2**64 - 1)


def test_a_function_runs_inside_the_reader_and_sees_the_batch_s_time(spark, log, tmp_path):
    def pre_aggregate(batches, info):
        counts = [(batch.topic, batch.columns.num_rows) for batch in batches]
        yield pa.RecordBatch.from_pydict(
            {
                "seen": [sum(count for _, count in counts)],
                "before": pa.array([info.watermark_before], pa.int64()),
                "watermark": pa.array([info.watermark], pa.int64()),
                "clock": pa.array([info.clock], pa.int64()),
            }
        )

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    for number in range(2):
        log.append("a", positions(range(number * 10, number * 10 + 10)))
    frame = reader(
        spark,
        log,
        stream=True,
        maxEventsPerBatch=10,
        tasks=1,
        watermark=json.dumps(watermarks.monotonic(future=None).to_json()),
        transform=reader_function(pre_aggregate),
        transformSchema="seen long, before long, watermark long, clock long",
    )
    rows, _ = collect_stream(frame, tmp_path / "c")
    assert [(row.seen, row.before, row.watermark) for row in rows] == [
        (10, None, START + 9_000_000),
        (10, START + 9_000_000, START + 19_000_000),
    ]
    assert rows[0].clock <= rows[1].clock


def test_a_function_inside_the_reader_is_loaded_only_there():
    broken = base64.b64encode(b"not a function").decode()
    options = ReadOptions.of({"log": "city.tw", "topics": "a", "transform": broken, "transformSchema": "n INT"})
    assert options.schema() == "n INT"
    with pytest.raises(pickle.UnpicklingError):
        options.transform  # noqa: B018


def test_records_that_left_before_they_were_read_are_an_error_not_a_gap(spark, log, tmp_path):
    log.append("a", positions(range(3)))
    collect_stream(reader(spark, log, stream=True), tmp_path / "c")
    for number in range(1, 4):
        log.append("a", positions(range(number * 3, number * 3 + 3)))
    log.create_topic("a", retention=Retention(age=0))
    log.maintain(now=int((datetime.now(timezone.utc) + timedelta(days=1)).timestamp() * 1e6))
    with pytest.raises(PySparkException, match="DataLossError"):
        collect_stream(reader(spark, log, stream=True), tmp_path / "c")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": ""}, "'topics' is missing"),
        ({"of": "no.such.Type"}, "no.such.Type"),
        ({"maxEventsPerBatch": "many"}, "maxEventsPerBatch"),
        ({"maxEventsPerBatch": "0"}, "maxEventsPerBatch"),
        ({"startFrom": "yesterday"}, "startFrom"),
        ({"malformed": "ignore"}, "fail, keep or dead"),
        ({"malformed": "dead"}, "group"),
        ({"metadata": "_offest"}, "_offset"),
        ({"maxEventPerBatch": "5"}, "no option 'maxEventPerBatch'"),
        ({"watermark": "1 s"}, "not JSON"),
        ({"watermark": '{"kind": "magic"}'}, "magic"),
        ({"transform": "xx"}, "transformSchema"),
        ({"topics": "a,b", "of": '{"a": "tidewheel.transit.v1.Door"}'}, "no type for the topic 'b'"),
        ({"topics": "a,b", "of": '{"a": "x.Y", "b": "x.Z"}'}, "different types"),
    ],
)
def test_options_that_make_no_sense_are_refused(log, options, message):
    given = {"log": log.address, "topics": "a", "type": options.pop("of", POSITION), **options}
    with pytest.raises(TidewheelError, match=message):
        ReadOptions.of(given).schema()


def test_a_refusal_comes_when_the_read_is_defined(spark, log):
    with pytest.raises(PySparkException, match=r"no option 'maxevents'; there are .*maxEventsPerBatch"):
        reader(spark, log, maxEvents=5)


def test_a_missing_topic_is_named(spark, log):
    log.create_topic("input.arrival")
    with pytest.raises(PySparkException, match=r"input\.arival"):
        reader(spark, log, topics="input.arival").collect()


def test_a_log_that_is_not_there_is_an_error_and_not_made(spark, tmp_path):
    missing = tmp_path / "typo.tw"
    read = spark.read.format("tidewheel").option("log", str(missing)).option("topics", "a")
    with pytest.raises(PySparkException, match=r"there is no log at .*typo\.tw"):
        read.load().collect()
    assert not missing.exists()


def test_a_query_is_not_started_on_positions_of_a_topic_that_was_made_anew(spark, log, tmp_path):
    log.append("a", positions(range(100)))
    frame = reader(spark, log, stream=True)
    assert len(collect_stream(frame, tmp_path / "c")[0]) == 100
    log.delete_topic("a")
    log.append("a", positions(range(60)))
    with pytest.raises(PySparkException, match="'a' was deleted and made anew since the checkpoint was made"):
        collect_stream(frame, tmp_path / "c")
    assert len(collect_stream(frame, tmp_path / "new")[0]) == 60
