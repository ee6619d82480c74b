"""A Kafka cluster on this machine: started in the background over a folder, found again, stopped."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidewheel.errors import DefinitionError, SetupError
from tidewheel.java import Java, find_java
from tidewheel.transport.kafka.broker.broker_jars import KAFKA_VERSION, broker_jars
from tidewheel.transport.kafka.broker.broker_process import format_storage, reason_of_end, start_broker
from tidewheel.transport.kafka.broker.cluster_probe import ClusterProbe
from tidewheel.transport.kafka.broker.cluster_state import ClusterState, NodeProcess, new_cluster_id
from tidewheel.transport.kafka.broker.node_files import Node, write_node_files
from tidewheel.transport.kafka.broker.ports import choose_nodes, refuse_taken_ports

__all__ = ["ClusterStatus", "LocalKafka", "NodeStatus"]

_LOCK = "lock"
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node: its number, its address for clients, and its process, if it runs."""

    number: int
    address: str
    pid: int | None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """What there is of a cluster, and whether it answers."""

    folder: Path
    version: str
    address: str
    nodes: tuple[NodeStatus, ...]
    answers: bool
    topics: int | None
    """Without Kafka's own; None if it does not answer."""
    disk: int
    """Bytes of its folder."""


def _no_progress(_: str) -> None:
    """Tell nobody."""


