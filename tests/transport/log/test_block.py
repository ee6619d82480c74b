"""Blocks are read as they were written, also those of older versions."""

from __future__ import annotations

import base64
import struct
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import LogError, MalformedError
from tidewheel.model.block_stats import BlockStats
from tidewheel.transport.log.block import decode_payload, encode_payload
from tidewheel.transport.log.block_header import Header, Place, checksum, decode_header, encode_header
from tidewheel.transport.log.log_types import FETCHED

# What version 1 wrote. These bytes are in logs by now: they never change, a new version adds its own.
DENSE_1 = """
AQAAAAAAAAD/////8AAAABQAAAAAAAAADAAYAAYABQAIAAwADAAAAAADBAAcAAAAsAAAAAAAAAAAAAAADAAeABAABAAIAAwADAAA
AJAAAAAkAAAAGAAAAAMAAAAAAAAAAAAAAAAABgAIAAcABgAAAAAAAAEGAAAAAAAAAAAAAAASAAAAAAAAABgAAAAAAAAAIQAAAAAA
AABAAAAAAAAAABgAAAAAAAAAWAAAAAAAAAAAAAAAAAAAAFgAAAAAAAAAIQAAAAAAAACAAAAAAAAAACkAAAAAAAAAAAAAAAIAAAAD
AAAAAAAAAAEAAAAAAAAAAwAAAAAAAAAAAAAAAAAAAAEAAAAAAAAAKLUv/SABCQAABQAAAAAAABAAAAAAAAAAKLUv/SAQgQAAAAAA
AAcAAAAHAAAABwAAAAAAAAAAAAAHAAAAAAAAACi1L/0gBzkAADE4LzEyMTYQAAAAAAAAACi1L/0gEIEAAAAAAAALAAAACwAAAIMA
AAAAAAAAAAAAgwAAAAAAAAAotS/9IIPFAACIZmlyc3QgdmFsdWV0aGlyZCABAF/SsgQAAAAAAAAA
"""
SPARSE_1 = """
AQEAAAAAAAD/////IAEAABQAAAAAAAAADAAYAAYABQAIAAwADAAAAAADBAAcAAAA2AAAAAAAAAAAAAAADAAeABAABAAIAAwADAAA
ALAAAAAkAAAAGAAAAAMAAAAAAAAAAAAAAAAABgAIAAcABgAAAAAAAAEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAJQAAAAAA
AAAoAAAAAAAAABIAAAAAAAAAQAAAAAAAAAAhAAAAAAAAAGgAAAAAAAAAGAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAgAAAAAAAAAAh
AAAAAAAAAKgAAAAAAAAAKQAAAAAAAAAAAAAAAwAAAAMAAAAAAAAAAAAAAAAAAAADAAAAAAAAAAEAAAAAAAAAAwAAAAAAAAAAAAAA
AAAAABgAAAAAAAAAKLUv/SAYpQAAYAcACQAoAAAAAAAAAAIAYOABYAEAAAABAAAAAAAAACi1L/0gAQkAAAUAAAAAAAAQAAAAAAAA
ACi1L/0gEIEAAAAAAAAHAAAABwAAAAcAAAAAAAAAAAAABwAAAAAAAAAotS/9IAc5AAAxOC8xMjE2EAAAAAAAAAAotS/9IBCBAAAA
AAAACwAAAAsAAACDAAAAAAAAAAAAAIMAAAAAAAAAKLUv/SCDxQAAiGZpcnN0IHZhbHVldGhpcmQgAQBf0rIEAAAAAAAAAA==
"""
# The same since blocks are compressed with LZ4, and since headers tell the type of a block's events.
DENSE_1_LZ4 = """
AQAAAAAAAAD/////6AAAABQAAAAAAAAADAAYAAYABQAIAAwADAAAAAADBAAcAAAAwAAAAAAAAAAAAAAADAAcABAABAAIAAwADAAA
AIgAAAAcAAAAFAAAAAMAAAAAAAAAAAAAAAQABAAEAAAABgAAAAAAAAAAAAAAGAAAAAAAAAAYAAAAAAAAACcAAAAAAAAAQAAAAAAA
AAAeAAAAAAAAAGAAAAAAAAAAAAAAAAAAAABgAAAAAAAAACcAAAAAAAAAiAAAAAAAAAAzAAAAAAAAAAAAAAACAAAAAwAAAAAAAAAB
AAAAAAAAAAMAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAQiTRhgQIIBAACABQAAAAAQAAAAAAAAAAQiTRhgQIIQAACAAAAAAAcAAAAH
AAAABwAAAAAAAAAABwAAAAAAAAAEIk0YYECCBwAAgDE4LzEyMTYAAAAAAAAQAAAAAAAAAAQiTRhgQIIQAACAAAAAAAsAAAALAAAA
gwAAAAAAAAAAgwAAAAAAAAAEIk0YYECCHAAAAP8CZmlyc3QgdmFsdWV0aGlyZCAGAFpQaGlyZCAAAAAAAAAAAAA=
"""
SPARSE_1_LZ4 = """
AQEAAAAAAAD/////GAEAABQAAAAAAAAADAAYAAYABQAIAAwADAAAAAADBAAcAAAA8AAAAAAAAAAAAAAADAAcABAABAAIAAwADAAA
AKgAAAAcAAAAFAAAAAMAAAAAAAAAAAAAAAQABAAEAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAACoAAAAAAAAAMAAAAAAA
AAAYAAAAAAAAAEgAAAAAAAAAJwAAAAAAAABwAAAAAAAAAB4AAAAAAAAAkAAAAAAAAAAAAAAAAAAAAJAAAAAAAAAAJwAAAAAAAAC4
AAAAAAAAADMAAAAAAAAAAAAAAAMAAAADAAAAAAAAAAAAAAAAAAAAAwAAAAAAAAABAAAAAAAAAAMAAAAAAAAAAAAAAAAAAAAYAAAA
AAAAAAQiTRhgQIITAAAAIgcAAQASCQcAkAAoAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAQiTRhgQIIBAACABQAAAAAQAAAAAAAA
AAQiTRhgQIIQAACAAAAAAAcAAAAHAAAABwAAAAAAAAAABwAAAAAAAAAEIk0YYECCBwAAgDE4LzEyMTYAAAAAAAAQAAAAAAAAAAQi
TRhgQIIQAACAAAAAAAsAAAALAAAAgwAAAAAAAAAAgwAAAAAAAAAEIk0YYECCHAAAAP8CZmlyc3QgdmFsdWV0aGlyZCAGAFpQaGly
ZCAAAAAAAAAAAAA=
"""
HEADER_1_TYPED = "CAEQAxiAgKD6oMzXBSAJKICA0LHS/poOMID3pfmgzNcFOICcnDlAAUoErQG8BVICAQFaAhQoYgNhLkI="
HEADER_2 = (
    "CAIQAxiAgKD6oMzXBSAJKICA0LHS/poOMID3pfmgzNcFOICcnDlAAUoErQG8BVICAQFaAhQoYgNhLkJtzas0EoABBYkB7f4AAAAA"
    "AACRAQkAAAAAAACAfVCbyp4="
)
HEADER_1 = "CAEQAxiAgKD6oMzXBSAJKICA0LHS/poOMID3pfmgzNcFOICcnDlAAUoErQG8BVICAQFaAhQo"

