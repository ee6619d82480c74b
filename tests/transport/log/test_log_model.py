"""The log behaves like a list per partition, whatever is done to it and in whatever order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.transport.log_kinds import KAFKA, PROMPT
from tidewheel.errors import DataLossError, FencedError
from tidewheel.transport.log.log import Log, Producer
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.log.partitioner import partition_of
from tidewheel.transport.open_log import open_log

PARTITIONS = {"plain": 1, "wide": 3, "state": 2}
AGE = 1_000_000
Content = list[tuple[bytes | None, bytes]]
some_records = st.lists(
    st.tuples(st.none() | st.sampled_from([b"a", b"b", b"c", b"d"]), st.binary(max_size=3)), max_size=6
)


class Model:
    """A partition as a list: what was appended and where it was found, what has left, and where each append began.
    `next` is after the last record; the partition may end later."""

    def __init__(self) -> None:
        self.records: dict[int, tuple[bytes | None, bytes]] = {}
        self.first = 0
        self.next = 0
        self.appends: list[int] = []

    def append(self, found: dict[int, tuple[bytes | None, bytes]]) -> None:
        if found:
            self.appends.append(min(found))
            self.next = max(found) + 1
        self.records |= found

    def retain(self, first: int) -> None:
        self.first = max(self.first, first)
        self.records = {offset: record for offset, record in self.records.items() if offset >= self.first}

    def compacted(self) -> dict[int, tuple[bytes | None, bytes]]:
        """What is left if as much leaves as may."""
        latest = {key: offset for offset, (key, _) in self.records.items()}
        return {
            offset: (key, value)
            for offset, (key, value) in self.records.items()
            if latest[key] == offset or offset >= self.appends[-1]
        }


class LogMachine(RuleBasedStateMachine):
    make: Callable[[Path], Log]
    prompt: bool

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.log = type(self).make(Path(self.folder.name))
        for topic, partitions in PARTITIONS.items():
            self.log.create_topic(topic, partitions=partitions, compact=topic == "state")
        self.model = {(topic, number): Model() for topic, count in PARTITIONS.items() for number in range(count)}
        self.producers: list[tuple[Producer, int | None]] = []
        self.epoch = 0
        self.sequence = -1
        self.state = b""
        self.committed: dict[tuple[str, int], int] = {}

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            self.folder.cleanup()

    def expect(self, topic: str, content: Content, ends: dict[tuple[str, int], int]) -> None:
        """Find the records and put them into the model at their offsets."""
        count = PARTITIONS[topic]
        homes = [None if key is None else partition_of(key, count) for key, _ in content]
        grown = {number: self.content(topic, number, model.next) for number, model in self.parts(topic)}
        more = [number for number in range(count) if any(key is None for key, _ in grown[number].values())]
        assert len(more) == (1 if None in homes else 0), "all without a key go together"
        for number, model in self.parts(topic):
            assert list(grown[number].values()) == [
                record
                for record, home in zip(content, homes, strict=True)
                if home == number or (home is None and number in more)
            ]
            assert ends.get((topic, number)) == (max(grown[number]) + 1 if grown[number] else None)
            model.append(grown[number])

    def parts(self, topic: str) -> list[tuple[int, Model]]:
        return [(number, self.model[topic, number]) for number in range(PARTITIONS[topic])]

    def content(self, topic: str, number: int, start: int | None = None) -> dict[int, tuple[bytes | None, bytes]]:
        found: dict[int, tuple[bytes | None, bytes]] = {}
        for batch in self.log.read(topic, number, self.model[topic, number].first if start is None else start):
            columns = batch.records.to_pydict()
            assert columns["offset"] == sorted(set(columns["offset"]))
            assert columns["offset"][0] > max(found, default=-1), "offsets rise"
            found.update(zip(columns["offset"], zip(columns["key"], columns["value"], strict=True), strict=True))
        return found

    @rule(topic=st.sampled_from(sorted(PARTITIONS)), content=some_records)
    def append(self, topic: str, content: Content) -> None:
        if topic == "state":  # Kafka takes only records with a key where it compacts
            content = [(key, value) for key, value in content if key is not None]
        receipt = self.log.append(topic, records([value for _, value in content], keys=[key for key, _ in content]))
        self.expect(topic, content, dict(receipt.next_offsets))

    @rule(fence=st.booleans())
    def open_producer(self, fence: bool) -> None:
        producer = self.log.producer("writer", fence=fence)
        assert (producer.sequence, producer.state) == (self.sequence, self.state)
        self.epoch += fence
        self.producers.append((producer, self.epoch if fence else None))

    @rule(data=st.data(), plain=some_records, wide=some_records, step=st.integers(-2, 3))
    def append_with_producer(self, data: st.DataObject, plain: Content, wide: Content, step: int) -> None:
        if not self.producers:
            return
        producer, epoch = data.draw(st.sampled_from(self.producers))
        sequence = max(self.sequence + step, 0)
        state = b"%d" % sequence
        batches = {
            topic: records([value for _, value in content], keys=[key for key, _ in content])
            for topic, content in (("plain", plain), ("wide", wide))
        }
        if epoch not in (None, self.epoch):
            with pytest.raises(FencedError):
                producer.append(batches, sequence=sequence, state=state)
            return
        receipt = producer.append(batches, sequence=sequence, state=state)
        assert receipt.duplicate == (sequence <= self.sequence)
        if not receipt.duplicate:
            self.sequence, self.state = sequence, state
            self.expect("plain", plain, dict(receipt.next_offsets))
            self.expect("wide", wide, dict(receipt.next_offsets))

    @rule(topic=st.sampled_from(sorted(PARTITIONS)), data=st.data())
    def retain(self, topic: str, data: st.DataObject) -> None:
        """Let the blocks leave that are older than one of them."""
        blocks = [
            block
            for number in range(PARTITIONS[topic])
            for block in self.log.blocks(topic, number, self.model[topic, number].first)
        ]
        if not blocks:
            return
        pivot = data.draw(st.sampled_from(blocks)).summary.append_time
        self.log.create_topic(topic, retention=Retention(age=AGE), compact=topic == "state")
        self.log.maintain(now=pivot + AGE)
        self.log.create_topic(topic, compact=topic == "state")
        for number in range(PARTITIONS[topic]):
            own = [block for block in blocks if block.partition == number]
            gone = [block.next_offset for block in own[:-1] if block.summary.append_time < pivot]
            model = self.model[topic, number]
            first = self.log.topic_info(topic).first_offsets[number]
            most = max([model.first, *gone])
            assert first == most if self.prompt else model.first <= first <= most
            model.retain(first)
        self.compacted()

    @rule()
    def maintain(self) -> None:
        self.log.maintain()
        self.compacted()

    def compacted(self) -> None:
        for number in range(PARTITIONS["state"]):
            model = self.model["state", number]
            if model.records:
                found, least = self.content("state", number), model.compacted()
                assert found == least if self.prompt else least.items() <= found.items() <= model.records.items()
                model.records = found

    @rule(topic=st.sampled_from(sorted(PARTITIONS)), data=st.data())
    def read_a_part(self, topic: str, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, PARTITIONS[topic] - 1))
        model = self.model[topic, number]
        start = data.draw(st.integers(0, model.next + 2))
        end = data.draw(st.none() | st.integers(0, model.next + 2))
        limit = data.draw(st.none() | st.integers(0, 8))
        if start < model.first:
            with pytest.raises(DataLossError):
                self.log.read(topic, number, start)
            return
        expected = [offset for offset in model.records if start <= offset and (end is None or offset < end)][:limit]
        batches = list(self.log.read(topic, number, start, end=end, limit=limit))
        assert [o for batch in batches for o in batch.records.column("offset").to_pylist()] == expected
        assert self.log.wait({(topic, number): start}, timeout=0) == (start < model.next)

    @rule(topic=st.sampled_from(sorted(PARTITIONS)), position=st.integers(0, 30))
    def commit(self, topic: str, position: int) -> None:
        self.log.commit("readers", {(topic, 0): position})
        self.committed[topic, 0] = position

    @rule()
    def open_again(self) -> None:
        address = self.log.address
        self.log.close()
        self.log = open_log(address)
        self.producers = []

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.committed("readers") == self.committed
        infos = {info.name: info for info in self.log.topics()}
        for (topic, number), model in self.model.items():
            info = infos[topic]
            assert info.first_offsets[number] == model.first
            assert info.next_offsets[number] >= model.next
            found = self.content(topic, number)
            assert found == model.records
            blocks = self.log.blocks(topic, number, model.first)
            self.counted(topic, sum(block.summary.count for block in blocks), len(found))
        for topic, info in infos.items():
            self.counted(topic, info.count, sum(len(model.records) for _, model in self.parts(topic)))

    def counted(self, topic: str, reported: int, found: int) -> None:
        """How many there are is known for certain only where nothing leaves by compaction."""
        assert reported == found if topic != "state" or self.prompt else reported >= found


def test_the_log_behaves_like_the_model(kind: str, make_log: Callable[[Path], Log]) -> None:
    machine = type("Machine", (LogMachine,), {"make": staticmethod(make_log), "prompt": kind in PROMPT})
    many = 4 if kind in KAFKA else 25  # there each step takes some hundredths of a second
    run_state_machine_as_test(machine, settings=settings(max_examples=many, stateful_step_count=25, deadline=None))
