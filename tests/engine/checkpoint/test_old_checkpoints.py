"""A checkpoint that is older than the results in the log is reported, whatever it would write."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import pytest

from tests.engine.engine_data import positions
from tests.engine.topic_frames import cells, reader, values, write_stream
from tidewheel.engine.checkpoint.batch_identity import BatchIdentity, check_results, has_written
from tidewheel.engine.jobs.dataframe_job import run_dataframe
from tidewheel.engine.jobs.run import run
from tidewheel.engine.streams.stream_factory import stream
from tidewheel.errors import CheckpointError, DefinitionError
from tidewheel.transport.events.codec import decode
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.transit_pb2 import VehiclePosition

INPUT, RESULTS = "input.vehicle-position", "analytics.rows"


def put(log, number):
    log.append(INPUT, positions(range(number * 100, number * 100 + 100)))


def started(spark, log, folder, **options):
    rows = stream(log, INPUT, type=VehiclePosition).select("vehicle", "speed").key_by("vehicle").each_row()
    return run(rows.named("rows"), log=log, checkpoint=folder, spark=spark, available_now=True, **options)


def results(log):
    found = [decode(value) for value in values(log, RESULTS)]
    return sum(not event.details.type_url.endswith(".Punctuation") for event in found)


def put_back(folder, batches):
    """Make a checkpoint what it was after so many batches, as when a copy from then is put back."""
    for kind in ("offsets", "commits"):
        for path in list((folder / kind).iterdir()):
            if int(path.name.removeprefix(".").removesuffix(".crc")) >= batches:
                path.unlink()


def test_a_copy_from_two_batches_ago_is_refused_with_new_events_and_without(spark, log, tmp_path):
    folder = tmp_path / "checkpoint"
    for number in range(4):
        put(log, number)
    started(spark, log, folder, max_events_per_batch=100).wait()
    assert results(log) == 400
    put_back(folder / "spark", 2)
    # The batches that are missing are planned anew, with another clock: they are others, also without new events; and
    # the second time Spark repeats the batch that was refused.
    for more in (False, True):
        if more:
            put(log, 4)
            put(log, 5)
        with pytest.raises(
            CheckpointError, match=r"older than the results in the log: it gives batch 2, and"
        ) as caught:
            started(spark, log, folder).wait()
        for way in ("Put back a copy", "--version NAME", "--delete"):
            assert way in str(caught.value)
        assert results(log) == 400
    # One of the ways out: a new checkpoint, and topics of its own.
    rows = stream(log, INPUT, type=VehiclePosition).select("vehicle", "speed").key_by("vehicle").each_row()
    again = run(rows.named("rows.v2"), log=log, checkpoint=tmp_path / "v2", spark=spark, available_now=True)
    assert again.wait()
    assert again.progress().events == 600


def test_a_batch_that_is_the_same_goes_on_in_peace(spark, log, tmp_path):
    """The log's clock makes the same batches of the same history."""
    folder = tmp_path / "checkpoint"
    rows = stream(log, INPUT, type=VehiclePosition).select("vehicle", "speed").key_by("vehicle").each_row()

    def go():
        rows.start(
            results=log.topic(RESULTS),
            checkpoint=folder,
            spark=spark,
            available_now=True,
            clock="log",
            max_events_per_batch=100,
        ).wait()

    for number in range(4):
        put(log, number)
    go()
    before = values(log, RESULTS)
    put_back(folder / "spark", 2)
    put(log, 4)
    go()
    assert values(log, RESULTS)[: len(before)] == before
    assert results(log) == 500


def test_a_log_that_has_all_events_but_not_all_results_is_refused(spark, tmp_path):
    """In a copy that was made after the events came and before their results, all positions are right."""
    path, folder = tmp_path / "city.tw", tmp_path / "checkpoint"
    with open_log(path) as log:
        put(log, 0)
        started(spark, log, folder).wait()
        put(log, 1)
        with closing(sqlite3.connect(path)) as there, closing(sqlite3.connect(tmp_path / "copy")) as copy:
            there.backup(copy)
        started(spark, log, folder).wait()
        assert results(log) == 200
    (tmp_path / "copy").replace(path)
    for beside in ("-wal", "-shm"):
        path.with_name(f"city.tw{beside}").unlink(missing_ok=True)
    with open_log(path) as log:
        assert results(log) == 100
        with pytest.raises(
            CheckpointError, match=r"is older than the checkpoint .*: it has the results of batches up to"
        ):
            started(spark, log, folder)


