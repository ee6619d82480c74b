"""The entries of an index, however they come: in order, and among each other where several wrote at once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import LogError, MalformedError
from tidewheel.model.block_stats import BlockStats
from tidewheel.transport.kafka.topic_index import IndexEntry, PartitionIndex, decode_entry, encode_entry
from tidewheel.transport.log.block_header import Header


def entry(first: int, end: int, *, count: int | None = None, time: int = 1_000) -> IndexEntry:
    stats = BlockStats(count=end - first if count is None else count, append_time=time, max_event_time=first)
    return IndexEntry(first, end, 10 * (end - first), Header(stats, type="a.B", payload_checksum=7))


def test_an_entry_comes_back_as_it_was_written() -> None:
    written = entry(3, 9, time=5_000)
    assert decode_entry(encode_entry(written, partition=2), partition=2) == written


@pytest.mark.parametrize("place", range(0, 60, 7))
def test_a_flipped_bit_is_noticed(place: int) -> None:
    data = bytearray(encode_entry(entry(3, 9), partition=0))
    data[place] ^= 4
    with pytest.raises((MalformedError, LogError)):
        decode_entry(bytes(data), partition=0)


def test_an_entry_of_another_partition_or_version_is_refused() -> None:
    data = encode_entry(entry(3, 9), partition=0)
    with pytest.raises(MalformedError):
        decode_entry(data, partition=1)
    with pytest.raises(LogError, match="version 9, this Tidewheel reads 1"):
        decode_entry(b"\x09" + data[1:], partition=0)
    with pytest.raises(MalformedError, match="at least"):
        decode_entry(b"", partition=0)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), max_size=12))
def test_entries_that_overlap_become_one_and_nothing_is_lost(places: list[tuple[int, int]]) -> None:
    entries = [entry(first, first + length) for first, length in places]
    index = PartitionIndex()
    for each in entries:
        index.add(each)
    found = index.entries
    covered = {offset for each in entries for offset in range(each.first_offset, each.next_offset)}
    assert {offset for each in found for offset in range(each.first_offset, each.next_offset)} == covered
    assert all(before.next_offset <= after.first_offset for before, after in itertools.pairwise(found))
    assert sum(each.header.summary.count for each in found) == sum(each.header.summary.count for each in entries)
    assert sum(each.size for each in found) == sum(each.size for each in entries)


def test_what_is_asked_for_begins_and_ends_within_entries() -> None:
    index = PartitionIndex()
    for first in (0, 10, 20, 30):
        index.add(entry(first, first + 5))

    def firsts(offset: int, end: int) -> list[int]:
        return [each.first_offset for each in index.after(offset, end)]

    assert firsts(0, 100) == [0, 10, 20, 30]
    assert firsts(4, 25) == [0, 10, 20]
    assert firsts(4, 24) == [0, 10], "what is there only in part is not there yet"
    assert firsts(5, 20) == [10]
    assert firsts(35, 100) == []
    index.drop(12)
    assert firsts(0, 100) == [10, 20, 30]
    index.drop(25)
    assert firsts(0, 100) == [30]
