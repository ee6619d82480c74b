"""What a job gives becomes records; what cannot is the doing of that job alone."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.engine.datasource.output_encoding import OutputEncoding
from tidewheel.engine.datasource.result_encoder import encoded
from tidewheel.engine.execution.map_side_reader import MapSideReader
from tidewheel.engine.operators.lookup_join import LookupJoin
from tidewheel.engine.runtime.exchange import ExchangeBatch, attribute_errors, attributed
from tidewheel.engine.runtime.exchange_parts import Output
from tidewheel.engine.runtime.flow import Flow
from tidewheel.errors import FlowError
from tidewheel.transport.events.registry import type_name, types
from tidewheel_transit.transit_pb2 import VehicleCell, VehiclePosition

CELL = type_name(VehicleCell)
INSTANT = pl.Datetime("us", "UTC")


@pytest.fixture(autouse=True)
def _known_type():
    types.register(VehicleCell)


def written(log, frame, *, columns, key=()):
    exchange_batch = ExchangeBatch()
    rows = frame.with_columns(pl.lit(7, pl.Int64).cast(INSTANT).alias("event_time"))
    exchange_batch.add(Output("cells", "results"), rows)
    target = OutputEncoding("analytics.cells", CELL, columns, key, True)
    [(topic, batch)] = encoded(exchange_batch.to_bytes(), {("cells", "results"): target}, log.address)
    assert topic == "analytics.cells"
    return batch


def test_a_value_that_its_field_cannot_hold_is_attributed_to_the_job(log):
    with pytest.raises(FlowError, match=r"^cells: DefinitionError: column 'vehicle' .* 1099511627776"):
        written(log, pl.DataFrame({"vehicle": [2**40]}), columns=("vehicle",))


def test_keys_are_text_but_bytes_stay_as_they_are(log):
    frame = pl.DataFrame({"vehicle": [1, None], "raw": [b"\xff\x00", b"a"]}, schema_overrides={"vehicle": pl.Int32})
    alone = written(log, frame, columns=("vehicle",), key=("raw",))
    assert alone["key"].to_pylist() == [b"\xff\x00", b"a"]
    together = written(log, frame, columns=("vehicle",), key=("vehicle", "raw"))
    assert together["key"].to_pylist() == [b"1/\xff\x00", b"/a"]


def test_a_panic_of_polars_is_attributed_to_the_job():
    with (
        pytest.raises(FlowError, match=r"^cells: PanicException: index out of bounds") as raised,
        attribute_errors("cells"),
    ):
        raise pl.exceptions.PanicException("index out of bounds")
    assert (raised.value.flow, raised.value.reason) == attributed(str(raised.value))
    assert raised.value.flow == "cells"


def test_an_interruption_is_attributed_to_no_job():
    with pytest.raises(KeyboardInterrupt), attribute_errors("cells"):
        raise KeyboardInterrupt


def test_what_breaks_on_a_control_topic_is_attributed_to_the_job_that_reads_it(log):
    class Breaking(LookupJoin):
        def refusal(self, row):
            raise pl.exceptions.PanicException("not today")

    depot = tw.Lookup("depot", keys={"vehicle": pl.Int32}, returns={"depot": pl.String})
    result = tw.stream(log, "input.vehicle-position", type=VehiclePosition).select("vehicle").lookup(depot)
    [stage] = result.stages
    broken = replace(stage, operation=Breaking(depot, 1, 1, stage.schema))
    flows = [result.named("sound").flow(), Flow("broken", ("input.vehicle-position",), (broken,))]
    records = pa.RecordBatch.from_pylist([{"key": "[1]", "answer": "", "reason": "gone"}])
    assert MapSideReader(flows[:1], 1).refused(depot.topic, records) == {}
    with pytest.raises(FlowError, match=r"^broken: PanicException: not today"):
        MapSideReader(flows, 1).refused(depot.topic, records)
