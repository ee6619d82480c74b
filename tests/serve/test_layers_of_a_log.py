"""Which layers there are: described, given, made from fields; and descriptions that make no sense."""

from __future__ import annotations

import json

import msgspec
import polars as pl
import pyarrow as pa
import pytest

from tests.support.serve_support import CELLS, counts, own_results, positions, put, revenue, sessions, stop_of, vehicles
from tidewheel.engine.jobs.job import Job
from tidewheel.errors import DefinitionError, LogError
from tidewheel.model.time import now
from tidewheel.serve.layers.catalogue import Catalogue, installed_layers, layers_of_file
from tidewheel.serve.layers.layer import Cell, Edge, Layer, Nowhere, Point, parse_layers
from tidewheel.topic_names import ALIASES_TOPIC, TYPES_TOPIC
from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import TypeRegistry, types
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.aliases import Aliases
from tidewheel.transport.topics.types import publish_types
from tidewheel_transit import jobs
from tidewheel_transit.layers import LAYERS
from tidewheel_transit.transit_pb2 import CellFlow, Door, FinalStopCount, VehiclePosition

SECOND = 1_000_000


def made(log, **options):
    catalogue = Catalogue(log, installed=[], **options)
    catalogue.refresh(log.topics())
    return catalogue


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ({}, "missing required field `topic`"),
        ({"topic": "a b"}, "a topic's name"),
        ({"topic": "x", "name": "a b"}, "a layer's name"),
        ({"topic": "x", "colour": "red"}, "unknown field `colour`"),
        ({"topic": "x", "show": "balloons"}, "balloons"),
        ({"topic": "x", "show": "cells"}, "cells need a geometry of kind cell, got none"),
        ({"topic": "x", "show": "arrows", "geometry": {"kind": "cell"}}, "arrows need a geometry of kind edge"),
        ({"topic": "x", "geometry": {"kind": "sphere"}}, "sphere"),
        ({"topic": "x", "geometry": {"kind": "cell", "cell": 5}}, "Expected `str`"),
        ({"topic": "x", "expiry": 0}, ">= 1"),
        ({"topic": "x", "expiry": "10 s"}, "Expected `int"),
        ({"topic": "x", "key": ["a", "a"]}, "key has 'a' twice"),
        ({"topic": "x", "key": ["a-b"]}, "$[0].key[0]"),
        ({"topic": "x", "filters": ["a"], "filters_also": {"b": ["c"]}}, "filters_also has 'b'"),
        ({"topic": "x", "scale": {"kind": "sequential", "domain": [0, 1], "colours": ["#000000", "#ffffff"]}}, "value"),
        ({"topic": "x", "value": {"field": "v"}, "scale": {"kind": "categorical"}}, "needs categories"),
        (
            {"topic": "x", "value": {"field": "v"}, "scale": {"kind": "diverging", "domain": [0, 1], "colours": []}},
            "3 rising numbers",
        ),
        (
            {"topic": "x", "value": {"field": "v"}, "scale": {"kind": "categorical", "categories": {"a": "red"}}},
            "a colour looks like",
        ),
    ],
)
def test_a_bad_description_is_refused_with_the_reason_and_the_place(layer, reason):
    with pytest.raises(DefinitionError) as refused:
        parse_layers(json.dumps([layer]), source="my.json")
    assert str(refused.value).startswith("my.json: ")
    assert reason in str(refused.value)


def test_a_file_of_layers_is_read_or_refused(tmp_path):
    path = tmp_path / "layers.json"
    path.write_text('{"layers": [{"topic": "analytics.a"}, {"topic": "analytics.b", "name": "c"}]}')
    assert [layer.name for layer in layers_of_file(path)] == ["a", "c"]
    path.write_text('[{"topic": "analytics.a"}, {"topic": "analytics.b", "name": "a"}]')
    with pytest.raises(DefinitionError, match="two layers are called 'a'"):
        layers_of_file(path)
    with pytest.raises(DefinitionError, match=r"nothing\.json cannot be read: No such file"):
        layers_of_file(tmp_path / "nothing.json")
    for text in ("", "{", '{"layers": 1}', '"x"', "[" * 10_000, "\xff"):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(DefinitionError):
            layers_of_file(path)


