"""What a local cluster notes in its folder: its identity, its nodes, and which processes they are."""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tidewheel.atomic_file import write_atomically
from tidewheel.errors import SetupError
from tidewheel.process_identity import start_time
from tidewheel.transport.kafka.broker.node_files import Node

__all__ = ["ClusterState", "NodeProcess", "new_cluster_id"]

_FILE = "cluster.json"


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """A process that was started for a node; by its start time it is told from a later one that got its number."""

    pid: int
    started: str

    @staticmethod
    def of(pid: int) -> NodeProcess:
        """The process that has this number now."""
        return NodeProcess(pid, start_time(pid) or "ended")

    @property
    def runs(self) -> bool:
        """Whether it is there, and not another one of its number."""
        return start_time(self.pid) == self.started

    def signal(self, number: int) -> bool:
        """Send it a signal; returns whether it was there to get it."""
        if not self.runs:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster as it was last started: the version of Kafka, its id, its nodes, and the process of each."""

    version: str
    cluster_id: str
    nodes: tuple[Node, ...]
    processes: dict[int, NodeProcess]

    @staticmethod
    def read(folder: Path) -> ClusterState | None:
        """What a folder notes; None if there is no cluster in it."""
        path = folder / _FILE
        try:
            told = json.loads(path.read_bytes())
            return ClusterState(
                version=str(told["version"]),
                cluster_id=str(told["cluster_id"]),
                nodes=tuple(Node(**node) for node in told["nodes"]),
                processes={int(number): NodeProcess(**each) for number, each in told["processes"].items()},
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SetupError(
                f"{path} is not what Tidewheel wrote ({error}); remove {folder} with all its topics, or give another "
                "folder"
            ) from error

    def write(self, folder: Path) -> None:
        """Note it in the folder, at once and durably."""
        write_atomically(folder / _FILE, json.dumps(asdict(self), indent=2).encode())

    def running(self) -> dict[int, NodeProcess]:
        """The processes that are there, by the numbers of their nodes."""
        return {number: process for number, process in self.processes.items() if process.runs}

    def with_process(self, number: int, process: NodeProcess) -> ClusterState:
        """The state after a node was started."""
        return replace(self, processes={**self.processes, number: process})

    def without(self, numbers: Iterable[int]) -> ClusterState:
        """The state after nodes were stopped."""
        gone = set(numbers)
        return replace(self, processes={each: of for each, of in self.processes.items() if each not in gone})

    @staticmethod
    def remove(folder: Path) -> None:
        """Forget the cluster of a folder."""
        (folder / _FILE).unlink(missing_ok=True)


def new_cluster_id() -> str:
    """An id as Kafka makes them: 16 random bytes in base64, of which none begins like an option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made
