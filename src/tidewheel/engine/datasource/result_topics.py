"""Refuse result topics that another run has written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tidewheel.errors import DefinitionError

if TYPE_CHECKING:  # so that the command line can ask before it needs Arrow
    from tidewheel.transport.log.log import Log

__all__ = ["refuse_others_results"]


def refuse_others_results(log: Log, topics: Iterable[str], checkpoint: str | Path | None = None) -> None:
    """Refuse topics that already hold results, for a run that cannot continue them: its checkpoint is new, or it is a
    batch and has none."""
    wanted = set(topics)
    for info in log.topics():
        if info.name in wanted and any(log.counts({(info.name, n): 0 for n in range(info.partitions)}).values()):
            new = "" if checkpoint is None else f", and the checkpoint {checkpoint} is new"
            raise DefinitionError(
                f"{info.name} holds results of another run{new}: all of them would be there twice. Go on with the "
                'checkpoint of that run, or write beside it: --version NAME, or result.named("NAME"); if both are to '
                "be in one topic: --append-to-existing, or append_to_existing=True"
            )
