"""The files of a checkpoint: on the disk when the log counts on them, and reported when they are damaged."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.engine.engine_data import positions
from tidewheel.engine.checkpoint.checkpoint_file import check_crc, read_json, sync_folder, write_json
from tidewheel.engine.datasource.backfill import SuspendedFlows
from tidewheel.engine.datasource.offset import Offset
from tidewheel.engine.jobs.run import run
from tidewheel.engine.streams.stream_factory import stream
from tidewheel.errors import CheckpointError
from tidewheel.model import aggregates as agg
from tidewheel.model.windows import tumbling
from tidewheel_transit.transit_pb2 import VehiclePosition

INPUT = "input.vehicle-position"


def test_what_is_written_is_read_again_and_nothing_else_is(tmp_path):
    path = tmp_path / "note.json"
    assert read_json(path, needs=()) is None
    write_json(path, {"b": [1, {"ü": None}], "a": "x"})
    assert read_json(path, needs=("a", "b")) == {"a": "x", "b": [1, {"ü": None}]}
    assert [found.name for found in tmp_path.iterdir()] == ["note.json"]
    whole = path.read_bytes()
    chance = random.Random(7)
    unseen = 0
    for _ in range(300):
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        damaged = bytearray(whole)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        with suppress(CheckpointError):
            found = read_json(path, needs=("a", "b"))
            # White space, or the name of the checksum itself: all the rest is as it was.
            assert found is not None
            assert (found["a"], found["b"]) == ("x", [1, {"ü": None}])
            unseen += 1
    assert unseen < 100
    path.write_bytes(whole[:-9])
    with pytest.raises(
        CheckpointError, match=r"note\.json of the checkpoint is damaged: it is not JSON\. Put back a copy"
    ):
        read_json(path, needs=())


def test_files_of_earlier_versions_without_checksums_are_read_and_reported_when_fields_are_missing(tmp_path):
    path = tmp_path / "flows.json"
    path.write_text('{"suspended": {}, "catch_ups": {"l": {"flows": ["f"], "since": {}}}}')
    assert SuspendedFlows.read(path).catch_ups["l"]["flows"] == ["f"]
    path.write_text('{"suspendeb": {}, "catch_ups": {}}')
    with pytest.raises(CheckpointError, match=r"flows.json of the checkpoint is damaged: it lacks 'suspended'"):
        SuspendedFlows.read(path)
    path.write_text("[]")
    with pytest.raises(CheckpointError, match="damaged"):
        SuspendedFlows.read(path)


def test_suspended_flows_survive_their_file(tmp_path):
    path = tmp_path / "flows.json"
    suspended_flows = SuspendedFlows().suspend("fails", "why", Offset("log", {("a", 0): 3}, 5))
    suspended_flows.write(path)
    assert SuspendedFlows.read(path) == suspended_flows


def started(spark, log, folder, **options):
    counts = (
        stream(log, INPUT, type=VehiclePosition)
        .key_by("vehicle")
        .window(tumbling("10 s"))
        .aggregate(n=agg.count())
        .named("counts")
    )
    options = {"available_now": True, "max_events_per_batch": 100, **options}
    return run(counts, log=log, checkpoint=folder, spark=spark, key_groups=1, **options)


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_a_damaged_file_of_a_checkpoint_is_a_plain_error_wherever_it_is(spark, log, tmp_path):
    good = tmp_path / "good"
    for number in range(2):
        log.append(INPUT, positions(range(number * 100, number * 100 + 100)))
    started(spark, log, good).wait()
    for name in ("offsets/1", "commits/1", "metadata", "state/0/0/2.changelog"):
        path = good / "spark" / name
        assert path.with_name(f".{path.name}.crc").exists(), name
        assert check_crc(path) == path.read_bytes()
    log.append(INPUT, positions(range(200, 300)))
    copy = tmp_path / "copy"
    damaged = ["spark/offsets/1", "spark/commits/1", "spark/metadata", "tidewheel.json", "first.json", "flows.json"]
    for name in [*damaged, "spark/state/0/0/2.changelog"]:
        shutil.copytree(good, copy)
        flipped(copy / name)
        if name == "first.json":  # it is asked for only as long as no batch was begun
            for kind in ("offsets", "commits", "state"):
                shutil.rmtree(copy / "spark" / kind)
        with pytest.raises(CheckpointError) as caught:
            started(spark, log, copy).wait()
        assert name.rpartition("/")[2].lstrip("0") in str(caught.value), str(caught.value)
        assert "Put back a copy" in str(caught.value)
        shutil.rmtree(copy)
    # One whose checksums did not reach the disk before the power failed goes on.
    shutil.copytree(good, copy)
    sums = sorted(copy.rglob("*.crc"))
    assert len(sums) > 4
    for number, path in enumerate(sums):
        path.write_bytes(bytes(12) if number % 2 else b"")
    started(spark, log, copy).wait()
    assert (copy / "spark" / "commits" / "2").exists()
    # One from before there were checksums goes on, and what is written from then on has them.
    log.append(INPUT, positions(range(300, 400)))
    for path in copy.rglob("*.crc"):
        path.unlink()
    for path in copy.glob("*.json"):
        fields = json.loads(path.read_text())
        del fields["checksum"]
        path.write_text(json.dumps(fields))
    started(spark, log, copy).wait()
    assert (copy / "spark" / "offsets" / ".3.crc").exists()


SYNCED = """
import sys
import tidewheel as tw
from tidewheel_transit.transit_pb2 import VehiclePosition

