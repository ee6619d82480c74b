"""The names of what a key group keeps: an operator sees its own, and pays for no others."""

from __future__ import annotations

import time

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries

FRAME = pl.DataFrame({"n": [1]})
NAMES = st.sampled_from(["a/0/x", "a/0/y", "a/1/x", "a/0x", "a/0/", "ab/0/x", "b/0/x", "a\U0010ffff", "a/0/\U0010ffff"])
PREFIXES = ["", "a/0/", "a/1/", "a", "b/0/", "c"]


@given(st.lists(st.tuples(st.sampled_from(["put", "remove", "save"]), NAMES), max_size=20))
def test_the_names_of_a_prefix_are_those_of_a_search_through_all(steps):
    entries, known = MemoryEntries(), set()
    state = KeyGroupState(entries)
    for kind, name in steps:
        if kind == "put":
            state.put(name, FRAME)
            known.add(name)
        elif kind == "remove":
            state.remove(name)
            known.discard(name)
        else:
            state.save()
            state = KeyGroupState(entries)
        for prefix in PREFIXES:
            expected = sorted(each.removeprefix(prefix) for each in known if each.startswith(prefix))
            assert state.names(prefix) == state.store(prefix).names() == expected


def test_an_operator_does_not_pay_for_the_names_of_others():
    def seconds(jobs):
        state = KeyGroupState(MemoryEntries())
        for job in range(jobs):
            for number in range(20):
                state.put(f"job{job:05d}/0/s{number}.0", FRAME)
        store = state.store("job00007/0/")
        assert len(store.names()) == 20
        best = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(500):
                store.names()
            best.append(time.perf_counter() - start)
        return min(best)

    assert seconds(1000) < 5 * seconds(10)
