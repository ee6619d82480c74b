"""A log for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidewheel.transport.log import Log, open_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "test.tw") as log:
        yield log
