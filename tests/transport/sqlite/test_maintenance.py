"""Retention and compaction of the log in a SQLite file, which does at once all that it is asked for."""

from __future__ import annotations

import threading

import pytest

from tests.transport.log_reader import EPOCH, assert_only, offsets, read, values
from tidewheel.errors import DataLossError
from tidewheel.model.block_stats import merge
from tidewheel.model.time import now
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.open_log import open_log


@pytest.fixture
def log(embedded: Log) -> Log:
    return embedded


class TestRetention:
    def test_old_blocks_leave_whole_and_the_newest_stays(self, log: Log) -> None:
        for number in range(5):
            log.append("news", records([b"%d" % number] * 10))
        blocks = log.blocks("news", 0, 0)
        log.maintain(now=now() + 10**15)
        assert log.topic_info("news").count == 50, "without a limit nothing leaves"
        log.create_topic("news", retention=Retention(age=1_000_000))
        third = blocks[2].summary.append_time
        log.maintain(now=third + 1_000_000)
        kept = [block for block in blocks if block.summary.append_time >= third]
        assert log.blocks("news", 0, log.position("news", 0, "earliest")) == kept
        info = log.topic_info("news")
        assert (info.first_offsets, info.next_offsets) == ((kept[0].first_offset,), (50,))
        assert info.count == 10 * len(kept)
        assert info.size == sum(block.size for block in kept)
        log.maintain(now=now() + 10**15)
        assert offsets(read(log, "news")) == list(range(40, 50))

    def test_a_partition_is_kept_to_its_size(self, log: Log) -> None:
        log.create_topic("news", partitions=2)
        for number in range(8):
            log.append("news", records([b"%d" % number] * 20, keys=[b"a", b"b", b"c", b"d"] * 5))
        blocks = [log.blocks("news", partition, 0) for partition in range(2)]
        limit = sum(block.size for block in blocks[0][-3:])
        log.create_topic("news", retention=Retention(size=limit))
        log.maintain()
        for partition in range(2):
            kept = log.blocks("news", partition, log.position("news", partition, "earliest"))
            assert kept
            assert kept == blocks[partition][-len(kept) :]
            assert sum(block.size for block in kept) <= limit
            left = blocks[partition][-len(kept) - 1]
            assert sum(block.size for block in kept) + left.size > limit
        log.create_topic("news", retention=Retention(size=0))
        log.maintain()
        assert log.topic_info("news").count == sum(part[-1].summary.count for part in blocks)

    def test_of_two_limits_the_tighter_one_holds(self, log: Log) -> None:
        for number in range(8):
            log.append("news", records([b"%d" % number] * 10))
        blocks = log.blocks("news", 0, 0)
        time = blocks[-1].summary.append_time + 1_000_000
        by_size = sum(block.size for block in blocks[-4:])
        by_age = [time - block.summary.append_time for block in blocks]
        for size, age, kept in (
            (by_size, by_age[0], 4),
            (by_size + blocks[3].size, by_age[6], sum(each <= by_age[6] for each in by_age)),
        ):
            log.create_topic("news", retention=Retention(age=age, size=size))
            log.maintain(now=time)
            assert log.blocks("news", 0, log.position("news", 0, "earliest")) == blocks[-kept:]

    def test_reading_what_has_left_is_an_error_and_not_silence(self, log: Log) -> None:
        for _ in range(3):
            log.append("news", records([b"x"] * 10))
        reading = log.read("news", 0, 0)
        next(reading)
        log.create_topic("news", retention=Retention(size=0))
        log.maintain()
        message = "'news' partition 0: records 0 to 19 have left the log by retention"
        for ask in (
            lambda: log.read("news", 0, 0),
            lambda: log.blocks("news", 0, 0),
            lambda: log.position("news", 0, 0),
        ):
            with pytest.raises(DataLossError, match=message):
                ask()
        with pytest.raises(DataLossError, match="records 10 to 19"):
            next(reading)
        assert log.position("news", 0, "earliest") == log.position("news", 0, EPOCH) == 20
        assert offsets(read(log, "news")) == list(range(20, 30))


