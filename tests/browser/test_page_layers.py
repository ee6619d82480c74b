"""What results become on the map: they appear, change, firm up, are retracted and expire, to the last pixel."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.browser_support import Clock, StandingClock, centre, far, near, neighbour
from tests.support.serve_support import CELLS, counts, hexadecimal, orders, vehicles
from tidewheel.model.time import now
from tidewheel.serve.http.limits import ServeLimits

pytestmark = pytest.mark.long

SECOND = 1_000_000
HERE = CELLS["here"]
THERE = neighbour(HERE)
PLACE = centre(HERE)
PACED = """
    const now = performance.now.bind(performance);
    let [last, reported] = [now(), now()];
    window.pace = 1;
    performance.now = () => {
        const at = now();
        reported += (at - last) * window.pace;
        last = at;
        return reported;
    };
"""
"""The time by which the page moves and fades things, as slow as a test wants to look at them."""


def window_end() -> int:
    return now() // SECOND * SECOND


def test_hexagons_appear_change_colour_and_expire(log, start, screen):
    clock = Clock()
    shown = screen(start(clock=clock)).look_at(*PLACE)
    at = shown.place(*PLACE)
    bare = shown.colour(at)
    end = window_end()
    counts(log, {HERE: 4}, end=end)
    shown.shows("vehicle-distribution", {hexadecimal(HERE): 4})
    low, *_, high = shown.ramp("vehicle-distribution")
    shown.sees(lambda: far(shown.colour(at), bare) > 30, "a pale hexagon")
    counts(log, {HERE: 12}, end=end + 5 * SECOND)
    shown.shows("vehicle-distribution", {hexadecimal(HERE): 12})
    shown.sees(lambda: near(shown.colour(at), high), "the hexagon in the colour of much")
    assert far(shown.colour(at), low) > 100
    shown.shoot("much")
    clock.ahead = 200 * SECOND
    orders(log, ("ada", "FI", 9.0), time=now())  # a log at rest would keep it
    shown.shows("vehicle-distribution", {})
    shown.sees(lambda: near(shown.colour(at), bare, 4), "the bare map again")


def test_an_early_result_is_hatched_and_firms_up_when_the_final_one_comes(log, start, screen):
    end = window_end()
    counts(log, {HERE: 11}, end=end, watermark=end - 2 * SECOND, pane_timing="EARLY")
    shown = screen(start()).look_at(*PLACE, more="tab=details&sel=vehicle-distribution:" + hexadecimal(HERE))
    at = shown.place(*PLACE)
    shown.shows("vehicle-distribution", {hexadecimal(HERE): 11})
    shown.sees(lambda: shown.pixels(at, reach=15).std(axis=(0, 1)).max() > 12, "stripes")
    assert shown.test("timing").inner_text() == "provisional"
    assert shown.page.get_by_text("hatched: provisional").is_visible()
    shown.shoot("early")
    counts(log, {HERE: 12}, end=end, watermark=end, pane_timing="ON_TIME")
    shown.shows("vehicle-distribution", {hexadecimal(HERE): 12})
    shown.sees(lambda: shown.pixels(at, reach=15).std(axis=(0, 1)).max() < 3, "one even colour")
    assert shown.test("timing").inner_text() == "final"
    assert shown.test("details-value").inner_text() == "12"


def test_a_retracted_result_disappears(log, start, screen):
    end = window_end()
    shown = screen(start()).look_at(*PLACE)
    bare = shown.colour(shown.place(*PLACE))
    counts(log, {HERE: 12, THERE: 3}, end=end)
    shown.shows("vehicle-distribution", {hexadecimal(HERE): 12, hexadecimal(THERE): 3})
    shown.sees(lambda: far(shown.colour(shown.place(*PLACE)), bare) > 60, "the hexagon")
    counts(log, {HERE: 12}, end=end, retraction=True)
    shown.shows("vehicle-distribution", {hexadecimal(THERE): 3})
    shown.sees(lambda: near(shown.colour(shown.place(*PLACE)), bare, 4), "the bare map again")


def test_what_was_taken_back_is_emptied_at_once_and_what_expired_fades(log, start, screen):
    clock = Clock()
    shown = screen(start(clock=clock))
    shown.page.add_init_script(PACED)
    shown.look_at(*PLACE)
    here, there = shown.place(*PLACE), shown.place(*centre(THERE))
    rim = (here[0] - (there[0] - here[0]) * 0.46, here[1] - (there[1] - here[1]) * 0.46)
    bare = shown.colour(here)

    def outlined() -> bool:
        return bool(np.abs(shown.pixels(rim, reach=7) - bare).sum(axis=2).max() > 60)

    end = window_end()
    counts(log, {HERE: 12, THERE: 12}, end=end)
    high = shown.ramp("vehicle-distribution")[-1]
    for place in (here, there):
        shown.sees(lambda place=place: near(shown.colour(place), high), "a full hexagon")
    shown.evaluate("() => { window.pace = 0.002; }")
    counts(log, {HERE: 12}, end=end, retraction=True)
    shown.shows("vehicle-distribution", {hexadecimal(THERE): 12})
    shown.sees(lambda: near(shown.colour(here), bare, 4), "the hexagon that was retracted is empty")
    assert outlined()
    shown.shoot("retracted")
    clock.ahead = 400 * SECOND
    orders(log, ("ada", "FI", 9.0), time=now())
    shown.shows("vehicle-distribution", {})
    assert near(shown.colour(there), high), "the one that expired fades slowly"
    shown.evaluate("() => { window.pace = 1; }")
    shown.sees(lambda: near(shown.colour(there), bare, 4) and not outlined(), "the bare map again")


def test_vehicles_have_the_colour_of_their_mode_and_move_where_they_are_heard_of(log, start, screen):
    lon, lat = PLACE
    vehicles(log, (1, lon, lat), (2, lon + 0.004, lat), mode=["bus", "tram"])
    shown = screen(start()).look_at(lon, lat)
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})
    first, second, third = (shown.place(lon + east, lat) for east in (0, 0.004, -0.004))
    bus, tram = shown.category("vehicles", "bus"), shown.category("vehicles", "tram")
    assert far(bus, tram) > 60
    shown.sees(lambda: near(shown.colour(first, reach=1), bus, 20), "the bus")
    shown.sees(lambda: near(shown.colour(second, reach=1), tram, 20), "the tram")
    vehicles(log, (1, lon - 0.004, lat))
    shown.sees(lambda: near(shown.colour(third, reach=1), bus, 20), "the bus further west")
    assert far(shown.colour(first, reach=1), bus) > 60


def test_a_vehicle_glides_from_one_report_to_the_next(log, start, screen):
    lon, lat = PLACE
    start_of_way = now()
    vehicles(log, (1, lon, lat), time=start_of_way)
    shown = screen(start(), reduced_motion="no-preference").look_at(lon, lat)
    shown.shows("vehicles", {"1/1": "bus"})
    vehicles(log, (1, lon + 0.004, lat), time=start_of_way + 5 * SECOND)
    where = "() => window.tidewheel.app.map.placeOf({layer: 'vehicles', key: '1/1'})[0]"
    shown.until(f"([low, high]) => {{ const at = ({where})(); return at > low && at < high; }}", [lon, lon + 0.004])
    shown.until(f"lon => Math.abs(({where})() - lon) < 1e-6", lon + 0.004)


def test_a_layer_can_be_switched_off_and_on(log, start, screen):
    vehicles(log, (1, *PLACE))
    counts(log, {HERE: 12}, end=window_end())
    shown = screen(start()).look_at(*PLACE)
    shown.shows("vehicles", {"1/1": "bus"})
    shown.toggle("vehicles")
    shown.shows("vehicles", {})
    shown.shows("vehicle-distribution", {hexadecimal(HERE): 12})
    at = shown.place(*PLACE)
    shown.sees(lambda: near(shown.colour(at, reach=1), shown.ramp("vehicle-distribution")[-1]), "the bare hexagon")
    shown.toggle("vehicles")
    shown.shows("vehicles", {"1/1": "bus"})
    shown.sees(lambda: near(shown.colour(at, reach=1), shown.category("vehicles", "bus"), 20), "the bus on top of it")


def test_filters_leave_what_was_asked_for(log, start, screen):
    lon, lat = PLACE
    vehicles(log, (1, lon, lat), (2, lon + 0.004, lat), (3, lon - 0.004, lat), mode=["bus", "tram", "bus"])
    counts(log, {THERE: 2}, end=window_end())
    shown = screen(start()).look_at(lon, lat)
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram", "1/3": "bus"})
    at = shown.place(lon, lat)
    shown.sees(lambda: near(shown.colour(at, reach=1), shown.category("vehicles", "bus"), 20), "the bus")
    shown.chip("mode", "tram").click()
    shown.shows("vehicles", {"1/2": "tram"})
    shown.sees(lambda: far(shown.colour(at, reach=1), shown.category("vehicles", "bus")) > 60, "no bus")
    shown.shows("vehicle-distribution", {hexadecimal(THERE): 2})
    vehicles(log, (4, lon, lat), (5, lon, lat + 0.002), mode=["bus", "tram"])
    shown.shows("vehicles", {"1/2": "tram", "1/5": "tram"})
    shown.chip("mode", "bus").click()
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram", "1/3": "bus", "1/4": "bus", "1/5": "tram"})
    shown.test("clear-filters").click()
    shown.until("() => !location.hash.includes('f.mode')")


@pytest.mark.parametrize("what", ["cell", "vehicle"])
def test_what_is_clicked_shows_its_figures_and_its_last_minutes(log, start, screen, what):
    lon, lat = PLACE
    end = window_end()
    if what == "cell":
        counts(log, {HERE: 5}, end=end - 5 * SECOND)
        counts(log, {HERE: 7}, end=end)
    else:
        vehicles(log, (1, lon - 0.01, lat), time=end - 5 * SECOND, speed=3.0, direction=1, route="55")
        vehicles(log, (1, lon, lat), time=end, speed=8.5, direction=1, route="55")
    shown = screen(start()).look_at(lon, lat)
    shown.shows(*(("vehicle-distribution", {hexadecimal(HERE): 7}) if what == "cell" else ("vehicles", {"1/1": "bus"})))
    shown.page.mouse.click(*shown.place(lon, lat))
    details = shown.test("details")
    details.locator("canvas").wait_for()
    if what == "cell":
        assert shown.test("details-value").inner_text() == "7"
    else:
        assert details.locator("[data-figure=route]").inner_text().split() == ["route", "55"]
        assert "8.5" in details.locator("[data-figure=speed]").inner_text()
        assert shown.test("plot-field").input_value() == "speed"
        assert shown.test("plot").first.get_attribute("aria-label").startswith("speed, 3 to 8.5 m/s")
    shown.page.keyboard.press("Escape")
    shown.until("() => !location.hash.includes('sel=')")


def test_a_layer_with_more_keys_than_are_shown_says_so(log, start, screen):
    vehicles(log, *((number, PLACE[0] + number / 1e4, PLACE[1]) for number in range(7)))
    clock = StandingClock()  # nothing expires before the page is there
    shown = screen(start(limits=ServeLimits(keys=3), clock=clock)).look_at(*PLACE)
    expect(shown.test("partial-vehicles")).to_have_text("showing 3 of 7")
    shown.shoot("partial")
    clock.ahead = 3_600 * SECOND
    orders(log, ("ada", "FI", 9.0), time=now())
    expect(shown.test("partial-vehicles")).to_be_hidden()