def test_colours_may_be_left_to_the_page_and_there_may_be_several_ways_to_colour():
    scale = {"kind": "sequential", "domain": [0, 20]}
    other = {"value": {"field": "delay", "label": "", "unit": ""}, "scale": {"kind": "diverging", "domain": [-1, 0, 1]}}
    described = {"topic": "x", "value": {"field": "v"}, "scale": scale, "alternatives": [other]}
    (layer,) = parse_layers(json.dumps([described]), source="my.json")
    assert layer.scale.colours == ()
    assert [way.value.field for way in layer.alternatives] == ["delay"]
    with pytest.raises(DefinitionError, match="at least 2 colours"):
        parse_layers(json.dumps([described | {"scale": scale | {"colours": ["#000000"]}}]), source="my.json")


def test_a_description_that_is_served_can_be_read_back():
    for layer in LAYERS:
        assert parse_layers(msgspec.json.encode([layer.description()]), source="served") == [layer]


def test_every_transit_job_has_a_layer_that_names_fields_of_its_message():
    found = {job.name: job for name in jobs.__all__ if isinstance(job := getattr(jobs, name), Job)}
    shown = {f"analytics.{name}": job.writes for name, job in found.items()}
    shown["input.vehicle-position"] = VehiclePosition
    assert {layer.topic for layer in LAYERS} == {*shown}
    assert [layer.topic for layer in installed_layers()] == [layer.topic for layer in LAYERS]
    for layer in LAYERS:
        fields = set(types.schema(shown[layer.topic]).names)
        geometry = {value for name, value in layer.description()["geometry"].items() if name != "kind" and value}
        filtered = {field for name in layer.filters for field in layer.filtered_fields(name)}
        named = {*layer.key, *filtered, *geometry, *(figure.field for figure in layer.figures)}
        assert named | ({layer.value.field} if layer.value else set()) <= fields, layer.name
        if "window_end" in fields and layer.name != "journeys":
            assert (layer.period, layer.expiry) == (None, None)  # the windows tell


def test_results_expire_by_the_windows_that_the_job_was_told_to_make(log):
    end = now() // SECOND * SECOND
    topics = {"analytics.vehicle-distribution": 20, "analytics.vehicle-distribution.v2": 5}
    catalogue = Catalogue(log)
    for step in range(3):
        for topic, every in topics.items():
            counts(log, {CELLS["here"]: 1}, end=end + step * every * SECOND, topic=topic)
        catalogue.refresh(log.topics())
    layers = catalogue.layers
    assert (layers["vehicle-distribution"].period, layers["vehicle-distribution"].expiry) == (20_000, 25_000)
    beside = layers["vehicle-distribution.v2"]
    assert (beside.title, beside.period, beside.expiry) == ("Vehicles per cell (v2)", 5_000, 10_000)


def test_an_expiry_that_was_given_stays_and_an_unknown_one_is_30_seconds_or_without_a_place_an_hour(log):
    given = Layer(topic="analytics.vehicle-distribution", name="given", expiry=7_000)
    waiting = Layer(topic="analytics.later", name="waiting")
    end = now() // SECOND * SECOND
    for step in range(3):
        counts(log, {CELLS["here"]: 1}, end=end + step * 5 * SECOND)
    vehicles(log, (1, 24.0, 60.0))
    layers = made(log, own=[given, waiting]).layers
    known = {name: (layer.period, layer.expiry) for name, layer in layers.items()}
    assert known == {"given": (None, 7_000), "waiting": (None, 3_600_000), "vehicle-cell": (None, 30_000)}


def test_a_topic_that_nobody_described_gets_a_layer_from_its_fields(log):
    vehicles(log, (1, 24.0, 60.0), route="55")
    put(log, CellFlow, "analytics.flow", {"cell": [CELLS["here"]], "neighbour": [CELLS["there"]], "crossings": [3]})
    put(log, FinalStopCount, "analytics.final", {"cell": [CELLS["here"]], "vehicles": [3]})
    put(log, Door, "input.door", {"vehicle": [3]})
    registry = TypeRegistry()
    kind = define_message(registry, "sales", pa.schema({"shop": pa.string(), "total": pa.float64()}))
    publish_types(log, registry, [kind])
    values = codec.encode_columns(
        kind,
        pl.DataFrame({"shop": ["a", "b"], "total": [1.5, 9.0]}),
        event_time=pa.array([now()] * 2),
        registry=registry,
    )
    log.append("analytics.sales", records(values, keys=[b"a", b"b"]))
    layers = made(log).layers
    kinds = {name: (type(layer.geometry), layer.show, list(layer.key)) for name, layer in layers.items()}
    assert kinds == {
        "vehicle-cell": (Point, "points", []),  # its records have no key here
        "flow": (Edge, "arrows", ["cell"]),
        "final": (Cell, "cells", ["cell"]),
        "sales": (Nowhere, "table", ["shop"]),
    }
    assert layers["final"].value.field == "vehicles"
    assert list(layers["sales"].scale.domain) == [0.0, 9.0]
    assert layers["sales"].filters == ("shop",)