KEYS = [b"18/1216", None, b""]
VALUES = [b"first value", b"", b"third " * 20]
SUMMARY = BlockStats(
    count=3,
    append_time=1_600_000_000_000_000,
    min_event_time=-5,
    max_event_time=4_000_000_000_000_000,
    max_plausible=1_599_999_999_000_000,
    future_tolerance=60_000_000,
    untimed=1,
    skew={-87: 1, 350: 1},
    punctuations=(10, 20),
)
PLACE = Place(
    topic=5, partition=1, first_offset=7, next_offset=41, records=3, size=433, append_time=SUMMARY.append_time
)
SEALED = Header(SUMMARY, type="a.B", payload_checksum=0x1234ABCD, follows=5, history_before=0xFEED, history=2**63 + 9)
times = st.none() | st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("golden", "offsets"),
    [
        (DENSE_1, [7, 8, 9]),
        (SPARSE_1, [7, 9, 40]),
        (DENSE_1_LZ4, [7, 8, 9]),
        (SPARSE_1_LZ4, [7, 9, 40]),
    ],
)
def test_payloads_of_version_1_are_read(golden: str, offsets: list[int]) -> None:
    batch = decode_payload(base64.b64decode(golden), first_offset=7, append_time=5, count=3)
    assert batch.schema == FETCHED
    assert batch.column("offset").to_pylist() == offsets
    assert batch.column("append_time").cast(pa.int64()).to_pylist() == [5, 5, 5]
    assert batch.column("key").to_pylist() == KEYS
    assert batch.column("value").to_pylist() == VALUES


