"""What windows in slices keep, and for how long."""

from __future__ import annotations

import polars as pl
import pytest

from tidewheel.engine.operators.operator import RESULTS, BatchTime
from tidewheel.engine.operators.sliced_window import SlicedWindowOperator
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries
from tidewheel.model import aggregates as agg
from tidewheel.model.columns import TIME
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import sliding, tumbling

S = 1_000_000
OPERATOR = SlicedWindowOperator(Windowing(tumbling("10 s"), {"events": agg.count()}, lateness="1 h"), ["key"])
SIZES = ["10 s", "30 s", "5 min"]


class KeyGroup:
    """The state between batches."""

    def __init__(self):
        self.entries = MemoryEntries()
        self.watermark = None

    def batch(self, times, watermark):
        state = KeyGroupState(self.entries)
        rows = pl.DataFrame({"key": ["a"] * len(times), TIME: [time * S for time in times]}, schema=SCHEMA)
        taken = OPERATOR.pre_aggregate(rows, self.watermark) if times else None
        found = OPERATOR.step(state.store(""), taken, BatchTime(self.watermark, watermark * S, 0))
        state.save()
        self.watermark = watermark * S
        return found[RESULTS]["events"].to_list() if RESULTS in found else []

    @property
    def names(self):
        return KeyGroupState(self.entries).names("")


SCHEMA = {"key": pl.String(), TIME: pl.Int64()}


@pytest.mark.parametrize("size", SIZES)
def test_what_a_batch_sends_and_keeps_does_not_grow_with_the_number_of_windows(size):
    operator = SlicedWindowOperator(Windowing(sliding(size, every="5 s"), {"events": agg.count()}), ["key"])
    entries = MemoryEntries()
    written = []
    for second in range(0, 60, 10):
        state = KeyGroupState(entries)
        times = [(second + place % 10) * S for place in range(100)]
        rows = pl.DataFrame({"key": [f"k{place % 7}" for place in range(100)], TIME: times}, schema=SCHEMA)
        taken = operator.pre_aggregate(rows, None)
        assert taken.height <= 2 * 7, "a partial result for each key and slice of 5 s, not for each window"
        operator.step(state.store(""), taken, BatchTime(None, None, 0))
        before = set(KeyGroupState(entries).names(""))
        state.save()
        written.append(len(set(KeyGroupState(entries).names("")) - before))
    assert written == [2] * 6, "an entry for each slice of the batch"


def test_a_slice_that_waits_for_late_events_only_is_kept_in_one_piece():
    key_group = KeyGroup()
    for second in range(5):
        assert key_group.batch([second], 0) == []
    assert len(key_group.names) == 5
    assert key_group.batch([], 12) == [5]
    assert key_group.names == ["slices/1/0.0"]
    assert key_group.batch([3], 13) == [6]
    assert key_group.batch([4], 14) == [7]
    assert [name for name in key_group.names if name.startswith("slices/")] == [
        f"slices/1/0.{piece}" for piece in range(3)
    ]
    assert key_group.batch([], 3_700) == []
    assert key_group.names == []
