"""The topic and encoding of each output of a query, and the sink option that carries them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidewheel.engine.spark.pickling import dumps, loads

__all__ = ["Encodings", "OutputEncoding", "encodings_option", "load_encodings"]


@dataclass(frozen=True)
class OutputEncoding:
    """The topic of an output, and the type, columns and key of its records."""

    topic: str
    type: str
    columns: tuple[str, ...]
    """Those that fill the message."""
    key: tuple[str, ...]
    """Those that make the record's key."""
    marked: bool
    """Whether the topic also gets the query's watermark, for those who read it."""


Encodings: TypeAlias = Mapping[tuple[str, str], OutputEncoding]
"""By flow and output."""


def encodings_option(encodings: Encodings) -> str:
    """The value of the option `encodings`."""
    return base64.b64encode(dumps(dict(encodings))).decode()


def load_encodings(option: str) -> Encodings:
    """Read the encodings back from the option's value."""
    encodings: Encodings = loads(base64.b64decode(option))
    return encodings