def test_headers_of_version_1_are_read() -> None:
    assert decode_header(base64.b64decode(HEADER_1), PLACE) == Header(SUMMARY)
    assert decode_header(base64.b64decode(HEADER_1_TYPED), PLACE) == Header(SUMMARY, type="a.B")


def test_headers_of_version_2_are_read() -> None:
    assert decode_header(base64.b64decode(HEADER_2), PLACE) == SEALED


def test_a_header_of_a_newer_version_is_refused() -> None:
    header = bytearray(encode_header(SEALED, PLACE)[:-4])
    header[1] = 3
    sealed = bytes(header) + checksum(struct.pack("<7q", *PLACE) + bytes(header[:-1])).to_bytes(4, "little")
    with pytest.raises(LogError, match="has version 3, this Tidewheel reads 2"):
        decode_header(sealed, PLACE)


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    header = encode_header(SEALED, PLACE)
    for bit in range(8 * len(header)):
        flipped = bytearray(header)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedError):
            decode_header(bytes(flipped), PLACE)


@pytest.mark.parametrize("field", Place._fields)
def test_a_header_belongs_to_one_place(field: str) -> None:
    elsewhere = PLACE._replace(**{field: getattr(PLACE, field) ^ 1})
    with pytest.raises(MalformedError, match="checksum of its header"):
        decode_header(encode_header(SEALED, PLACE), elsewhere)


@pytest.mark.parametrize("golden", [DENSE_1, SPARSE_1, DENSE_1_LZ4, SPARSE_1_LZ4])
def test_a_payload_without_a_checksum_is_read_or_refused_whatever_bit_is_flipped(golden: str) -> None:
    payload = base64.b64decode(golden)
    for bit in range(8 * len(payload)):
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        with suppress(LogError, MalformedError):
            decode_payload(bytes(flipped), first_offset=7, append_time=5, count=3).to_pylist()


@given(
    content=st.lists(st.tuples(st.none() | st.binary(max_size=8), st.binary(max_size=200), st.integers(1, 9))),
    sparse=st.booleans(),
)
def test_payloads_come_back(content: list[tuple[bytes | None, bytes, int]], sparse: bool) -> None:
    keys, values = pa.array([r[0] for r in content], pa.binary()), pa.array([r[1] for r in content], pa.binary())
    offsets = [100 + sum(step for _, _, step in content[:number]) for number in range(len(content))]
    payload = encode_payload(keys, values, pa.array(offsets, pa.int64()) if sparse else None)
    batch = decode_payload(payload, first_offset=100, append_time=1, count=len(content))
    assert batch.column("key").equals(keys)
    assert batch.column("value").equals(values)
    expected = offsets if sparse else list(range(100, 100 + len(content)))
    assert batch.column("offset").to_pylist() == expected


@given(
    st.builds(
        BlockStats,
        count=st.integers(0, 2**32 - 1),
        append_time=st.integers(-(2**63), 2**63 - 1),
        min_event_time=times,
        max_event_time=times,
        max_plausible=times,
        future_tolerance=st.integers(0, 2**63 - 1),
        untimed=st.integers(0, 2**32 - 1),
        skew=st.dictionaries(st.integers(-600, 600), st.integers(1, 2**32 - 1)),
        punctuations=st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda marks: tuple(sorted(marks))),
    )
)
def test_headers_come_back(summary: BlockStats) -> None:
    place = PLACE._replace(records=summary.count, append_time=summary.append_time)
    for header in (
        Header(summary),
        Header(summary, type="a.B"),
        Header(summary, payload_checksum=2**32 - 1, follows=0, history_before=2**64 - 1, history=1),
    ):
        assert decode_header(encode_header(header, place), place) == header
