"""What is particular to the log in a SQLite file."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.transport import log_workers
from tests.transport.log_reader import offsets, read, values
from tidewheel.errors import DamagedBlockError, DefinitionError, LogError
from tidewheel.transport.log import block
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.sqlite import database
from tidewheel.transport.sqlite.log import SqliteLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "city.tw"


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    with open_log(path) as log:
        yield log


def table_sizes(path: Path) -> dict[str, int]:
    with sqlite3.connect(path) as connection:
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("topic", "partition", "block", "payload", "cursor")
        }


def remove(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def remove_log(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()


class TestOpening:
    def test_a_missing_file_is_made_and_an_existing_one_opened(self, path: Path) -> None:
        with open_log(path) as log:
            identity = log.identity
            log.append("news", records([b"x"]))
        with open_log(str(path)) as log:
            assert log.identity == identity
            assert log.topic_info("news").count == 1

    def test_an_empty_file_becomes_a_log(self, path: Path) -> None:
        path.touch()
        with open_log(path) as log:
            log.append("news", records([b"x"]))

    def test_two_logs_have_two_identities(self, tmp_path: Path) -> None:
        with open_log(tmp_path / "a.tw") as a, open_log(tmp_path / "b.tw") as b:
            assert a.identity != b.identity

    def test_names_that_a_uri_would_misread_are_only_names(self, tmp_path: Path) -> None:
        for name in ("a b.tw", "50%.tw", "what?.tw", "so#1.tw", "ä&=.tw"):
            with open_log(tmp_path / name) as log:
                log.append("news", records([b"x"]))
            assert (tmp_path / name).is_file()

    def test_the_address_holds_from_any_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with open_log("city.tw") as log:
            assert repr(log) == "open_log('city.tw')"
            assert repr(log.topic("news")) == "open_log('city.tw').topic('news')"
            monkeypatch.chdir("/")
            assert log.address == str(tmp_path / "city.tw")
            log.append("news", records([b"x"]))
            with open_log(log.address) as other:
                assert other.topic_info("news").count == 1

    def test_a_missing_folder_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(LogError, match=r"the folder .*/nowhere does not exist; make it first"):
            open_log(tmp_path / "nowhere" / "city.tw")

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(LogError, match="is a folder; a log is a file"):
            open_log(tmp_path)

    @pytest.mark.parametrize("content", [b"not a database, but long enough to be looked at" * 50, b"x"])
    def test_a_file_of_another_kind_is_refused_and_left_alone(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with pytest.raises(LogError, match="is not a Tidewheel log, and not SQLite at all"):
            open_log(path)
        assert path.read_bytes() == content

    def test_another_sqlite_file_is_refused_and_left_alone(self, path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE bills (amount)")
        connection.close()
        content = path.read_bytes()
        with pytest.raises(LogError, match=r"is not a Tidewheel log \(it is a SQLite file with 1 tables"):
            open_log(path)
        assert path.read_bytes() == content
        assert [file.name for file in path.parent.iterdir()] == ["city.tw"]

    def test_a_file_of_a_newer_version_is_refused(self, path: Path) -> None:
        open_log(path).close()
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 3")
        connection.close()
        with pytest.raises(LogError, match=r"has format 3, this Tidewheel knows formats up to 2.*upgrade"):
            open_log(path)

    def test_a_log_of_which_only_the_empty_file_was_made_is_finished(self, path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.close()
        with open_log(path) as log:
            log.append("news", records([b"x"]))

    def test_many_processes_may_make_it_at_once(self, path: Path, processes: ForkServerContext) -> None:
        for attempt in range(3):
            address = str(path.with_name(f"{attempt}.tw"))
            workers, pipes = [], []
            for _ in range(4):
                ours, theirs = processes.Pipe()
                workers.append(processes.Process(target=log_workers.open_and_report, args=(address, theirs)))
                workers[-1].start()
                pipes.append(ours)
            for pipe in pipes:
                pipe.send("go")
            with open_log(address) as log:
                assert {pipe.recv() for pipe in pipes} == {log.identity}
            for worker in workers:
                worker.join()

    def test_options_that_make_no_sense_are_refused(self, path: Path) -> None:
        with pytest.raises(DefinitionError, match='"full" or "normal", got \'off\''):
            open_log(path, sync="off")
        with pytest.raises(DefinitionError, match="future_tolerance must be text like"):
            open_log(path, future_tolerance="soon")
        assert not path.exists()

    def test_commits_are_synced_unless_told_otherwise(self, path: Path) -> None:
        for options, expected in (({}, 2), ({"sync": "normal"}, 1)):
            with SqliteLog(path, **options) as log, log._database.reading() as connection:
                assert connection.execute("PRAGMA synchronous").fetchone() == (expected,)


class TestLife:
    def test_a_closed_log_says_so(self, path: Path) -> None:
        log = open_log(path)
        log.close()
        log.close()
        with pytest.raises(LogError, match="this log object is closed"):
            log.topics()

    def test_closing_leaves_one_file(self, path: Path) -> None:
        with open_log(path) as log:
            log.append("news", records([b"x"]))
        assert [file.name for file in path.parent.iterdir()] == ["city.tw"]

    def test_a_file_that_was_replaced_is_noticed(self, path: Path, log: Log) -> None:
        remove(path)
        with open_log(path):
            for _ in range(2):
                with pytest.raises(LogError, match="has been replaced by another log"):
                    log.topics()

    def test_nothing_is_acknowledged_once_the_file_is_gone(self, path: Path, log: Log) -> None:
        producer = log.producer("writer")
        producer.append({"news": records([b"x"])})
        remove(path)
        for _ in range(2):
            with pytest.raises(LogError, match="has been removed"):
                producer.append({"news": records([b"y"])})
            with pytest.raises(LogError, match="has been removed"):
                log.topics()
        assert not path.exists()

    def test_nothing_is_acknowledged_into_a_file_that_was_replaced_by_an_older_copy(self, path: Path, log: Log) -> None:
        log.append("news", records([b"x"]))
        copy = path.with_suffix(".copy")
        with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
            source.backup(target)
        source.close()
        target.close()
        log.append("news", records([b"y"]))
        remove_log(path)
        copy.rename(path)
        with pytest.raises(LogError, match="has been replaced"):
            log.append("news", records([b"z"]))

    def test_a_file_that_was_removed_is_not_made_again(self, path: Path, log: Log) -> None:
        remove(path)
        with pytest.raises(LogError, match="has been removed"):
            log.topics()
        assert not path.exists()

    def test_threads_share_an_object(self, log: Log) -> None:
        log.create_topic("news", partitions=2)
        producer = log.producer("shared")
        errors: list[BaseException] = []

        def work(name: int) -> None:
            try:
                for number in range(25):
                    producer.append({"news": records([b"%d %d" % (name, number)])})
                    assert sum(log.topic_info("news").next_offsets) > number
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        found = values(read(log, "news", 0)) + values(read(log, "news", 1))
        assert sorted(found) == sorted(b"%d %d" % (name, number) for name in range(4) for number in range(25))

    def test_a_forked_child_uses_the_object_like_its_parent(self, path: Path, log: Log) -> None:
        log.append("news", records([b"from the parent"]))
        running = threading.Event()
        stop = threading.Event()

        def append_on() -> None:
            while not stop.is_set():
                log.append("other", records([b"x"]))
                running.set()

        thread = threading.Thread(target=append_on)
        thread.start()
        running.wait()
        try:
            for _ in range(5):
                assert log_workers.append_in_fork(log, "news") == 0
        finally:
            stop.set()
            thread.join()
        log.append("news", records([b"from the parent"]))
        assert values(read(log, "news")) == [b"from the parent", *[b"from the child"] * 5, b"from the parent"]
        log.close()
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


class Clock:
    def __init__(self, time: int) -> None:
        self.time = time

    def __call__(self) -> int:
        return self.time


class TestTimes:
    def test_append_times_never_go_back_within_a_partition(self, path: Path) -> None:
        clock = Clock(1_000_000)
        with open_log(path, clock=clock) as log:
            for clock.time in (1_000_000, 2_000_000, 500_000, 1_500_000, 3_000_000):
                log.append("news", records([b"x"], event_times=[clock.time]))
            summaries = [block.summary for block in log.blocks("news", 0, 0)]
            assert [summary.append_time for summary in summaries] == [
                1_000_000,
                2_000_000,
                2_000_000,
                2_000_000,
                3_000_000,
            ]
            assert [list(summary.skew) for summary in summaries[:2]] == [[0], [0]]
            assert all(bin_number < 0 for bin_number in summaries[2].skew)
            log.append("other", records([b"x"]))
            clock.time = 100
            log.append("third", records([b"x"]))
            assert log.topic_info("third").last_append == 100

    def test_times_too_far_ahead_are_not_plausible(self, path: Path) -> None:
        with open_log(path, clock=Clock(1_000_000), future_tolerance="5 s") as log:
            log.append("news", records([b"x"] * 4, event_times=[10, 6_000_000, 6_000_001, 10**18]))
            (block,) = log.blocks("news", 0, 0)
            assert block.summary.max_plausible == 6_000_000
            assert block.summary.future_tolerance == 5_000_000
            assert block.summary.max_event_time == 10**18


class TestBlocks:
    def test_an_append_is_cut_into_blocks(self, log: Log) -> None:
        log.append("many", records([b"x"] * 25_000))
        assert [b.next_offset - b.first_offset for b in log.blocks("many", 0, 0)] == [10_000, 10_000, 5_000]
        log.append("large", records([b"x" * 1_500_000] * 7, keys=[b"y" * 100_000] * 7))
        assert [b.next_offset - b.first_offset for b in log.blocks("large", 0, 0)] == [2, 2, 2, 1]
        log.append("huge", records([b"a", b"x" * 9_000_000, b"b"]))
        assert [b.next_offset - b.first_offset for b in log.blocks("huge", 0, 0)] == [1, 1, 1]

    def test_a_record_beyond_all_bounds_is_refused(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(block, "RECORD_BYTES", 5_000_000)
        with pytest.raises(DefinitionError, match="record 1 of the batch has 6,000,000 bytes"):
            log.append("news", records([b"a", b"x" * 6_000_000]))

    def test_planning_reads_no_payload(self, path: Path, log: Log) -> None:
        for _ in range(3):
            log.append("news", records([b"x"] * 10))
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM payload")
        connection.close()
        assert [b.summary.count for b in log.blocks("news", 0, 0)] == [10, 10, 10]

    def test_a_damaged_block_is_named(self, path: Path, log: Log) -> None:
        for damage in (b"", b"\x02\x00", b"\x01\x00\x00\x00\x00\x00\x00\x00rubbish", b"\x01\x08" + b"\x00" * 20):
            log.append("news", records([b"x"]))
            with sqlite3.connect(path) as connection:
                connection.execute("UPDATE payload SET data = ? WHERE id = (SELECT max(id) FROM payload)", (damage,))
            connection.close()
            last = log.position("news", 0, "latest") - 1
            with pytest.raises(
                DamagedBlockError, match=f"'news' partition 0: the block of offsets {last} to {last} is"
            ):
                list(log.read("news", 0, last))


class TestSpace:
    def test_the_file_does_not_grow_when_as_much_leaves_as_comes(self, path: Path, log: Log) -> None:
        log.create_topic("news", retention=Retention(size=300_000))
        for _ in range(10):
            for _ in range(10):
                log.append("news", records([os.urandom(50_000)]))
            log.maintain()
        log.close()
        assert path.stat().st_size < 2_000_000
        assert table_sizes(path)["payload"] == table_sizes(path)["block"] <= 6

    def test_the_space_of_a_deleted_topic_is_given_back(self, path: Path, log: Log) -> None:
        for _ in range(10):
            log.append("news", records([os.urandom(3_000_000)]))
        log.append("other", records([b"stays"]))
        log.commit("readers", {("news", 0): 3})
        log.delete_topic("news")
        assert log.groups() == []
        log.maintain()
        log.close()
        assert path.stat().st_size < 10_000_000
        assert table_sizes(path) == {"topic": 1, "partition": 1, "block": 1, "payload": 1, "cursor": 0}
        with open_log(path) as again:
            assert values(read(again, "other")) == [b"stays"]

    def test_the_journal_is_moved_into_the_file_when_it_is_long_and_written_over(self, path: Path, log: Log) -> None:
        journal = path.with_name("city.tw-wal")
        lengths, sizes = [], []
        for _ in range(40):
            log.append("news", records([os.urandom(1_500_000)]))
            lengths.append(journal.stat().st_size)
            sizes.append(path.stat().st_size)
        assert max(lengths) < 20_000_000
        assert len(set(lengths[12:])) < 8, "it does not grow with each commit any more"
        assert sizes[-1] > 40_000_000
        assert len(set(sizes)) < 8, "and what is in it is moved seldom"

    def test_a_log_behind_a_link_has_its_journal_beside_the_file(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database, "_CHECKPOINT_BYTES", 100_000)
        (path.parent / "disk").mkdir()
        open_log(path.parent / "disk" / "real.tw").close()
        path.symlink_to(path.parent / "disk" / "real.tw")
        with open_log(path) as log:
            for _ in range(20):
                log.append("news", records([os.urandom(50_000)]))
            assert (path.parent / "disk" / "real.tw-wal").stat().st_size < 300_000
            assert path.stat().st_size > 500_000

    def test_a_reader_that_stands_still_only_delays_that(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(database, "_CHECKPOINT_WAIT_MS", 1)
        monkeypatch.setattr(database, "_CHECKPOINT_BYTES", 100_000)
        journal = path.with_name("city.tw-wal")
        with open_log(path) as log:
            log.append("news", records([b"x"]))
            with open_log(path) as other, other._database.reading() as connection:  # type: ignore[attr-defined]
                connection.execute("SELECT count(*) FROM block").fetchall()
                for _ in range(10):
                    log.append("news", records([os.urandom(50_000)]))
                assert journal.stat().st_size > 400_000
            for _ in range(5):
                log.append("news", records([os.urandom(50_000)]))
            assert journal.stat().st_size < 200_000
            assert offsets(read(log, "news")) == list(range(16))


class TestMaintenanceByItself:
    def appended(self, log: Log, count: int) -> list[int]:
        for _ in range(count):
            log.append("news", records([b"x"], keys=[b"a"]))
        return offsets(read(log, "news"))

    def test_appending_maintains_the_log_once_a_minute(self, path: Path) -> None:
        clock = Clock(10**15)
        with open_log(path, clock=clock) as log:
            log.create_topic("news", retention=Retention(size=0))
            assert self.appended(log, 5) == [0, 1, 2, 3, 4], "the first append found nothing to do"
        with open_log(path, clock=clock) as log:
            assert self.appended(log, 1) == [0, 1, 2, 3, 4, 5], "less than a minute later"
        clock.time += 61_000_000
        with open_log(path, clock=clock) as log:
            assert self.appended(log, 1) == [6]

    def test_a_failure_of_it_is_no_failure_of_the_append(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = Clock(10**15)
        with open_log(path, clock=clock) as log:
            log.create_topic("news", compact=True)
            log.append("news", records([b"x"] * 10, keys=[b"a"] * 10))
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE payload SET data = x'ff'")
        connection.close()
        clock.time += 61_000_000
        with caplog.at_level(logging.WARNING), open_log(path, clock=clock) as log:
            receipt = log.append("news", records([b"y"] * 20, keys=[b"a"] * 20))
            assert receipt.next_offsets == {("news", 0): 30}
            assert log.topic_info("news").count == 30
        assert "maintenance of" in caplog.text
        assert "left damaged blocks of 'news' partition 0" in caplog.text

    def test_compaction_waits_until_it_is_worth_it(self, path: Path) -> None:
        clock = Clock(10**15)

        def append_after_a_minute(keys: list[bytes]) -> int:
            clock.time += 61_000_000
            with open_log(path, clock=clock) as log:
                log.append("state", records([b"x"] * len(keys), keys=keys))
                return log.topic_info("state").count

        with open_log(path, clock=clock) as log:
            log.create_topic("state", compact=True)
        kept = [b"%d" % number for number in range(100)]
        assert append_after_a_minute(kept) == 100
        assert append_after_a_minute(kept[:1]) == 101
        assert append_after_a_minute(kept[:1]) == 102
        assert append_after_a_minute(kept) == 100, "as many new ones as were kept"


def test_readers_are_not_held_up_by_a_writer(log: Log) -> None:
    log.append("news", records([b"x"]))
    with log._database.writing() as connection:  # type: ignore[attr-defined]
        connection.execute("DELETE FROM block")
        assert values(read(log, "news")) == [b"x"]
        assert log.topic_info("news").count == 1


def test_a_disk_error_is_an_error_of_the_log(log: Log) -> None:
    log.append("news", records([b"x"]))
    with log._database.reading() as connection:  # type: ignore[attr-defined]
        connection.execute("PRAGMA max_page_count = 40")
    with pytest.raises(LogError, match=r"city\.tw: database or disk is full"):
        log.append("news", records([os.urandom(1_000_000)]))
    assert log.topic_info("news").count == 1
    with log._database.reading() as connection:  # type: ignore[attr-defined]
        connection.execute("PRAGMA max_page_count = 4000000")
    log.append("news", records([b"y"]))
    assert values(read(log, "news")) == [b"x", b"y"]
