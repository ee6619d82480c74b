"""The files that a node of a local cluster is started with: its settings, and how it logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BROKER_LOG", "DATA", "HOST", "LOGGING", "SETTINGS", "Node", "write_node_files"]

HOST = "127.0.0.1"
"""Nobody else can reach the brokers: they ask for no password."""

SETTINGS, LOGGING, BROKER_LOG, DATA = "server.properties", "log4j2.properties", "broker.log", "data"
"""The names of a node's files in its folder."""

_LARGEST_RECORD = 10 << 20
"""Blocks of events have up to 8 MB; the rest is for their headers."""

_SESSION_MILLISECONDS = 3_000
"""How long a killed broker counts as alive. It cannot register again before that: with Kafka's 9 seconds a killed node
took 12 to come back, with 3 it takes 5."""

_LOGGING = """rootLogger.level = WARN
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = broker.log
appender.file.filePattern = broker.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{1}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 5 MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster, which is broker and controller at once: its number from 1, and its ports."""

    number: int
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"{HOST}:{self.port}"

    @property
    def controller(self) -> str:
        """Where other nodes reach its controller."""
        return f"{HOST}:{self.controller_port}"

    def folder(self, cluster: Path) -> Path:
        """Its own folder in that of the cluster."""
        return cluster / f"node-{self.number}"


def write_node_files(node: Node, nodes: Sequence[Node], folder: Path, *, settings: Mapping[str, str]) -> None:
    """Write a node's settings and its logging into its folder; `settings` are added to those that it needs."""
    own = node.folder(folder)
    own.mkdir(mode=0o700, exist_ok=True)
    lines = [f"{name}={_escaped(value)}\n" for name, value in {**_settings(node, nodes, own), **settings}.items()]
    (own / SETTINGS).touch(mode=0o600)  # settings may have passwords
    (own / SETTINGS).write_text("".join(lines), encoding="ascii")
    (own / LOGGING).write_text(_LOGGING, encoding="ascii")


def _settings(node: Node, nodes: Sequence[Node], own: Path) -> dict[str, str]:
    copies = min(len(nodes), 3)
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node.number,
        "controller.quorum.voters": ",".join(f"{each.number}@{each.controller}" for each in nodes),
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{node.controller}",
        "advertised.listeners": f"PLAINTEXT://{node.address}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": own / DATA,
        # A misspelled topic is an error, not a new topic.
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": max(1, copies - 1),
        "message.max.bytes": _LARGEST_RECORD,
        "replica.fetch.max.bytes": _LARGEST_RECORD,
        "broker.session.timeout.ms": _SESSION_MILLISECONDS,
        "broker.heartbeat.interval.ms": _SESSION_MILLISECONDS // 6,
        # All nodes stop at once, and the last ones would wait for a majority of controllers that is gone already.
        "controlled.shutdown.enable": str(len(nodes) == 1).lower(),
        # Consumers need not wait for others of their group.
        "group.initial.rebalance.delay.ms": 0,
    }
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{topic}.num.partitions"] = 10  # of 50, each is a folder of files to open at every start
        settings[f"{topic}.replication.factor"] = copies
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{topic}.min.isr"] = max(1, copies - 1)
    return {name: str(value) for name, value in settings.items()}


def _escaped(value: str) -> str:
    """A value as Java reads it from a file of properties.

    >>> _escaped("/home/jörg/a b")
    '/home/j\\\\u00f6rg/a b'
    """
    units = value.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-16-be")
    codes = (int.from_bytes(units[place : place + 2], "big") for place in range(0, len(units), 2))
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
