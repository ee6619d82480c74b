"""The names of topics: the part before the first dot is the kind. No other module spells them."""

from __future__ import annotations

import re

from tidewheel.errors import DefinitionError

__all__ = [
    "ALIASES_TOPIC",
    "ANALYTICS",
    "DEAD",
    "HOLDS_TOPIC",
    "INGESTED",
    "INPUT",
    "LATE",
    "LOOKUPS",
    "METRICS",
    "RUNS_TOPIC",
    "TYPES_TOPIC",
    "analytics",
    "check_topic_name",
    "dead",
    "ingested",
    "input_topic",
    "is_internal",
    "job_of",
    "kind_of",
    "late",
    "lookup_group",
    "lookups",
    "metrics",
    "output_topic",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports


INPUT = "input"
"""Events as they came from outside."""
ANALYTICS = "analytics"
"""Results of jobs."""
LATE = "late"
"""Rows that came too late for a job's results."""
DEAD = "dead"
"""Dead letters: what could not be processed, with the reason."""
METRICS = "metrics"
"""What a job counts of itself."""
INGESTED = "ingested"
"""What a pipeline counts of the messages it took in."""
LOOKUPS = "lookups"
"""The outcomes of the requests of a lookup."""

_INTERNAL = "__"

ALIASES_TOPIC = f"{_INTERNAL}aliases"
"""A compacted topic of `Alias` events, keyed by the name."""
HOLDS_TOPIC = f"{_INTERNAL}held"
"""A compacted topic of JSON objects, keyed by the job's name."""
RUNS_TOPIC = f"{_INTERNAL}runs"
"""A compacted topic of JSON objects, keyed by the run's name."""
TYPES_TOPIC = f"{_INTERNAL}types"
"""A compacted topic of `TypeDefinition` events, keyed by the type's full name."""

_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_RESULTS = "results"
"""The output whose topic is not called after it."""


def kind_of(topic: str) -> str:
    """The kind of a topic: `INPUT`, `ANALYTICS` and so on, or whatever is before the first dot.

    >>> kind_of("input.order"), kind_of("analytics.delay.v2"), kind_of("alerts.delay"), kind_of("orders")
    ('input', 'analytics', 'alerts', '')

    Stages after the first have topics of their own for late rows:

    >>> kind_of("late.delay"), kind_of("late_2.delay")
    ('late', 'late')
    """
    head, dot, _ = topic.partition(".")
    return "" if not dot else LATE if re.fullmatch(rf"{LATE}_\d+", head) else head


def is_internal(topic: str) -> bool:
    """Whether a topic is one that Tidewheel keeps for itself, such as that of message types."""
    return topic.startswith(_INTERNAL)


def input_topic(name: str) -> str:
    """The topic of events that came from outside.

    >>> input_topic("order")
    'input.order'
    """
    return f"{INPUT}.{name}"


def analytics(name: str) -> str:
    """The topic of a job's results.

    >>> analytics("delay")
    'analytics.delay'
    """
    return f"{ANALYTICS}.{name}"


def job_of(topic: str) -> str:
    """The name of the job whose results are in a topic; the whole name if it is not a topic of results.

    >>> job_of("analytics.delay"), job_of("input.order")
    ('delay', 'input.order')
    """
    return topic.removeprefix(analytics(""))


def late(name: str) -> str:
    """The topic of the late rows of a job."""
    return f"{LATE}.{name}"


def dead(name: str) -> str:
    """The topic of the dead letters of a job or a processor."""
    return f"{DEAD}.{name}"


def metrics(name: str) -> str:
    """The topic of a job's counts."""
    return f"{METRICS}.{name}"


def output_topic(output: str, name: str) -> str:
    """The topic of an output of a job.

    >>> output_topic("results", "delay"), output_topic("late", "delay"), output_topic("alerts", "delay")
    ('analytics.delay', 'late.delay', 'alerts.delay')
    """
    return analytics(name) if output == _RESULTS else f"{output}.{name}"


def ingested(processor: str) -> str:
    """The topic of the running totals of the pipelines with a processor."""
    return f"{INGESTED}.{processor}"


def lookups(name: str) -> str:
    """The topic of a lookup's outcomes."""
    return f"{LOOKUPS}.{name}"


def lookup_group(name: str) -> str:
    """The consumer group of a lookup's worker: its dead letters go to `dead.lookup.<name>`."""
    return f"lookup.{name}"


def check_topic_name(name: str) -> None:
    """Refuse a name that a topic cannot have."""
    if not isinstance(name, str) or not _TOPIC_NAME.fullmatch(name):
        raise DefinitionError(
            f"a topic's name is 1 to 249 letters, digits, dots, hyphens and underscores, such as input.arrival; "
            f"got {name!r}"
        )
