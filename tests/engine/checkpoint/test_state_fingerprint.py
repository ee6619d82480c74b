"""State whose checkpoint is the user's own knows what it was made for."""

from __future__ import annotations

import functools
import json

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.engine.checkpoint.state_fingerprint import StateFingerprint
from tidewheel.engine.execution.computation import state_fingerprint_of
from tidewheel.engine.runtime.key_groups import key_group_ids
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries
from tidewheel.errors import CheckpointError
from tidewheel_transit.transit_pb2 import VehiclePosition

FIRST = StateFingerprint.of(3, {"result": {"keys": ["a"], "size": 5}})
STEPS = FIRST.steps


def directory(entries):
    return json.loads(entries.values[("",)][0])


def batch(entries, state_fingerprint):
    state = KeyGroupState(entries, state_fingerprint)
    state.save()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            StateFingerprint(2, STEPS),
            r"made with 3 key groups, and now there are 2.*df\(key_groups=3\).*new checkpoint",
        ),
        (
            StateFingerprint.of(3, {"result": {"keys": ["b"], "size": 5}}),
            r"other steps: result key_by: a → b\. .*new checkpoint",
        ),
        (StateFingerprint(3), "other steps: steps that keep state became others that keep none"),
    ],
)
def test_other_key_groups_and_steps_are_refused_even_by_a_key_group_that_keeps_nothing(other, message):
    entries = MemoryEntries()
    batch(entries, FIRST)
    batch(entries, FIRST)
    with pytest.raises(CheckpointError, match=message):
        batch(entries, other)


def test_state_of_before_is_taken_and_knows_it_from_then_on():
    entries = MemoryEntries()
    state = KeyGroupState(entries)
    state.put("x", pl.DataFrame({"n": [1]}))
    state.save()
    assert "state_fingerprint" not in directory(entries)
    batch(entries, FIRST)
    assert directory(entries)["state_fingerprint"] == {"format": 4, "key_groups": 3, "steps": STEPS}
    with pytest.raises(CheckpointError):
        batch(entries, StateFingerprint(4, STEPS))


def test_what_the_steps_were_is_written_once_and_state_of_an_earlier_format_is_refused_in_words():
    entries = MemoryEntries()
    batch(entries, FIRST)
    (kept,) = [value for (name,), value in entries.values.items() if name == "state_fingerprint"]
    entries.values["state_fingerprint",] = written = (b"what was there",)
    batch(entries, FIRST)
    assert entries.values["state_fingerprint",] is written
    entries.values["state_fingerprint",] = kept
    noted = directory(entries)
    noted["state_fingerprint"] = {"key_groups": 3, "steps": "of polars' text"}
    entries.values["",] = (json.dumps(noted).encode(),)
    with pytest.raises(CheckpointError, match=r"written by an earlier Tidewheel.*new checkpoint"):
        batch(entries, FIRST)


def test_a_checkpoint_that_guards_itself_notes_nothing():
    entries = MemoryEntries()
    KeyGroupState(entries).save()
    assert entries.values == {}


@pytest.mark.parametrize("key_groups", [1, 2, 3, 7, 64, 200])
def test_one_key_group_is_there_however_many_there_are(key_groups):
    """By it every other number is noticed."""
    assert 0 in key_group_ids(key_groups)


def counts(log, *, size="10 s", name=None):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition).key_by("vehicle")
    result = moves.window(tw.windows.tumbling(size)).aggregate(n=tw.agg.count())
    return result if name is None else result.named(name)


def test_steps_are_the_same_if_they_do_the_same(log):
    assert state_fingerprint_of(counts(log), 3) == state_fingerprint_of(counts(log), 3)
    others = [
        state_fingerprint_of(counts(log, size="20 s"), 3),
        state_fingerprint_of(counts(log, name="x"), 3),
        state_fingerprint_of(counts(log), 4),
    ]
    assert state_fingerprint_of(counts(log), 3) not in others


def test_rows_by_themselves_keep_nothing_that_depends_on_steps(log):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    assert state_fingerprint_of(moves.filter(pl.col("speed") > 3).each_row(), 3) == StateFingerprint(3)


def test_where_a_function_is_in_memory_is_no_part_of_the_steps(log):
    def made():
        def passed(events, state, clock, *, more=()):
            return events.select("vehicle", "event_time"), state

        moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
        return moves.key_by("vehicle").process(functools.partial(passed, more=()))

    one, two = made(), made()
    assert repr(one.stages[0].operation) != repr(two.stages[0].operation)
    assert state_fingerprint_of(one, 3) == state_fingerprint_of(two, 3)
