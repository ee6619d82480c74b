"""The implementations of the log that the tests of its interface run on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log
from tidewheel.transport.sqlite.blocks import last_block
from tidewheel.transport.sqlite.log import SqliteLog
from tidewheel.transport.sqlite.producer import Appender


class _GappyAppender(Appender):
    """Leaves an offset free before what it appends to a partition."""

    def _store(self, connection: sqlite3.Connection, topic: int, partition: int, *rest: Any) -> int:
        connection.execute(
            "UPDATE partition SET next_offset = next_offset + 1 WHERE topic = ? AND number = ?", (topic, partition)
        )
        return super()._store(connection, topic, partition, *rest)

    @staticmethod
    def _before(connection: sqlite3.Connection, topic: int, partition: int, offset: int) -> tuple[int, int]:
        newest = last_block(connection, topic, partition)
        return (0, 0) if newest is None else (newest.next_offset, newest.header.history)


class GappyLog(SqliteLog):
    """A log whose offsets have gaps between appends, as Kafka's have where a transaction ended."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._appender.__class__ = _GappyAppender


LOGS: dict[str, Callable[[Path], Log]] = {
    "sqlite": lambda folder: open_log(folder / "city.tw"),
    "gappy": lambda folder: GappyLog(folder / "city.tw"),
}
"""How to make an empty log of each kind, given an empty folder. Another implementation is one more entry."""

PROMPT = {"sqlite"}
"""Those that let everything leave when they are maintained which may; of others nobody knows when it does."""
