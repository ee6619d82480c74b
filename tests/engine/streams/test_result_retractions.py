"""Rows that may retract others: who must be able to say so, and who may follow."""

from __future__ import annotations

import json

import polars as pl
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.engine.streams.flow_support import S, outputs_of
from tidewheel.engine.checkpoint.checkpoint import Checkpoint
from tidewheel.errors import CheckpointError, DefinitionError, FlowError
from tidewheel.transport.events.registry import types
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.topics.types import publish_types
from tidewheel_transit.transit_pb2 import VehicleCount, VehiclePosition

TOPIC = "analytics.vehicle-distribution"
SEEN = tw.pattern("seen", pl.col("vehicles") > 0).next("gone", pl.col("vehicles") == 0).within("1 min")


def counts(log, **options):
    """A stream of results that were written by another query."""
    return tw.stream(log, TOPIC, type=VehicleCount, **options)


def passed_on(events, state, clock):
    return events.select("cell", "event_time"), state


def followers():
    return [
        lambda rows: rows.key_by("cell").process(passed_on),
        lambda rows: rows.key_by("cell").match(SEEN),
        lambda rows: rows.key_by("cell").window(tw.windows.count(3)).aggregate(n=tw.agg.count()),
        lambda rows: rows.window(tw.windows.tumbling("1 min")).aggregate(cells=tw.agg.approx_count_distinct("cell")),
        lambda rows: rows.each_row().key_by("cell").previous("vehicles"),
    ]


@pytest.mark.parametrize("follow", followers())
def test_what_cannot_follow_retractions_says_how_to_read_a_topic_without_them(log, follow):
    with pytest.raises(DefinitionError, match=r"say stream\(\.\.\., retracting=False\)"):
        follow(counts(log))
    assert follow(counts(log, retracting=False)).retracting is False


def test_behind_a_window_the_advice_is_about_the_window(log):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition).key_by("vehicle")
    back = moves.window(tw.windows.tumbling("5 s")).accumulate("retracting").aggregate(n=tw.agg.count())
    with pytest.raises(DefinitionError, match=r'in the stage before it, use accumulate\("delta"\)'):
        back.key_by("vehicle").previous("n")


def summed(log, mode, *, lateness="5 s", trigger=None, **options):
    """A window over results that may be retracted."""
    windowed = counts(log, **options).key_by("cell").window(tw.windows.tumbling("1 min"), lateness=lateness)
    windowed = windowed.trigger(trigger, allow_loss=True) if trigger else windowed
    return windowed.accumulate(mode).aggregate(vehicles=tw.agg.sum("vehicles"))


def test_values_over_what_may_be_retracted_may_be_retracted(log):
    assert summed(log, "value").retracting
    assert "retraction" in summed(log, "value").select("cell").schema
    with pytest.raises(DefinitionError, match="may be retracted, which a process function cannot follow"):
        summed(log, "value").key_by("cell").previous("vehicles")


def test_unless_each_window_has_one_result_or_they_add_up(log):
    once = tw.triggers.after_watermark()
    for result in (
        summed(log, "delta"),
        summed(log, "value", lateness=0),
        summed(log, "value", trigger=once),
        summed(log, "value", retracting=False),
    ):
        assert not result.retracting
        assert result.key_by("cell").previous("vehicles")


def test_in_every_mode_a_result_of_which_nothing_is_left_is_retracted(log):
    stream = counts(log)
    first, back = rows_of(stream, False), rows_of(stream, True)
    for mode, expected in {
        "value": [(7, 0, False), (7, 0, True)],
        "retracting": [(7, 0, False), (7, 0, True)],
        "delta": [(7, 0, False), (-7, 1, False)],
    }.items():
        found = outputs_of(summed(log, mode, lateness="1 h"), [first, back], [100 * S, 100 * S])
        assert found["results"].select("vehicles", "pane_index", "retraction").rows() == expected
        assert found["metrics"]["retractions"].sum() == sum(row[2] for row in expected)
        nothing = outputs_of(summed(log, mode, lateness="1 h"), [pl.concat([first, back])], [100 * S])
        assert "results" not in nothing


def test_state_that_does_not_know_what_is_left_is_refused(log, tmp_path):
    steps = {"flows": {"job": summed(log, "value").named("job").flow().definition()}}
    before = json.loads(json.dumps(steps).replace(', "weighted": true', ""))
    assert before != steps
    checkpoint = Checkpoint(tmp_path / "state")
    checkpoint.acquire({"job": "job", "log": log.identity, **before})
    checkpoint.release()
    with pytest.raises(
        CheckpointError, match=r"does not fit this job: job: weighted: not set → True\. State .*--version v2"
    ):
        checkpoint.acquire({"job": "job", "log": log.identity, **steps})


def rows_of(stream, *retractions):
    """Frames with all columns of the input, one row for each of these, a second apart."""
    times = [number * S for number in range(len(retractions))]
    given = pl.DataFrame({"event_time": times, "retraction": retractions}, schema_overrides={"retraction": pl.Boolean})
    given = given.with_columns(pl.col("event_time").cast(pl.Datetime("us", "UTC")), vehicles=pl.lit(7, pl.Int64))
    lacking = {name: kind for name, kind in stream.input.schema().items() if name not in given.columns}
    return given.with_columns(pl.lit(None, kind).alias(name) for name, kind in lacking.items())


def test_a_retraction_where_there_should_be_none_is_an_error_and_not_counted(log):
    stream = counts(log, retracting=False)
    result = stream.window(tw.windows.tumbling("1 min")).aggregate(total=tw.agg.sum("vehicles"))
    found = outputs_of(result, [rows_of(stream, False, None)], [100 * S])
    assert found["results"]["total"].to_list() == [14]
    with pytest.raises(FlowError, match=r"job: JobError: a row retracts an earlier one.*retracting=False.*Got \{"):
        outputs_of(result, [rows_of(stream, False, True)], [100 * S])


def test_windows_follow_retractions(log):
    stream = counts(log)
    result = stream.window(tw.windows.tumbling("1 min")).aggregate(total=tw.agg.sum("vehicles"))
    back = rows_of(stream, False, True).tail(1)
    found = outputs_of(result, [pl.concat([rows_of(stream, False, False, False), back])], [100 * S])
    assert found["results"]["total"].to_list() == [14]


def test_rows_that_cannot_say_it_take_nothing_back(log):
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    assert not moves.retracting
    with pytest.raises(DefinitionError, match="retracting=True, but there is no boolean column retraction"):
        tw.stream(log, "input.vehicle-position", type=VehiclePosition, retracting=True)


def test_a_job_says_what_its_topic_has(log):
    @tw.job("gone", reads={TOPIC: VehicleCount}, retracting=False)
    def gone(rows):
        return rows.key_by("cell").match(SEEN)

    assert gone.on(log).name == "gone"


PLAIN = define_message(types, "plain.count", pa.schema({"vehicle": pa.int32(), "n": pa.int64()}))
REPORTED = define_message(
    types, "reported.count", pa.schema({"vehicle": pa.int32(), "n": pa.int64(), "retraction": pa.bool_()})
)


def test_the_field_retraction_alone_says_that_rows_may_be_retracted(log):
    publish_types(log, types, [PLAIN, REPORTED])
    assert tw.stream(log, "analytics.reported", type=REPORTED).retracting
    assert not tw.stream(log, "analytics.reported", type=PLAIN).retracting
