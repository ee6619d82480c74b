"""Writers and brokers are killed at any moment: all that was acknowledged is in the log, and nothing twice."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import KafkaError, TopicPartition

from tests.support.kafka import local_kafka
from tests.transport import log_workers
from tests.transport.log_kinds import KafkaLogs
from tests.transport.log_reader import read, rising, values
from tests.transport.run_and_kill import run_and_kill
from tidewheel.errors import FencedError
from tidewheel.transport.kafka.broker.local_cluster import LocalKafka
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log

KILLS = 8


def plainly_read(servers: str, topic: str) -> list[bytes]:
    """All that is committed in partition 0 of a topic, as any consumer of Kafka reads it."""
    consumer = PlainConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": "test",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(60)) is not None:
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            break
        found.append(message.value())
    consumer.close()
    return found


def check_numbers(log: Log, certain: int) -> None:
    """The numbers that `append_until_killed` appends are there up to this sequence number, in order, none twice."""
    numbers = [tuple(map(int, value.split())) for value in values(read(log, "numbers"))]
    assert numbers == sorted(set(numbers)), "in order, none twice"
    assert [sequence for sequence, number in numbers if number == 0] == list(range(certain + 1)), "none missing"
    copies = [value for value in values(read(log, "copies")) if len(value.split()) == 2 and value[:1].isdigit()]
    assert [tuple(map(int, value.split())) for value in copies if value.replace(b" ", b"").isdigit()] == numbers
    assert sum(block.summary.count for block in log.blocks("numbers", 0, 0)) == len(numbers), "the index has all"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["blocks", pytest.param("events", marks=pytest.mark.long)])
def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice_when_writers_are_killed(
    kafka_logs: KafkaLogs, processes: ForkServerContext, form: str
) -> None:
    with kafka_logs.make(form) as log:
        certain = -1
        for kill in range(KILLS):
            certain = max(
                certain,
                run_and_kill(
                    processes, log_workers.append_until_killed, log.address, kill, least=1, most=8, within=0.04
                ),
            )
            # Whoever opens the name ends what the dead one had begun.
            writer = log.producer("writer")
            assert writer.sequence in (certain, certain + 1), "one append may be there that was not acknowledged"
            assert writer.state == (b"%d" % writer.sequence if writer.sequence >= 0 else b"")
            certain = writer.sequence
        assert certain >= KILLS
        check_numbers(log, certain)


def test_events_are_what_any_consumer_of_kafka_reads(kafka: LocalKafka, kafka_logs: KafkaLogs) -> None:
    with kafka_logs.make("events") as log:
        log.append("news", records([b"one", b"two"]))
        log.producer("writer").append({"news": records([b"three"])})
        prefix = log.address.partition("?")[0].rpartition("/")[2]
        assert plainly_read(kafka.address, f"{prefix}.news") == [b"one", b"two", b"three"]


@pytest.mark.slow
def test_a_zombie_that_wakes_up_writes_nothing(kafka_logs: KafkaLogs) -> None:
    with kafka_logs.make() as log, open_log(log.address) as other:
        zombie = log.producer("job")
        zombie.append({"news": records([b"1"])}, sequence=1)
        successor = other.producer("job")
        successor.append({"news": records([b"2"])}, sequence=2)
        for sequence in (2, 3):
            with pytest.raises(FencedError, match="'job' has been opened again elsewhere"):
                zombie.append({"news": records([b"zombie"])}, sequence=sequence)
        successor.append({"news": records([b"3"])}, sequence=3)
        assert values(read(log, "news")) == [b"1", b"2", b"3"]


def attempt(log: Log, begun: threading.Barrier, number: int) -> bool:
    producer = log.producer("task", fence=False)
    begun.wait()
    return producer.append({"news": records([b"%d" % number] * 3)}, sequence=number).duplicate


@pytest.mark.slow
def test_two_that_repeat_the_same_batch_at_the_same_time_write_it_once(kafka_logs: KafkaLogs) -> None:
    # As attempts of a task do where Spark speculates: both know the number, neither knows of the other.
    with kafka_logs.make() as log, open_log(log.address) as other:
        for number in range(5):
            begun = threading.Barrier(2)
            with ThreadPoolExecutor(2) as pool:
                attempts = [pool.submit(attempt, at, begun, number) for at in (log, other)]
                assert sorted(each.result() for each in attempts) == [False, True], "one wrote, the other found it done"
        assert values(read(log, "news")) == [b"%d" % number for number in range(5) for _ in range(3)]


def append_numbers(log: Log, count: int, killed: threading.Event) -> None:
    producer = log.producer("writer")
    for number in range(count):
        if number == count // 3:
            killed.set()
        producer.append({"news": records([b"%d" % number] * 5)}, sequence=number)


@pytest.mark.slow
def test_a_broker_that_dies_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    with local_kafka(tmp_path / "kafka") as cluster, open_log(f"kafka://{cluster.address}/city") as log:
        log.append("news", records([b"begin"]))
        reached = threading.Event()
        writer = threading.Thread(target=append_numbers, args=(log, 30, reached))
        writer.start()
        assert reached.wait(60)
        cluster.kill(1)
        time.sleep(random.Random(1).uniform(0.2, 1))
        cluster.start(1)
        writer.join()
        assert values(read(log, "news")) == [b"begin", *(b"%d" % number for number in range(30) for _ in range(5))]
        assert log.producer("writer").sequence == 29


@pytest.mark.slow
@pytest.mark.long
def test_of_three_brokers_one_may_die_at_any_time(tmp_path: Path) -> None:
    with (
        local_kafka(tmp_path / "kafka", nodes=3) as cluster,
        open_log(f"kafka://{cluster.address}/city?replication=3") as log,
    ):
        log.append("news", records([b"begin"]))
        for victim in (1, 2, 3):
            reached = threading.Event()
            with open_log(log.address) as own:
                writer = threading.Thread(target=append_more, args=(own, 12, reached))
                writer.start()
                assert reached.wait(120)
                cluster.kill(victim)
                writer.join()
                assert values(read(log, "news"))[-1] == b"%d" % (12 * victim - 1), "two are enough"
                cluster.start(victim)
        assert values(read(log, "news")) == [b"begin", *(b"%d" % number for number in range(36) for _ in range(5))]


def append_more(log: Log, count: int, reached: threading.Event) -> None:
    producer = log.producer("writer")
    first = producer.sequence + 1
    for number in range(first, first + count):
        if number == first + count // 3:
            reached.set()
        producer.append({"news": records([b"%d" % number] * 5)}, sequence=number)


def test_rising_offsets_after_an_append_that_was_refused(kafka_logs: KafkaLogs) -> None:
    with kafka_logs.make("events") as log:
        log.create_topic("state", compact=True)
        log.append("state", records([b"1"], keys=[b"a"]))
        for _ in range(2):
            with pytest.raises(ValueError, match="Records of a compacted topic need keys"):
                log.append("state", records([b"2", b"3"], keys=[b"a", None]))
        log.append("state", records([b"4"], keys=[b"b"]))
        found = read(log, "state")
        assert values(found) == [b"1", b"4"], "nothing of what was refused"
        assert rising([offset for batch in found for offset in batch.records.column("offset").to_pylist()])
        assert log.topic_info("state").count == 2