def test_a_function_over_frames_is_refused_too_that_has_not_all_results(spark, tmp_path):
    path, folder = tmp_path / "city.tw", tmp_path / "checkpoint"

    def go_on(log):
        run_dataframe(
            lambda rows: rows.where("vehicle % 2 = 0").select("event_time", "vehicle"),
            name="even",
            reads={INPUT: VehiclePosition},
            writes=VehiclePosition,
            log=log,
            checkpoint=folder,
            spark=spark,
            available_now=True,
        ).wait()

    with open_log(path) as log:
        log.append(INPUT, positions(range(10)))
        go_on(log)
        log.append(INPUT, positions([11, 13]))  # a batch without a result is noted, too
        go_on(log)
        go_on(log)
        log.append(INPUT, positions(range(20, 30)))
        with closing(sqlite3.connect(path)) as there, closing(sqlite3.connect(tmp_path / "copy")) as copy:
            there.backup(copy)
        go_on(log)
        assert log.topic_info("analytics.even").count == 10
    (tmp_path / "copy").replace(path)
    for beside in ("-wal", "-shm"):
        path.with_name(f"city.tw{beside}").unlink(missing_ok=True)
    with open_log(path) as log, pytest.raises(CheckpointError, match=r"is older than the checkpoint"):
        go_on(log)


def test_metadata_that_names_no_query_is_a_damaged_checkpoint(log, tmp_path):
    for content in ("", "{}", "[]", "7"):
        (tmp_path / "metadata").write_text(content)
        with pytest.raises(CheckpointError, match=r"metadata of the checkpoint is damaged: it names no query"):
            has_written(log, str(tmp_path))


def test_a_query_of_ones_own_is_refused_too(spark, log, tmp_path):
    for number in range(2):
        log.append("a", positions(range(number * 100, number * 100 + 100)))
    write_stream(cells(reader(spark, log, stream=True, maxEventsPerBatch=100)), log, tmp_path / "checkpoint")
    put_back(tmp_path / "checkpoint", 1)
    log.append("a", positions(range(200, 300)))
    with pytest.raises(Exception, match=r"CheckpointError: the checkpoint .* is older than the results in the log"):
        write_stream(cells(reader(spark, log, stream=True)), log, tmp_path / "checkpoint")
    assert len(values(log, "out")) == 200


def offsets(folder, *ends):
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    for number, end in enumerate(ends):
        text = f'v1\n{{"batchTimestampMs":{id(end)}}}\n{json.dumps(end)}'
        (folder / "offsets" / str(number)).write_text(text)
    return str(folder)


def test_what_distinguishes_batches_of_one_number(log, tmp_path):
    here, there = offsets(tmp_path / "a", 1, 2, 3), offsets(tmp_path / "b", 1, 7, 3)
    for number in range(3):
        batch = BatchIdentity.of(here, number)
        producer = log.producer("p", fence=False)
        assert not batch.is_repeat(producer, here)
        producer.append({"t": records([b"x"])}, sequence=number, state=batch.added_to(producer.state))
    producer = log.producer("p", fence=False)
    for number in range(3):
        assert BatchIdentity.of(here, number).is_repeat(producer, here)
        assert BatchIdentity.of(f"file:{here}", number) == BatchIdentity.of(here, number)
    assert BatchIdentity.of(there, 0).is_repeat(producer, there)
    for number in (1, 2):  # another end, and another start
        with pytest.raises(CheckpointError, match=f"it gives batch {number}, and the log has a batch of that number"):
            BatchIdentity.of(there, number).is_repeat(producer, there)
    assert not BatchIdentity.of(here, 3).is_repeat(producer, here)


def test_where_offsets_cannot_be_seen_only_the_last_number_is_a_repeat(log, tmp_path):
    """Of logs that an earlier version wrote, of checkpoints elsewhere, and of a state that a later version left."""
    here = offsets(tmp_path / "a", 1, 2, 3)
    for state in (None, b"from elsewhere", b'{"version": 9}'):
        name = f"p {state}"
        log.producer(name, fence=False).append({"t": records([b"x"])}, sequence=2, state=state)
        producer = log.producer(name, fence=False)
        assert BatchIdentity.of(here, 2).is_repeat(producer, here)
        assert BatchIdentity.of("s3://bucket/c", 2).is_repeat(producer, None)
        with pytest.raises(CheckpointError, match="batches up to number 2"):
            BatchIdentity.of(here, 1).is_repeat(producer, here)
    assert BatchIdentity.of("hdfs://x/y", 5) == BatchIdentity.of(None, 5) == BatchIdentity(5)
    assert json.loads(BatchIdentity(5).added_to(b""))["batches"] == {}


