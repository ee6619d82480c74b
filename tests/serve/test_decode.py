"""Results in columns: what is decoded, and how JSON shows it."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta, timezone

import polars as pl
import pyarrow as pa
import pytest

from tests.support.serve_support import CELLS, hexadecimal, put, vehicles
from tidewheel.serve.layers.layer import Cell, Edge, Layer, Point, Value
from tidewheel.serve.view.decode import Decoder, prepared
from tidewheel.serve.view.map_item import items_of
from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import TypeRegistry, types
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log_types import records
from tidewheel_transit.transit_pb2 import Arrival, CellFlow, FinalStopCount, VehicleCell


def raws(log, topic, registry=types):
    decode = Decoder(registry)
    return [decode(batch) for batch in log.read(topic, 0, 0)]


def shown(layer, log, registry=types):
    found = [frame for raw in raws(log, layer.topic, registry) for frame in raw.frames]
    return [json.loads(item.raw) for frame in found for item in items_of(layer, prepared(layer, frame), expiry=10)]


def test_markers_are_no_results_and_what_is_malformed_is_counted(log):
    vehicles(log, (1, 24.0, 60.0))
    log.append("analytics.vehicle-cell", codec.punctuation(5))
    unknown = codec.encode(codec.pack(Arrival(), event_time=1)).replace(b"Arrival", b"Arrivel")
    log.append("analytics.vehicle-cell", records([b"\xff", unknown, b"{}"]))
    as_json = codec.encode(codec.pack(VehicleCell(vehicle=2), event_time=1), format="json")
    other = codec.encode(codec.pack(Arrival(vehicle=3), event_time=1))
    log.append("analytics.vehicle-cell", records([as_json, other]))
    found = raws(log, "analytics.vehicle-cell")
    assert [(raw.count, raw.bad) for raw in found] == [(1, 0), (0, 0), (0, 3), (2, 0)]
    assert found[2].reason
    assert [frame["vehicle"].to_list() for frame in found[3].frames] == [[2], [3]]


def test_places_that_make_no_sense_are_none(log):
    layer = Layer(topic="analytics.vehicle-cell", key=["vehicle"], geometry=Point(heading="heading"), show="points")
    vehicles(log, (1, 24.5, 60.5), (2, 181.0, 60.0), (3, 24.0, math.nan), heading=[90, 0, 0])
    one, two, three = shown(layer, log)
    assert (one["p"], one["h"]) == ([24.5, 60.5], 90)
    assert "p" not in two
    assert "p" not in three
    assert "lat" not in three["f"]  # JSON has no such number


def test_cells_are_hexadecimal_and_0_is_no_place(log):
    layer = Layer(topic="analytics.f", key=["cell"], geometry=Cell(), show="cells", value=Value(field="vehicles"))
    put(log, FinalStopCount, "analytics.f", {"cell": [CELLS["here"], 0], "vehicles": [3, 4]})
    here, unknown = shown(layer, log)
    assert (here["k"], here["c"], here["v"]) == (hexadecimal(CELLS["here"]), hexadecimal(CELLS["here"]), 3)
    assert here["f"]["cell"] == hexadecimal(CELLS["here"])
    assert (unknown["k"], unknown.get("c"), unknown["v"]) == ("0", None, 4)


def test_an_edge_has_two_cells_or_no_place(log):
    layer = Layer(topic="analytics.f", key=["cell"], geometry=Edge(), show="arrows", value=Value(field="crossings"))
    cells = {"cell": [CELLS["here"], CELLS["there"]], "neighbour": [CELLS["there"], None]}
    put(log, CellFlow, "analytics.f", {**cells, "crossings": [5, None]})
    there, nowhere = shown(layer, log)
    assert there["e"] == [hexadecimal(CELLS["here"]), hexadecimal(CELLS["there"])]
    assert "e" not in nowhere
    assert "c" not in nowhere
    assert nowhere["v"] is None


def test_every_kind_of_field_is_json(log):
    registry = TypeRegistry()
    at = datetime(2026, 1, 31, tzinfo=timezone.utc)
    frame = pl.DataFrame(
        {
            "name": ["x", None],
            "big": pl.Series([2**60, 1], dtype=pl.Int64),
            "small": [1, 2],
            "share": pl.Series([0.1, math.inf], dtype=pl.Float32),
            "since": pl.Series([at, None], dtype=pl.Datetime("us", "UTC")),
            "took": [timedelta(seconds=2), None],
            "good": [True, False],
            "raw": [b"ab", b""],
            "tags": [["a", "b"], []],
            "inner": [{"when": at, "n": 1.0}, {"when": None, "n": math.nan}],
        }
    )
    table = frame.to_arrow().cast(pa.schema([field.with_type(_plain(field.type)) for field in frame.to_arrow().schema]))
    kind = define_message(registry, "all-kinds", table.schema)
    values = codec.encode_columns(
        kind, table.combine_chunks().to_batches()[0], event_time=pa.array([7_000, 8_000]), registry=registry
    )
    log.append("analytics.all", records(values, keys=[b"a/b", None]))
    one, two = shown(Layer(topic="analytics.all"), log, registry)
    assert one["k"] == "a/b"
    assert one["t"] == 7
    assert one["f"] == {
        "name": "x",
        "big": str(2**60),
        "small": 1,
        "share": 0.1,
        "since": 1_769_817_600_000,
        "took": 2_000,
        "good": True,
        "raw": "YWI=",
        "tags": ["a", "b"],
        "inner": {"when": 1_769_817_600_000, "n": 1.0},
    }
    assert two["k"] == "1"  # without a key it is by itself
    assert "share" not in two["f"]


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    return {"string_view": pa.string(), "large_string": pa.string(), "binary_view": pa.binary()}.get(
        str(kind), pa.binary() if str(kind) == "large_binary" else kind
    )


@pytest.mark.parametrize("key", [["cell", "vehicles"], ["vehicles"], []])
def test_the_identity_is_made_of_the_key_s_fields(log, key):
    layer = Layer(topic="analytics.f", key=key)
    put(log, FinalStopCount, "analytics.f", {"cell": [CELLS["here"]], "vehicles": [3]}, keys=[b"its own"])
    (item,) = shown(layer, log)
    assert item["k"] == {2: f"{hexadecimal(CELLS['here'])}/3", 1: "3", 0: "its own"}[len(key)]
