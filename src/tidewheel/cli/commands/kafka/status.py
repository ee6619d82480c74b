"""`tidewheel kafka status`: whether the Kafka on this machine runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tidewheel.cli.commands.kafka.options import FolderOption, as_fields, chosen_folder, given_folder
from tidewheel.cli.options import ExitCode, JsonOption, out, say, size
from tidewheel.cli.progress import print_json

if TYPE_CHECKING:
    from tidewheel.transport.kafka.broker.local_cluster import ClusterStatus

__all__ = ["status"]


def status(folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Tell whether the Kafka on this machine runs, where, and how much is in it.

    The exit code is 0 if it answers, also where one of several brokers is down, and 1 if not.

        tidewheel kafka status
        tidewheel kafka status --json | jq -r .address
    """
    from tidewheel.transport.kafka.broker.local_cluster import LocalKafka

    cluster = LocalKafka(chosen_folder(folder))
    found = cluster.status()
    if as_json:
        print_json(as_fields(found, cluster.folder))
    elif found is None:
        out().print(f"there is no Kafka in {cluster.folder}", markup=False)
    else:
        _show(found)
    if found is None or not found.answers or any(node.pid is None for node in found.nodes):
        say(f"to start what does not run: tidewheel kafka up{given_folder(folder)}")
    if found is None or not found.answers:
        raise typer.Exit(ExitCode.FAILED)


def _show(found: ClusterStatus) -> None:
    console = out()
    running = sum(node.pid is not None for node in found.nodes)
    state = "answers" if found.answers else "does not answer" if running else "does not run"
    console.print(f"Kafka {found.version} in {found.folder} {state}", markup=False)
    for node in found.nodes:
        process = "does not run" if node.pid is None else f"process {node.pid}"
        console.print(f"  broker {node.number} at {node.address}: {process}", markup=False)
    topics = "" if found.topics is None else f"{found.topics} topic{'s' * (found.topics != 1)}, "
    console.print(f"  {topics}{size(found.disk)} on the disk", markup=False)