class TestCompaction:
    def content(self, log: Log) -> list[tuple[int, bytes | None, bytes]]:
        batches = read(log, "state")
        keys = [key for batch in batches for key in batch.records.column("key").to_pylist()]
        return list(zip(offsets(batches), keys, values(batches), strict=True))

    def test_the_latest_record_of_each_key_stays_at_its_offset(self, log: Log) -> None:
        log.create_topic("state", compact=True)
        log.append("state", records([b"1", b"2", b"3"], keys=[b"a", b"b", b"a"]))
        log.append("state", records([b"4", b"5", b"6"], keys=[b"a", b"c", None]))
        log.append("state", records([b"", b"8", b"9"], keys=[b"c", b"d", b"d"]))
        log.maintain()
        # The newest block is not changed, so d is in it twice; an empty value is the latest of its key like any other.
        expected = [(1, b"b", b"2"), (3, b"a", b"4"), (5, None, b"6"), (6, b"c", b""), (7, b"d", b"8"), (8, b"d", b"9")]
        assert self.content(log) == expected
        log.maintain()
        assert self.content(log) == expected
        log.append("state", records([b"10"], keys=[b"b"]))
        log.maintain()
        assert self.content(log) == [*expected[1:4], (8, b"d", b"9"), (9, b"b", b"10")]
        info = log.topic_info("state")
        assert (info.count, info.first_offsets, info.next_offsets) == (5, (0,), (10,))
        blocks = log.blocks("state", 0, 0)
        assert sum(block.size for block in blocks) == info.size
        assert [block.summary.count for block in blocks] == [2, 2, 1]

    def test_gaps_are_read_over_from_anywhere(self, log: Log) -> None:
        log.create_topic("state", compact=True)
        for number in range(5):
            log.append("state", records([b"%d" % number] * 4, keys=[b"a", b"b", b"c", b"%d" % number]))
        log.maintain()
        kept = [3, 7, 11, 15, 16, 17, 18, 19]
        assert_only(log, "state", kept, end=20)

    def test_the_times_of_a_compacted_block_are_those_of_all_that_was_appended(self, log: Log) -> None:
        log.create_topic("state", compact=True)
        log.append("state", records([b"1", b"2"], keys=[b"a", b"b"], event_times=[100, 200], type="a.B"))
        log.append("state", records([b"3"], keys=[b"b"], event_times=[300]))
        (before, _), _ = log.blocks("state", 0, 0), log.maintain()
        (after, _) = log.blocks("state", 0, 0)
        assert (before.summary.count, after.summary.count) == (2, 1)
        assert after.summary.max_event_time == before.summary.max_event_time == 200
        assert after.summary.skew == before.summary.skew
        assert [batch.type for batch in read(log, "state")] == ["a.B", None]

    def test_the_times_of_a_block_of_which_nothing_is_left_go_to_the_next(self, log: Log) -> None:
        log.create_topic("state", compact=True)
        log.append("state", records([b"1"], keys=[b"a"], event_times=[900], punctuations=[800]))
        log.append("state", records([b"2"], keys=[b"a"], event_times=[50], punctuations=[40]))
        log.append("state", records([b"3"], keys=[b"b"], event_times=[300], type="a.B"))
        log.append("state", records([b"4"], keys=[b"a"], event_times=[400], punctuations=[700]))
        before = merge(block.summary for block in log.blocks("state", 0, 0))
        log.maintain()
        blocks = log.blocks("state", 0, 0)
        after = merge(block.summary for block in blocks)
        assert [block.first_offset for block in blocks] == [2, 3]
        assert [batch.type for batch in read(log, "state")] == ["a.B", None]
        for known in ("max_plausible", "min_event_time", "max_event_time"):
            assert getattr(after, known) == getattr(before, known) is not None
        assert max(after.punctuations) == 800
        assert [block.summary.count for block in blocks] == [1, 1]
        for _ in range(3):  # nothing adds up however often it goes on to the next
            log.append("state", records([b"5", b"6"], keys=[b"a", b"b"], event_times=[500, 500], punctuations=[750, 1]))
            log.maintain()
        (block,) = log.blocks("state", 0, 0)
        assert (block.summary.max_plausible, block.summary.punctuations) == (900, (1, 750, 800))

    def test_compaction_and_retention_go_together(self, log: Log) -> None:
        log.create_topic("state", compact=True, retention=Retention(size=0))
        for number in range(3):
            log.append("state", records([b"%d" % number] * 2, keys=[b"a", b"%d" % number]))
            log.maintain()
        assert self.content(log) == [(4, b"a", b"2"), (5, b"2", b"2")]
        with pytest.raises(DataLossError):
            log.read("state", 0, 3)

    def test_several_may_maintain_at_once_while_others_append(self, log: Log) -> None:
        log.create_topic("state", compact=True)
        appended: dict[bytes, bytes] = {}
        stop = threading.Event()
        errors: list[BaseException] = []

        def maintain() -> None:
            try:
                with open_log(log.address) as own:
                    while not stop.is_set():
                        own.maintain()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=maintain) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(60):
            keys = [b"%d" % (number * step % 13) for step in range(1, 6)]
            log.append("state", records([b"%d" % number] * 5, keys=keys))
            appended.update(dict.fromkeys(keys, b"%d" % number))
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        log.maintain()
        content = self.content(log)
        assert {key: value for _, key, value in content} == appended
        assert len(content) <= len(appended) + 5, "one a key, but for the newest block"
        assert log.topic_info("state").count == len(content)
