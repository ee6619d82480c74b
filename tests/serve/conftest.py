"""Servers of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.serve_support import servers
from tidewheel.serve import Server
from tidewheel.transport.log.log import Log


@pytest.fixture
def start(log: Log) -> Iterator[Callable[..., Server]]:
    """Starts servers of the log, which end with the test."""
    with servers(log) as start:
        yield start