def test_a_checkpoint_whose_batches_the_log_has_never_heard_of_is_refused(log, tmp_path):
    """As when a copy of the log from before the first results was put back."""
    (tmp_path / "commits").mkdir()
    check_results(log, str(tmp_path))
    (tmp_path / "metadata").write_text('{"id": "q"}')
    for number in range(3):
        (tmp_path / "commits" / str(number)).touch()
    for sequence in range(3):
        with pytest.raises(CheckpointError, match=f"up to number {sequence - 1}, and those up to number 2 are done"):
            check_results(log, str(tmp_path))
        log.producer("spark:q", fence=False).append({}, sequence=sequence)
    check_results(log, str(tmp_path))


def test_a_query_that_only_noted_its_batches_has_not_written_yet(log, tmp_path):
    assert not has_written(log, str(tmp_path))
    (tmp_path / "metadata").write_text('{"id": "q"}')
    producer = log.producer("spark:q", fence=False)
    for number, wrote in enumerate((False, False, True)):
        assert not has_written(log, str(tmp_path))
        producer.append({}, sequence=number, state=BatchIdentity(number).added_to(producer.state, wrote=wrote))
    assert has_written(log, str(tmp_path))
    log.producer("spark:old", fence=False).append({}, sequence=7)  # an earlier version noted only what it wrote
    (tmp_path / "metadata").write_text('{"id": "old"}')
    assert has_written(log, str(tmp_path))


def test_digests_of_the_last_hundred_batches_are_kept(tmp_path):
    state = b""
    for number in range(250):
        state = BatchIdentity(number, f"{number:016x}").added_to(state)
    assert list(json.loads(state)["batches"]) == [str(number) for number in range(150, 250)]


def test_a_new_checkpoint_does_not_write_into_topics_that_hold_results(spark, log, tmp_path):
    put(log, 0)
    started(spark, log, tmp_path / "one").wait()
    shutil.rmtree(tmp_path / "one")
    rows = stream(log, INPUT, type=VehiclePosition).select("vehicle", "speed").key_by("vehicle").each_row()
    into = {"results": log.topic(RESULTS), "spark": spark, "available_now": True}
    for attempt in (
        lambda: started(spark, log, tmp_path / "one"),
        lambda: started(spark, log, tmp_path / "two"),
        lambda: rows.start(**into, checkpoint=tmp_path / "three"),
    ):
        with pytest.raises(DefinitionError, match=r"analytics.rows holds results of another run.*append_to_existing"):
            attempt()
    assert not (tmp_path / "one").exists()
    assert results(log) == 100
    started(spark, log, tmp_path / "two", append_to_existing=True).wait()
    assert results(log) == 200
    put(log, 1)
    started(spark, log, tmp_path / "two").wait()  # it has said so once
    assert results(log) == 300


def test_of_two_new_checkpoints_that_start_together_one_writes(spark, log, tmp_path):
    log.ensure_topic(INPUT)
    log.ensure_topic(RESULTS)
    rows = stream(log, INPUT, type=VehiclePosition).select("vehicle", "speed").key_by("vehicle").each_row()
    one, two = (
        rows.named("rows").start(results=log.topic(RESULTS), checkpoint=tmp_path / name, spark=spark)
        for name in ("one", "two")
    )
    (tmp_path / "two" / "stop").touch()  # it waits with its first batch until the other one has written
    put(log, 0)
    while results(log) < 100:
        assert not one.wait(0.05)
    (tmp_path / "two" / "stop").unlink()
    with pytest.raises(DefinitionError, match=r"analytics\.rows holds results of another run"):
        two.wait()
    one.stop()
    with pytest.raises(DefinitionError, match=r"analytics\.rows holds results of another run"):
        rows.named("rows").start(results=log.topic(RESULTS), checkpoint=tmp_path / "two", spark=spark)
    assert results(log) == 100
