"""The page stays with its server: over what is blocked, and when the server was away."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.browser_support import centre
from tests.support.serve_support import CELLS, counts, hexadecimal, vehicles
from tidewheel.model.time import now
from tidewheel.serve import serve

pytestmark = pytest.mark.long

SECOND = 1_000_000
HERE = CELLS["here"]
PLACE = centre(HERE)


def test_it_reconnects_by_itself_after_a_restart_and_says_so(log, start, screen):
    vehicles(log, (1, *PLACE))
    with serve(log, port=0, speed=0.1) as server:
        shown = screen(server).look_at(*PLACE)
        shown.forgive("ERR_CONNECTION_REFUSED", "WebSocket connection to", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")
        shown.shows("vehicles", {"1/1": "bus"})
    expect(shown.connection).to_contain_text("Reconnecting")
    expect(shown.page.locator("#announcer")).to_contain_text("The connection was lost")
    shown.shoot("away")
    vehicles(log, (1, *PLACE), (2, *PLACE), mode=["tram", "metro"])
    start(port=server.port)
    expect(shown.connection).to_have_attribute("data-state", "open")
    expect(shown.connection).to_have_text("Connected")
    shown.shows("vehicles", {"1/1": "tram", "1/2": "metro"})
    vehicles(log, (3, *PLACE))
    shown.shows("vehicles", {"1/1": "tram", "1/2": "metro", "1/3": "bus"})


@pytest.mark.parametrize("how", ["refused", "missing"])
def test_where_websockets_are_blocked_events_take_their_place(log, start, screen, how):
    vehicles(log, (1, *PLACE), (2, *PLACE), mode=["bus", "tram"])
    shown = screen(start())
    if how == "refused":
        shown.page.route_web_socket("**/api/live*", lambda socket: socket.close(code=1011))
    else:
        shown.page.add_init_script("delete window.WebSocket")
    shown.look_at(*PLACE)
    expect(shown.connection).to_have_attribute("data-transport", "events")
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})
    vehicles(log, (3, *PLACE))
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram", "1/3": "bus"})
    shown.chip("mode", "tram").click()
    shown.shows("vehicles", {"1/2": "tram"})
    expect(shown.connection).to_have_attribute("data-state", "open")


def test_with_the_token_in_the_address_it_gets_in(log, start, screen):
    counts(log, {HERE: 3}, end=now() // SECOND * SECOND)
    shown = screen(start(token="a secret")).open(f"c={PLACE[0]:.5f},{PLACE[1]:.5f}&z=14", query="?token=a%20secret")
    shown.shows("vehicle-distribution", {hexadecimal(HERE): 3})
