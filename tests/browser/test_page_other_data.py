"""Results of one's own job are on the map without a word about how to show them."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from playwright.sync_api import expect

from tests.browser.browser_support import centre, far, near, neighbour
from tests.support.serve_support import CELLS, hexadecimal
from tidewheel.model.time import now
from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.types import publish_types

pytestmark = pytest.mark.long

HERE = CELLS["here"]
PLACE = centre(HERE)


def own_results(
    log: Log, name: str, columns: dict[str, list], schema: dict[str, pa.DataType], keys: list[bytes]
) -> None:
    """Results of a type that only this log knows."""
    registry = TypeRegistry()
    kind = define_message(registry, name, pa.schema(schema))
    publish_types(log, registry, [kind])
    frame = pl.DataFrame(columns)
    times = pa.array([now()] * frame.height)
    values = codec.encode_columns(kind, frame, event_time=times, registry=registry)
    log.append(f"analytics.{name}", records(values, keys=keys))


def pale(colour, ramp):
    """Is it nearer to the low end of the colours than to the high one?"""
    return bool(ramp) and far(colour, ramp[0]) < far(colour, ramp[-1])


def test_cells_points_and_tables_of_unknown_topics_are_shown_while_the_page_is_open(log, start, screen):
    shown = screen(start()).look_at(*PLACE)
    lon, lat = PLACE
    beside = neighbour(HERE)
    at, spot = shown.place(*centre(beside)), shown.place(lon, lat)
    bare = shown.colour(at)

    cells = {"cell": pa.int64(), "noise": pa.float64()}
    own_results(log, "noise", {"cell": [beside], "noise": [80.0]}, cells, [str(beside).encode()])
    shown.until("() => window.tidewheel.view()['noise'] === 1")
    expect(shown.page.locator("[data-layer=noise]")).to_have_attribute("data-show", "cells")
    high = shown.ramp("noise")[-1]
    shown.sees(lambda: near(shown.colour(at), high, 60), "its hexagon in the colour of its legend")
    assert far(high, bare) > 60
    own_results(log, "noise", {"cell": [HERE], "noise": [800.0]}, cells, [str(HERE).encode()])
    # Low cells are see-through; and the legend is made anew with the layer, so for a moment it is not there.
    shown.sees(lambda: pale(shown.colour(at), shown.ramp("noise")), "a tenth of what there is now")
    shown.sees(lambda: near(shown.colour(spot), high, 60), "the new most")

    points = {"bike": pa.string(), "lat": pa.float64(), "lon": pa.float64(), "charge": pa.float64()}
    own_results(log, "bikes", {"bike": ["b7"], "lat": [lat], "lon": [lon], "charge": [0.5]}, points, [b"b7"])
    shown.until("() => window.tidewheel.view()['bikes'] === 1")
    expect(shown.page.locator("[data-layer=bikes]")).to_have_attribute("data-show", "points")
    shown.sees(lambda: near(shown.colour(spot, reach=1), shown.ramp("bikes")[-1], 40), "its point")

    table = {"shop": pa.string(), "total": pa.float64()}
    own_results(log, "sales", {"shop": ["north", "south"], "total": [1.5, 9.0]}, table, [b"north", b"south"])
    shown.until("() => window.tidewheel.view()['sales'] === 2")
    shown.page.locator("[data-layer=sales]").get_by_role("button", name="as a table").click()
    expect(shown.test("table-layer")).to_have_value("sales")
    row = shown.test("tables").locator("tr[data-key=south]")
    expect(row).to_contain_text("south")
    expect(row).to_contain_text("9")
    assert hexadecimal(beside) in shown.evaluate("() => [...window.tidewheel.app.store.items('noise').values()][0].c")
