"""The Java processes of a local cluster: formatting a node's storage, starting its broker, and why one ended."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tidewheel.errors import SetupError
from tidewheel.java import Java
from tidewheel.transport.kafka.broker.cluster_state import NodeProcess
from tidewheel.transport.kafka.broker.node_files import BROKER_LOG, DATA, LOGGING, SETTINGS, Node

__all__ = ["format_storage", "reason_of_end", "start_broker"]

_CONSOLE, _FORMAT = "console.log", "format.log"
_LONGEST = 400
"""Letters of a log that an error repeats."""

# A broker mostly moves bytes: compiled quickly instead of well it was as fast, came up in 5 to 7 seconds instead of 8
# or 9, and took 3.6 seconds of the processor instead of 5.9 for 600,000 records and 160 MB of blocks, in and out.
_JAVA_OPTIONS = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]


def format_storage(nodes: Sequence[Node], folder: Path, *, java: Java, jars: Path, cluster_id: str) -> None:
    """Format the storage of those nodes that have none yet, side by side."""
    formatting = []
    for node in nodes:
        own = node.folder(folder)
        if (own / DATA / "meta.properties").exists():  # written last
            continue
        command = [*_java(java, jars), "kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster_id]
        with open(own / _FORMAT, "wb") as said:
            process = subprocess.Popen(
                [*command, "-c", SETTINGS], cwd=own, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
            )
        formatting.append((node, own / _FORMAT, process))
    for node, said_in, process in formatting:
        if process.wait() != 0:
            raise SetupError(f"the storage of Kafka's node {node.number} was not formatted: {_reason(said_in)}")


def start_broker(node: Node, folder: Path, *, java: Java, jars: Path) -> NodeProcess:
    """Start a node in the background: in a session of its own, so that it outlives this process and its terminal."""
    own = node.folder(folder)
    (own / BROKER_LOG).unlink(missing_ok=True)  # what is in it is of this start only
    with open(own / _CONSOLE, "wb") as said:
        process = subprocess.Popen(
            [*_java(java, jars), "kafka.Kafka", SETTINGS],
            cwd=own,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return NodeProcess.of(process.pid)


def reason_of_end(node: Node, folder: Path) -> str:
    """Why a broker ended or does not come up, as it logged it, and where to read more."""
    own = node.folder(folder)
    words = _reason(own / BROKER_LOG) or _reason(own / _CONSOLE) or "it logged nothing"
    return f"{words} (see {own / BROKER_LOG} and {_CONSOLE} beside it)"


def _java(java: Java, jars: Path) -> list[str]:
    return [str(java.path), *_JAVA_OPTIONS, f"-Dlog4j2.configurationFile={LOGGING}", "-cp", f"{jars}/*"]


def _reason(path: Path) -> str:
    """What a log says went wrong first, since more goes wrong after it; else its last line that is not of a stack."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    lines = [line for line in lines if line.strip() and not line.startswith(("\t", " "))]
    for marks in (("Exception: ",), (" ERROR ", " FATAL ")):
        for line in lines:
            if any(mark in line for mark in marks):
                return line[:_LONGEST]
    return lines[-1][:_LONGEST] if lines else ""
