"""Places: distances, regions, and who moves where."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import DefinitionError
from tidewheel.patterns import Harness, pattern
from tidewheel.patterns.define.geo import (
    away_from,
    circle,
    distance,
    distance_to,
    entering,
    inside,
    leaving,
    polygon,
    towards,
)

SCHEMA = {"vehicle": pl.String(), "lat": pl.Float64(), "lon": pl.Float64()}
HELSINKI = (60.1699, 24.9384)
SQUARE = polygon([(60.1, 24.9), (60.1, 25.0), (60.2, 25.0), (60.2, 24.9)])


def run(built, places):
    harness = Harness(built, SCHEMA)
    for time, (vehicle, lat, lon) in enumerate(places):
        harness.add({"vehicle": vehicle, "lat": lat, "lon": lon}, time=time)
    return harness.matches


def metres(a, b):
    return pl.select(distance(tuple(map(pl.lit, a)), tuple(map(pl.lit, b)))).item()


PLACES = st.tuples(st.floats(-89, 89), st.floats(-179, 179))


@given(PLACES, PLACES)
def test_distances_are_those_of_the_angle_between_the_places(a, b):
    vectors = []
    for lat, lon in (a, b):
        north, east = math.radians(lat), math.radians(lon)
        vectors.append((math.cos(north) * math.cos(east), math.cos(north) * math.sin(east), math.sin(north)))
    (x, y, z), (u, v, w) = vectors
    cross = math.hypot(y * w - z * v, z * u - x * w, x * v - y * u)
    angle = math.atan2(cross, x * u + y * v + z * w)
    assert metres(a, b) == pytest.approx(angle * 6_371_008.8, abs=0.5)


def test_a_degree_of_latitude_is_111_kilometres():
    assert metres((60.0, 25.0), (61.0, 25.0)) == pytest.approx(111_195, abs=1)


def test_two_vehicles_that_come_close():
    bunching = pattern("ahead").followed_by("behind", distance_to("ahead") < 200, differs_in="vehicle")
    near = (HELSINKI[0] + 0.001, HELSINKI[1])
    far = (HELSINKI[0] + 0.01, HELSINKI[1])
    places = [("v", *HELSINKI), ("v", *near), ("w", *far), ("w", *near)]
    assert run(bunching, places) == [{"ahead": [0], "behind": [3]}, {"ahead": [1], "behind": [3]}]


def test_distance_to_a_fixed_place():
    assert run(pattern("near", distance_to(HELSINKI) < 500), [("v", *HELSINKI), ("v", 61.0, 25.0)]) == [{"near": [0]}]


def test_in_and_out_of_a_region():
    out, into = (60.05, 24.95), (60.15, 24.95)
    enters = pattern("before").next("after", entering(SQUARE))
    leaves = pattern("before").next("after", leaving(SQUARE))
    places = [("v", *out), ("v", *into), ("v", *into), ("v", *out)]
    assert run(enters, places) == [{"before": [0], "after": [1]}]
    assert run(leaves, places) == [{"before": [2], "after": [3]}]
    assert run(pattern("it", inside(SQUARE)), places) == [{"it": [1]}, {"it": [2]}]


def test_towards_each_other_and_away():
    built = pattern("a").next("b", differs_in="vehicle").next("c", towards("b", since="a"))
    other = pattern("a").next("b", differs_in="vehicle").next("c", away_from("b", since="a"))
    closer = [("v", 60.0, 25.0), ("w", 60.2, 25.0), ("v", 60.1, 25.0)]
    assert len(run(built, closer)) == 1
    assert run(other, closer) == []
    assert len(run(other, [*closer[:2], ("v", 59.9, 25.0)])) == 1
    assert len(run(pattern("a").next("b", towards(HELSINKI)), [("v", 61.0, 25.0), ("v", 60.5, 25.0)])) == 1


def test_other_columns_may_hold_the_place():
    expression = distance_to("a", lat="y", lon="x") < 3
    assert set(expression.meta.root_names()) == {"y", "x", "last(a.y)", "last(a.x)"}


@given(st.floats(60.0, 60.3), st.floats(24.8, 25.1))
def test_a_square_is_what_lies_between_its_sides(lat, lon):
    frame = pl.DataFrame({"lat": [lat], "lon": [lon]})
    assert frame.select(inside(SQUARE)).item() == (60.1 <= lat < 60.2 and 24.9 <= lon < 25.0)


def test_a_polygon_may_cross_the_180th_meridian_and_have_dents():
    island = polygon([(-18.0, 179.0), (-18.0, -179.0), (-17.0, -179.0), (-17.5, 180.0), (-17.0, 179.0)])
    places = [(-17.9, 179.9), (-17.9, -179.9), (-17.9, 178.0), (-17.9, -178.0), (-17.2, 180.0), (-17.2, 179.1)]
    frame = pl.DataFrame(places, schema=["lat", "lon"], orient="row")
    assert frame.select(inside(island)).to_series().to_list() == [True, True, False, False, False, True]


def test_a_circle_holds_what_is_nearer_than_its_radius():
    region = circle(*HELSINKI, radius=1_000)
    frame = pl.DataFrame({"lat": [60.1699, 60.1788, 60.1790], "lon": [24.9384] * 3})
    assert frame.select(inside(region)).to_series().to_list() == [True, True, False]


@pytest.mark.parametrize(
    "build",
    [
        lambda: circle(91, 0, radius=1),
        lambda: circle(0, 181, radius=1),
        lambda: circle(0, 0, radius=0),
        lambda: circle("0", 0, radius=1),
        lambda: polygon([(0, 0), (1, 1)]),
        lambda: polygon([(0, 0), (1, 1), (0, 0)]),
        lambda: polygon([(0, -100), (1, 0), (0, 100)]),
        lambda: inside(polygon([(5, 0), (5, 1), (5, 2)])),
        lambda: inside("city"),
        lambda: distance_to((91.0, 0.0)),
        lambda: distance_to(3),
    ],
)
def test_places_and_regions_that_are_none_are_refused(build):
    with pytest.raises(DefinitionError):
        build()
