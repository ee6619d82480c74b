"""`tidewheel kafka up`: start a Kafka on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel.cli.commands.kafka.options import FolderOption, as_fields, chosen_folder, given_folder
from tidewheel.cli.options import JsonOption, out, say
from tidewheel.cli.progress import print_json

__all__ = ["up"]

_DEFAULT_PORT = 9092


def up(
    folder: FolderOption = None,
    nodes: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many brokers: 1, 3 or 5.", show_default="as in the folder, or 1"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The port of the first broker. The other brokers take those after it, then their controllers.",
            show_default=f"as the last time, or {_DEFAULT_PORT}",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start a Kafka on this machine, in the background, and wait until it answers.

    A real Kafka (KRaft), without Docker: it needs a Java 17, and 45 MB of jars that are downloaded the first time. Each
    broker takes some 400 MB of memory. It listens on the loopback only and asks for no password. It runs until
    tidewheel kafka down; after a crash or a reboot, up starts it again with all its topics. Where it runs already, up
    says where, and starts brokers that are missing.

    Three brokers keep each topic three times, so that one of them may be killed.

        tidewheel kafka up
        tidewheel ingest --http 127.0.0.1:8090 --processor events --log kafka://127.0.0.1:9092/city
        tidewheel kafka up --folder three-brokers --nodes 3 --port 9192
    """
    from tidewheel.transport.kafka.broker.local_cluster import LocalKafka

    place = chosen_folder(folder)
    cluster = LocalKafka(place, nodes=nodes, port=port, progress=say)
    if port is None and not cluster.exists:
        cluster = LocalKafka(place, nodes=nodes, port=_DEFAULT_PORT, progress=say)
    started = cluster.up()
    status = cluster.status()
    if as_json:
        print_json({"started": started, **as_fields(status, place)})
        return
    assert status is not None
    count = len(status.nodes)
    out().print(
        f"Kafka {status.version} {'runs' if started else 'runs already'} at {status.address} "
        f"({count} broker{'s' * (count > 1)}, in {status.folder})",
        markup=False,
    )
    say(f"a log on it: --log kafka://{status.address}/city, for every command")
    say(f"to stop it:  tidewheel kafka down{given_folder(folder)}")
