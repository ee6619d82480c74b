"""Groups, waiting, and many processes at once, on every implementation of the log."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.transport import log_workers
from tests.transport.log_reader import read, values
from tidewheel.errors import DefinitionError
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log


class TestGroups:
    def test_a_group_finds_what_it_committed(self, log: Log) -> None:
        log.create_topic("news", partitions=2)
        assert log.committed("readers") == {}
        log.commit("readers", {("news", 0): 3, ("news", 1): 5})
        log.commit("readers", {("news", 1): 4})
        log.commit("others", {("news", 0): 1})
        with open_log(log.address) as other:
            assert other.committed("readers") == {("news", 0): 3, ("news", 1): 4}
            assert other.groups() == ["others", "readers"]
        log.forget("readers")
        assert log.committed("readers") == {}
        assert log.groups() == ["others"]
        with pytest.raises(DefinitionError, match="group's name"):
            log.commit("", {})


class TestWait:
    def test_it_returns_whether_there_is_something_to_read(self, log: Log) -> None:
        log.create_topic("a")
        log.create_topic("b", partitions=2)
        positions = {("a", 0): 0, ("b", 0): 0, ("b", 1): 0}
        assert not log.wait(positions, timeout=0)
        assert not log.wait(positions, timeout=0.05)
        assert not log.wait({}, timeout=0)
        receipt = log.append("b", records([b"x"], keys=[b"1"]))
        assert log.wait(positions, timeout=60)
        assert not log.wait({**positions, **receipt.next_offsets}, timeout=0)

    def test_it_wakes_for_another_process(self, log: Log, processes: ForkServerContext) -> None:
        log.create_topic("news")
        process = processes.Process(target=log_workers.append_one, args=(log.address, "news", b"hello"))
        process.start()
        assert log.wait({("news", 0): 0}, timeout=60)
        assert values(read(log, "news")) == [b"hello"]
        process.join()


class TestManyProcesses:
    def test_all_that_several_write_is_read_by_several_exactly_once_and_in_order(
        self, log: Log, processes: ForkServerContext
    ) -> None:
        writers, appends = 3, 120
        total = writers * appends * log_workers.RECORDS_PER_APPEND
        log.create_topic("keyed", partitions=3)
        readers = []
        for topic in ("keyed", "plain", "keyed"):
            ours, theirs = processes.Pipe(duplex=False)
            reader = processes.Process(target=log_workers.follow, args=(log.address, topic, total, theirs))
            reader.start()
            theirs.close()
            readers.append((reader, ours))
        names = [f"writer-{number}" for number in range(writers)]
        workers = [
            processes.Process(target=log_workers.write_numbers, args=(log.address, name, appends)) for name in names
        ]
        for worker in workers:
            worker.start()
        expected = {name: list(range(appends * log_workers.RECORDS_PER_APPEND)) for name in names}
        for reader, pipe in readers:
            seen: dict[str, list[int]] = defaultdict(list)
            for content in pipe.recv().values():
                last: dict[str, int] = {}
                for value in content:
                    name, number = value.decode().split()
                    assert last.get(name, -1) < int(number), "in order within a partition"
                    last[name] = int(number)
                    seen[name].append(int(number))
            assert {name: sorted(numbers) for name, numbers in seen.items()} == expected
            reader.join()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0

    def test_a_log_is_the_same_for_everyone(self, log: Log) -> None:
        with open_log(log.address) as other:
            assert other.identity == log.identity
            other.append("news", records([b"x"]))
            assert values(read(log, "news")) == [b"x"]


def test_a_process_may_open_a_log_twice_while_others_come_and_go(tmp_path: Path) -> None:
    # Opening it a second time must not take the first one's locks away: another process would believe itself alone
    # when it leaves, and throw away the journal that is still written to.
    path = tmp_path / "shared.tw"
    visit = "import sys; from tidewheel import open_log, records\n"
    visit += "with open_log(sys.argv[1]) as log: log.append('t', records([b'theirs']))"
    with open_log(path) as first:
        first.append("t", records([b"ours"]))
        with open_log(path) as second:
            subprocess.run([sys.executable, "-c", visit, str(path)], check=True)
            first.append("t", records([b"ours"]))
            second.append("t", records([b"ours"]))
            subprocess.run([sys.executable, "-c", visit, str(path)], check=True)
            first.append("t", records([b"ours"]))
    count = "import sys; from tidewheel.transport.open_log import open_log\n"
    count += "print(open_log(sys.argv[1]).topic_info('t').count)"
    found = subprocess.run([sys.executable, "-c", count, str(path)], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "6"
