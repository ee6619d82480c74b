"""The implementations of the log that the tests of its interface run on."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka.admin import AdminClient

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

KAFKA = {"kafka blocks": "blocks", "kafka events": "events"}
"""The formats of topics of each kind of log that is on Kafka."""

PROMPT = {"sqlite"}
"""Those that let everything leave when they are maintained which may; of others nobody knows when it does."""


class KafkaLogs:
    """Makes logs on a Kafka, each with a prefix of its own."""

    _made: ClassVar[dict[str, list[str]]] = {}

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def make(self, form: str = "blocks", **options: Any) -> Log:
        prefix = uuid.uuid4().hex
        self._made.setdefault(self._servers, []).append(prefix)
        return open_log(f"kafka://{self._servers}/{prefix}?format={form}", **options)

    @classmethod
    def clear(cls) -> None:
        """Remove the topics of all logs: many are a burden to a small broker."""
        for servers, prefixes in cls._made.items():
            admin = AdminClient({"bootstrap.servers": servers})
            own = tuple(f"{prefix}." for prefix in prefixes)
            topics = [name for name in admin.list_topics(timeout=60).topics if name.startswith(own)]
            for future in admin.delete_topics(topics).values() if topics else ():
                future.result()
        cls._made.clear()
