"""The tests: a package, so that all of them, and the processes they start, import what they share from `tests.…`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""
