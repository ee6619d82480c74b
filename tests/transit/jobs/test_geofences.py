"""Regions that touch, where one position may leave one and enter the other; and those that are none."""

from __future__ import annotations

import json

import polars as pl
import pytest

from tests.transit.jobs.job_cases import BEGIN, micros, run_job
from tests.transit.jobs.job_oracles import SECOND
from tidewheel.errors import DefinitionError
from tidewheel.serve.view.decode import prepared
from tidewheel.serve.view.view import LayerView
from tidewheel_transit import jobs
from tidewheel_transit.jobs.fences import read_fences
from tidewheel_transit.layers import LAYERS


def region(name, west, east):
    ring = [[west, 60], [east, 60], [east, 61], [west, 61], [west, 60]]
    geometry = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "properties": {"name": name}, "geometry": geometry}


def collection(*features):
    return json.dumps({"type": "FeatureCollection", "features": features})


@pytest.fixture(scope="module")
def both():
    """What is told of a vehicle that goes from the west straight into the east."""
    here = {"operator": 1, "vehicle": 7, "mode": "bus", "lat": 60.5, "journey": "journey"}
    rows = [here | {"event_time": BEGIN + n * SECOND, "lon": lon} for n, lon in enumerate((24.9, 25.1))]
    fences = collection(region("west", 24, 25), region("east", 25, 26))
    return run_job(jobs.geofences, [(rows, None)], fences=fences)["results"]


def test_each_result_of_a_position_has_a_key_of_its_own(both):
    assert sorted(both.select("fence", "change").rows()) == [("east", "enter"), ("west", "leave")]
    assert both["event_time"].n_unique() == 1
    assert both.select(jobs.geofences.key).is_unique().all()


def test_the_map_shows_both(both):
    (layer,) = (layer for layer in LAYERS if layer.topic == jobs.geofences.topic)
    assert tuple(layer.key) == jobs.geofences.key
    view = LayerView(layer)
    rows = micros(both).with_columns(pl.col("event_time").alias("@arrival"))
    view.apply(prepared(layer, rows), now=BEGIN)
    assert {json.loads(item.raw)["f"]["fence"] for item in view.items.values()} == {"west", "east"}


def test_a_region_may_have_a_hole_and_stand_in_a_file(tmp_path):
    hole = [[24.4, 60.4], [24.6, 60.4], [24.6, 60.6], [24.4, 60.6], [24.4, 60.4]]
    ring = region("ring", 24, 25)
    ring["geometry"]["coordinates"].append(hole)
    path = tmp_path / "fences.json"
    path.write_text(collection(ring), encoding="utf-8")
    here = {"operator": 1, "vehicle": 7, "mode": "bus", "lat": 60.5, "journey": "journey"}
    places = (23.9, 24.2, 24.5, 24.8, 25.1)
    rows = [here | {"event_time": BEGIN + n * SECOND, "lon": lon} for n, lon in enumerate(places)]
    found = run_job(jobs.geofences, [(rows, None)], fences=str(path))["results"]
    reported = sorted(found.select("event_time", "fence", "change", "lon", "inside").rows())
    assert [row[1:] for row in reported] == [
        ("ring", "enter", 24.2, None),
        ("ring", "leave", 24.5, 1.0),
        ("ring", "enter", 24.8, None),
        ("ring", "leave", 25.1, 1.0),
    ]


RING = [[24, 60], [25, 60], [25, 61], [24, 60]]


@pytest.mark.parametrize(
    ("kind", "coordinates", "reported"),
    [
        ("Polygon", [], r"a Polygon needs coordinates, got \[\]; give its rings, or take the feature out"),
        ("Polygon", None, "a Polygon needs coordinates, got null"),
        ("MultiPolygon", None, "a MultiPolygon needs coordinates, got null"),
        ("MultiPolygon", [[]], r"a MultiPolygon needs coordinates, got \[\[\]\]"),
        ("Polygon", [[]], r"a ring is like \[\[24.9, 60.1\], .*, got \[\]"),
        ("Polygon", [RING, []], r"a ring is like .*, got \[\]"),
        ("Polygon", [[[24]]], r"a ring is like .*, got \[\[24\]\]"),
        ("Polygon", [[None]], r"a ring is like .*, got \[null\]"),
        ("Polygon", "abc", 'a ring is like .*, got "a"'),
        ("Polygon", [RING[:2]], "three corners or more"),
        ("Polygon", [[[24, 60], [25, 60], [26, 60]]], "corners of several latitudes"),
    ],
)
def test_what_is_no_region_is_refused_by_its_name(kind, coordinates, reported):
    feature = {"type": "Feature", "properties": {"name": "depot"}, "geometry": {"type": kind}}
    feature["geometry"]["coordinates"] = coordinates
    with pytest.raises(DefinitionError, match=rf"^geofences, feature 1 \(depot\): .*{reported}"):
        read_fences(collection(region("west", 24, 25), feature))


@pytest.mark.parametrize("features", [[], 5, {"name": "west"}])
def test_what_has_no_features_is_refused(features):
    text = json.dumps({"type": "FeatureCollection", "features": features})
    with pytest.raises(DefinitionError, match="FeatureCollection with at least one feature"):
        read_fences(text)
