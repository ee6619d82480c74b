"""`tidewheel kafka`: its commands, as a group of the command line."""

from __future__ import annotations

import typer

from tidewheel.cli.commands.kafka.down import down
from tidewheel.cli.commands.kafka.status import status
from tidewheel.cli.commands.kafka.up import up
from tidewheel.cli.options import taught

__all__ = ["kafka_commands"]


def kafka() -> None:
    """A Kafka on this machine, for development and tests: start it, stop it, look at it.

    A real one, with its topics on the disk, and without Docker. It needs a Java 17.

        tidewheel kafka up
        tidewheel kafka status
        tidewheel kafka down
    """


def kafka_commands() -> typer.Typer:
    """Make the group."""
    group = typer.Typer(name="kafka", help=taught(kafka), callback=kafka, no_args_is_help=True, rich_markup_mode="rich")
    for function in (up, down, status):
        group.command(help=taught(function))(function)
    return group
