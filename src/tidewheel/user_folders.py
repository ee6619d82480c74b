"""The folders that a user's programs share: what can be made again, and what cannot."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder", "data_folder"]


def cache_folder() -> Path:
    """What can be made again: below XDG_CACHE_HOME, or ~/.cache."""
    return _base("XDG_CACHE_HOME", ".cache") / "tidewheel"


def data_folder() -> Path:
    """What is to be kept: below XDG_DATA_HOME, or ~/.local/share."""
    return _base("XDG_DATA_HOME", ".local/share") / "tidewheel"


def _base(variable: str, otherwise: str) -> Path:
    chosen = os.environ.get(variable)
    return Path(chosen) if chosen else Path.home() / otherwise
