"""Everybody can use it: on a phone, by keyboard, in the light and in the dark, and from an address that was shared."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.browser_support import centre
from tests.support.serve_support import CELLS, counts, hexadecimal, stop_of, vehicles
from tidewheel.model.time import now

pytestmark = pytest.mark.long

SECOND = 1_000_000
HERE = CELLS["here"]
PLACE = centre(HERE)
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def some_results(log) -> None:
    lon, lat = PLACE
    vehicles(log, (1, lon, lat), (2, lon + 0.004, lat), mode=["bus", "tram"])
    counts(log, {HERE: 7}, end=now() // SECOND * SECOND)
    stop_of(log, 1)


def test_on_a_phone_panels_open_one_at_a_time_and_fit(log, start, screen):
    some_results(log)
    shown = screen(start(), **PHONE).look_at(*PLACE, zoom=13)
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})
    layers, info = shown.page.locator("#layers"), shown.page.locator("#info")
    expect(layers).to_have_js_property("inert", True)
    expect(shown.page.locator("label[for=layer-vehicles]")).not_to_be_visible()
    shown.page.locator("[data-dock=layers]").tap()
    expect(shown.page.locator("label[for=layer-vehicles]")).to_be_in_viewport()
    expect(layers).to_have_js_property("inert", False)
    shown.shoot("layers")
    shown.page.locator("label[for=layer-vehicles]").tap()
    shown.shows("vehicles", {})
    shown.page.locator("[data-dock=alerts]").tap()
    expect(shown.alerts.first).to_be_in_viewport()
    expect(layers).to_have_js_property("inert", True)
    shown.page.locator("[data-dock=alerts]").tap()
    expect(info).to_have_js_property("inert", True)
    assert shown.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_the_keyboard_reaches_the_layers_and_escape_closes(log, start, screen):
    some_results(log)
    shown = screen(start()).look_at(*PLACE)
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})
    passed = []
    while "layer-vehicles" not in passed and len(passed) < 40:
        shown.page.keyboard.press("Tab")
        passed.append(shown.evaluate("() => document.activeElement.id"))
    assert passed[-1] == "layer-vehicles"
    shown.page.keyboard.press("Space")
    shown.shows("vehicles", {})
    expect(shown.switch("vehicles")).to_be_focused()
    shown.page.keyboard.press("Space")
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})
    expect(shown.page.locator("#info")).to_have_js_property("inert", False)
    shown.page.keyboard.press("Escape")
    expect(shown.page.locator("#info")).to_have_js_property("inert", True)
    shown.page.keyboard.press("?")
    expect(shown.test("help-dialog")).to_be_visible()
    shown.page.keyboard.press("Escape")
    expect(shown.test("help-dialog")).not_to_be_visible()
    shown.page.keyboard.press("t")
    expect(shown.page.get_by_role("tab", name="Tables")).to_have_attribute("aria-selected", "true")


def test_everything_that_can_be_pressed_has_a_name(log, start, screen):
    some_results(log)
    shown = screen(start()).look_at(*PLACE)
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})
    nameless = shown.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [role=tab]")]
            .filter((it) => !(it.getAttribute("aria-label") || it.textContent.trim() || it.labels?.length || it.title))
            .map((it) => it.outerHTML.slice(0, 200))"""
    )
    assert nameless == []
    for role in ("main", "banner", "tablist"):
        expect(shown.page.get_by_role(role)).to_have_count(1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_can_be_switched(log, start, screen, scheme):
    some_results(log)
    shown = screen(start(), color_scheme=scheme, land=scheme == "dark").look_at(*PLACE, zoom=12)
    other = {"light": "dark", "dark": "light"}[scheme]
    at = shown.place(PLACE[0] + 0.02, PLACE[1] + 0.01)

    def looks(how: str) -> bool:
        return (sum(shown.colour(at)) / 3 > 128) == (how == "light")

    expect(shown.page.locator("html")).to_have_attribute("data-theme", scheme)
    shown.sees(lambda: looks(scheme), f"a {scheme} map")
    shown.shoot(scheme)
    if scheme == "light":
        shown.test("theme").click()
        expect(shown.page.locator("html")).to_have_attribute("data-theme", other)
        shown.sees(lambda: looks(other), f"a {other} map")
        shown.until("() => location.hash.includes('theme=dark')")


def test_the_address_brings_the_view_back(log, start, screen):
    some_results(log)
    server = start()
    lon, lat = PLACE
    shown = screen(server).look_at(lon, lat, zoom=13)
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})
    shown.chip("mode", "tram").click()
    shown.toggle("vehicle-distribution")
    shown.page.mouse.click(*shown.place(lon + 0.004, lat))
    expect(shown.test("details")).to_have_attribute("data-key", "1/2")
    shown.test("theme").click()
    for part in ("z=13", "f.mode=tram", "sel=vehicles:1/2", "theme=dark", "tab=details", "on="):
        shown.until("part => location.hash.includes(part)", part)
    again = screen(server).open(shown.page.url.partition("#")[2])
    again.shows("vehicles", {"1/2": "tram"})
    expect(again.switch("vehicle-distribution")).not_to_be_checked()
    expect(again.switch("vehicles")).to_be_checked()
    expect(again.chip("mode", "tram")).to_have_attribute("aria-pressed", "true")
    expect(again.test("details")).to_have_attribute("data-key", "1/2")
    expect(again.page.locator("html")).to_have_attribute("data-theme", "dark")
    camera = again.evaluate("() => window.tidewheel.app.map.camera.value")
    assert (camera["lon"], camera["lat"], camera["zoom"]) == pytest.approx((lon, lat, 13), abs=1e-4)
    assert hexadecimal(HERE) not in again.page.url
