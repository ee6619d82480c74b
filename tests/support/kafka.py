"""A real Kafka broker on this machine, and what Spark needs to reach it."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.command import eventually
from tests.support.maven import jars
from tidewheel.java import find_java

_BROKER = "org.apache.kafka:kafka_2.13:4.3.1"
# Spark 4.3's own connector is not in the repository; this one works with it.
_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def connector_jars() -> str:
    """For `spark.jars`."""
    return ",".join(map(str, jars("kafka-connector", *_CONNECTOR, alone=True)))


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Kafka, one node, with its data in the folder; gives its address."""
    java = str(find_java().path)
    path = ":".join(map(str, jars("kafka-broker", _BROKER)))
    ports = _free_port(), _free_port()
    address, controller = (f"127.0.0.1:{port}" for port in ports)
    settings = folder / "server.properties"
    settings.write_text(f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
listeners=PLAINTEXT://{address},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{address}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder / "data"}
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
""")
    begin = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path]
    subprocess.run(
        [*begin, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", settings],
        check=True, capture_output=True,
    )  # fmt: skip
    with open(folder / "broker.txt", "wb") as said:
        process = subprocess.Popen([*begin, "kafka.Kafka", settings], stdout=said, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: _listens(ports[0]) or process.poll() is not None, "Kafka listens")
        assert process.poll() is None, (folder / "broker.txt").read_text()[-2_000:]
        yield address
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
