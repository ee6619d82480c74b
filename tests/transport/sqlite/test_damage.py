"""Damage in a log's file is reported with its place, and nothing is read wrong. Files of older versions are read."""

from __future__ import annotations

import base64
import random
import sqlite3
import zlib
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.transport import log_workers
from tidewheel.errors import DamagedBlockError, DamagedLogError
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Batch, Retention, records
from tidewheel.transport.open_log import open_log

# A log as version 1 made it: two topics (one of them compacted), a producer, a group. These bytes never change.
LOG_1 = """
eNrtnE9sG8cVh2d2l8tdhuIqgAXKsQ1PiwChINImKRuykxSQXLOpGlpyVAq2kRTsklxFrCiSIZeW1UNBUVESo0APPSSAGyA9BEUvOQXIoYfWhwQNUqTo
IYeiJ7cFih6KHIK26K2d/SftrkQrctFUMX4fNTucmbfzZt6bt6tZSvz2c8W6abDlVmdNN9kUGSWCQGYYI4SIPMXJLgpPkvveqqdeKl0rPkP2RyRnqnRE
e4PElHGivZUoaY2EENdiP4qdVH+pqrwSAAAAAEeGzWYsmjx+nG5Nm3qlYVR7nW6r4xzjX18szJYKrDR7qVhgTh1LxRin2mp2e2tGp/xip9Vrs1LheonN
L/C0VCymbQmz1a5X2dx8qfBMYTHU1tY7Zt2st5rD2lvd+zVfXZy7Mrt4gz1buMFSwZGkHb3pXRUTsQl2ba70zYWlEltcuDZ3eTOvRpOnTtGBM+F2p1Xr
VY2Olz8SmLRX6067qa8ZzmR9Y3AGZbRb1ZUhA+4aL/WMZtUY1mzq/DezS8WFSzsN4UG/oESTJ07QTc0Zs77RaOk1N4sFR+xUslS9tqPOP1hW0009qGyi
HY0mn0jSzbP1Zs24VWm0qqvlykbZrK8ZdkF1NczNXy5cZ4F2tjDvVLBU2PJpprfbRrNmy6XZcr3TNcut5eWuYU4MfiBHk8kk3X7enpDdg31QApNxe/6v
F5Rf9xCRpnHrAIlqq9cc1tatf3+Yd31GGCKxYug1vsQCPvHm5Tjzc8TBXusHDB5eUFvtSDR5+jR99ay7otzTdt5EQ6vKM/DBzmj21ip8Og/gCXa58I3Z
pWKJZdOMZTJsfYVvVepdVjEarXW2ondZw1g2WWWDdQzTaFrjOdB3vj7v48Ww1L7+DAs1dD4Vx72erKdjra1XTaN24AzNFYPPpdrq1HZnedPgb42m00uH
d7JeN1eY3mhwaW4PXsVaDb5ghq4BxwF7XH5VkpOTk/SG7fDuSw2+HSx7V6ZQUQ44P9SYsq6CaV6aGIwJdhS/rNp92urtgxQ431kszsLZ/6rEZpdKC3Pz
/KwrhflSOnStXZqfe26p4Bis2Ws0nmQ1g2szamlWN7vORaLL1vW6aW1v2Zpeb/LVofOhBi8O3SFrcmcxlfUXjaAnd5v8KyLg5T2dxiYmRDn5tSQl9uXU
tZ7eM1t2uWybo5yzs4i73SZlat+UNh/1bkpto2NueLkYvinZtSy1//2I3dQbPSPkfWsDTw51AAAAAAAAAAAAwJeNGE+C9gui/Y4fAAAAAAAAAAAAcMQY
E78i23/TwJNRI3Ls8fHMYOaseGqpXrP+OMHcyE1P586fr+QzxtRUPnMud34qc7E2fTGTy+sXq+cq56r55eURe/9/j2if8gMAAAAAAAAAAAC+lMSFKEmq
hKj2f5ON0igZo0RSmsZ6V3jqzkfu5/+fEu1f/AAAAAAAAAAAAICHAFVMUvtBgBAVx1TrIYD1+T/V/kH4DwAAAAAAAAAAAB6qxwBUTFL7iwaFmPZHImrv
Eu2f2m94BgAAAAAAAAAAgKNBUqWKQqkgU0EShN/b//l/W7srjamqatcr8bh0z67+3g9n+AljiqryWoG27cqn3+9bkhZEiSV+TSKJO0T7QPtO4u9aLnHH
esHIAAAAAAAAAAC+KNIxynezfON6jgqiRFe8fa5CR+l4/1cfvrZ1e1u+0H/zzYszNKrdIRlPWBDdje7Gx31H+L3fvuoTlp+OqSq1NsolqsQl+lNvq8yF
pfH+O5+8YgmzVOpM9ox9yreENyKLVKqI+plLkUk+LNXT5Cp6fo44it7+w7ZPkeRTJCmeoqJ811H0k3sv24qOpR7LPrZHkchNMGlv3Lmi3Z27o+fHf9ny
6RGejLk7/5IqeWoyA3c+t/82sNWQlJyV96iJaT8jEe11on2mfaK9p32gvW69sPoAAAAAAAAAAID/PVqEKjIVvEceovZnMuqVNz7uC4mIqsp057lFwhJX
Be9ZhK+1KN+VrP5kRfCeIIxYrYr3jGBE5vv/yDRJ3HjkKfV95VRk2nrBAwAAMIRBIyqR7ReoW/w35688P+aW42ScyCRCFP4ublWIEjnJs7avizivGSXS
jsxrPJ10+6A+Ocl+Ed7fcE67OXPzcTe/EJK7EJK/HpK3EEL6yT5lxRvbV6+Mf3dmwIv9gBgNtvNiX3/A89ZtW/2JrpPtxmHNfeuImvv4/9fcgl+3r50X
+zfzPr1bj0ck8krxsGb/+ec0u3RIs0+6eTZk1qshuash+b6bPxEyuxQ6L1w+FjTPMZ/5vKEqB7hpNbuaW82vTt2vP8k91TLPqL+/0aA8L/ab+UyWpxxP
eZ6cfgemJCE6DhMdlQeNjlwgOkREx9GKjhyPjhyPjhyPjpwbHXwB4N7xxdw7soHooIiOoxUdWR4dWR4dWR4dWTc6rO//x/f/AQAAAAAAAAAADyGxyKMq
HV0zhG7e2f9/RvgPAAAAAAAAAAAAHhpGIidUhXYMvWZ0uuJ/AGZosYI=
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "city.tw"


def fill(path: Path, *, rounds: int = 8) -> None:
    rng = random.Random(7)
    with open_log(path) as log:
        log.create_topic("news", partitions=2)
        log.create_topic("state", compact=True)
        producer = log.producer("importer")
        for number in range(rounds):
            values = [rng.randbytes(rng.randrange(20, 200)) for _ in range(20)]
            news = records(values, keys=[bytes([n]) for n in range(20)], event_times=list(range(20)), type="a.B")
            producer.append({"news": news, "state": records([rng.randbytes(9)], keys=[b"abc"[number % 3 :][:1]])})
            log.append("results", records([rng.randbytes(30)] * 5))
        log.maintain()
        log.commit("readers", {("news", 0): 7})


def values(batches: list[Batch]) -> list[bytes]:
    return [value for batch in batches for value in batch.records.column("value").to_pylist()]


def change(path: Path, statement: str) -> None:
    """As damage would, without the knowledge that keeps checksums right."""
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(statement)
    for _, definition in triggers:
        connection.execute(definition)
    connection.commit()
    connection.close()


class TestFlippedBits:
    @pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.long)])
    def test_none_is_read_wrong(self, path: Path, tmp_path: Path, processes: ForkServerContext, count: int) -> None:
        fill(path)
        bits = random.Random(count).sample(range(path.stat().st_size * 8), count)
        shares = [bits[start : start + 50] for start in range(0, count, 50)]
        outcomes = {}
        for number, share in enumerate(shares):
            folder = tmp_path / str(number)
            folder.mkdir()
            reader = processes.Process(target=log_workers.read_flipped, args=(path, share, folder))
            reader.start()
            reader.join()
            lines = (folder / "outcomes").read_text().splitlines()
            reported = dict(line.split(" ", 1) for line in lines)
            assert reader.exitcode == 0, f"died after {list(reported)[-1:]}"
            outcomes.update(reported)
        assert len(outcomes) == count
        assert not {bit: text for bit, text in outcomes.items() if text.split(":")[0] not in ("right", "reported")}
        assert any(text.startswith("reported") for text in outcomes.values())


class TestBlocks:
    @pytest.fixture
    def log(self, path: Path) -> Log:
        """Five blocks of ten records."""
        log = open_log(path)
        for number in range(5):
            log.append("news", records([b"%d" % number] * 10))
        return log

    @pytest.mark.parametrize(
        "damage",
        [
            f"UPDATE block SET {each} WHERE first_offset = 20"
            for each in (
                "first_offset = 21",
                "first_offset = 20 + (1 << 40)",
                "first_offset = 3",
                "next_offset = 29",
                "next_offset = 19",
                "next_offset = 1 << 40",
                "count = 11",
                "count = 'x'",
                "size = 1",
                "append_time = append_time + 1",
                "partition = 1",
                "topic = 2",
                "payload = 1",
                "payload = 99",
                "header = x''",
                "header = x'0801'",
                "header = zeroblob(length(header))",
            )
        ]
        + [
            "UPDATE payload SET data = x'' WHERE id = 3",
            "UPDATE payload SET data = zeroblob(length(data)) WHERE id = 3",
            "UPDATE payload SET data = (SELECT data FROM payload WHERE id = 2) WHERE id = 3",
            "DELETE FROM block WHERE first_offset = 20",
            "DELETE FROM payload WHERE id = 3",
        ],
    )
    def test_one_is_reported_and_can_be_passed_over(self, path: Path, log: Log, damage: str) -> None:
        change(path, damage)
        with pytest.raises(DamagedBlockError, match="'news' partition 0: the block of offsets 20 to 29 is damaged"):
            list(log.read("news", 0, 0))
        found: list[DamagedBlockError] = []
        kept = values(list(log.read("news", 0, 0, on_damage=found.append)))
        assert kept == [b"%d" % number for number in (0, 1, 3, 4) for _ in range(10)]
        assert [(each.topic, each.partition, each.first_offset, each.next_offset) for each in found] == [
            ("news", 0, 20, 30)
        ]
        blocks = log.blocks("news", 0, 0, on_damage=lambda _: None)
        assert [(block.first_offset, block.next_offset) for block in blocks] == [
            (first, first + 10) for first in range(0, 50, 10)
        ]

    def test_the_last_one_is_reported(self, path: Path, log: Log) -> None:
        change(path, "DELETE FROM block WHERE first_offset = 40")
        with pytest.raises(DamagedBlockError, match="offsets 40 to 49 is damaged: it is missing"):
            list(log.read("news", 0, 40))
        log.append("news", records([b"5"]))
        with pytest.raises(DamagedBlockError, match="offsets 40 to 49 is damaged: it is missing"):
            list(log.read("news", 0, 0))
        assert values(list(log.read("news", 0, 50))) == [b"5"]

    def test_only_what_is_asked_for_is_reported(self, path: Path, log: Log) -> None:
        change(path, "UPDATE payload SET data = x'00' WHERE id = 3")
        assert len(values(list(log.read("news", 0, 0, end=20)))) == 20
        assert len(values(list(log.read("news", 0, 30)))) == 20
        with pytest.raises(DamagedBlockError, match="offsets 25 to 26 is"):
            list(log.read("news", 0, 25, end=27))

    def test_they_leave_by_retention_like_others(self, path: Path, log: Log) -> None:
        change(path, "UPDATE block SET next_offset = 1 << 40 WHERE first_offset = 20")
        log.create_topic("news", retention=Retention(size=0))
        log.maintain()
        info = log.topic_info("news")
        assert (info.first_offsets, info.next_offsets, info.count) == ((40,), (50,), 10)
        assert len(values(list(log.read("news", 0, 40)))) == 10

    def test_compaction_leaves_them_as_they_are(self, path: Path) -> None:
        with open_log(path) as log:
            log.create_topic("state", compact=True)
            for number in range(5):
                log.append("state", records([b"%d" % number] * 2, keys=[b"a", b"%d" % number]))
            change(path, "UPDATE payload SET data = zeroblob(length(data)) WHERE id = 2")
            log.maintain()
            found: list[DamagedBlockError] = []
            assert values(list(log.read("state", 0, 0, on_damage=found.append))) == [b"0", b"2", b"3", b"4", b"4"]
            assert [(each.first_offset, each.next_offset) for each in found] == [(2, 4)]


class TestRows:
    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE topic SET partitions = 3 WHERE name = 'news'",
            "UPDATE topic SET name = 'mews' WHERE name = 'news'",
            "UPDATE partition SET next_offset = next_offset - 1 WHERE topic = 1 AND number = 1",
            "UPDATE partition SET first_offset = 4 WHERE topic = 1 AND number = 1",
            "DELETE FROM partition WHERE topic = 1 AND number = 1",
            "UPDATE cursor SET position = 6",
            "UPDATE producer SET sequence = sequence - 1",
            "UPDATE producer SET name = 'inporter'",
            "UPDATE cursor SET consumer_group = 'leaders'",
            "UPDATE property SET value = 'other' WHERE name = 'identity'",
        ],
    )
    def test_one_is_reported(self, path: Path, damage: str) -> None:
        fill(path, rounds=2)
        log_workers.everything(path)
        change(path, damage)
        with pytest.raises(DamagedLogError, match="restore a backup"):
            log_workers.everything(path)

    def test_one_that_is_damaged_does_not_become_right_by_a_change(self, path: Path) -> None:
        fill(path, rounds=2)
        with open_log(path) as log:
            change(path, "UPDATE topic SET partitions = 1 WHERE name = 'news'")
            for _ in range(2):
                with pytest.raises(DamagedLogError):
                    log.create_topic("news", retention=Retention(size=10**9))
            with pytest.raises(DamagedLogError):
                log.topic_info("news")

    def test_what_sqlite_finds_is_among_the_faults(self, path: Path) -> None:
        fill(path, rounds=2)
        with open_log(path) as log:
            assert log.faults() == []
        change(path, "UPDATE cursor SET position = 6")
        with open_log(path) as log:
            (fault,) = log.faults()
            assert "row of the table cursor is damaged" in fault


class TestVersion1:
    @pytest.fixture
    def old(self, path: Path) -> Path:
        path.write_bytes(zlib.decompress(base64.b64decode(LOG_1)))
        return path

    def check(self, log: Log) -> None:
        assert [info.name for info in log.topics()] == ["news", "state"]
        assert values(list(log.read("news", 1, 0))) == [b"n%d-%d" % (n, i) for n in range(3) for i in range(4)]
        assert values(list(log.read("state", 0, 0))) == [b"v1", b"w"]
        assert [block.summary.max_event_time for block in log.blocks("news", 1, 0)] == [3, 13, 23]
        assert log.committed("readers") == {("news", 0): 3}
        producer = log.producer("me", fence=False)
        assert (producer.sequence, producer.state) == (2, b"s2")
        assert log.fingerprints({("news", 1): 12}) == {("news", 1): None}

    def test_is_read_and_goes_on(self, old: Path) -> None:
        with open_log(old) as log:
            self.check(log)
            log.append("news", records([b"new"], keys=[b"k0"]))
            log.append("state", records([b"x", b"y"], keys=[b"a", b"b"]))
            log.append("state", records([b"z"], keys=[b"c"]))
            log.maintain()
        with open_log(old) as log:
            assert values(list(log.read("news", 1, 8))) == [b"n2-%d" % i for i in range(4)] + [b"new"]
            assert values(list(log.read("state", 0, 0))) == [b"x", b"y", b"z"]
            assert log.fingerprints({("news", 1): 13})["news", 1] is not None
            assert log.faults() == []

    def test_a_program_of_that_version_can_no_longer_write(self, old: Path) -> None:
        older = sqlite3.connect(old)
        open_log(old).close()
        assert older.execute("PRAGMA user_version").fetchone() == (2,)
        with pytest.raises(sqlite3.OperationalError, match="no such function: row_checksum"):
            older.execute("UPDATE partition SET next_offset = next_offset + 1")
        older.close()

    def test_several_processes_may_bring_it_up_to_date(self, old: Path, processes: ForkServerContext) -> None:
        readers = [processes.Process(target=log_workers.everything, args=(old,)) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
            assert reader.exitcode == 0
        with open_log(old) as log:
            self.check(log)

    def test_a_damaged_block_of_it_is_reported_if_it_cannot_be_read(self, old: Path) -> None:
        change(old, "UPDATE payload SET data = substr(data, 1, length(data) - 20) WHERE id = 3")
        with (
            open_log(old) as log,
            pytest.raises(DamagedBlockError, match="'news' partition 1: the block of offsets 4 to 7"),
        ):
            list(log.read("news", 1, 0))


@pytest.mark.parametrize("how", ["retention", "deletion"])
def test_a_damaged_block_does_not_take_the_payload_of_another_with_it(path: Path, how: str) -> None:
    with open_log(path) as log:
        for number in range(3):
            log.append("old", records([b"%d" % number] * 3))
            log.append("other", records([b"%d" % number] * 3))
    change(path, "UPDATE block SET payload = 4 WHERE topic = 1 AND first_offset = 0")  # that is the second of the other
    with open_log(path) as log:
        if how == "deletion":
            log.delete_topic("old")
        else:
            log.create_topic("old", retention=Retention(size=1))
        log.maintain()
        assert values(list(log.read("other", 0, 0))) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3
        if how == "retention":
            assert values(list(log.read("old", 0, log.position("old", 0, "earliest")))) == [b"2"] * 3
