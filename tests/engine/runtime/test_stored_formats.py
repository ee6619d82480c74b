"""What earlier versions left in checkpoints is still read, byte for byte; what later ones may leave is refused."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from datetime import datetime, timezone

import polars as pl
import pytest

from tidewheel.engine.backup.manifest import BackupFile, Manifest, SavedCheckpoint
from tidewheel.engine.datasource.offset import CatchUp, Offset
from tidewheel.engine.runtime import state_store
from tidewheel.engine.runtime.arrow_ipc import pack, parts_of, to_bytes, unpack
from tidewheel.engine.runtime.exchange import ExchangeBatch
from tidewheel.engine.runtime.exchange_parts import (
    Clock,
    LateRows,
    MaybeLateRows,
    Output,
    SideInputRows,
    SkippedRows,
    StageRows,
    Watermark,
)
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries
from tidewheel.errors import CheckpointError

# As these versions wrote them; they must never change here: what is written otherwise gets another version.
PLAIN = """
    eNqlU7tOhFAQPTwkiMTgK6Gk3MLCP3ATLSwszEYTCxsKCuOjcTXa7Sf4EX6EJR9haW1lYYzFxmjwzNyLsrgVDBlm7pkzZ+69hKqqqj0H8AG8M1+H
    5AQQYQkh3z6mxGMiIR+pCveZ/kDfhenNyNliTJQHOBHUPogL5ioe0X14zI8OdxTLx8AJOftWS3s3oDsQ3VvWsqauZ3Q/ibsI+Jj9nI6LC8HviQeM
    N/n5dXEFPHI9aPa7f/sawswJsUiNUPNL+itrm3ImeiqcVPpXyUmwoiqxanyR59vznBV3ihGqju19ik7pmHnmXj12rqlWzNWLnsHYE31gecAy5/rk
    JIpYiV+LGnldG9qY2Thp9dTrxMayVa/XaVu4tQ7rec4sbeLM6ost2O/e5LktWXf+mH/1Gv9GPxOdvGf/vH131XE6dU+3u87te394w6g8CDq3y/8h
    8Qd5uVrA
"""
PACKED = """
    eNqlUz1Lw1AUPS9NSxqDxFohgkIchAyCTuJmRQcHBxHdHNohoPixWEW3+g/8EfoTBMf+EBEHRwcRhyKWeN5HaJpaqXjDzX3v3HvOffeRJEmSbArA
    BvDOdRVyTQAuxuDwbaND3CPi8JFZWftIv6VvQHND1iwx+qoOEC6UfRCXmKVwl26jwPXe7rrCGk1gnzVbRktxp6BOIHUvmQuzugWt+0ncQomPPs9h
    Mz6R+A3xEuNF4/g8PgMeuI+yfKt3rhp0HwdlajhqfUp/ZW5BzkQPZE0g+RXW+JhQKp7S+GKdbeY5iq8URig5MPcpddpC99P3WiBzUml53D2pGbS9
    0FfokempbRwzrPPIqBIV6JmcX3D6IvNuBq+YWDNx1sQW+i3dz5nYzuXT/XwKiFyB2U+n/UR//5bo15dWNN9BVs7KyVo/txnIi1yM7he7oSgDXfzJ
    wiw/jIElqdig7nJkjcD3s3z/evhgQyzI8oM7oC4leiL1Z1EXv/CdLN9ZS+HO6ojz//f+BubHG3ba26VR+fJ/kfEbC050bQ==
