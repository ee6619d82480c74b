"""What is known of blocks without opening them, on every implementation of the log."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transport.log_reader import EPOCH, offsets, read, values
from tidewheel.model.block_stats import BlockStats
from tidewheel.model.time import now
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records


def brute_force(event_times: list[int | None], marks: list[int], append_time: int, tolerance: int) -> BlockStats:
    """The summary as its definition reads, one record at a time."""

    def bin_of(skew: int) -> int:
        millis = abs(skew) // 1_000
        if millis == 0:
            return 0
        octave = millis.bit_length()
        return (octave * 8 + (millis * 8 >> (octave - 1)) - 8) * (1 if skew > 0 else -1)

    timed = [time for time in event_times if time is not None]
    histogram: dict[int, int] = defaultdict(int)
    for time in timed:
        histogram[bin_of(time - append_time)] += 1
    return BlockStats(
        count=len(event_times),
        append_time=append_time,
        min_event_time=min(timed, default=None),
        max_event_time=max(timed, default=None),
        max_plausible=max((time for time in timed if time - append_time <= tolerance), default=None),
        future_tolerance=tolerance,
        untimed=len(event_times) - len(timed),
        skew=dict(histogram),
        punctuations=tuple(sorted(marks)),
    )


class TestBlocks:
    @given(
        appends=st.lists(
            st.lists(
                st.tuples(
                    st.none() | st.integers(-200_000_000, 200_000_000),
                    st.none() | st.integers(0, 100),
                    st.binary(max_size=2),
                ),
                max_size=30,
            ),
            max_size=4,
        )
    )
    @settings(max_examples=25, deadline=None)
    def test_headers_say_what_the_records_are(
        self,
        make_log: Callable[[Path], Log],
        tmp_path_factory: pytest.TempPathFactory,
        appends: list[list[tuple[int | None, int | None, bytes]]],
    ) -> None:
        base = now()
        times: list[int | None] = []
        marks: list[int | None] = []
        with make_log(tmp_path_factory.mktemp("log")) as log:
            log.create_topic("news", partitions=2)
            for append in appends:
                start = len(times)
                times.extend(None if skew is None else base + skew for skew, _, _ in append)
                marks.extend(mark for _, mark, _ in append)
                log.append(
                    "news",
                    records(
                        [b"%d" % number for number in range(start, len(times))],
                        keys=[key for _, _, key in append],
                        event_times=times[start:],
                        punctuations=marks[start:],
                    ),
                )
            seen: list[int] = []
            for partition in range(2):
                position = 0
                for block in log.blocks("news", partition, 0):
                    assert block.first_offset >= position
                    position = block.next_offset
                    content = list(log.read("news", partition, block.first_offset, end=block.next_offset))
                    rows = [int(value) for value in values(content)]
                    seen += rows
                    (append_time,) = {
                        time for batch in content for time in batch.records.column("append_time").to_pylist()
                    }
                    assert block.summary == brute_force(
                        [times[row] for row in rows],
                        [mark for row in rows if (mark := marks[row]) is not None],
                        (append_time - EPOCH) // timedelta(microseconds=1),
                        60_000_000,
                    )
                assert position <= log.topic_info("news").next_offsets[partition]
            assert sorted(seen) == list(range(len(times)))

    def test_records_are_of_a_type_if_all_that_are_read_together_are(self, log: Log) -> None:
        typed = {kind: records([b"x"] * 3, keys=[b"k"] * 3, type=kind) for kind in ("a.One", "a.Two")}
        untyped = records([b"x"], keys=[b"k"])
        log.append("news", typed["a.One"])
        log.append("news", pa.concat_batches([typed["a.Two"], typed["a.Two"]]))
        log.append("news", pa.concat_batches([typed["a.One"], typed["a.Two"]]))
        log.append("news", pa.concat_batches([typed["a.One"], untyped]))
        log.append("news", untyped)
        found = {batch.records.column("offset")[0].as_py(): batch.type for batch in read(log, "news")}
        at = offsets(read(log, "news"))
        assert [found.get(at[place]) for place in (0, 3, 9, 15, 19)] in (
            ["a.One", "a.Two", None, None, None],
            [None] * 5,  # a log need not know
        )
        inside = next(iter(log.read("news", 0, at[1], limit=1)))
        assert inside.type == found[at[0]]

    def test_as_many_as_fit_the_limit_but_at_least_one(self, log: Log) -> None:
        for _ in range(5):
            log.append("news", records([b"x"] * 10))

        at = offsets(read(log, "news"))

        def extent(start: int, end: int | None = None, limit: int | None = None) -> tuple[int, int]:
            """The first of the records, and the one after the last."""
            found = log.blocks("news", 0, at[start], end=None if end is None else at[end], limit=limit)
            return bisect_left(at, found[0].first_offset), bisect_left(at, found[-1].next_offset)

        assert extent(start=0) == (0, 50)
        assert extent(start=0, limit=30) == (0, 30)
        assert extent(start=0, limit=39) == (0, 30)
        assert extent(start=0, limit=1) == (0, 10)
        assert extent(start=0, limit=0) == (0, 10)
        assert extent(start=10, limit=20) == (10, 30)
        assert extent(start=15, limit=15) == (10, 30)
        assert extent(start=0, end=20) == (0, 20)
        assert extent(start=0, end=21) == (0, 30)
        assert log.blocks("news", 0, at[-1] + 1) == []
        assert sum(block.size for block in log.blocks("news", 0, 0)) == log.topic_info("news").size

    def test_absurd_event_times_are_no_trouble(self, log: Log) -> None:
        log.append("news", records([b"x"] * 3, event_times=[-(2**63) + 1, 2**63 - 1, 0]))
        (block,) = log.blocks("news", 0, 0)
        assert block.summary.max_event_time == 2**63 - 1
        assert block.summary.max_plausible == 0
