"""Blocks are read as they were written, also those of older versions."""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import LogError
from tidewheel.model.summary import Summary
from tidewheel.transport.block import decode_header, decode_payload, encode_header, encode_payload, type_in_header
from tidewheel.transport.event_pb2 import BlockHeader
from tidewheel.transport.log import FETCHED

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
HEADER_1 = "CAEQAxiAgKD6oMzXBSAJKICA0LHS/poOMID3pfmgzNcFOICcnDlAAUoErQG8BVICAQFaAhQo"

KEYS = [b"18/1216", None, b""]
VALUES = [b"first value", b"", b"third " * 20]
SUMMARY = Summary(
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
    batch = decode_payload(base64.b64decode(golden), first_offset=7, append_time=5)
    assert batch.schema == FETCHED
    assert batch.column("offset").to_pylist() == offsets
    assert batch.column("append_time").cast(pa.int64()).to_pylist() == [5, 5, 5]
    assert batch.column("key").to_pylist() == KEYS
    assert batch.column("value").to_pylist() == VALUES


def test_headers_of_version_1_are_read() -> None:
    assert decode_header(base64.b64decode(HEADER_1)) == SUMMARY
    assert type_in_header(base64.b64decode(HEADER_1)) is None
    assert decode_header(base64.b64decode(HEADER_1_TYPED)) == SUMMARY
    assert type_in_header(base64.b64decode(HEADER_1_TYPED)) == "a.B"


def test_a_header_of_a_newer_version_is_refused() -> None:
    header = BlockHeader.FromString(encode_header(SUMMARY))
    header.version = 2
    with pytest.raises(LogError, match="header has version 2, this Tidewheel reads 1"):
        decode_header(header.SerializeToString())


@given(
    content=st.lists(st.tuples(st.none() | st.binary(max_size=8), st.binary(max_size=200), st.integers(1, 9))),
    sparse=st.booleans(),
)
def test_payloads_come_back(content: list[tuple[bytes | None, bytes, int]], sparse: bool) -> None:
    keys, values = pa.array([r[0] for r in content], pa.binary()), pa.array([r[1] for r in content], pa.binary())
    offsets = [100 + sum(step for _, _, step in content[:number]) for number in range(len(content))]
    payload = encode_payload(keys, values, pa.array(offsets, pa.int64()) if sparse else None)
    batch = decode_payload(payload, first_offset=100, append_time=1)
    assert batch.column("key").equals(keys)
    assert batch.column("value").equals(values)
    expected = offsets if sparse else list(range(100, 100 + len(content)))
    assert batch.column("offset").to_pylist() == expected


@given(
    st.builds(
        Summary,
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
def test_headers_come_back(summary: Summary) -> None:
    assert decode_header(encode_header(summary)) == summary
    assert type_in_header(encode_header(summary, type="a.B")) == "a.B"
