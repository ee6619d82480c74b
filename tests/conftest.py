"""What every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared conformance cases and recordings that may stand beside the checkout."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared beside the checkout: recordings and conformance cases are not here")
    return folder
