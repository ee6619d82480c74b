"""The names of topics: what stands before the first dot says what is in one."""

from __future__ import annotations

import re

from tidewheel.errors import DefinitionError

__all__ = [
    "ANALYTICS",
    "DEAD",
    "INPUT",
    "LATE",
    "METRICS",
    "analytics",
    "check_topic_name",
    "dead",
    "late",
    "metrics",
]

INPUT = "input."
"""Events as they came from outside."""
ANALYTICS = "analytics."
"""Results of jobs."""
LATE = "late."
"""Rows that came too late for a job's results."""
DEAD = "dead."
"""Dead letters: what could not be processed, with the reason."""
METRICS = "metrics."
"""What a job counts of itself."""

_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def analytics(name: str) -> str:
    """The topic of a job's results.

    >>> analytics("delay")
    'analytics.delay'
    """
    return ANALYTICS + name


def late(name: str) -> str:
    """The topic of the late rows of a job."""
    return LATE + name


def dead(name: str) -> str:
    """The topic of the dead letters of a job or a processor."""
    return DEAD + name


def metrics(name: str) -> str:
    """The topic of a job's counts."""
    return METRICS + name


def check_topic_name(name: str) -> None:
    """Refuse a name that a topic cannot have."""
    if not isinstance(name, str) or not _TOPIC_NAME.fullmatch(name):
        raise DefinitionError(
            f"a topic's name is 1 to 249 letters, digits, dots, hyphens and underscores, such as input.arrival; "
            f"got {name!r}"
        )
