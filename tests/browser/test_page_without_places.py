"""Results that are nowhere: the page opens on plots and tables, whether the log is busy, at rest or empty."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.browser_support import Screen, centre
from tests.support.serve_support import CELLS, counts, hexadecimal, orders, revenue, sessions
from tidewheel.model.time import now
from tidewheel.serve import serve
from tidewheel.serve.layers.layer import Figure, Layer, Scale, Value
from tidewheel.transport.open_log import open_log

pytestmark = pytest.mark.long

SECOND = 1_000_000
MINUTE = 60 * SECOND
LONG = "an-account-with-a-very-long-name-indeed@department.example-company.com"
OUTSIDE = """selector => {
    const [table, scroll] = ["table", ".scroll"].map((each) => document.querySelector(`${selector} ${each}`));
    scroll.scrollLeft = 1e6;
    const last = table.rows[1].cells[table.rows[1].cells.length - 1].getBoundingClientRect();
    const seen = scroll.getBoundingClientRect();
    const on = document.elementFromPoint(last.right - 20, last.top + last.height / 2);
    return {right: last.right - Math.min(seen.right, innerWidth), on: on?.closest("td")?.textContent ?? on?.tagName};
}"""


def board(shown: Screen, fragment: str = "") -> Screen:
    """Open it, and wait until it is connected: there is no map to be drawn."""
    shown.page.goto(f"{shown.url}/{'#' + fragment if fragment else ''}")
    expect(shown.connection).to_have_attribute("data-state", "open")
    expect(shown.page.locator("html")).to_have_attribute("data-view", "board")
    return shown


def shop(log, *, until: int, minutes: int = 8) -> None:
    """Orders, the revenue of each minute by country, and sessions of different lengths."""
    last = until // MINUTE * MINUTE
    for step in reversed(range(minutes)):
        end = last - step * MINUTE
        orders(log, ("ada", "FI", 12.0), time=end - SECOND)
        revenue(log, {"FI": (90.0 + step, 3), "DE": (400.0 - step, 11)}, end=end, watermark=end)
    sessions(log, ("ada", last - 25 * MINUTE, last - 2 * MINUTE, 5, 120.5), (LONG, last - MINUTE, last, 1, 9.0))
    sessions(log, ("ken", last - 3 * MINUTE, last + MINUTE, 2, 44.0), timing="EARLY", watermark=last)


@pytest.mark.parametrize(("width", "height", "theme"), [(1280, 800, "light"), (1280, 800, "dark"), (390, 844, "dark")])
def test_plots_and_tables_fill_the_page_and_nothing_is_cut_off(log, start, screen, width, height, theme):
    shop(log, until=now())
    shown = board(screen(start(), viewport={"width": width, "height": height}, color_scheme=theme))
    expect(shown.page.locator("#map")).to_be_hidden()
    expect(shown.page.get_by_role("main")).to_have_attribute("id", "board")
    earnings, visits = (shown.page.locator(f"[data-card={name}]") for name in ("revenue", "sessions"))
    plot = earnings.locator("[data-plot=revenue] [role=img]")
    expect(plot).to_have_attribute("aria-label", re.compile("^revenue: DE 400; FI 90; from "))
    expect(plot.locator("canvas")).to_be_visible()
    expect(earnings.locator("[data-plot=orders] canvas")).to_be_attached()
    expect(earnings.locator(".line-keys li")).to_have_text(["DE", "FI"])
    shown.until("() => document.querySelector('[data-plot=revenue] .u-over') !== null")
    expect(visits.locator("[data-plot=spent] [role=img]")).to_have_attribute(
        "aria-label", re.compile("^spent: 3 results from ")
    )
    expect(visits.locator("thead th")).to_have_text(["user", "orders", "spent", "window"])
    expect(visits.locator("tbody tr")).to_have_count(3)
    expect(visits.locator("tr[data-key=ken]")).to_have_class("provisional")
    expect(visits.locator("tbody th").filter(has_text=LONG)).to_have_attribute("title", LONG)
    for name in ("revenue", "sessions"):
        shown.page.locator(f"[data-card={name}] .scroll").scroll_into_view_if_needed()
        seen = shown.evaluate(OUTSIDE, f"[data-card={name}]")
        assert seen["right"] <= 0.5
        assert re.fullmatch(r"\d\d:\d\d:\d\d – \d\d:\d\d:\d\d", seen["on"]), "the last column is there to be read"
    assert shown.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the page"
    assert "c=" not in shown.page.url
    shown.evaluate("() => { document.getElementById('board').scrollTop = 0; }")


def test_new_results_come_into_plots_and_tables_and_a_row_shows_more(log, start, screen):
    at = now() // MINUTE * MINUTE
    shop(log, until=at)
    shown = board(screen(start(), viewport={"width": 1280, "height": 800}))
    earnings = shown.page.locator("[data-card=revenue]")
    expect(earnings.locator("tr[data-key=DE]")).to_contain_text("400")
    revenue(log, {"FI": (777.0, 3)}, end=at + MINUTE)
    expect(earnings.locator("tr[data-key=FI]")).to_contain_text("777")
    expect(earnings.locator("tbody tr").first).to_have_attribute("data-key", "FI")  # the newest first
    plot = earnings.locator("[data-plot=revenue] [role=img]")
    expect(plot).to_have_attribute("aria-label", re.compile("^revenue: FI 777; DE 400; from "))
    earnings.locator("tr[data-key=DE] button").click()
    expect(shown.test("details-name")).to_have_text("country DE")
    shown.page.keyboard.press("Escape")
    shown.toggle("revenue")
    expect(earnings).to_have_count(0)
    shown.toggle("revenue")
    expect(earnings.locator("tr[data-key=FI]")).to_contain_text("777")


def test_a_map_comes_when_something_has_a_place(log, start, screen):
    shop(log, until=now())
    shown = board(screen(start()))
    counts(log, {CELLS["here"]: 4}, end=now() // SECOND * SECOND)
    expect(shown.page.locator("html")).to_have_attribute("data-view", "map")
    expect(shown.page.locator("#map")).to_be_visible()
    expect(shown.page.locator("#board")).to_be_hidden()
    lon, lat = centre(CELLS["here"])
    shown.evaluate("([lon, lat]) => window.tidewheel.app.map.flyTo(lon, lat)", [lon, lat])
    shown.shows("vehicle-distribution", {hexadecimal(CELLS["here"]): 4})
    shown.page.keyboard.press("t")
    expect(shown.test("tables").locator("tr[data-key=DE]")).to_be_visible()


def test_an_empty_log_says_what_to_do_until_there_are_results(log, start, screen):
    shown = board(screen(start(), viewport={"width": 1280, "height": 800}))
    expect(shown.test("nothing-yet")).to_contain_text("Nothing is in this log yet")
    expect(shown.test("nothing-yet")).to_contain_text("tidewheel run JOB.py --log LOG")
    expect(shown.page.locator("#map")).to_be_hidden()
    shown.shoot("empty")
    orders(log, ("ada", "FI", 12.0), time=now())
    expect(shown.test("nothing-yet")).to_contain_text("A job makes results of them")
    revenue(log, {"FI": (12.0, 1)}, end=now() // MINUTE * MINUTE)
    expect(shown.page.locator("[data-card=revenue] tbody tr")).to_have_count(1)
    expect(shown.test("nothing-yet")).to_be_hidden()


def test_a_log_at_rest_for_hours_is_shown_as_it_was_and_says_since_when(tmp_path, screen):
    at = now() // MINUTE * MINUTE - 3 * 60 * MINUTE
    with open_log(tmp_path / "rest.tw", clock=lambda: at, sync="normal") as log:
        shop(log, until=at)
    with open_log(tmp_path / "rest.tw", sync="normal") as log, serve(log, port=0) as server:
        shown = board(screen(server, viewport={"width": 1280, "height": 800}, timezone_id="UTC"))
        shown.forgive("ERR_CONNECTION_REFUSED", "WebSocket connection to", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")
        expect(shown.page.locator("[data-card=sessions] tbody tr")).to_have_count(3)
        expect(shown.page.locator("[data-card=revenue] tbody tr")).to_have_count(2)
        expect(shown.test("watermark")).to_have_text(re.compile(r"^at rest since (\w+ \d+ \w+, )?\d\d:\d\d"))
        expect(shown.test("live")).to_have_text("At rest")
        event_time = shown.evaluate("() => window.tidewheel.app.state.status.value.event_time")
        assert event_time == (at - SECOND) // 1_000
        since = shown.evaluate("() => window.tidewheel.app.state.status.value.now")
        seen = set()
        for _ in range(40):
            seen.add(shown.test("clock").inner_text())
            shown.evaluate("() => new Promise((done) => setTimeout(done, 50))")
        assert len(seen) == 1, "the event clock stands"
        shown.until("since => window.tidewheel.app.state.status.value.now > since + 2000", since)
        assert shown.evaluate("() => window.tidewheel.view()") == {"revenue": 2, "sessions": 3}
        orders(log, ("ada", "FI", 12.0), time=now())
        expect(shown.test("watermark")).to_have_text(re.compile("^watermark .* behind$"))
        expect(shown.test("live")).to_have_text("Live")


def test_a_layer_of_ones_own_gives_the_page_titles_units_and_order(log, start, screen):
    shop(log, until=now())
    layer = Layer(
        topic="analytics.revenue",
        title="Revenue by country",
        about="Each minute, from paid orders.",
        key=["country"],
        value=Value(field="revenue", label="revenue", unit="€"),
        scale=Scale(kind="sequential", domain=[0, 500]),
        figures=[Figure(field="revenue", label="revenue", unit="€"), Figure(field="orders", label="orders")],
        filters=["country"],
    )
    shown = board(screen(start(layers=[layer]), viewport={"width": 1280, "height": 800}))
    card = shown.page.locator("[data-card=revenue]")
    expect(card.locator("h2")).to_have_text("Revenue by country")
    expect(card.locator(".about")).to_have_text("Each minute, from paid orders.")
    expect(card.locator("figcaption")).to_have_text(["revenue, €", "orders"])
    expect(card.locator("thead th")).to_have_text(["country", "revenue, €", "orders", "window"])
    shown.chip("country", "FI").click()
    expect(card.locator("tbody tr")).to_have_count(1)
    expect(card.locator("[data-plot=revenue] [role=img]")).to_have_attribute(
        "aria-label", re.compile("^revenue in €: FI 90; from ")
    )


def test_the_board_is_reached_by_keyboard_and_has_names_for_screen_readers(log, start, screen):
    shop(log, until=now())
    shown = board(screen(start(), viewport={"width": 1280, "height": 800}))
    expect(shown.page.locator("[data-card=sessions] tbody tr")).to_have_count(3)
    shown.page.get_by_role("button", name="Sessions as a table").focus()
    shown.page.keyboard.press("Enter")
    expect(shown.page.locator("#card-sessions")).to_be_focused()
    shown.page.keyboard.press("Tab")
    expect(shown.page.get_by_role("region", name="Table of results: Sessions")).to_be_focused()
    shown.page.keyboard.press("Tab")
    shown.page.keyboard.press("Enter")
    expect(shown.test("details-name")).to_have_text("user ken")
    images = shown.page.locator("#board [role=img]")
    assert all(name for name in images.evaluate_all("all => all.map((it) => it.getAttribute('aria-label'))"))
    for name in ("Revenue", "Sessions"):
        expect(shown.page.get_by_role("region", name=name, exact=True)).to_be_visible()
