"""`tidewheel kafka down`: stop the Kafka on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel.cli.commands.kafka.options import FolderOption, chosen_folder
from tidewheel.cli.options import out, say

__all__ = ["down"]


def down(
    folder: FolderOption = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it with all its topics, too.")] = False,
) -> None:
    """Stop the Kafka on this machine; its topics stay, and tidewheel kafka up starts it again.

    A broker that does not end within half a minute is killed. That costs no data. That nothing runs is no failure.

        tidewheel kafka down
        tidewheel kafka down --folder three-brokers --delete
    """
    from tidewheel.transport.kafka.broker.local_cluster import LocalKafka

    cluster = LocalKafka(chosen_folder(folder), progress=say)
    if not cluster.exists:
        out().print(f"there is no Kafka in {cluster.folder}", markup=False)
        return
    ran = cluster.down()
    brokers = f"{len(ran)} broker{'s' * (len(ran) > 1)} stopped" if ran else "none of its brokers ran"
    if delete:
        cluster.delete()
        brokers += ", and deleted with all topics"
    out().print(f"Kafka in {cluster.folder}: {brokers}", markup=False)
