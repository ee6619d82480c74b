"""What earlier versions left in checkpoints is still read, byte for byte; what later ones may leave is refused."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from datetime import datetime, timezone

import polars as pl
import pytest

from tidewheel.engine.datasource.offset import CatchUp, Offset
from tidewheel.engine.runtime import state_store
from tidewheel.engine.runtime.arrow_ipc import unpack
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
EXCHANGE_BATCH = """
    eNrtVD1Lw1AUPUljibFI/IKOoSB06GClIrhY0MHBoYiCUDtEyFCtdbCKbv4Ef4Q/wrE/wtHZSUTEoYii531pGotD2sHBG27ve+eee+7La3uteQD1
    eqHZXjk43i+UgnK5UmmUgnqhFXYijS0vLTYaH7QNC3BY8Mz1LMSaADxMwOWngx7xHBGXj8gK7h39mr4OVRuQs8DoSx5geZD2QlxgtsQ9uoMM1zvb
    axILO8AeOZtaS9bOQZ5A6J4zF8R1M0r3lbiNLB91nmYnOhL4FfEs41nYOo1OgBvui/F6+/tcVag+Lsap4cp1m/7AXEm8Ez0vOHlRP02OjympkpMa
    b+Q5+n0OowuJifvc1fcpdLqW6qfuNcPKGamV4+5evoOyW3pR84BJ9nXI8SWiJb7Mi61NrqpjoONlosbsfR27ibzZ55PCib1r+ln9tEurX1/YmP7e
    4zw7IWsPbvMjb/B3DGdCJxyyftC50+pYqap7q2n7Dnt/eMJWt5ZNXS7+Hyb+z53Rzp1abO6YeTBo7jwyn5w3vuSpHr/Nm1Gbm5hfSLk38+avmfm9
    fwJm9LaI
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


def test_frames_on_their_way():
    [(name, frame), (late, nothing)] = unpack(stored(EXCHANGE_BATCH))
    assert (name, late) == ("in:job", "late:job")
    assert frame.equals(FRAME)
    assert nothing.equals(FRAME.clear())


def test_frames_of_another_version_are_refused():
    later = struct.pack("<B", 2) + stored(EXCHANGE_BATCH)[1:]
    with pytest.raises(CheckpointError, match="frames of version 2 cannot be read; this Tidewheel writes version 1"):
        unpack(later)


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
