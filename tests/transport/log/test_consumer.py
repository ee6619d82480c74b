"""A consumer follows topics from where its group left off."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from tests.transport.log_reader import offsets, read, values
from tidewheel.errors import DamagedBlockError, DataLossError, DefinitionError, LogError
from tidewheel.transport.log.consumer import Consumer
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Receipt, Retention, records
from tidewheel.transport.open_log import open_log


def test_it_begins_at_the_end_or_where_it_is_told(log: Log) -> None:
    log.append("news", records([b"0", b"1", b"2"]))
    newest, earliest, last = (
        Consumer(log, "news"),
        Consumer(log, "news", start_from="earliest"),
        Consumer(log, "news", start_from=offsets(read(log, "news"))[2]),
    )
    receipt = log.append("news", records([b"3"]))
    assert values(newest.poll(timeout=0)) == [b"3"]
    assert values(earliest.poll(timeout=0)) == [b"0", b"1", b"2", b"3"]
    assert values(last.poll(timeout=0)) == [b"2", b"3"]
    assert values(earliest.poll(timeout=0)) == []
    assert earliest.positions == receipt.next_offsets


def test_a_group_goes_on_where_it_committed(log: Log) -> None:
    log.create_topic("news", partitions=2)
    for number in range(4):
        log.append("news", records([b"%d" % number]))
    first = Consumer(log, "news", group="readers", start_from="earliest")
    assert len(values(first.poll(timeout=0))) == 4
    first.commit()
    log.append("news", records([b"4"]))
    assert values(first.poll(timeout=0)) == [b"4"], "read, but not committed"
    with open_log(log.address) as other:
        assert values(Consumer(other, "news", group="readers").poll(timeout=0)) == [b"4"]
    assert len(values(Consumer(log, "news", group="others", start_from="earliest").poll(timeout=0))) == 5


def test_a_poll_takes_a_limited_number_of_each_partition(log: Log) -> None:
    log.create_topic("news", partitions=2)
    keys = [b"a", b"b", b"c", b"d"] * 10
    log.append("news", records([b"%d" % number for number in range(40)], keys=keys))
    consumer = Consumer(log, "news", start_from="earliest")
    polls = [consumer.poll(timeout=0, limit=7) for _ in range(10)]
    assert all(batch.records.num_rows <= 7 for poll in polls for batch in poll)
    assert sorted(int(value) for poll in polls for value in values(poll)) == list(range(40))


def test_a_topic_that_is_made_later_is_read_from_its_beginning(log: Log) -> None:
    log.append("old", records([b"before"]))
    consumer = Consumer(log, ["old", "new", "newer"])
    assert consumer.poll(timeout=0) == []
    log.create_topic("new", partitions=3)
    for number in range(3):
        log.append("new", records([b"%d" % number]))
    log.append("old", records([b"after"]))
    assert sorted(values(consumer.poll(timeout=0))) == [b"0", b"1", b"2", b"after"]
    log.append("newer", records([b"last"]))
    assert values(consumer.poll(timeout=60)) == [b"last"]


def test_a_waiting_poll_wakes_for_a_topic_that_is_made_meanwhile(log: Log) -> None:
    consumer = Consumer(log, "news")
    writer = threading.Thread(target=log.append, args=("news", records([b"hello"])))
    writer.start()
    assert values(consumer.poll(timeout=60)) == [b"hello"]
    writer.join()


def test_consumers_share_a_topic_by_its_partitions(log: Log) -> None:
    log.create_topic("news", partitions=3)
    log.append("news", records([b"%d" % number for number in range(30)], keys=[b"%d" % n for n in range(30)]))
    parts = [Consumer(log, "news", start_from="earliest", partitions=numbers) for numbers in ([0, 2], [1])]
    found = [values(part.poll(timeout=0)) for part in parts]
    assert sorted(int(value) for some in found for value in some) == list(range(30))
    assert all(found)
    with pytest.raises(LogError, match="partitions 0 to 2, got 3"):
        Consumer(log, "news", partitions=[3])


def test_iterating_follows_the_topic_and_commits_only_what_was_handed_out(log: Log) -> None:
    for start in range(0, 6, 2):
        log.append("news", records([b"%d" % start, b"%d" % (start + 1)]))
    consumer = Consumer(log, "news", group="readers", start_from="earliest")
    following = iter(consumer)
    handed_out = [next(following)]
    consumer.commit()
    assert log.committed("readers") == {("news", 0): offsets(handed_out)[-1] + 1}
    while len(values(handed_out)) < 6:
        handed_out.append(next(following))
    assert values(handed_out) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    writer = threading.Thread(target=log.append, args=("news", records([b"6"])))
    writer.start()
    assert values([next(following)]) == [b"6"]
    writer.join()


def test_gaps_of_compaction_are_passed_over(embedded: Log) -> None:
    embedded.create_topic("state", compact=True)
    for number in range(5):
        embedded.append("state", records([b"%d" % number], keys=[b"a"]))
    consumer = Consumer(embedded, "state", start_from=1)
    embedded.maintain()
    assert offsets(consumer.poll(timeout=0)) == [4]
    assert consumer.poll(timeout=0) == []


def test_records_that_left_unread_are_an_error(embedded: Log) -> None:
    embedded.append("news", records([b"0"]))
    consumer = Consumer(embedded, "news", group="readers", start_from="earliest")
    consumer.commit()
    embedded.append("news", records([b"1"]))
    embedded.create_topic("news", retention=Retention(size=0))
    embedded.maintain()
    with pytest.raises(DataLossError, match="records 0 to 0 have left"):
        consumer.poll(timeout=0)
    with pytest.raises(DataLossError):
        Consumer(embedded, "news", group="readers")


def test_records_that_left_unread_are_passed_over_and_counted_if_they_may_be(embedded: Log) -> None:
    embedded.append("news", records([b"%d" % n for n in range(4)]))
    consumer = Consumer(embedded, "news", group="readers", start_from="earliest", skip_lost=True)
    assert len(consumer.poll(0, limit=2)) == 1
    consumer.commit()
    for n in range(4, 8):
        embedded.append("news", records([b"%d" % n]))
    embedded.create_topic("news", retention=Retention(size=0))
    embedded.maintain()
    for each in (consumer, Consumer(embedded, "news", group="readers", start_from="latest", skip_lost=True)):
        assert values(each.poll(0)) == [b"7"]
        assert each.lost == 5
    assert consumer.poll(0) == []
    assert consumer.lost == 5


def test_what_makes_no_sense_is_refused(log: Log) -> None:
    log.create_topic("news")
    with pytest.raises(DefinitionError, match="at least one topic"):
        Consumer(log, [])
    with pytest.raises(DefinitionError, match="without a group"):
        Consumer(log, "news").commit()
    with pytest.raises(DefinitionError, match="limit must be at least 1"):
        Consumer(log, "news").poll(timeout=0, limit=0)


def made_anew(log: Log, *values: bytes) -> Receipt:
    log.delete_topic("news")
    return log.append("news", records(list(values)))


@pytest.mark.parametrize("count", [1, 3, 5], ids=["shorter", "as long", "longer"])
def test_a_topic_that_was_made_anew_is_not_read_from_the_old_position(log: Log, count: int) -> None:
    log.append("news", records([b"0", b"1", b"2"]))
    strict, lenient = (Consumer(log, "news", group="readers", start_from="earliest", skip_lost=skip) for skip in (0, 1))
    for consumer in (strict, lenient):
        assert len(values(consumer.poll(timeout=0))) == 3
    receipt = made_anew(log, *[b"new %d" % number for number in range(count)])
    for what in (strict.commit, lambda: strict.poll(timeout=0)):
        with pytest.raises(DataLossError, match=r"'news' was deleted and created again.*'earliest'"):
            what()
    assert values(lenient.poll(timeout=0)) == [b"new %d" % number for number in range(count)]
    lenient.commit()
    assert log.committed("readers") == receipt.next_offsets


def test_a_waiting_consumer_notices_that_its_topic_was_made_anew(log: Log) -> None:
    log.append("news", records([b"0", b"1", b"2"]))
    consumer = Consumer(log, "news", skip_lost=True)
    writer = threading.Timer(0.3, made_anew, args=(log, b"new"))
    writer.start()
    assert values(consumer.poll(timeout=60)) == [b"new"]
    writer.join()


def test_a_consumer_of_a_log_that_became_older_is_reported(tmp_path: Path) -> None:
    with open_log(tmp_path / "city.tw") as log:
        log.append("news", records([b"one"]))
        kept, now = sqlite3.connect(tmp_path / "backup.tw"), sqlite3.connect(tmp_path / "city.tw")
        now.backup(kept)
        log.append("news", records([b"two", b"three"]))
        consumer = Consumer(log, "news", start_from="earliest")
        assert len(consumer.poll(0)) == 2
        kept.backup(now)  # restored in place, under the eyes of those who have it open
        now.close()
        kept.close()
        with pytest.raises(DataLossError, match=r"'news' partition 0 ends at offset 1, .* read up to 3.*older"):
            consumer.poll(0)


@pytest.mark.parametrize("where", [1, 2, 3], ids=["first", "middle", "last"])
def test_a_consumer_reports_a_damaged_block_or_goes_on_behind_it(tmp_path: Path, where: int) -> None:
    with open_log(tmp_path / "city.tw") as log:
        for number in range(3):
            log.append("news", records([b"%d" % number] * 10))
        other = sqlite3.connect(tmp_path / "city.tw")
        other.execute("UPDATE payload SET data = zeroblob(length(data)) WHERE id = ?", (where,))
        other.commit()
        other.close()
        with pytest.raises(DamagedBlockError):
            Consumer(log, "news", start_from="earliest").poll(0)
        found: list[DamagedBlockError] = []
        consumer = Consumer(log, "news", group="readers", start_from="earliest", on_damage=found.append)
        assert values(consumer.poll(0)) == [
            b"%d" % number for number in range(3) if number != where - 1 for _ in "1" * 10
        ]
        assert consumer.poll(0) == []
        consumer.commit()
        assert log.committed("readers") == {("news", 0): 30}
        assert [each.first_offset for each in found] == [10 * (where - 1)], "it is reported once"


def test_a_poll_that_fails_behind_a_damaged_block_hands_out_all_before_it_the_next_time(tmp_path: Path) -> None:
    with open_log(tmp_path / "city.tw") as log:
        for number in range(4):
            log.append("news", records([b"%d" % number]))
        other = sqlite3.connect(tmp_path / "city.tw")
        other.execute("UPDATE payload SET data = zeroblob(length(data)) WHERE id IN (2, 4)")
        other.commit()
        other.close()
        broken = iter([False, True])

        def reported(damaged: DamagedBlockError) -> None:
            if next(broken, False):
                raise LogError("its dead letter could not be written")

        consumer = Consumer(log, "news", start_from="earliest", on_damage=reported)
        with pytest.raises(LogError, match="dead letter"):
            consumer.poll(0)
        assert values(consumer.poll(0)) == [b"0", b"2"]
        assert consumer.positions == {("news", 0): 4}
