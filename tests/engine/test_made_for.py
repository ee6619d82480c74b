"""State whose checkpoint is the user's own knows what it was made for."""

from __future__ import annotations

import functools
import json

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.apps.transit.transit_pb2 import VehiclePosition
from tidewheel.engine.bucket_store import BucketState, MemoryEntries
from tidewheel.engine.buckets import bucket_ids
from tidewheel.engine.launch import _made_for
from tidewheel.engine.made_for import MadeFor
from tidewheel.errors import CheckpointError

FIRST = MadeFor.of(3, {"result": {"keys": ["a"], "size": 5}})
STEPS = FIRST.steps


def directory(entries):
    return json.loads(entries.values[("",)][0])


def batch(entries, made_for):
    state = BucketState(entries, made_for)
    state.save()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (MadeFor(2, STEPS), r"made with 3 buckets, and now there are 2.*df\(buckets=3\).*new checkpoint"),
        (
            MadeFor.of(3, {"result": {"keys": ["b"], "size": 5}}),
            r"other steps: result key_by: a → b\. .*new checkpoint",
        ),
        (MadeFor(3), "other steps: steps that keep state became others that keep none"),
    ],
)
def test_other_buckets_and_steps_are_refused_even_by_a_bucket_that_keeps_nothing(other, message):
    entries = MemoryEntries()
    batch(entries, FIRST)
    batch(entries, FIRST)
    with pytest.raises(CheckpointError, match=message):
        batch(entries, other)


def test_state_of_before_is_taken_and_knows_it_from_then_on():
    entries = MemoryEntries()
    state = BucketState(entries)
    state.put("x", pl.DataFrame({"n": [1]}))
    state.save()
    assert "made_for" not in directory(entries)
    batch(entries, FIRST)
    assert directory(entries)["made_for"] == {"format": 2, "buckets": 3, "steps": STEPS}
    with pytest.raises(CheckpointError):
        batch(entries, MadeFor(4, STEPS))


def test_what_the_steps_were_is_written_once_and_state_of_an_earlier_format_is_refused_in_words():
    entries = MemoryEntries()
    batch(entries, FIRST)
    (kept,) = [value for (name,), value in entries.values.items() if name == "made_for"]
    entries.values["made_for",] = written = (b"what was there",)
    batch(entries, FIRST)
    assert entries.values["made_for",] is written
    entries.values["made_for",] = kept
    noted = directory(entries)
    noted["made_for"] = {"buckets": 3, "steps": "of polars' text"}
    entries.values["",] = (json.dumps(noted).encode(),)
    with pytest.raises(CheckpointError, match=r"written by an earlier Tidewheel.*new checkpoint"):
        batch(entries, FIRST)


def test_a_checkpoint_that_guards_itself_notes_nothing():
    entries = MemoryEntries()
    BucketState(entries).save()
    assert entries.values == {}


@pytest.mark.parametrize("buckets", [1, 2, 3, 7, 64, 200])
def test_one_bucket_is_there_however_many_there_are(buckets):
    """By it every other number is noticed."""
    assert 0 in bucket_ids(buckets)


def counts(log, *, size="10 s", name=None):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition).key_by("vehicle")
    result = moves.window(tw.windows.tumbling(size)).aggregate(n=tw.agg.count())
    return result if name is None else result.named(name)


def test_steps_are_the_same_if_they_do_the_same(log):
    assert _made_for(counts(log), 3) == _made_for(counts(log), 3)
    others = [_made_for(counts(log, size="20 s"), 3), _made_for(counts(log, name="x"), 3), _made_for(counts(log), 4)]
    assert _made_for(counts(log), 3) not in others


def test_rows_by_themselves_keep_nothing_that_depends_on_steps(log):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    assert _made_for(moves.filter(pl.col("speed") > 3).each_row(), 3) == MadeFor(3)


def test_where_a_function_is_in_memory_is_no_part_of_the_steps(log):
    def made():
        def passed(events, state, clock, *, more=()):
            return events.select("vehicle", "event_time"), state

        moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
        return moves.key_by("vehicle").process(functools.partial(passed, more=()))

    one, two = made(), made()
    assert repr(one.stages[0].what) != repr(two.stages[0].what)
    assert _made_for(one, 3) == _made_for(two, 3)
