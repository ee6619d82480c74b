"""What windows in slices keep, and for how long."""

from __future__ import annotations

import polars as pl
import pytest

from tidewheel.engine.bucket_store import BucketState, MemoryEntries
from tidewheel.engine.operator import RESULTS, Tick
from tidewheel.engine.sliced import SlicedOperator
from tidewheel.engine.window_columns import TIME
from tidewheel.model import aggregates as agg
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import sliding, tumbling

S = 1_000_000
OPERATOR = SlicedOperator(Windowing(tumbling("10 s"), {"events": agg.count()}, lateness="1 h"), ["key"])
SIZES = ["10 s", "30 s", "5 min"]


class Bucket:
    """The state between batches."""

    def __init__(self):
        self.entries = MemoryEntries()
        self.watermark = None

    def batch(self, times, watermark):
        state = BucketState(self.entries)
        rows = pl.DataFrame({"key": ["a"] * len(times), TIME: [time * S for time in times]}, schema=SCHEMA)
        taken = OPERATOR.first_half(rows, self.watermark) if times else None
        found = OPERATOR.step(state.store(""), taken, Tick(self.watermark, watermark * S, 0))
        state.save()
        self.watermark = watermark * S
        return found[RESULTS]["events"].to_list() if RESULTS in found else []

    @property
    def names(self):
        return BucketState(self.entries).names("")


SCHEMA = {"key": pl.String(), TIME: pl.Int64()}


@pytest.mark.parametrize("size", SIZES)
def test_what_a_batch_sends_and_keeps_does_not_grow_with_the_number_of_windows(size):
    operator = SlicedOperator(Windowing(sliding(size, every="5 s"), {"events": agg.count()}), ["key"])
    entries = MemoryEntries()
    written = []
    for second in range(0, 60, 10):
        state = BucketState(entries)
        times = [(second + place % 10) * S for place in range(100)]
        rows = pl.DataFrame({"key": [f"k{place % 7}" for place in range(100)], TIME: times}, schema=SCHEMA)
        taken = operator.first_half(rows, None)
        assert taken.height <= 2 * 7, "a partial result for each key and slice of 5 s, not for each window"
        operator.step(state.store(""), taken, Tick(None, None, 0))
        before = set(BucketState(entries).names(""))
        state.save()
        written.append(len(set(BucketState(entries).names("")) - before))
    assert written == [2] * 6, "an entry for each slice of the batch"


def test_a_slice_that_waits_for_late_events_only_is_kept_in_one_piece():
    bucket = Bucket()
    for second in range(5):
        assert bucket.batch([second], 0) == []
    assert len(bucket.names) == 5
    assert bucket.batch([], 12) == [5]
    assert bucket.names == ["s0.0"]
    assert bucket.batch([3], 13) == [6]
    assert bucket.batch([4], 14) == [7]
    assert [name for name in bucket.names if name.startswith("s")] == ["s0.0", "s0.1", "s0.2"]
    assert bucket.batch([], 3_700) == []
    assert bucket.names == []
