"""The parts that travel between stages: each names its flow and its content. They form the head of an exchange batch,
as JSON; the frames of those that have rows follow it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from tidewheel.model.time import Instant

__all__ = [
    "Clock",
    "LateRows",
    "MaybeLateRows",
    "Output",
    "Part",
    "SideInputRows",
    "SkippedRows",
    "StageRows",
    "Watermark",
    "decode_parts",
    "encode_parts",
]


class StageRows(msgspec.Struct, frozen=True, tag_field="part", tag="rows"):
    """Rows for the stage that the batch goes to, or partial aggregates of them."""

    flow: str


class LateRows(msgspec.Struct, frozen=True, tag_field="part", tag="late"):
    """Rows that are late for that stage: they need no state, only a way out."""

    flow: str


class MaybeLateRows(msgspec.Struct, frozen=True, tag_field="part", tag="maybe_late"):
    """Rows that are in partial aggregates already, but may turn out to be late. None is earlier than `earliest`."""

    flow: str
    earliest: Instant


class SideInputRows(msgspec.Struct, frozen=True, tag_field="part", tag="side_input"):
    """Records of the side input of the stage of this depth."""

    flow: str
    depth: int


class SkippedRows(msgspec.Struct, frozen=True, tag_field="part", tag="skipped"):
    """The number of rows that were skipped before that stage, and the reason. Has no rows."""

    flow: str
    reason: str
    count: int


class Output(msgspec.Struct, frozen=True, tag_field="part", tag="output"):
    """An output of a stage. Later stages pass it on."""

    flow: str
    output: str


class Watermark(msgspec.Struct, frozen=True, tag_field="part", tag="watermark"):
    """The watermark that a flow has reached, for readers of its results. Has no rows."""

    flow: str
    reached: Instant


class Clock(msgspec.Struct, frozen=True, tag_field="part", tag="clock"):
    """The clock of the batch, of no flow. Has no rows."""

    time: Instant


Part: TypeAlias = StageRows | LateRows | MaybeLateRows | SideInputRows | SkippedRows | Output | Watermark | Clock

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[tuple[Part, int]])


def encode_parts(parts: Sequence[tuple[Part, int]]) -> bytes:
    """Encode parts, each with the length of its frame in bytes.

    >>> encode_parts([(StageRows("delays"), 863)])
    b'[[{"part":"rows","flow":"delays"},863]]'
    """
    return _encoder.encode(parts)


def decode_parts(data: bytes) -> list[tuple[Part, int]]:
    """Decode what `encode_parts` encoded.

    >>> decode_parts(encode_parts([(Clock(time=7), 0)]))
    [(Clock(time=7), 0)]
    """
    return _decoder.decode(data)
