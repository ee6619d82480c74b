"""Retention and compaction, on every implementation of the log: what may leave, what must stay, and what readers see.

When something leaves is the log's own affair (Kafka decides by segments and in the background), so nothing here expects
that it has. What the embedded log does at once is in sqlite/test_maintenance.
"""

from __future__ import annotations

from typing import TypeAlias

import pytest

from tests.transport.log_reader import EPOCH, assert_only, offsets, read, rising, values
from tidewheel.errors import DataLossError
from tidewheel.model.time import now
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Retention, records

LATER = 10**15
COUNT = 50
Content: TypeAlias = dict[int, tuple[bytes | None, bytes]]


def fill(log: Log) -> None:
    for number in range(0, COUNT, 10):
        log.append("news", records([b"%d" % (number + place) for place in range(10)]))


class TestRetention:
    @pytest.mark.parametrize("retention", [Retention(), Retention(age=10 * LATER, size=10**9)])
    def test_what_is_within_the_limits_stays(self, log: Log, retention: Retention) -> None:
        fill(log)
        log.create_topic("news", retention=retention)
        log.maintain(now=now() + LATER)
        assert values(read(log, "news")) == [b"%d" % number for number in range(COUNT)]

    def test_what_is_younger_than_the_limit_stays(self, log: Log) -> None:
        fill(log)
        blocks = log.blocks("news", 0, 0)
        young = blocks[len(blocks) // 2]
        log.create_topic("news", retention=Retention(age=1_000_000))
        log.maintain(now=young.summary.append_time + 1_000_000)
        assert log.position("news", 0, "earliest") <= young.first_offset

    @pytest.mark.parametrize("retention", [Retention(age=0), Retention(size=0)])
    def test_what_leaves_is_the_oldest_and_the_rest_is_as_it_was(self, log: Log, retention: Retention) -> None:
        fill(log)
        before = offsets(read(log, "news"))
        log.create_topic("news", retention=retention)
        log.maintain(now=now() + LATER)
        first = log.position("news", 0, "earliest")
        found = read(log, "news")
        assert offsets(found) == [offset for offset in before if offset >= first]
        assert found, "the newest stays"
        left = COUNT - len(offsets(found))
        assert values(found) == [b"%d" % number for number in range(left, COUNT)]
        info = log.topic_info("news")
        assert (info.first_offsets, info.count) == ((first,), COUNT - left)
        assert info.next_offsets[0] > before[-1]
        assert first <= log.position("news", 0, EPOCH) <= offsets(found)[0]

    def test_reading_what_has_left_is_an_error_and_not_silence(self, log: Log) -> None:
        fill(log)
        log.create_topic("news", retention=Retention(size=0))
        log.maintain()
        for left in range(log.position("news", 0, "earliest")):
            for ask in (log.read, log.blocks, log.position):
                with pytest.raises(DataLossError, match="have left the log by retention"):
                    ask("news", 0, left)

    def test_offsets_go_on_after_retention(self, log: Log) -> None:
        log.create_topic("news", retention=Retention(size=0))
        ends = []
        for number in range(4):
            ends.append(log.append("news", records([b"%d" % number])).next_offsets["news", 0])
            log.maintain()
        assert rising(ends)
        found = read(log, "news")
        assert (values(found)[-1], offsets(found)[-1]) == (b"3", ends[-1] - 1)


class TestCompaction:
    APPENDED = ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (b"b", b"5"), (b"c", b""), (b"d", b"7"))

    def content(self, log: Log) -> Content:
        batches = read(log, "state")
        keys = [key for batch in batches for key in batch.records.column("key").to_pylist()]
        return dict(zip(offsets(batches), zip(keys, values(batches), strict=True), strict=True))

    @pytest.fixture
    def appended(self, log: Log) -> Content:
        """What was appended, by its offset, before the log was maintained."""
        log.create_topic("state", compact=True)
        found: Content = {}
        for key, value in self.APPENDED:
            receipt = log.append("state", records([value], keys=[key]))
            found[receipt.next_offsets["state", 0] - 1] = (key, value)
        log.maintain()
        return found

    def test_the_latest_record_of_each_key_stays_at_its_offset(self, log: Log, appended: Content) -> None:
        content = self.content(log)
        assert content.items() <= appended.items()
        places = sorted(appended)
        latest = {places[number] for number in (2, 4, 5, 6)}
        assert latest <= content.keys(), "an empty value is the latest of its key like any other"
        assert log.topic_info("state").count >= len(content), "nobody may know how many have left"

    def test_gaps_are_read_over_from_anywhere(self, log: Log, appended: Content) -> None:
        assert_only(log, "state", sorted(self.content(log)), end=max(appended) + 1)

    def test_a_topic_that_is_not_compacted_keeps_everything(self, log: Log) -> None:
        for number in range(3):
            log.append("news", records([b"%d" % number], keys=[b"a"]))
        log.maintain()
        assert values(read(log, "news")) == [b"0", b"1", b"2"]