log = tw.open_log(sys.argv[1])
positions = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
counts = positions.key_by("vehicle").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
for wanted in ("true", "false"):
    spark = tw.session(settings={"spark.tidewheel.checkpoint.fsync": wanted})
    folder = f"{sys.argv[2]}/{wanted}"
    options = {"spark": spark, "available_now": True, "key_groups": 1}
    tw.run(counts.named(f"counts-{wanted}"), log=log, checkpoint=folder, **options).wait()
"""


def tracing_fsync(trace):
    """What to put before a command; by seccomp, since a process that stops at every call is several times as slow."""
    return ["strace", "--seccomp-bpf", "-f", "-y", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(trace)]


def forced(trace, folder):
    """The files and folders under this one that were forced to the disk."""
    found = set()
    for line in trace.read_text(errors="replace").splitlines():
        if "fsync(" in line and str(folder) in line:
            found.add(line.partition("<")[2].partition(">")[0].removeprefix(str(folder) + "/"))
    return found


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_files_of_a_checkpoint_are_forced_to_the_disk_unless_told_otherwise(log, tmp_path):
    log.append(INPUT, positions(range(100)))
    trace = tmp_path / "trace"
    command = [*tracing_fsync(trace), sys.executable, "-c", SYNCED, log.address, str(tmp_path)]
    subprocess.run(command, check=True, timeout=900)
    seen = {wanted: forced(trace, tmp_path / wanted) for wanted in ("true", "false")}
    for wanted in seen:
        assert {"tidewheel.json.new", "flows.json.new", "first.json.new"} <= seen[wanted], wanted
        assert (tmp_path / wanted / "spark" / "commits" / "0").exists(), wanted
    assert not {name for name in seen["false"] if name.startswith("spark/")}
    spark = {name for name in seen["true"] if name.startswith("spark/")}
    for kind in ("offsets", "commits", "state/0/0"):
        assert f"spark/{kind}" in spark, kind  # the folder, after the rename
        assert any(name.startswith(f"spark/{kind}/.") and name.endswith(".tmp") for name in spark), kind
    assert not any(name.endswith(".crc") for name in spark), "a third of all, for what nobody needs to go on"


def test_a_stale_file_of_checksums_does_not_stand_beside_a_new_file(spark, tmp_path):
    hadoop = spark._jvm.org.apache.hadoop
    local = hadoop.fs.FileSystem.getLocal(hadoop.conf.Configuration())
    for content in (b"first", b"second"):
        fresh = hadoop.fs.Path(str(tmp_path / f".file.{content.decode()}.tmp"))
        out = local.create(fresh)
        out.write(content)
        out.close()
        assert local.rename(fresh, hadoop.fs.Path(str(tmp_path / "file")))
        assert check_crc(tmp_path / "file") == content
    assert sorted(path.name for path in tmp_path.iterdir()) == [".file.crc", "file"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL, errno.EIO])
def test_a_folder_that_may_not_be_listed_or_cannot_be_forced_is_no_obstacle_and_a_broken_disk_is(
    tmp_path, monkeypatch, code
):
    def refused(handle):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refused)
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output"):
            sync_folder(tmp_path)
    else:
        sync_folder(tmp_path)