def test_the_period_of_windows_is_seen_and_sessions_have_none(log):
    end = now() // SECOND * SECOND
    for step in range(4):
        counts(log, {CELLS["here"]: 1}, end=end + step * 5 * SECOND)
    (layer,) = made(log).layers.values()
    assert (layer.period, layer.expiry) == (5_000, 10_000)


def test_results_without_a_place_are_shown_for_an_hour_at_least_and_as_long_as_the_longest_session(log):
    end = now() // SECOND * SECOND
    for step in range(3):
        revenue(log, {"FI": (10.0, 1)}, end=end + step * 60 * SECOND)
    sessions(log, ("ada", end - 300 * SECOND, end, 3, 120.0), ("ken", end - 900 * SECOND, end - 60 * SECOND, 1, 9.5))
    layers = made(log).layers
    assert {name: (layer.period, layer.expiry) for name, layer in layers.items()} == {
        "revenue": (60_000, 3_600_000),
        "sessions": (None, 3_600_000),
    }
    sessions(log, ("ada", end - 7_200 * SECOND, end, 3, 120.0))
    assert made(log).layers["sessions"].expiry == 7_205_000


def test_sessions_on_the_map_stay_as_long_as_the_longest_of_them(log):
    end = now() // SECOND * SECOND
    counts(log, {CELLS["here"]: 1}, end=end)  # of 30 s
    start = pl.Series([end - 120 * SECOND]).cast(pl.Datetime("us", "UTC")).to_list()
    counts(log, {CELLS["there"]: 1}, end=end, window_start=start[0])
    (layer,) = made(log).layers.values()
    assert (layer.period, layer.expiry) == (None, 125_000)


def test_times_and_durations_of_own_results_are_reported_as_such(log):
    stamp, span = pa.timestamp("us", "UTC"), pa.duration("us")
    at = pl.Series([now()]).cast(pl.Datetime("us", "UTC"))
    columns = {"user": ["ada"], "seen": at, "away": pl.Series([90 * SECOND]).cast(pl.Duration("us")), "n": [3]}
    schema = {"user": pa.string(), "seen": stamp, "away": span, "n": pa.int64()}
    own_results(log, "analytics.visits", columns, schema, keys=["ada"])
    (layer,) = made(log).layers.values()
    assert {figure.field: figure.unit for figure in layer.figures} == {"seen": "time", "away": "ms", "n": ""}


def test_a_layer_that_was_made_from_the_first_results_learns_from_the_next(log):
    """A server that was there before the job ends with the layer of one that came later."""
    end = now() // SECOND * SECOND
    catalogue, known = made(log), []
    for step in range(25):
        counts(log, {CELLS["here"]: step + 1}, end=end + step * 5 * SECOND)
        catalogue.refresh(log.topics())
        (layer,) = catalogue.layers.values()
        known.append((layer.period, layer.expiry, layer.scale.domain[1]))
    assert known[:3] == [(None, 35_000, 1.0), (5_000, 10_000, 2.0), (5_000, 10_000, 3.0)]
    assert known[-1] == known[19] == (5_000, 10_000, 20.0)  # and then it stays


def test_a_layer_learns_across_markers_and_after_a_switch(log):
    end = now() // SECOND * SECOND
    catalogue = Catalogue(log, installed=[])
    for step in range(3):
        counts(log, {CELLS["here"]: 1}, end=end + step * 60 * SECOND)
        for _ in range(30):
            log.append("analytics.vehicle-distribution", codec.punctuation(end))
        catalogue.refresh(log.topics())
    assert catalogue.layers["vehicle-distribution"].period == 30_000  # no more than the window is long
    put(log, FinalStopCount, "analytics.vehicle-distribution.v2", {"cell": [CELLS["here"]], "vehicles": [3]})
    Aliases(log).switch("analytics.vehicle-distribution", "analytics.vehicle-distribution.v2")
    catalogue.refresh(log.topics())
    assert catalogue.layers["vehicle-distribution"].period is None


