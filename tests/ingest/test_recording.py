"""Recordings: what was written is read back exactly, whatever happens to writer and file."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.recording_workers import numbered
from tidewheel.errors import DefinitionError, MalformedError, SetupError
from tidewheel.ingest.message import Message
from tidewheel.ingest.replay.recorder import Recorder, RecordingWriter, record
from tidewheel.ingest.replay.recording import BadLine, RecordedMessage, encode_line, read_recording
from tidewheel.model.time import instant

ENDINGS = ["jsonl", "jsonl.gz", "jsonl.zst"]
WORKERS = [sys.executable, "-m", "tests.ingest.recording_workers"]


def as_recorded(messages: list[Message]) -> list[RecordedMessage]:
    return [RecordedMessage(each.topic, each.payload, each.received_at) for each in messages]


def written(path: Path, *batches: list[Message]) -> Path:
    with RecordingWriter(path) as writer:
        for batch in batches:
            writer.append(batch)
    return path


def lines(path: Path, *some: str | bytes) -> Path:
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in some))
    return path


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
PAYLOADS = (
    st.binary(max_size=60)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=30).map(str.encode)
    | JSON.map(lambda value: json.dumps(value).encode())
    | JSON.map(lambda value: json.dumps(value, indent=1).encode())
    | st.sampled_from(
        [b"", b"null", b'"text"', b"{}", b"[]", b" {}", b"{}\n", b'{"a":1}x', b"[" * 5_000 + b"]" * 5_000]
    )
)
TOPICS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
MESSAGES = st.builds(Message, TOPICS, PAYLOADS, st.integers(0, 4_000_000_000_000_000))


@pytest.mark.parametrize("ending", ENDINGS)
@given(batches=st.lists(st.lists(MESSAGES, max_size=4), max_size=4))
@settings(deadline=None, max_examples=60)
def test_any_payload_is_read_back_byte_by_byte(tmp_path_factory, ending, batches):
    path = written(tmp_path_factory.mktemp("recording") / f"a.{ending}", *batches)
    assert list(read_recording(path)) == as_recorded([message for batch in batches for message in batch])


@pytest.mark.parametrize("depth", [99, 100, 101, 990, 1_000, 100_000])
def test_a_payload_of_any_depth_is_read_back(tmp_path, depth):
    message = Message("deep", b"[" * depth + b"]" * depth, 0)
    assert list(read_recording(written(tmp_path / "a.jsonl", [message]))) == as_recorded([message])


def test_a_payload_that_is_json_stands_in_its_line_as_it_came():
    line = encode_line(Message("a", b'{"x": 1.50, "y": 12345678901234567890123}', 0))
    assert b'"payload":{"x": 1.50, "y": 12345678901234567890123}}' in line


def test_recordings_of_others_are_read(tmp_path):
    path = lines(
        tmp_path / "a.jsonl",
        '{"received_at": "2026-01-31T12:00:00+02:00", "topic": "a", "payload": {"x": 1}, "derived": ["more"]}',
        '{"topic": "b", "payload": "{\\"x\\": 1}"}',
        "",
        '{"received_at": null, "topic": "c", "payload": 12}\r',
        '{"received_at": "2026-01-31T12:00:00", "topic": "d", "payload_base64": "/w=="}',
    )
    assert list(read_recording(path)) == [
        RecordedMessage("a", b'{"x": 1}', instant("2026-01-31T10:00:00Z")),
        RecordedMessage("b", b'{"x": 1}', None),
        RecordedMessage("c", b"12", None),
        RecordedMessage("d", b"\xff", instant("2026-01-31T12:00:00Z")),
    ]


def test_the_compression_is_reported_by_the_contents(tmp_path):
    content = encode_line(numbered(1)) + b"\n"
    (tmp_path / "gzip").write_bytes(gzip.compress(content) + gzip.compress(content))
    (tmp_path / "zstd").write_bytes(zstandard.compress(content) + zstandard.compress(content))
    for name in ("gzip", "zstd"):
        assert list(read_recording(tmp_path / name)) == as_recorded([numbered(1)] * 2)


BAD_LINES = [
    b"not JSON",
    b"[]",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"topic": "a"}',
    b'{"payload": {}}',
    b'{"topic": 1, "payload": {}}',
    b'{"topic": "a", "payload": {}, "received_at": "yesterday"}',
    b'{"topic": "a", "payload_base64": "%"}',
    b'{"topic": "a", "payload": "\xff"}',
    b'{"topic": "a", "payload": {}',
]


@pytest.mark.parametrize("bad", BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_bad_line_is_reported_with_its_place_and_the_others_are_read(tmp_path, bad):
    path = lines(tmp_path / "a.jsonl", encode_line(numbered(1)), bad, encode_line(numbered(2)))
    first, reported, last = read_recording(path)
    assert [first, last] == as_recorded([numbered(1), numbered(2)])
    assert isinstance(reported, BadLine)
    assert (reported.place, reported.raw) == ("a.jsonl:2", bad)
    assert reported.reason.startswith("not a line of a recording: ")


def test_an_empty_recording_has_no_messages(tmp_path):
    for ending in ENDINGS:
        assert list(read_recording(written(tmp_path / f"a.{ending}"))) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_wherever_a_recording_is_cut_off_all_whole_pieces_are_read_and_the_rest_is_reported(tmp_path, ending):
    batches = [[numbered(3 * batch + each) for each in range(3)] for batch in range(4)]
    path = tmp_path / f"a.{ending}"
    sizes = [0]
    with RecordingWriter(path) as writer:
        for batch in batches:
            writer.append(batch)
            sizes.append(path.stat().st_size)
    whole = path.read_bytes()
    everything = as_recorded([message for batch in batches for message in batch])
    cut = tmp_path / f"cut.{ending}"
    for size in range(len(whole)):
        cut.write_bytes(whole[:size])
        items = list(read_recording(cut))
        good = [item for item in items if isinstance(item, RecordedMessage)]
        acknowledged = 3 * sum(size >= end for end in sizes[1:])
        assert good == everything[: len(good)]
        assert len(good) >= acknowledged
        reported = [item for item in items if isinstance(item, BadLine)]
        assert len(reported) <= 1
        if ending == "jsonl":
            assert bool(reported) == (whole[:size][-1:] not in (b"", b"\n") and whole[size : size + 1] != b"\n")
        else:
            assert bool(reported) == (size not in sizes)


@pytest.mark.parametrize("ending", ENDINGS[1:])
def test_damage_in_the_middle_is_reported_and_what_was_before_it_is_read(tmp_path, ending):
    path = written(tmp_path / f"a.{ending}", [numbered(1)], [numbered(2)])
    first_size = written(tmp_path / f"b.{ending}", [numbered(1)]).stat().st_size
    content = bytearray(path.read_bytes())
    content[first_size + 1] ^= 0xFF
    path.write_bytes(content)
    first, reported = read_recording(path)
    assert first == as_recorded([numbered(1)])[0]
    assert isinstance(reported, BadLine)
    assert f"damaged {'gzip' if ending.endswith('gz') else 'zstd'} data after byte {first_size}" in reported.reason


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_recording_is_continued_after_what_was_acknowledged(tmp_path, ending):
    path = written(tmp_path / f"a.{ending}", [numbered(1)])
    acknowledged = path.stat().st_size
    written(path, [numbered(2)])
    whole = path.read_bytes()
    for size in range(acknowledged, len(whole)):
        path.write_bytes(whole[:size])
        assert list(read_recording(written(path, [numbered(3)]))) == as_recorded([numbered(1), numbered(3)])


def test_a_recording_that_is_damaged_or_of_another_kind_is_not_continued(tmp_path):
    damaged = written(tmp_path / "a.jsonl.gz", [numbered(1)])
    content = bytearray(damaged.read_bytes())
    content[-8] ^= 0xFF
    damaged.write_bytes(content)
    with pytest.raises(MalformedError, match=r"cannot continue the recording .*a\.jsonl\.gz: damaged gzip.*move it"):
        RecordingWriter(damaged)
    assert damaged.read_bytes() == content
    other = lines(tmp_path / "b.jsonl.gz", encode_line(numbered(1)))
    with pytest.raises(MalformedError, match="holds plain lines and should, by its name, hold gzip data"):
        RecordingWriter(other)


def test_two_cannot_write_one_recording(tmp_path):
    with RecordingWriter(tmp_path / "a.jsonl"), pytest.raises(SetupError, match="another process is writing"):
        RecordingWriter(tmp_path / "a.jsonl")


@pytest.mark.parametrize("ending", ENDINGS)
def test_after_kill_9_all_that_was_acknowledged_is_there_once(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    choose = random.Random(ending)
    acknowledged = 0
    while acknowledged < 300:
        path.unlink(missing_ok=True)
        acknowledged = _acknowledged_before_kill(path, acks=choose.randint(1, 40))
        items = list(read_recording(path))
        good = [item for item in items if isinstance(item, RecordedMessage)]
        assert len(good) >= acknowledged
        assert good == as_recorded([numbered(number) for number in range(len(good))])
        continued = list(read_recording(written(path, [numbered(7)])))
        assert continued[:acknowledged] == good[:acknowledged]
        assert continued[-1:] == as_recorded([numbered(7)])
        assert all(isinstance(item, RecordedMessage) for item in continued)


def _acknowledged_before_kill(path: Path, *, acks: int) -> int:
    command = [*WORKERS, "for-ever", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(acks):
            last = process.stdout.readline()
        process.kill()
        return int((process.stdout.read().splitlines() or [last])[-1])


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_write_that_fails_halfway_leaves_nothing_and_can_be_tried_again(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    command = [*WORKERS, "until-full", str(path), "5000"]
    reported = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert reported.startswith("failed once,")
    assert list(read_recording(path)) == as_recorded([numbered(number) for number in range(int(reported.split()[-1]))])


def test_files_are_rotated_by_size(tmp_path):
    with RecordingWriter(tmp_path / "bus.v1.jsonl.gz", rotate_size=200) as writer:
        for number in range(10):
            writer.append([numbered(number)])
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == [f"bus.v1.{n:06d}.jsonl.gz" for n in range(1, len(files) + 1)]
    assert len(files) > 2
    assert all(path.stat().st_size < 400 for path in files)
    again = [item for path in files for item in read_recording(path)]
    assert again == as_recorded([numbered(number) for number in range(10)])


def test_files_are_rotated_by_age_and_a_new_writer_continues_with_the_last(tmp_path):
    clock = iter(range(0, 1_000_000_000, 20_000_000))
    with RecordingWriter(tmp_path / "a.jsonl", rotate_age="1 min", clock=lambda: next(clock)) as writer:
        for number in range(6):
            writer.append([numbered(number)])
        last = writer.path
    before = len(list(tmp_path.iterdir()))
    assert before > 1
    with RecordingWriter(tmp_path / "a.jsonl", rotate_age="1 min") as writer:
        assert writer.path == last
        writer.append([numbered(6)])
    files = sorted(tmp_path.iterdir())
    assert len(files) == before
    assert [item for path in files for item in read_recording(path)] == as_recorded([numbered(n) for n in range(7)])


@pytest.mark.parametrize("options", [{"rotate_size": 0}, {"rotate_age": "0 s"}])
def test_a_rotation_that_makes_no_sense_is_refused(tmp_path, options):
    with pytest.raises(DefinitionError, match="must be above 0"):
        RecordingWriter(tmp_path / "a.jsonl", **options)


class Three:
    """A connector that brings three messages, in two deliveries."""

    name = "three"

    def run(self, deliver, stop):
        assert deliver.state == b""
        first = deliver([numbered(1), numbered(2)], state=b"note")
        assert first.topics == {"a.jsonl.zst": 2}
        assert deliver.state == b"note"
        deliver([numbered(3)], repeated=4)
        deliver([])


def test_any_connector_can_be_recorded(tmp_path):
    path = tmp_path / "a.jsonl.zst"
    with RecordingWriter(path) as writer:
        report = record(Three(), writer)
    assert (report.source, report.received, dict(report.topics), report.repeated) == (
        "recorder:a.jsonl.zst",
        3,
        {"a.jsonl.zst": 3},
        4,
    )
    assert list(read_recording(path)) == as_recorded([numbered(1), numbered(2), numbered(3)])


def test_a_recorder_acknowledges_only_what_can_be_read_already(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    with RecordingWriter(path) as writer:
        recorder = Recorder(writer)
        for number in range(5):
            recorder([numbered(number)])
            assert list(read_recording(path)) == as_recorded([numbered(n) for n in range(number + 1)])