"""
PARTS = """
    eNrtVcFu00AQHTsmMiFChoKUY+RTDz40pVVFLlSCAwcOFQIJqVSR6yyqiRNbtkNaoUj9BD6Cj+CYj+DImRNCCHGoEAjerm3qbiwOTpE47ESb3Zl582a9
    Tt7qc41of/+1HblxavftOJwltmO/CMIZvJfhoT13er2trQPnHBO4KZMxO9ubZcjYPTlkg2WgYzM3DnyWALS9zJz4QzbwJ9E0lcuGLEqP7H6vombkRxEb
    ygUxc5NwAncSdqPA9fhGvHA6QcmdubNRZginaUXHPJo97mCz4hxmSMRjNx5V9PaOsKX+jtTJC0KPo1N/zOz+XZ49+AV7iJdgENFXrG8RXyNALbpGJr4N
    OkO8jYiJD89y7AeMtxgPKKvtArOB2RI4Iq1Fwr4hzmO6iLcwDGpg/fTJfRFzU6LnwDzKuUTtbRI74LzHyHXLvI2M9zviOjXxyfbjp2zM428Qb2J+5QZT
    lhC9g79ertfP97VLWR+TroLDFOsJxifkHP5MGB2O6fD6m8BYdEOwtAXHD+CM/HlG7ETE+Hk+y8+T8yy0rF92rg1UrgmuNryP4hkye4+xnuOIrqOvAYwl
    IjnFH2uV1kVuN5+7+Xwq1RS+lc8LKV/4HZlY8s2in3YRdqpd5Od2JX/vZZwu0erVbZbyRfwnrWacx12xvmrfdXm0WtVn9+r2XfX86As9Xuw1a5fz/0cx
    K925XN3ZK+lOoQdVuvMZeVlvLIHLevxNby7bTEm/qKZf6M3/Zur3ru5Zdc+qe1bds0p3lO4o3VG6o3RH6Y7SHaU7/0Z3fgPEzDTZ
