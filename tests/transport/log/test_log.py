"""Appending, reading and topics, on every implementation of the log."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transport.log_reader import EPOCH, offsets, read, rising, values
from tidewheel.errors import DefinitionError, LogError, TopicNotFoundError
from tidewheel.model.time import now
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import FETCHED, Retention, records


class TestAppendAndRead:
    def test_records_come_back_in_order_with_offsets_keys_and_append_times(self, log: Log) -> None:
        before = now()
        log.append("news", records([b"one", b"two"], keys=[b"a", None]))
        log.append("news", records([b"", b"\x00\xff"], keys=[b"", b"b"]))
        batches = list(log.read("news", 0, 0))
        for batch in batches:
            assert (batch.topic, batch.partition, batch.records.schema) == ("news", 0, FETCHED)
        together = pa.Table.from_batches([batch.records for batch in batches]).to_pydict()
        assert rising(together["offset"])
        assert together["key"] == [b"a", None, b"", b"b"]
        assert together["value"] == [b"one", b"two", b"", b"\x00\xff"]
        for time in together["append_time"]:
            assert EPOCH + timedelta(microseconds=before) <= time <= EPOCH + timedelta(microseconds=now())

    def test_reading_can_begin_and_end_anywhere(self, log: Log) -> None:
        for start in range(0, 30, 10):
            log.append("news", records([b"%d" % number for number in range(start, start + 10)]))
        at = offsets(read(log, "news"))
        assert offsets(list(log.read("news", 0, at[7], end=at[23]))) == at[7:23]
        assert offsets(list(log.read("news", 0, at[7], limit=5))) == at[7:12]
        assert offsets(list(log.read("news", 0, at[9], end=at[11], limit=1))) == at[9:10]
        assert offsets(list(log.read("news", 0, at[5], limit=0))) == []
        assert offsets(list(log.read("news", 0, at[12], end=at[12]))) == []

    def test_records_between_positions_are_counted_whatever_gaps_offsets_have(self, log: Log) -> None:
        log.create_topic("news", partitions=2)
        for _ in range(3):
            log.append("news", records([b"x"] * 10, keys=[b"1"] * 10))
        part = "news", zlib.crc32(b"1") % 2
        at = offsets(read(log, *part))
        # A log whose offsets have gaps between appends may count the gaps, too, but never fewer than there are.
        for first, last in ((0, 30), (10, 20), (0, 10), (5, 15), (29, 30)):
            end = at[last - 1] + 1
            (count,) = log.counts({part: at[first]}, {part: end}).values()
            assert last - first <= count <= end - at[first]
        assert log.counts({part: log.position(*part, "latest"), ("news", 1 - part[1]): 0}) == {
            part: 0,
            ("news", 1 - part[1]): 0,
        }

    def test_reading_at_and_beyond_the_end_gives_nothing(self, log: Log) -> None:
        receipt = log.append("news", records([b"one"]))
        assert list(log.read("news", 0, receipt.next_offsets["news", 0])) == []
        assert list(log.read("news", 0, 99)) == []
        assert log.blocks("news", 0, 99) == []

    def test_a_topic_that_is_made_anew_has_another_id(self, log: Log) -> None:
        ids = [log.create_topic("news").id, log.create_topic("news").id, log.create_topic("other").id]
        log.delete_topic("news")
        log.maintain()
        assert ids[0] == ids[1]
        assert log.create_topic("news").id not in ids
        assert log.topic_info("other").id == ids[2]

    def test_reading_ends_where_the_topic_ended_when_it_was_asked_for(self, log: Log) -> None:
        log.append("news", records([b"one"]))
        reading = log.read("news", 0, 0)
        log.append("news", records([b"two"]))
        assert values(list(reading)) == [b"one"]

    def test_a_large_append_comes_back_whole(self, log: Log) -> None:
        count = 25_000
        log.append("news", records([b"%d" % number for number in range(count)]))
        log.append("news", records([b"x" * 3_000_000, b"y" * 5_000_000, b"z"]))
        batches = read(log, "news")
        assert values(batches)[:count] == [b"%d" % number for number in range(count)]
        assert [len(value) for value in values(batches)[count:]] == [3_000_000, 5_000_000, 1]
        assert rising(offsets(batches))

    def test_an_empty_append_makes_the_topic_and_nothing_else(self, log: Log) -> None:
        log.append("news", records([]))
        info = log.topic_info("news")
        assert (info.count, info.size, info.last_append) == (0, 0, None)
        assert info.first_offsets == info.next_offsets
        assert read(log, "news") == []

    def test_a_slice_of_a_batch_is_appended_as_it_is(self, log: Log) -> None:
        log.append("news", records([b"one", b"two", b"three", b"four"], keys=[b"a", b"b", None, b"d"]).slice(1, 2))
        (batch,) = read(log, "news")
        assert batch.records.column("value").to_pylist() == [b"two", b"three"]
        assert batch.records.column("key").to_pylist() == [b"b", None]

    @pytest.mark.parametrize(
        ("batch", "message"),
        [
            (pa.record_batch({"value": pa.array([b"x"])}), "must have the columns"),
            (pa.table({"value": pa.array([b"x"])}), "must be a pyarrow RecordBatch"),
            (records(pa.nulls(2, pa.binary())), "2 null values"),
        ],
    )
    def test_what_is_not_records_is_refused(self, log: Log, batch: pa.RecordBatch, message: str) -> None:
        with pytest.raises(DefinitionError, match=message):
            log.append("news", batch)
        assert log.topics() == []

    @given(
        appends=st.lists(
            st.lists(st.tuples(st.none() | st.binary(max_size=3), st.binary(max_size=20)), max_size=12), max_size=6
        ),
        partitions=st.integers(1, 4),
    )
    @settings(max_examples=25, deadline=None)
    def test_every_record_is_in_the_partition_of_its_key_in_its_order(
        self,
        make_log: Callable[[Path], Log],
        tmp_path_factory: pytest.TempPathFactory,
        appends: list[list[tuple[bytes | None, bytes]]],
        partitions: int,
    ) -> None:
        with make_log(tmp_path_factory.mktemp("log")) as log:
            log.create_topic("news", partitions=partitions)
            for append in appends:
                log.append("news", records([value for _, value in append], keys=[key for key, _ in append]))
            found = [
                list(
                    zip(
                        [key for batch in batches for key in batch.records.column("key").to_pylist()],
                        values(batches),
                        strict=True,
                    )
                )
                for batches in (read(log, "news", partition) for partition in range(partitions))
            ]
            info = log.topic_info("news")
        given_ = [record for append in appends for record in append]
        assert sum(map(len, found)) == info.count == len(given_)
        for number, content in enumerate(found):
            assert info.next_offsets[number] >= len(content)
            for key in {key for key, _ in content} - {None}:
                assert key is not None
                assert zlib.crc32(key) % partitions == number
                assert [value for k, value in content if k == key] == [value for k, value in given_ if k == key]


class TestTopics:
    def test_a_topic_is_made_with_its_settings_and_they_can_be_changed(self, log: Log) -> None:
        made = log.create_topic("news", partitions=3, retention=Retention(age=5_000, size=10), compact=True)
        assert made.partitions == 3
        assert made.retention == Retention(age=5_000, size=10)
        assert made.compact
        changed = log.create_topic("news", partitions=7, retention=Retention(size=20))
        assert (changed.partitions, changed.retention, changed.compact) == (3, Retention(size=20), False)
        assert log.topic_info("news") == changed

    def test_topics_are_listed_by_name_with_how_full_they_are(self, log: Log) -> None:
        log.create_topic("b", partitions=2)
        log.append("b", records([b"x"] * 4, keys=[b"1", b"2", b"3", b"4"]))
        log.append("a", records([b"x"] * 3))
        a, b = log.topics()
        assert (a.name, a.partitions, a.count, a.first_offsets) == ("a", 1, 3, (0,))
        assert (b.name, b.partitions, b.count, b.first_offsets) == ("b", 2, 4, (0, 0))
        for info in (a, b):
            for number, end in enumerate(info.next_offsets):
                assert end > max(offsets(read(log, info.name, number)), default=-1)
        assert b.size > 0
        assert b.last_append is not None
        assert abs(now() - b.last_append) < 60_000_000

    def test_a_deleted_topic_is_gone_with_its_positions_and_can_be_made_anew(self, log: Log) -> None:
        log.append("news", records([b"old"] * 5))
        log.append("other", records([b"stays"]))
        log.commit("readers", {("news", 0): 5, ("other", 0): 1})
        log.delete_topic("news")
        assert [topic.name for topic in log.topics()] == ["other"]
        assert log.committed("readers") == {("other", 0): 1}
        log.append("news", records([b"new"]))
        assert values(read(log, "news")) == [b"new"]
        assert log.topic_info("news").first_offsets == (0,)
        assert values(read(log, "other")) == [b"stays"]

    def test_a_topic_that_is_not_there_is_named_with_those_that_are(self, log: Log) -> None:
        with pytest.raises(TopicNotFoundError, match=r"'input\.arival': the log has no topics yet"):
            log.topic_info("input.arival")
        log.append("input.arrival", records([b"x"]))
        log.append("other", records([b"x"]))
        message = r"no topic 'input\.arival'; did you mean 'input\.arrival'\? There are: input\.arrival, other"
        for ask in (
            lambda: log.topic_info("input.arival"),
            lambda: log.delete_topic("input.arival"),
            lambda: log.read("input.arival", 0, 0),
            lambda: log.blocks("input.arival", 0, 0),
            lambda: log.position("input.arival", 0, "earliest"),
            lambda: log.commit("readers", {("input.arival", 0): 1}),
            lambda: log.wait({("input.arival", 0): 1}, timeout=0),
        ):
            with pytest.raises(TopicNotFoundError, match=message):
                ask()

    def test_a_partition_that_is_not_there_is_refused(self, log: Log) -> None:
        log.create_topic("news", partitions=2)
        with pytest.raises(LogError, match="'news' has partitions 0 to 1, got 2"):
            log.read("news", 2, 0)
        with pytest.raises(LogError, match="got -1"):
            log.blocks("news", -1, 0)

    def test_an_offset_that_cannot_be_is_refused(self, log: Log) -> None:
        log.create_topic("news")
        with pytest.raises(DefinitionError, match="0 or more, got -1"):
            log.read("news", 0, -1)
        with pytest.raises(DefinitionError, match="0 or more, got -1"):
            log.blocks("news", 0, -1)
        with pytest.raises(DefinitionError, match="0 or more, got -1"):
            log.commit("readers", {("news", 0): -1})
        with pytest.raises(DefinitionError, match="limit"):
            log.read("news", 0, 0, limit=-1)

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, None])
    def test_a_name_that_kafka_would_not_take_is_refused(self, log: Log, name: str) -> None:
        with pytest.raises(DefinitionError, match="a topic's name is"):
            log.create_topic(name)
        with pytest.raises(DefinitionError, match="a topic's name is"):
            log.append(name, records([b"x"]))

    def test_settings_that_make_no_sense_are_refused(self, log: Log) -> None:
        with pytest.raises(DefinitionError, match="at least 1 partition, got 0"):
            log.create_topic("news", partitions=0)
        with pytest.raises(DefinitionError, match="retention age"):
            log.create_topic("news", retention=Retention(age=-1))


class TestPartitions:
    def test_records_without_a_key_stay_together_and_appends_take_turns(self, log: Log) -> None:
        log.create_topic("news", partitions=3)
        for number in range(6):
            log.append("news", records([b"%d" % number] * 5))
        for partition in range(3):
            found = values(read(log, "news", partition))
            assert len(found) == 10
            assert len(set(found)) == 2

    def test_a_producer_that_repeats_itself_chooses_the_same_partitions(
        self, make_log: Callable[[Path], Log], tmp_path: Path
    ) -> None:
        contents = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            with make_log(tmp_path / name) as log:
                log.create_topic("news", partitions=3)
                for number in (0, 1, 2, 3, 5):
                    log.producer("writer").append({"news": records([b"%d" % number])}, sequence=number)
                contents.append([values(read(log, "news", partition)) for partition in range(3)])
        assert contents[0] == contents[1]
        assert all(contents[0])


class TestPosition:
    def test_the_ends_and_an_offset(self, log: Log) -> None:
        receipt = log.append("news", records([b"x"] * 3))
        end = log.position("news", 0, "latest")
        assert log.position("news", 0, "earliest") == 0
        assert end >= receipt.next_offsets["news", 0]
        some = {*range(5), *range(max(end - 5, 0), end + 1)}  # a log may leave thousands of offsets free
        assert {offset: log.position("news", 0, offset) for offset in some if offset <= end} == {
            offset: offset for offset in some if offset <= end
        }
        with pytest.raises(LogError, match=f"ends at offset {end}, got {end + 1}"):
            log.position("news", 0, end + 1)
        with pytest.raises(DefinitionError, match="0 or more, got -1"):
            log.position("news", 0, -1)
        with pytest.raises(DefinitionError, match="got 'first'"):
            log.position("news", 0, "first")  # type: ignore[arg-type]

    def test_a_time_is_the_first_record_appended_at_or_after_it(self, log: Log) -> None:
        for _ in range(20):
            log.append("news", records([b"x"] * 3))
        found = offsets(read(log, "news"))
        end = log.position("news", 0, "latest")
        times = [time for batch in read(log, "news") for time in batch.records.column("append_time").to_pylist()]
        assert times == sorted(times)
        around = {time + timedelta(microseconds=step) for time in times for step in (-1, 0, 1)}
        for time in around:
            expected = next((offset for offset, at in zip(found, times, strict=True) if at >= time), end)
            assert log.position("news", 0, time) == expected
            assert log.position("news", 0, time.replace(tzinfo=None)) == expected
            assert log.position("news", 0, time.astimezone(timezone(timedelta(hours=5)))) == expected
