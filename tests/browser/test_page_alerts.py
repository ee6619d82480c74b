"""Emergency stops: in the list and on the map as soon as their result is there."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import expect

from tests.browser.browser_support import far
from tests.support.serve_support import stop_of, vehicles
from tidewheel.model.time import now

pytestmark = pytest.mark.long

SECOND = 1_000_000
STOP = (24.9, 60.2)


def test_an_emergency_stop_is_in_the_list_at_once_and_a_click_flies_there(log, start, screen, record_property):
    stop_of(log, 1, time=now() - 60_000_000)
    shown = screen(start(), reduced_motion="no-preference").look_at(24.94, 60.17, zoom=12)
    expect(shown.alerts).to_have_count(1)
    before = time.monotonic()
    stop_of(log, 77)
    expect(shown.alerts).to_have_count(2)
    took = time.monotonic() - before
    record_property("append to list, s", round(took, 2))
    print(f"from the append of an emergency stop to the list: {took:.2f} s (aim: within 3 s)")
    first = shown.alerts.first
    expect(first).to_contain_text("vehicle 77")
    expect(first).to_have_attribute("data-layer", "emergency-stop")
    expect(shown.page.locator("#announcer")).to_contain_text("Emergency stops: operator 1 · vehicle 77")
    shown.shoot("list")
    first.get_by_role("button").click()
    shown.until(
        """([lon, lat]) => {
            const camera = window.tidewheel.app.map.camera.value;
            return Math.abs(camera.lon - lon) < 1e-4 && Math.abs(camera.lat - lat) < 1e-4 && camera.zoom >= 13;
        }""",
        list(STOP),
    )
    expect(shown.test("details-name")).to_contain_text("vehicle 77")
    expect(shown.test("details-value")).to_have_text("12")
    expect(shown.test("details").locator("[data-test=plot]")).to_have_attribute("data-seconds", "60")


@pytest.mark.parametrize("where", ["near", "far away"])
def test_an_emergency_stop_is_marked_on_the_map_and_reported_of_wherever_it_is(log, start, screen, where):
    vehicles(log, (1, 24.0, 60.0))
    place = STOP if where == "near" else (25.4, 60.4)
    shown = screen(start()).look_at(*place)
    at = shown.place(*place)
    bare = shown.colour(at)
    stop_of(log, 5)
    expect(shown.alerts).to_have_count(1)
    if where == "near":
        shown.sees(lambda: far(shown.colour(at, reach=1), bare) > 60, "a mark at the place")
        red, green, blue = shown.colour(at, reach=1)
        assert red > green, "in the colours of the layer's description, from yellow to dark red"
        assert red > blue
    else:
        shown.until("() => window.tidewheel.view()['emergency-stop'] === 1")


def test_an_old_alert_opens_with_its_own_figures_though_its_vehicle_stopped_again(log, start, screen):
    old = now() - 40 * 60 * SECOND
    stop_of(log, 5, time=old, difference=9.0)
    stop_of(log, 5, difference=14.0)
    shown = screen(start()).look_at(*STOP)
    expect(shown.alerts).to_have_count(2)
    for row, value in ((1, "9"), (0, "14"), (1, "9")):
        shown.page.locator("#tab-alerts").click()
        shown.alerts.nth(row).get_by_role("button").click()
        expect(shown.test("details-value")).to_have_text(value)
        expect(shown.test("details").locator("[data-test=plot]")).to_be_visible()
    reported = f"&of={old // 1_000}&tab=details"
    shown.until("reported => location.hash.includes(reported)", reported)
    shown.page.reload()
    expect(shown.test("details-value")).to_have_text("9")


def test_the_list_heeds_filters_and_has_what_they_kept_away_once_they_are_lifted(log, start, screen):
    stop_of(log, 1)
    stop_of(log, 2, mode="tram")
    shown = screen(start()).look_at(*STOP)
    expect(shown.alerts).to_have_count(2)
    shown.chip("mode", "bus").click()
    expect(shown.alerts).to_have_count(1)
    expect(shown.alerts.first).to_contain_text("vehicle 1")
    stop_of(log, 3, mode="tram")
    stop_of(log, 4)
    expect(shown.alerts).to_have_count(2)
    expect(shown.alerts.first).to_contain_text("vehicle 4")
    shown.chip("mode", "bus").click()
    expect(shown.alerts).to_have_count(4)


def test_alerts_of_a_layer_that_is_off_are_not_listed(log, start, screen):
    stop_of(log, 5)
    shown = screen(start()).look_at(*STOP)
    expect(shown.alerts).to_have_count(1)
    shown.toggle("emergency-stop")
    expect(shown.alerts).to_have_count(0)
    expect(shown.test("alerts")).to_contain_text("No layer with alerts is on.")
    shown.toggle("emergency-stop")
    expect(shown.alerts).to_have_count(1)
