"""What the commands of a local Kafka share: the folder, and how its state is shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel.user_folders import data_folder

if TYPE_CHECKING:
    from tidewheel.transport.kafka.broker.local_cluster import ClusterStatus

__all__ = ["FolderOption", "as_fields", "chosen_folder", "given_folder"]

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="Where its topics and its log files are.",
        show_default="kafka in the user's data folder, ~/.local/share/tidewheel",
    ),
]


def chosen_folder(folder: Path | None) -> Path:
    """The folder of the option, or the user's."""
    return data_folder() / "kafka" if folder is None else folder


def given_folder(folder: Path | None) -> str:
    """The option as it was given, for commands that are suggested."""
    return "" if folder is None else f" --folder {folder}"


def as_fields(status: ClusterStatus | None, folder: Path) -> dict[str, Any]:
    """A status as JSON; the same fields whether there is a cluster or not."""
    if status is None:
        missing = dict.fromkeys(("version", "address", "topics"))
        return {"folder": str(folder.absolute()), "answers": False, **missing, "disk_bytes": 0, "nodes": []}
    return {
        "folder": str(status.folder),
        "answers": status.answers,
        "version": status.version,
        "address": status.address,
        "topics": status.topics,
        "disk_bytes": status.disk,
        "nodes": [{"node": each.number, "address": each.address, "pid": each.pid} for each in status.nodes],
    }
