"""What is of Kafka alone: topics of other programs, settings, retention, damage, a cluster that is not there."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as PlainProducer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from tests.support.command import eventually
from tests.transport import log_workers
from tests.transport.log_kinds import KafkaLogs
from tests.transport.log_reader import offsets, read, values
from tidewheel.errors import DamagedBlockError, DataLossError, LogError
from tidewheel.transport.kafka.broker.local_cluster import LocalKafka
from tidewheel.transport.kafka.extents import Extents
from tidewheel.transport.log.consumer import Consumer
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.open_log import open_log

pytestmark = pytest.mark.slow


@pytest.fixture
def admin(kafka: LocalKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.address})


@pytest.fixture
def log(kafka_logs: KafkaLogs) -> Iterator[Log]:
    with kafka_logs.make() as log:
        yield log


def full(log: Log, topic: str) -> str:
    return f"{log.address.partition('?')[0].rpartition('/')[2]}.{topic}"


def settings(admin: AdminClient, topic: str) -> dict[str, str]:
    (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in found.result().items()}


def write_plainly(kafka: LocalKafka, topic: str, *values: bytes) -> None:
    producer = PlainProducer({"bootstrap.servers": kafka.address})
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush()


class TestTopics:
    def test_settings_are_those_of_kafka_and_the_index_stays_longer_than_the_data(
        self, log: Log, admin: AdminClient
    ) -> None:
        log.create_topic("news", partitions=3, retention=Retention(age=86_400_000_000, size=10_000_000))
        news, index = settings(admin, full(log, "news")), settings(admin, full(log, "__tidewheel.blocks.news"))
        assert (news["retention.ms"], news["retention.bytes"]) == ("86400000", "10000000")
        assert (int(index["retention.ms"]) > 2 * 86_400_000, index["retention.bytes"]) == (True, "-1")
        assert news["cleanup.policy"] == index["cleanup.policy"] == "delete"
        log.create_topic("state", compact=True)
        assert settings(admin, full(log, "state"))["cleanup.policy"] == "compact"
        assert settings(admin, full(log, "__tidewheel.events.state"))["cleanup.policy"] == "delete"

    def test_a_topic_of_blocks_cannot_be_compacted_later(self, log: Log) -> None:
        log.create_topic("news")
        with pytest.raises(ValueError, match="holds blocks of many records, which Kafka cannot compact"):
            log.create_topic("news", compact=True)

    def test_deleting_a_topic_deletes_its_index(self, log: Log, admin: AdminClient) -> None:
        log.append("news", records([b"x"]))
        log.delete_topic("news")
        assert not [name for name in admin.list_topics(timeout=60).topics if name.endswith(".news")]

    def test_partitions_that_are_added_by_others_are_written_and_read(self, log: Log, admin: AdminClient) -> None:
        log.append("news", records([b"before"], keys=[b"1"]))
        (added,) = admin.create_partitions([NewPartitions(full(log, "news"), 3)]).values()
        added.result()
        eventually(lambda: log.topic_info("news").partitions == 3, "everybody knows of the partitions")
        new = [b"%d" % number for number in range(12)]
        log.append("news", records(new, keys=new))
        found = sorted(value for number in range(3) for value in values(read(log, "news", number)))
        assert found == sorted([b"before", *new])
        assert all(log.blocks("news", number, 0) for number in range(3)), "keys are in all of them, and in the index"

    def test_logs_of_several_prefixes_do_not_see_each_other(self, kafka_logs: KafkaLogs) -> None:
        with kafka_logs.make() as one, kafka_logs.make() as other:
            one.append("news", records([b"one"]))
            one.commit("readers", {("news", 0): 1})
            one.producer("writer").append({"news": records([b"two"])})
            assert (other.topics(), other.groups(), other.producer("writer").sequence) == ([], [], -1)
            assert one.identity != other.identity

    def test_a_log_that_was_never_opened_is_not_made_by_looking(self, kafka: LocalKafka) -> None:
        with pytest.raises(LogError, match=r"there is no log at kafka://.*no log was ever opened"):
            open_log(f"kafka://{kafka.address}/{uuid.uuid4().hex}", create=False)


class TestTopicsOfOthers:
    def test_they_are_listed_and_read_and_a_job_is_told_that_it_cannot_plan(
        self, log: Log, admin: AdminClient, kafka: LocalKafka
    ) -> None:
        (made,) = admin.create_topics([NewTopic(full(log, "theirs"), num_partitions=1)]).values()
        made.result()
        write_plainly(kafka, full(log, "theirs"), b"one", b"two")
        assert [info.name for info in log.topics()] == ["theirs"]
        assert values(read(log, "theirs")) == [b"one", b"two"]
        assert values(Consumer(log, "theirs", start_from="earliest").poll(60)) == [b"one", b"two"]
        with pytest.raises(LogError, match="has no index, since another program made it"):
            log.blocks("theirs", 0, 0)

    def test_what_others_write_into_a_topic_of_blocks_is_damage_that_can_be_passed_over(
        self, log: Log, kafka: LocalKafka
    ) -> None:
        log.append("news", records([b"before"]))
        write_plainly(kafka, full(log, "news"), b"no block")
        log.append("news", records([b"after"]))
        with pytest.raises(DamagedBlockError, match="it is no block, though its topic holds blocks"):
            read(log, "news")
        damaged: list[DamagedBlockError] = []
        assert values(list(log.read("news", 0, 0, on_damage=damaged.append))) == [b"before", b"after"]
        assert len(damaged) == 1
        assert sum(block.summary.count for block in log.blocks("news", 0, 0)) == 2, "the index knows only what is ours"


class TestBlocks:
    @pytest.mark.parametrize("form", ["blocks", "events"])
    def test_they_leave_nothing_out_between_them_and_up_to_the_end(self, kafka_logs: KafkaLogs, form: str) -> None:
        # Each transaction takes an offset, after which nothing comes for a while: who has read all blocks has read all.
        with kafka_logs.make(form) as log:
            for number in range(4):
                log.append("news", records([b"%d" % number] * 3))
            found = log.blocks("news", 0, 0)
            assert [each.summary.count for each in found] == [3] * 4
            ends = [each.next_offset for each in found]
            assert ends == [*(each.first_offset for each in found[1:]), log.position("news", 0, "latest")]
            assert log.blocks("news", 0, ends[-1]) == []
            assert not log.wait({("news", 0): ends[-1]}, timeout=0)
            assert log.counts({("news", 0): ends[1]}) == {("news", 0): 6}


class TestProducers:
    def test_an_append_that_nobody_can_see_yet_is_no_error_and_its_repeat_is_known(
        self, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # As where the broker dies between the commit and the question whether readers see it.
        def dead(self: Extents, parts: object) -> dict[tuple[str, int], int]:
            raise LogError("no answer")

        producer = log.producer("writer")
        producer.append({"news": records([b"1"])}, sequence=1)
        with monkeypatch.context() as patched:
            patched.setattr(Extents, "committed_ends", dead)
            assert not producer.append({"news": records([b"2"])}, sequence=2).duplicate
        assert producer.append({"news": records([b"2"])}, sequence=2).duplicate
        assert values(read(log, "news")) == [b"1", b"2"]

    def test_a_damaged_account_is_an_error_for_its_name_and_strangers_are_passed_over(
        self, log: Log, kafka: LocalKafka
    ) -> None:
        log.producer("writer").append({"news": records([b"1"])}, sequence=1)
        place = full(log, "__tidewheel.producers"), zlib.crc32(b"writer") % 4
        neighbor = next(name for name in "abcdefghijkl" if zlib.crc32(name.encode()) % 4 == place[1])
        for key, value in ((None, b"whatever"), (b"writer", b"half")):
            producer = PlainProducer({"bootstrap.servers": kafka.address, "partitioner": "consistent"})
            producer.produce(place[0], value, key=key, partition=place[1])
            producer.flush()
        with pytest.raises(LogError, match=r"is damaged at offset .* could append it twice"):
            log.producer("writer")
        log.producer(neighbor).append({"news": records([b"2"])})
        assert values(read(log, "news")) == [b"1", b"2"]


class TestRetention:
    def test_what_has_left_is_an_error_for_readers_and_gone_from_the_index(self, log: Log, admin: AdminClient) -> None:
        for number in range(5):
            log.append("news", records([b"%d" % number] * 10))
        at = offsets(read(log, "news"))
        third = at[20]
        consumer, lenient = (Consumer(log, "news", start_from="earliest", skip_lost=skip) for skip in (False, True))
        (deleted,) = admin.delete_records([TopicPartition(full(log, "news"), 0, third >> 14)]).values()
        deleted.result()
        assert log.position("news", 0, "earliest") == third
        assert log.topic_info("news").count == 30
        assert [block.first_offset for block in log.blocks("news", 0, third)] == at[20::10]
        for ask in (log.read, log.blocks, log.position):
            with pytest.raises(DataLossError, match="have left the log by retention"):
                ask("news", 0, at[19])
        with pytest.raises(DataLossError):
            consumer.poll(0)
        assert values(lenient.poll(0)) == [b"%d" % number for number in (2, 3, 4) for _ in range(10)]


class TestProcesses:
    def test_a_forked_child_uses_the_object_like_its_parent(self, log: Log) -> None:
        log.append("news", records([b"from the parent"]))
        assert log_workers.append_in_fork(log, "news") == 0
        log.append("news", records([b"again"]))
        assert values(read(log, "news")) == [b"from the parent", b"from the child", b"again"]

    def test_many_records_are_read_in_the_order_of_their_offsets(self, kafka_logs: KafkaLogs) -> None:
        with kafka_logs.make("events") as log:
            log.append("news", records([b"%d" % number for number in range(45_000)]))
            found = read(log, "news")
            assert values(found) == [b"%d" % number for number in range(45_000)]
            assert offsets(found) == list(range(45_000))
            assert [block.summary.count for block in log.blocks("news", 0, 0)] == [10_000] * 4 + [5_000]


class TestErrors:
    def test_a_cluster_that_is_not_there_is_named_with_the_way_to_start_one(self) -> None:
        with pytest.raises(LogError, match=r"no answer from the Kafka at 127\.0\.0\.1:1 .*tidewheel kafka up"):
            open_log("kafka://127.0.0.1:1/city")

    def test_a_record_that_is_too_large_is_refused_and_nothing_of_its_append_is_there(self, log: Log) -> None:
        log.append("news", records([b"small"]))
        with pytest.raises(ValueError, match=r"a log on Kafka takes at most 67,108,864"):
            log.append("news", records([b"small", os.urandom(70 << 20)]))
        assert values(read(log, "news")) == [b"small"]
