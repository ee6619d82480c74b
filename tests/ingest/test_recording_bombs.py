"""Recordings that stand for far more than they are: read within bounds of memory, and reported."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from tidewheel.ingest.message import Message
from tidewheel.ingest.replay.recorder import RecordingWriter
from tidewheel.ingest.replay.recording import BadLine, RecordedMessage, read_recording

GOOD = b'{"topic":"a","payload":{"x":1}}\n'
MEGABYTE = 1 << 20
READ = """
import json, resource, sys
from tidewheel.ingest.replay.recording import BadLine, read_recording
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
reported = [[type(item).__name__, getattr(item, "reason", ""), len(getattr(item, "raw", b""))]
        for item in read_recording(sys.argv[1])]
print(json.dumps([reported, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))
"""


def zstd_of_zeros(size: int) -> bytes:
    """A frame of blocks that each say in four bytes: 128 KiB of zeros."""
    beginning = zstandard.FRAME_HEADER + b"\x00\x50"  # no checksum, no size, a window of 1 MiB
    block = (131_072 << 3 | 0b010).to_bytes(3, "little") + b"\x00"
    return beginning + block * (size // 131_072) + (1).to_bytes(3, "little")


def gzip_of_zeros(size: int) -> bytes:
    return gzip.compress(bytes(size), compresslevel=9)


def read_elsewhere(path: Path) -> tuple[list[list[object]], int]:
    """What a process of its own reads there, and by how many bytes its memory grew at most."""
    done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, check=True)
    reported, kilobytes = json.loads(done.stdout)
    return reported, kilobytes * 1024


@pytest.mark.parametrize(
    ("name", "compress", "zeros"),
    [("a.jsonl.zst", zstandard.compress, zstd_of_zeros), ("a.jsonl.gz", gzip.compress, gzip_of_zeros)],
)
def test_a_bomb_takes_little_memory_and_what_follows_it_is_read(tmp_path, name, compress, zeros):
    path = tmp_path / name
    path.write_bytes(compress(GOOD) + zeros(256 * MEGABYTE) + compress(b"\n" + GOOD))
    assert path.stat().st_size < MEGABYTE
    reported, grew = read_elsewhere(path)
    assert [kind for kind, *_ in reported] == ["RecordedMessage", "BadLine", "RecordedMessage"]
    assert "a line of 268,435,456 bytes" in str(reported[1][1])
    assert reported[1][2] <= 65_536
    assert grew < 150 * MEGABYTE


def test_a_line_without_end_ends_the_recording(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstandard.compress(GOOD) + zstd_of_zeros(4096 * MEGABYTE) + zstandard.compress(b"\n" + GOOD))
    reported, grew = read_elsewhere(path)
    assert [kind for kind, *_ in reported] == ["RecordedMessage", "BadLine"]
    assert reported[1][1] == "the recording ends here: a line is longer than 1 GiB"
    assert grew < 200 * MEGABYTE


def test_a_plain_line_that_is_too_long_is_reported_and_the_next_is_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + b"x" * (40 * MEGABYTE) + b"\n" + GOOD)
    first, bad, last = read_recording(path)
    assert isinstance(first, RecordedMessage)
    assert isinstance(bad, BadLine)
    assert (bad.place, bad.raw) == ("a.jsonl:2", b"x" * 65_536)
    assert isinstance(last, RecordedMessage)


def test_a_recording_that_is_taken_up_again_after_a_bomb_takes_little_memory(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zstd_of_zeros(256 * MEGABYTE))
    write = """
import resource, sys
from tidewheel.ingest.message import Message
from tidewheel.ingest.replay.recorder import RecordingWriter
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with RecordingWriter(sys.argv[1]) as writer:
    writer.append([Message("a", b"{}", 1)])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", write, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 100 * MEGABYTE


def test_frames_of_all_shapes_are_read(tmp_path):
    """With and without checksum and size, in many blocks, empty, cut into single bytes, with frames to be skipped."""
    path = tmp_path / "a.jsonl.zst"
    lines = b"".join(b'{"topic":"a","payload":{"x":%d}}\n' % number for number in range(8_000))
    skipped = (0x184D2A53).to_bytes(4, "little") + (1_000).to_bytes(4, "little") + b"x" * 1_000
    frames = [
        zstandard.ZstdCompressor(level=level, write_checksum=checksum, write_content_size=size).compress(lines)
        for level in (1, 19)
        for checksum in (False, True)
        for size in (False, True)
    ]
    path.write_bytes(skipped.join(frames) + zstandard.compress(b""))
    found = list(read_recording(path))
    assert len(found) == 8 * 8_000
    assert all(isinstance(item, RecordedMessage) for item in found)
    with RecordingWriter(path) as writer:
        writer.append([Message("b", b"{}", 1)])
    assert list(read_recording(path))[-1] == RecordedMessage("b", b"{}", 1)