class LocalKafka:
    """A Kafka cluster on this machine, which only this machine can reach. Its topics are in a folder.

    It is started by `up` and runs until `down`, also when the process that started it has ended; another object on the
    same folder finds it. As a context manager it is up inside, and stopped afterwards if it was started for that.

    Args:
        folder: Where everything of it is: a new or empty folder, or one that had a cluster before.
        nodes: How many brokers: 1, 3 or 5. None: as many as the folder has, or 1. A folder keeps its number.
        port: The port of the first node; the others take those after it. None: those of the last time, or free ones.
        settings: Further settings of every broker, by their names in Kafka; they go before Tidewheel's.
        progress: Is told what takes long.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        nodes: int | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        progress: Callable[[str], None] = _no_progress,
    ) -> None:
        if nodes not in (None, 1, 3, 5):
            raise DefinitionError(f"a local Kafka has 1, 3 or 5 nodes, so that a majority can agree; got {nodes}")
        self.folder = Path(folder).expanduser().absolute()
        if "," in str(self.folder):
            raise DefinitionError(f"Kafka cannot keep data in {self.folder}: its name has a comma; give another folder")
        self._nodes = nodes
        self._port = port
        self._settings = dict(settings or {})
        self._progress = progress
        self._started_here = False

    def __enter__(self) -> LocalKafka:
        self._started_here = self.up()
        return self

    def __exit__(self, *_: object) -> None:
        if self._started_here:
            self.down()

    @property
    def exists(self) -> bool:
        """Whether the folder has a cluster, running or not."""
        return ClusterState.read(self.folder) is not None

    @property
    def address(self) -> str:
        """Where clients reach it: host and port of every node, with commas between."""
        return ",".join(node.address for node in self._state().nodes)

    def up(self) -> bool:
        """Start what does not run, and wait until all nodes answer. Returns whether there was anything to start."""
        self._make_folder()
        with self._locked():
            state = self._planned()
            missing = [node for node in state.nodes if node.number not in state.running()]
            if missing:
                state = self._start(state, missing)
            elif self._answers(state):
                return False
            try:
                self._await(state, state.nodes)
            except SetupError:  # what was there before and does not answer either is of no use to anybody
                self._end(state, signal.SIGKILL, missing or state.nodes)
                raise
            except BaseException:  # Ctrl-C: nothing half-started stays behind, and nothing of others is stopped
                self._end(state, signal.SIGKILL, missing)
                raise
            return bool(missing)

    def down(self) -> tuple[int, ...]:
        """Stop all nodes, and return those that ran. What does not end within half a minute is killed, which costs no
        data, only time at the next start."""
        if not self.exists:
            return ()
        with self._locked():
            state = self._state()
            ran = tuple(sorted(state.running()))
            self._end(state, signal.SIGTERM)
            return ran

    def delete(self) -> None:
        """Stop it and remove it with all its topics; what else is in its folder stays."""
        if not self.exists:
            return
        self.down()
        with self._locked():
            for node in self._state().nodes:
                shutil.rmtree(node.folder(self.folder), ignore_errors=True)
            ClusterState.remove(self.folder)
            (self.folder / _LOCK).unlink()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def kill(self, number: int) -> None:
        """End a node at once, by SIGKILL: for tests."""
        with self._locked():
            state = self._state()
            self._end(state, signal.SIGKILL, [self._node(state, number)])

    def start(self, number: int) -> None:
        """Start a node again, and wait until it answers and knows the other nodes that run."""
        with self._locked():
            state = self._state()
            node = self._node(state, number)
            if number not in state.running():
                state = self._start(state, [node])
            self._await(state, [node])

    def status(self) -> ClusterStatus | None:
        """What there is, and whether it answers; None if there is no cluster in the folder."""
        state = ClusterState.read(self.folder)
        if state is None:
            return None
        running = state.running()
        addresses = [node.address for node in state.nodes if node.number in running]
        told = ClusterProbe(addresses).ask(timeout=5) if addresses else None
        answers = told is not None and told.cluster_id == state.cluster_id
        return ClusterStatus(
            folder=self.folder,
            version=state.version,
            address=",".join(node.address for node in state.nodes),
            nodes=tuple(
                NodeStatus(node.number, node.address, running[node.number].pid if node.number in running else None)
                for node in state.nodes
            ),
            answers=answers,
            topics=told.topics if told is not None and answers else None,
            disk=_disk_used(self.folder),
        )

    def _make_folder(self) -> None:
        if not self.exists and self.folder.exists() and {each.name for each in self.folder.iterdir()} - {_LOCK}:
            raise DefinitionError(f"{self.folder} has other files and no Kafka; give a new or empty folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        owner = self.folder.stat().st_uid
        if owner != os.getuid():
            raise DefinitionError(f"{self.folder} belongs to another user (number {owner}); give a folder of your own")
        self.folder.chmod(0o700)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time starts or stops what is in a folder."""
        while True:
            with open(self.folder / _LOCK, "a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if _is_at(lock.fileno(), self.folder / _LOCK):
                    yield
                    return
            # Who had it before has deleted the cluster; its folder may be gone, too.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _state(self) -> ClusterState:
        state = ClusterState.read(self.folder)
        if state is None:
            raise SetupError(
                f"there is no Kafka in {self.folder}; start one: tidewheel kafka up --folder {self.folder}"
            )
        return state

    def _node(self, state: ClusterState, number: int) -> Node:
        for node in state.nodes:
            if node.number == number:
                return node
        raise DefinitionError(f"the Kafka in {self.folder} has nodes 1 to {len(state.nodes)}, got {number}")

    def _planned(self) -> ClusterState:
        """The state to be up: that of the folder, or a new one, with the ports that were asked for."""
        state = ClusterState.read(self.folder)
        if state is None:
            nodes = choose_nodes(self._nodes or 1, self._port)
            return ClusterState(KAFKA_VERSION, new_cluster_id(), nodes, {})
        count = len(state.nodes)
        if self._nodes not in (None, count):
            raise DefinitionError(
                f"the Kafka in {self.folder} has {count} node{'s' * (count > 1)}, not {self._nodes}, and keeps that "
                f"number; give another folder, or remove this one with all its topics: tidewheel kafka down --delete "
                f"--folder {self.folder}"
            )
        if self._port in (None, state.nodes[0].port):
            return state
        if state.running():
            raise DefinitionError(
                f"the Kafka in {self.folder} runs at {state.nodes[0].address}, not at port {self._port}; stop it "
                f"first: tidewheel kafka down --folder {self.folder}"
            )
        return ClusterState(state.version, state.cluster_id, choose_nodes(count, self._port), {})

    def _start(self, state: ClusterState, missing: Sequence[Node]) -> ClusterState:
        refuse_taken_ports(missing)
        java: Java = find_java(needed_by="Kafka")
        jars = broker_jars(java, progress=self._progress)
        count = len(missing)
        self._progress(f"starting Kafka {KAFKA_VERSION} ({count} node{'s' * (count > 1)}) ...")
        if not state.running():
            state = ClusterState(KAFKA_VERSION, state.cluster_id, state.nodes, {})
        state.write(self.folder)
        for node in missing:
            write_node_files(node, state.nodes, self.folder, settings=self._settings)
        format_storage(missing, self.folder, java=java, jars=jars, cluster_id=state.cluster_id)
        try:
            for node in missing:
                process = start_broker(node, self.folder, java=java, jars=jars)
                state = state.with_process(node.number, process)
                state.write(self.folder)  # at once: should this process be killed, the next one must know of it
        except BaseException:
            self._end(state, signal.SIGKILL, missing)
            raise
        return state

    def _await(self, state: ClusterState, nodes: Sequence[Node]) -> None:
        """Wait until these nodes answer, each by itself, and know of all that run."""
        wanted = frozenset(state.running()) | {node.number for node in nodes}
        deadline = time.monotonic() + _START_SECONDS
        for node in nodes:
            probe = ClusterProbe([node.address])
            while True:
                told = probe.ask(timeout=1)
                if told is not None and told.cluster_id == state.cluster_id and wanted <= told.brokers:
                    break
                ended = [
                    each for each in state.nodes if each.number in wanted and not state.processes[each.number].runs
                ]
                if ended:
                    why = reason_of_end(ended[0], self.folder)
                    raise SetupError(f"Kafka's node {ended[0].number} ended before it was up: {why}")
                if time.monotonic() > deadline:
                    why = reason_of_end(node, self.folder)
                    raise SetupError(f"Kafka's node {node.number} was not up after {_START_SECONDS:g} s: {why}")
                time.sleep(_POLL_SECONDS)

    def _answers(self, state: ClusterState) -> bool:
        told = ClusterProbe([node.address for node in state.nodes]).ask(timeout=5)
        return told is not None and told.cluster_id == state.cluster_id and len(told.brokers) == len(state.nodes)

    def _end(self, state: ClusterState, how: int, nodes: Sequence[Node] | None = None) -> None:
        """End nodes, by default all, and note that they have ended."""
        numbers = [node.number for node in (state.nodes if nodes is None else nodes)]
        ending = [state.processes[number] for number in numbers if number in state.processes]
        for process in ending:
            process.signal(how)
        if not _gone(ending, timeout=_STOP_SECONDS):
            left = [process for process in ending if process.runs]
            self._progress(f"{len(left)} of {len(ending)} nodes did not end within {_STOP_SECONDS:g} s: killed")
            for process in left:
                process.signal(signal.SIGKILL)
            _gone(left, timeout=_STOP_SECONDS)
        state.without(numbers).write(self.folder)


def _gone(processes: Sequence[NodeProcess], *, timeout: float) -> bool:
    """Wait until processes have ended; returns whether they have."""
    deadline = time.monotonic() + timeout
    while any(process.runs for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still what has this name."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), there)


def _disk_used(folder: Path) -> int:
    """The bytes that a folder takes up on the disk. Kafka's indexes are mostly holes."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # it was just deleted
    return total