"""
DIRECTORY = (
    '{"names": {"job/0/s0.0": "cc49df2011a253f999c9a5bf13bca867", "job/0/w1": "00112233445566778899aabbccddeeff"}, '
    '"notes": {"watermark": 5}, "version": 2}'
)
POSITIONS = '{"a": {"0": 7, "1": 9}}'
CATCH_UP = (
    '{"done": false, "end": {"clock": 9, "log": "L", "memory": {}, "positions": {"a": {"0": 3}}, "version": 2, '
    '"watermark": 4}, "flows": ["job"], "start": {"clock": 8, "log": "L", "memory": {}, "positions": {"a": {"0": 1}}, '
    '"version": 2, "watermark": null}}'
)
OFFSET = (
    f'{{"clock": 11, "log": "L", "memory": {{"watermark": 5}}, "positions": {POSITIONS}, "version": 2, "watermark": 5, '
    f'"catch_ups": {{"job": {CATCH_UP}}}, "ended_catch_ups": ["old"]}}'
)
FRAME = pl.DataFrame(
    {
        "key": ["a", None],
        "n": [1, 2],
        "values": [[1.5], []],
        "at": [datetime(2026, 5, 1, 12, tzinfo=timezone.utc), None],
    },
    schema_overrides={"n": pl.Int64, "at": pl.Datetime("us", "UTC")},
)


def stored(text):
    return zlib.decompress(base64.b64decode("".join(text.split())))


def entries(directory=DIRECTORY):
    found = MemoryEntries()
    found.values[("",)] = (directory.encode(),)
    found.values[("job/0/s0.0",)] = (stored(PLAIN),)
    found.values[("job/0/w1",)] = (stored(PACKED),)
    return found


def test_the_state_of_a_key_group(monkeypatch):
    monkeypatch.setattr(state_store, "_recent", state_store._Recent(0))  # what is remembered is not read
    state = KeyGroupState(entries())
    assert state.notes == {"watermark": 5}
    store = state.store("job/0/")
    assert store.names() == ["s0.0", "w1"]
    assert all(store.get(name).equals(FRAME) and store.get(name).schema == FRAME.schema for name in store.names())
    state.save()


@pytest.mark.parametrize("version", [1, 3])
def test_state_of_another_version_is_refused(version):
    with pytest.raises(
        CheckpointError, match=rf"the state is of version {version}, this Tidewheel reads version 2.*new checkpoint"
    ):
        KeyGroupState(entries(DIRECTORY.replace('"version": 2', f'"version": {version}')))


WITH_ROWS = [
    StageRows("job"),
    LateRows("job"),
    MaybeLateRows("job", earliest=5),
    SideInputRows("job", depth=1),
    Output("job", "late_2"),
]
WITHOUT = [SkippedRows("job", "no place", count=3), Watermark("job", reached=7), Clock(time=9)]


def test_parts_on_their_way():
    found = dict(unpack(stored(PARTS)))
    assert found.keys() == {*WITH_ROWS, *WITHOUT}
    assert found[LateRows("job")].equals(FRAME.clear())
    assert all(found[part].equals(FRAME) for part in WITH_ROWS if part != LateRows("job"))
    assert all(found[part].is_empty() for part in WITHOUT)
    assert parts_of(stored(PARTS)) == list(found)


@pytest.mark.parametrize(("before", "there"), [(None, False), (5, False), (6, True)])
def test_rows_that_cannot_be_late_are_not_even_decoded(before, there):
    maybe_late = pack([(MaybeLateRows("job", 5), FRAME)])
    head = len(maybe_late) - len(to_bytes(FRAME))
    broken = maybe_late[:head] + bytes(len(maybe_late) - head)
    if there:
        with pytest.raises(pl.exceptions.PolarsError):
            ExchangeBatch.read(broken, before=before)
    else:
        assert ExchangeBatch.read(broken, before=before) == []


@pytest.mark.parametrize("version", [1, 3])
def test_parts_of_another_version_are_refused(version):
    other = struct.pack("<B", version) + stored(PARTS)[1:]
    with pytest.raises(
        CheckpointError, match=f"frames of version {version} cannot be read; this Tidewheel writes version 2"
    ):
        unpack(other)


def test_the_offset_of_a_batch():
    catch_up = CatchUp(
        ("job",), Offset("L", {("a", 0): 1}, 8), Offset("L", {("a", 0): 3}, 9, watermark=4, memory={}), done=False
    )
    offset = Offset.from_json(json.loads(OFFSET))
    assert offset == Offset(
        "L", {("a", 0): 7, ("a", 1): 9}, 11, watermark=5, memory={"watermark": 5}, catch_ups={"job": catch_up},
        ended_catch_ups=("old",),
    )  # fmt: skip


@pytest.mark.parametrize("version", ["1", "3", "null"])
def test_offsets_of_another_version_are_refused(version):
    later = json.loads(OFFSET.replace('"version": 2, "watermark": 5', f'"version": {version}, "watermark": 5'))
    with pytest.raises(
        CheckpointError, match=r"offsets of version (1|3|None), this Tidewheel reads version 2.*new checkpoint"
    ):
        Offset.from_json(later)


MANIFEST = """{
 "version": 1,
 "made": "2026-05-01T12:00:00Z",
 "tidewheel": "0.1.0",
 "log": "L",
 "address": "/data/city.tw",
 "topics": 2,
 "records": 7,
 "checkpoints": [
  {
   "name": "copy",
   "folder": "/data/copy",
   "job": null,
   "beside_log": false
  }
 ],
 "files": [
  {
   "path": "log.tw",
   "size": 4096,
   "sha256": "00"
  }
 ],
 "sha256": "07f0c910a2693efade27f50e1848be84fd5409e735619db8bb859049e5fddd19"
}"""


def test_the_manifest_of_a_backup(tmp_path):
    manifest = Manifest(
        "2026-05-01T12:00:00Z", "0.1.0", "L", "/data/city.tw", topics=2, records=7,
        checkpoints=(SavedCheckpoint("copy", "/data/copy", job=None, beside_log=False),),
        files=(BackupFile("log.tw", 4096, "00"),),
    )  # fmt: skip
    (tmp_path / "manifest.json").write_text(MANIFEST)
    assert Manifest.read(tmp_path) == manifest
    (tmp_path / "written").mkdir()
    manifest.write(tmp_path / "written")
    assert (tmp_path / "written" / "manifest.json").read_text() == MANIFEST