def test_an_identity_is_made_of_fields_only_if_no_others_could_be_meant(log):
    registry = TypeRegistry()
    schema = pa.schema({"vehicles": pa.int64(), "line": pa.int64()})
    kind = define_message(registry, "lines", schema)
    publish_types(log, registry, [kind])

    def result(line, vehicles):
        values = codec.encode_columns(
            kind,
            pl.DataFrame({"vehicles": [vehicles], "line": [line]}),
            event_time=pa.array([now()]),
            registry=registry,
        )
        log.append("analytics.lines", records(values, keys=[str(line).encode()]))

    result(7, 7)
    catalogue = made(log)
    assert catalogue.layers["lines"].key == ()  # it is the record's key, which is always right
    result(8, 3)
    catalogue.refresh(log.topics())
    assert (catalogue.layers["lines"].key, catalogue.layers["lines"].value.field) == (("line",), "vehicles")


@pytest.mark.parametrize("away", [TYPES_TOPIC, ALIASES_TOPIC])
def test_types_and_names_that_could_not_be_read_are_read_the_next_time(log, monkeypatch, away):
    registry = TypeRegistry()
    kind = define_message(registry, "sales", pa.schema({"shop": pa.string(), "total": pa.float64()}))
    publish_types(log, registry, [kind])
    frame = pl.DataFrame({"shop": ["a"], "total": [1.5]})
    values = codec.encode_columns(kind, frame, event_time=pa.array([now()]), registry=registry)
    log.append("analytics.sales.v2", records(values, keys=[b"a"]))
    Aliases(log).switch("analytics.sales", "analytics.sales.v2")
    catalogue, read = Catalogue(log, installed=[]), log.read

    def failing(topic, *arguments, **options):
        if topic == away:
            raise LogError("the disk is away")
        return read(topic, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(log, "read", failing)
        with pytest.raises(LogError):
            catalogue.refresh(log.topics())
    catalogue.refresh(log.topics())
    assert catalogue.topics == {"sales": "analytics.sales.v2"}
    assert catalogue.layers["sales"].key == ("shop",)


def test_a_topic_without_results_has_no_layer_yet(log):
    log.create_topic("analytics.empty")
    log.append("analytics.marked", codec.punctuation(5))
    catalogue = made(log)
    assert catalogue.layers == {}
    put(log, FinalStopCount, "analytics.empty", {"cell": [CELLS["here"]]})
    catalogue.refresh(log.topics())
    assert set(catalogue.layers) == {"empty"}


def test_an_installed_layer_is_there_with_its_topic_a_given_one_always(log):
    installed, own = Layer(topic="analytics.emergency-stop"), Layer(topic="analytics.later")
    catalogue = Catalogue(log, own=[own], installed=[installed])
    catalogue.refresh(log.topics())
    assert (set(catalogue.layers), dict(catalogue.topics)) == ({"later"}, {})
    stop_of(log, 1)
    catalogue.refresh(log.topics())
    assert set(catalogue.layers) == {"later", "emergency-stop"}
    assert catalogue.topics == {"emergency-stop": "analytics.emergency-stop"}


def test_vehicles_are_the_positions_that_came_in_or_where_there_are_none_the_results(log):
    catalogue = Catalogue(log)
    vehicles(log, (1, 24.0, 60.0))
    catalogue.refresh(log.topics())
    assert catalogue.topics == {"vehicles": "analytics.vehicle-cell"}
    positions(log, (1, 24.0, 60.0))
    catalogue.refresh(log.topics())
    assert catalogue.topics == {"vehicles": "input.vehicle-position"}
    assert [*catalogue.layers] == ["vehicles"]


def test_a_version_beside_a_known_topic_looks_like_it_until_it_takes_its_place(log):
    (known,) = (layer for layer in LAYERS if layer.topic == "analytics.vehicle-cell")
    vehicles(log, (1, 24.0, 60.0))
    put(log, FinalStopCount, "analytics.vehicle-cell.v2", {"cell": [CELLS["here"]]})
    catalogue = Catalogue(log, installed=[known])
    catalogue.refresh(log.topics())
    beside = catalogue.layers["vehicle-cell.v2"]
    assert (beside.title, beside.show, beside.on) == ("Vehicles (v2)", "moving", False)
    Aliases(log).switch("analytics.vehicle-cell", "analytics.vehicle-cell.v2")
    catalogue.refresh(log.topics())
    assert catalogue.topics == {"vehicles": "analytics.vehicle-cell.v2"}
    Aliases(log).switch("analytics.new-name", "analytics.vehicle-cell")
    catalogue.refresh(log.topics())
    assert catalogue.topics == {"vehicles": "analytics.vehicle-cell.v2", "new-name": "analytics.vehicle-cell"}
