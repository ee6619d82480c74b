"""Producers are idempotent and fenced, on every implementation of the log."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.transport.log_reader import offsets, read, values
from tidewheel.errors import DefinitionError, FencedError
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log


class TestProducer:
    def test_a_repeated_append_changes_nothing(self, log: Log) -> None:
        producer = log.producer("writer")
        assert (producer.name, producer.sequence, producer.state) == ("writer", -1, b"")
        first = producer.append({"news": records([b"one"])}, sequence=4, state=b"s4")
        assert (first.sequence, first.duplicate) == (4, False)
        assert first.next_offsets == {("news", 0): offsets(read(log, "news"))[-1] + 1}
        for sequence in (4, 3, 0):
            again = producer.append(
                {"news": records([b"other"]), "more": records([b"x"])}, sequence=sequence, state=b"no"
            )
            assert (again.sequence, again.duplicate, again.next_offsets) == (sequence, True, {})
        assert (producer.sequence, producer.state) == (4, b"s4")
        assert values(read(log, "news")) == [b"one"]
        assert [topic.name for topic in log.topics()] == ["news"]

    def test_sequences_count_up_by_themselves(self, log: Log) -> None:
        producer = log.producer("writer")
        assert [producer.append({"news": records([b"x"])}).sequence for _ in range(3)] == [0, 1, 2]
        assert producer.append({"news": records([b"x"])}, sequence=10).sequence == 10
        assert producer.append({}).sequence == 11
        assert log.producer("writer").sequence == 11
        assert log.topic_info("news").count == 4

    def test_a_successor_finds_sequence_and_state(self, log: Log) -> None:
        log.producer("writer").append({"news": records([b"x"])}, sequence=7, state=b"note")
        with open_log(log.address) as other:
            successor = other.producer("writer")
            assert (successor.sequence, successor.state) == (7, b"note")
            successor.append({"news": records([b"y"])})
            assert log.producer("writer").state == b"note"
            other.producer("writer").append({}, state=b"")
            assert log.producer("writer").state == b""

    def test_a_successor_fences_its_predecessor(self, log: Log) -> None:
        old = log.producer("writer")
        old.append({"news": records([b"one"])})
        with open_log(log.address) as other:
            new = other.producer("writer")
            with pytest.raises(FencedError, match="'writer' has been opened again elsewhere"):
                old.append({"news": records([b"no"])})
            with pytest.raises(FencedError):
                old.append({"news": records([b"no"])}, sequence=0)
            new.append({"news": records([b"two"])})
        log.producer("someone else").append({"news": records([b"three"])})
        assert values(read(log, "news")) == [b"one", b"two", b"three"]

    def test_one_that_only_joins_fences_nobody_and_is_not_fenced(self, log: Log) -> None:
        owner = log.producer("writer")
        joined, another = log.producer("writer", fence=False), log.producer("writer", fence=False)
        owner.append({"news": records([b"0"])}, sequence=0)
        assert not joined.append({"news": records([b"1"])}, sequence=1).duplicate
        assert another.append({"news": records([b"1"])}, sequence=1).duplicate
        assert not another.append({"news": records([b"2"])}, sequence=2).duplicate
        log.producer("writer")
        assert not joined.append({"news": records([b"3"])}, sequence=3).duplicate
        assert values(read(log, "news")) == [b"0", b"1", b"2", b"3"]
        with pytest.raises(DefinitionError, match="give sequence="):
            joined.append({"news": records([b"4"])})
        assert log.producer("new", fence=False).sequence == -1

    def test_an_append_to_several_topics_is_all_or_nothing(self, log: Log) -> None:
        producer = log.producer("writer")
        with pytest.raises(DefinitionError):
            producer.append({"good": records([b"x"]), "bad": records(pa.nulls(1, pa.binary()))}, state=b"no")
        assert log.topics() == []
        assert (log.producer("writer").sequence, log.producer("writer").state) == (-1, b"")

    def test_names_and_sequences_that_make_no_sense_are_refused(self, log: Log) -> None:
        with pytest.raises(DefinitionError, match="producer's name"):
            log.producer("")
        with pytest.raises(DefinitionError, match="0 or more, got -1"):
            log.producer("writer").append({}, sequence=-1)
