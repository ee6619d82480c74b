"""A log, and servers of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tidewheel.serve import Server, serve
from tidewheel.transport.log import Log, open_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "city.tw", sync="normal") as log:
        yield log


@pytest.fixture
def start(log: Log) -> Iterator[Callable[..., Server]]:
    """Starts servers of the log, which end with the test."""
    with ExitStack() as stack:

        def start(**options: Any) -> Server:
            return stack.enter_context(serve(log, port=0, **options))

        yield start
