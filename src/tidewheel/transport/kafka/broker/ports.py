"""The ports of a local cluster: two for each node, for clients and for the other controllers."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from contextlib import suppress

from tidewheel.errors import DefinitionError, SetupError
from tidewheel.transport.kafka.broker.node_files import HOST, Node

__all__ = ["choose_nodes", "refuse_taken_ports"]

_NOT_FOR_CLIENTS = range(20_000, 32_000)


def choose_nodes(count: int, port: int | None) -> tuple[Node, ...]:
    """Nodes with ports from this one on, those for clients first; or with free ones."""
    if port is None:
        ports = _free_ports(2 * count)
    elif 1 <= port <= 65_536 - 2 * count:
        ports = list(range(port, port + 2 * count))
    else:
        raise DefinitionError(f"{count} nodes take ports from {port} to {port + 2 * count - 1}; the highest is 65535")
    return tuple(Node(place + 1, ports[place], ports[count + place]) for place in range(count))


def refuse_taken_ports(nodes: Sequence[Node]) -> None:
    """Raise an error if another program has one of their ports."""
    for port in (port for node in nodes for port in (node.port, node.controller_port)):
        try:
            _bind(port)
        except OSError as error:
            raise SetupError(
                f"Kafka cannot listen on {HOST}:{port} ({error.strerror}); end the program that does, or give Kafka "
                "other ports with --port"
            ) from error


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has, of those that the system does not give to outgoing connections: while a broker is down,
    one of its own clients might get its port to call from."""
    found: list[int] = []
    for port in random.sample(_NOT_FOR_CLIENTS, len(_NOT_FOR_CLIENTS)):
        with suppress(OSError):
            _bind(port)
            found.append(port)
        if len(found) == count:
            break
    return found


def _bind(port: int) -> None:
    """Take a port for a moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier broker may linger
        probe.bind((HOST, port))
