"""Open a log by its address."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tidewheel.errors import DefinitionError
from tidewheel.transport.log.log import Log
from tidewheel.transport.sqlite.log import SqliteLog

__all__ = ["log_file", "open_log"]


def open_log(address: str | os.PathLike[str], **options: Any) -> Log:
    """Open a log by its address: the path of a SQLite file, which is created if it is missing, or
    `kafka://host:port,host:port/prefix?option=value` for topics of a Kafka cluster.

    >>> open_log("redis://here")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: no log implementation for 'redis://here'; give the path of a file, ...
    """
    text = os.fspath(address)
    if text.startswith("kafka://"):
        from tidewheel.transport.kafka.log import KafkaLog

        return KafkaLog(text, **options)
    if "://" in text:
        raise DefinitionError(
            f"no log implementation for {text!r}; give the path of a file, such as city.tw, or kafka://host:9092/city"
        )
    return SqliteLog(text, **options)


def log_file(address: str) -> Path | None:
    """The file of an embedded log, there or not; None for a log that is elsewhere.

    >>> log_file("city.tw"), log_file("kafka://here:9092/city")
    (PosixPath('city.tw'), None)
    """
    return None if "://" in address else Path(address)
