"""What else is drawn: trails behind vehicles, arrows from cell to cell, and a map of tiles if there is one."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.browser_support import Screen, centre, far, near, neighbour
from tests.support.serve_support import CELLS, counts, put, stop_of, vehicles
from tidewheel.model.time import now
from tidewheel.serve import Background
from tidewheel_transit.lines import lines
from tidewheel_transit.transit_pb2 import CellFlow

pytestmark = pytest.mark.long

SECOND = 1_000_000
HERE = CELLS["here"]
THERE = neighbour(HERE)
PLACE = centre(HERE)
VIOLET = (150, 40, 200)


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_trails_lie_behind_vehicles_once_they_are_switched_on(log, start, screen, motion):
    lon, lat = PLACE
    first = now()
    vehicles(log, (1, lon - 0.004, lat), time=first)
    shown = screen(start(), reduced_motion=motion).look_at(lon, lat)
    shown.shows("vehicles", {"1/1": "bus"})
    bus = shown.category("vehicles", "bus")
    way, ahead = shown.place(lon, lat), shown.place(lon + 0.008, lat)
    bare = shown.colour(way, reach=1)
    shown.test("trails").check()
    vehicles(log, (1, lon + 0.004, lat), time=first + 2 * SECOND)
    there = "lon => Math.abs(window.tidewheel.app.map.placeOf({layer: 'vehicles', key: '1/1'})?.[0] - lon) < 1e-6"
    shown.until(there, lon + 0.004)
    shown.sees(lambda: far(shown.colour(way, reach=1), bare) > 25, "the way that it came")
    shown.shoot("trail")
    assert far(shown.colour(way, reach=1), bus) < far(bare, bus), "in its own colour"
    assert near(shown.colour(ahead, reach=1), bare, 4), "and not ahead of it"
    shown.until("() => location.hash.includes('trails=1')")
    shown.test("trails").uncheck()
    shown.sees(lambda: near(shown.colour(way, reach=1), bare, 4), "the bare map again")


def flow(log, origin: int, target: int) -> None:
    """Most of those who left one cell went to another."""
    end = datetime.fromtimestamp(now() // SECOND, timezone.utc)
    columns = {"cell": [origin], "neighbour": [target], "crossings": [40], "total": [44], "pane_timing": ["ON_TIME"]}
    columns |= {"window_start": [end - timedelta(minutes=5)], "window_end": [end]}
    put(log, CellFlow, "analytics.flow-direction", columns)


@pytest.mark.parametrize("ends", [(HERE, THERE), (THERE, HERE)], ids=["there", "back"])
def test_a_flow_is_an_arrow_whose_head_is_where_it_goes(log, start, screen, ends):
    vehicles(log, (1, 24.0, 60.0))
    shown = screen(start()).look_at(*PLACE, more="on=flow-direction")
    tail, tip = (np.array(shown.place(*centre(cell))) for cell in ends)
    bare = shown.colour(shown.place(*PLACE))

    def ink(share: float) -> float:
        """How much is drawn at so much of the way."""
        return float(np.abs(shown.pixels(tuple(tail + (tip - tail) * share), reach=9) - bare).sum())

    flow(log, *ends)
    shown.until("() => window.tidewheel.drawn()['flow-direction'] === 1")
    shown.sees(lambda: ink(0.82) > 10_000, "the head of an arrow")
    assert ink(0.82) > 2 * ink(0.3) > 0, "which is much more than its tail"
    assert ink(1.15) < 100, "and nothing beyond"
    shown.shoot("arrow")
    shown.page.mouse.click(*(tail + (tip - tail) * 0.7))
    expect(shown.test("details-value")).to_have_text("40")
    shown.page.mouse.move(*(tail + (tip - tail) * 0.72))
    expect(shown.test("tooltip")).to_be_visible()
    words, details = (shown.page.locator(each).bounding_box() for each in ("[data-test=tooltip]", "#info"))
    assert words["x"] + words["width"] <= details["x"], "the panel does not cover it"


@contextmanager
def tiles_of(colour: tuple[int, int, int]) -> Iterator[tuple[str, list[str]]]:
    """Where tiles of one colour are served on this machine, and which were asked for."""
    asked: list[str] = []
    picture = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(picture, "PNG")

    class Tiles(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.send_header("Access-Control-Allow-Origin", "*")
            self.end_headers()
            self.wfile.write(picture.getvalue())

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Tiles)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{{z}}/{{x}}/{{y}}.png", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("attribution", ["© The Violet Map", None])
def test_tiles_lie_under_the_results_and_say_whose_they_are(log, start, screen, attribution):
    vehicles(log, (1, *PLACE))
    with tiles_of(VIOLET) as (url, asked):
        shown = screen(start(background=Background(tiles=url, attribution=attribution))).look_at(*PLACE)
        beside = shown.place(PLACE[0] + 0.003, PLACE[1])
        shown.sees(lambda: near(shown.colour(beside), VIOLET, 60), "the tiles")
        bus = shown.category("vehicles", "bus")
        shown.sees(lambda: near(shown.colour(shown.place(*PLACE), reach=1), bus, 20), "the bus on top of them")
        said = expect(shown.test("attribution"))
        said.to_contain_text(attribution or "Tiles from 127.0.0.1")
        said.to_contain_text("OpenStreetMap contributors")
        assert asked
        assert all(re.fullmatch(r"/15/\d+/\d+\.png", path) for path in asked), "those of the zoom that is seen"


def heard(shown: Screen) -> list[str]:
    """Every address that the page asks from now on."""
    addresses: list[str] = []
    shown.page.context.on("request", lambda request: addresses.append(request.url))
    shown.page.on("websocket", lambda socket: addresses.append(socket.url))
    return addresses


def test_without_tiles_nobody_but_the_server_is_asked(log, start, screen):
    vehicles(log, (1, *PLACE))
    counts(log, {HERE: 5}, end=now() // SECOND * SECOND)
    stop_of(log, 1)
    server = start(background=Background(lines=lines()))
    shown = screen(server, land=True)
    asked = heard(shown)
    shown.look_at(*PLACE, zoom=13)
    shown.shows("vehicles", {"1/1": "bus"})
    shown.page.mouse.click(*shown.place(*PLACE))
    expect(shown.test("details-name")).to_contain_text("vehicle 1")
    shown.page.keyboard.press("Escape")
    shown.test("zoom-out").click()
    shown.test("back").click()
    expect(shown.test("moment")).to_contain_text("ago")
    shown.test("theme").click()
    expect(shown.test("attribution")).to_have_text("Land and water © OpenStreetMap contributors (ODbL)")
    assert {"land.json", "background", "live"} <= {address.rpartition("/")[2].partition("?")[0] for address in asked}
    own = (server.url, server.url.replace("http", "ws", 1), "data:", f"blob:{server.url}")
    assert [address for address in asked if not address.startswith(own)] == []
