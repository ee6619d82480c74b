"""Open a log by its address."""

from __future__ import annotations

import os
from typing import Any

from tidewheel.errors import DefinitionError
from tidewheel.transport.log.log import Log
from tidewheel.transport.sqlite.log import SqliteLog

__all__ = ["open_log"]


def open_log(address: str | os.PathLike[str], **options: Any) -> Log:
    """Open a log by its address: the path of a SQLite file, which is created if it is missing.

    >>> open_log("kafka://here")
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: no log implementation for 'kafka://here'; give the path of a file, such as city.tw
    """
    text = os.fspath(address)
    if "://" in text:
        raise DefinitionError(f"no log implementation for {text!r}; give the path of a file, such as city.tw")
    return SqliteLog(text, **options)
