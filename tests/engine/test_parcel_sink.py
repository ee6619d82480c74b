"""What a job gives becomes records; what cannot is the doing of that job alone."""

from __future__ import annotations

import polars as pl
import pytest

from tidewheel.apps.transit.transit_pb2 import VehicleCell
from tidewheel.engine.halves import Parcel, blamed
from tidewheel.engine.parcel_sink import ParcelTarget, encoded
from tidewheel.errors import FlowError
from tidewheel.transport.registry import type_name, types

CELL = type_name(VehicleCell)
INSTANT = pl.Datetime("us", "UTC")


@pytest.fixture(autouse=True)
def _known_type():
    types.register(VehicleCell)


def written(log, frame, *, columns, key=()):
    parcel = Parcel()
    parcel.add("cells", "results", frame.with_columns(pl.lit(7, pl.Int64).cast(INSTANT).alias("event_time")))
    target = ParcelTarget("analytics.cells", CELL, columns, key, True)
    [(topic, batch)] = encoded(parcel.to_bytes(), {("cells", "results"): target}, log.address)
    assert topic == "analytics.cells"
    return batch


def test_a_value_that_its_field_cannot_hold_is_blamed_on_the_job(log):
    with pytest.raises(FlowError, match=r"^cells: DefinitionError: column 'vehicle' .* 1099511627776"):
        written(log, pl.DataFrame({"vehicle": [2**40]}), columns=("vehicle",))


def test_keys_are_text_but_bytes_stay_as_they_are(log):
    frame = pl.DataFrame({"vehicle": [1, None], "raw": [b"\xff\x00", b"a"]}, schema_overrides={"vehicle": pl.Int32})
    alone = written(log, frame, columns=("vehicle",), key=("raw",))
    assert alone["key"].to_pylist() == [b"\xff\x00", b"a"]
    together = written(log, frame, columns=("vehicle",), key=("vehicle", "raw"))
    assert together["key"].to_pylist() == [b"1/\xff\x00", b"/a"]


def test_a_panic_of_polars_is_blamed_on_the_job():
    with pytest.raises(FlowError, match=r"^cells: PanicException: index out of bounds"), blamed("cells"):
        raise pl.exceptions.PanicException("index out of bounds")


def test_an_interruption_is_nobodys_fault():
    with pytest.raises(KeyboardInterrupt), blamed("cells"):
        raise KeyboardInterrupt
