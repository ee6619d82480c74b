"""Without a mouse, and without eyes: everything is reached by keyboard, and a screen reader has words for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.browser_support import Screen, centre
from tests.support.serve_support import CELLS, counts, stop_of, vehicles
from tidewheel.model.time import now
from tidewheel.serve import serve

pytestmark = pytest.mark.long

SECOND = 1_000_000
HERE = CELLS["here"]
PLACE = centre(HERE)
FOCUS = """() => {
    const it = document.activeElement;
    if (it === document.body) return null;
    const box = it.getBoundingClientRect();
    // A switch is drawn beside the box that has the focus.
    const drawn = it.getAttribute("role") === "switch" ? it.nextElementSibling : it;
    const style = getComputedStyle(drawn);
    return {
        what: it.id || it.dataset.test || it.dataset.value || it.getAttribute("aria-label") || it.textContent,
        in: it.closest("#map, #strip, #layers, #info, #time")?.id ?? "page",
        seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
        there: box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight,
    };
}"""


def some_results(log) -> None:
    lon, lat = PLACE
    vehicles(log, (1, lon, lat), (2, lon + 0.004, lat), mode=["bus", "tram"], speed=[3.0, 9.5])
    counts(log, {HERE: 7}, end=now() // SECOND * SECOND)
    stop_of(log, 1)


def steps(shown: Screen, *, backward: bool = False) -> Iterator[dict[str, Any]]:
    """What has the focus after each Tab, until it has been everywhere."""
    passed: list[str] = []
    while True:
        shown.page.keyboard.press("Shift+Tab" if backward else "Tab")
        focus = shown.evaluate(FOCUS)
        if focus is None or (passed and focus["what"] == passed[0]):
            return
        passed.append(focus["what"])
        assert len(passed) < 100, f"the focus goes round in circles: {passed}"
        yield focus


def tab_to(shown: Screen, what: str) -> None:
    """As a reader does who looks for it."""
    if not any(focus["what"] == what for _ in range(2) for focus in steps(shown)):  # over the end, to the start
        raise AssertionError(f"Tab never came to {what}")


def test_tab_goes_through_all_of_the_page_in_its_order_and_one_sees_where_it_is(log, start, screen):
    some_results(log)
    shown = screen(start()).look_at(*PLACE)
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})
    expect(shown.alerts).to_have_count(1)
    passed = list(steps(shown))
    parts = [focus["in"] for focus in passed]
    assert sorted(set(parts), key=parts.index) == ["page", "map", "strip", "layers", "info", "time"]
    assert parts == sorted(parts, key=["page", "map", "strip", "layers", "info", "time"].index), "each part once"
    names = [focus["what"] for focus in passed]
    for what in ("zoom-in", "connection", "theme", "help", "layer-vehicles", "colour-vehicles", "trails-vehicles"):
        assert what in names
    for what in ("bus", "tram", "tab-alerts", "back", "play", "forward", "slider", "live"):
        assert what in names
    assert [focus["what"] for focus in passed if not focus["seen"]] == [], "where one does not see the focus"
    assert [focus["what"] for focus in passed if not focus["there"]] == [], "what is out of sight"
    assert [focus["what"] for focus in steps(shown, backward=True)] == names[::-1], "and the same way back"


def test_all_is_done_by_keyboard_alone(log, start, screen):
    some_results(log)
    shown = screen(start()).look_at(24.6, 60.3, zoom=13)
    press = shown.page.keyboard.press
    expect(shown.alerts).to_have_count(1)

    press("Tab")
    press("Enter")
    expect(shown.page.locator("#layers")).to_be_focused()
    assert "z=13" in shown.page.url, "the address still holds what is seen"

    shown.open(f"c={PLACE[0]:.5f},{PLACE[1]:.5f}&z=14", query="?again")
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})
    tab_to(shown, "tram")
    press("Enter")
    shown.shows("vehicles", {"1/2": "tram"})
    expect(shown.chip("mode", "tram")).to_be_focused()
    press("Space")
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})

    expect(shown.alerts).to_have_count(1)
    tab_to(shown, "tab-alerts")
    press("Tab")  # over the button that closes the panel
    press("Tab")
    press("Enter")
    expect(shown.test("details-name")).to_contain_text("vehicle 1")
    expect(shown.page.locator("#tab-details")).to_be_focused()
    shown.until("() => Math.abs(window.tidewheel.app.map.camera.value.lon - 24.9) < 1e-4")
    press("ArrowRight")
    expect(shown.page.locator("#tab-alerts")).to_be_focused()

    press("Escape")
    press("Escape")
    expect(shown.page.locator("#info")).to_have_js_property("inert", True)
    expect(shown.test("open-info")).to_be_focused()
    press("Enter")
    expect(shown.page.locator("#tab-alerts")).to_be_focused()
    tab_to(shown, "close-layers")
    press("Enter")
    expect(shown.test("open-layers")).to_be_focused()
    press("Enter")
    expect(shown.page.locator("#layers")).to_be_focused()

    tab_to(shown, "slider")
    press("ArrowLeft")
    expect(shown.page.locator("html")).to_have_attribute("data-moment", "past")
    tab_to(shown, "live")
    press("Space")
    expect(shown.page.locator("html")).to_have_attribute("data-moment", "live")


def test_the_details_keep_the_focus_while_results_come(log, start, screen):
    lon, lat = PLACE
    first = now()
    vehicles(log, (1, lon, lat), time=first - SECOND, speed=3.0, delay=12)
    shown = screen(start()).look_at(lon, lat, more="sel=vehicles:1/1")
    shown.test("details").locator("canvas").wait_for()
    tab_to(shown, "plot-field")
    shown.page.keyboard.press("ArrowDown")
    expect(shown.test("plot-field")).to_have_value("delay")
    for step in range(3):
        vehicles(log, (1, lon, lat + step * 0.001), time=first + step * SECOND, speed=4.0 + step, delay=12)
        expect(shown.page.locator("[data-figure=speed] dd")).to_have_text(f"{4 + step} m/s")
    expect(shown.test("plot-field")).to_be_focused()
    expect(shown.test("plot-field")).to_have_value("delay")
    shown.page.keyboard.press("Tab")
    expect(shown.test("go-there")).to_be_focused()
    vehicles(log, (1, lon, lat + 0.003), time=first + 9 * SECOND, speed=9.0, delay=12)
    expect(shown.page.locator("[data-figure=speed] dd")).to_have_text("9 m/s")
    expect(shown.test("go-there")).to_be_focused()
    shown.page.keyboard.press("Enter")
    shown.until("lat => Math.abs(window.tidewheel.app.map.camera.value.lat - lat) < 1e-4", lat + 0.003)


# As a screen reader has it.

PRESSED = {"button", "link", "checkbox", "switch", "combobox", "slider", "tab", "textbox", "searchbox", "application"}
Node = dict[str, Any]


def tree(shown: Screen) -> list[Node]:
    """What Chromium tells screen readers of the page, in its order."""
    session = shown.page.context.new_cdp_session(shown.page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    return [_plain(node) for node in nodes if not node["ignored"]]


def _plain(node: Node) -> Node:
    reported = {each["name"]: each["value"].get("value") for each in node.get("properties", [])}
    name = node.get("name", {}).get("value", "").strip()
    return {
        **reported,
        "id": node["nodeId"],
        "parent": node.get("parentId"),
        "role": node["role"]["value"],
        "name": name,
    }


def named(nodes: list[Node], role: str) -> list[str]:
    return [node["name"] for node in nodes if node["role"] == role]


def test_a_screen_reader_has_a_name_and_a_role_for_everything(log, start, screen):
    some_results(log)
    shown = screen(start()).look_at(*PLACE, more="sel=vehicles:1/2")
    shown.shows("vehicles", {"1/1": "bus", "1/2": "tram"})
    shown.test("details").locator("canvas").wait_for()
    for tab in ("details", "alerts", "tables", "status"):
        shown.page.locator(f"#tab-{tab}").click()
        expect(shown.page.locator(f"#pane-{tab}")).to_be_visible()
        nodes = tree(shown)
        assert [node for node in nodes if node["role"] in PRESSED and not node["name"]] == []
        strangers = [node for node in nodes if node.get("focusable") and node["role"] not in PRESSED]
        assert {node["role"] for node in strangers} <= {"RootWebArea", "complementary", "region", "option"}
        assert [node for node in strangers if not node["name"]] == []
        assert [node for node in nodes if node["role"] == "img" and not node["name"]] == [], "plots say what they show"
        assert [node["name"] for node in nodes if node["role"] == "tab" and node.get("selected")] == [
            {"alerts": "Alerts 1"}.get(tab, tab.title())
        ]
    assert named(nodes, "main") == ["Map"]
    assert named(nodes, "complementary") == ["Layers and filters", "Details, alerts, tables and status"]
    assert "Time" in named(nodes, "region")
    assert named(nodes, "heading")[:3] == ["Tidewheel", "Layers", "Filters"]
    assert named(nodes, "slider") == ["Time within the last hour"]
    expect(shown.test("slider")).to_have_attribute("aria-valuetext", "live")
    on = [node["name"] for node in nodes if node["role"] == "switch" and node["checked"] in ("true", True)]
    assert [name.rstrip(" 0123456789") for name in on] == ["Vehicles", "Vehicles per cell", "Emergency stops"]


def announced(shown: Screen, text: str) -> None:
    """Wait until a screen reader is given this to say when its reader pauses."""

    def said() -> bool:
        nodes = tree(shown)
        polite = {node["id"] for node in nodes if node.get("live") == "polite"}
        return any(text in node["name"] and node["parent"] in polite for node in nodes)

    shown.sees(said, f"{text!r} announced")


def test_alerts_and_the_connection_are_announced_and_the_clocks_are_not(log, start, screen):
    some_results(log)
    with serve(log, port=0, speed=0.1) as server:
        shown = screen(server).look_at(*PLACE)
        shown.forgive("ERR_CONNECTION_REFUSED", "WebSocket connection to", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")
        expect(shown.alerts).to_have_count(1)
        stop_of(log, 77)
        announced(shown, "Emergency stops: operator 1 · vehicle 77")
        live = shown.page.locator("[aria-live], [role=status], [role=alert], [role=log], [role=timer], output")
        names = live.evaluate_all("all => all.map((it) => it.id || it.className)")
        assert sorted(names) == ["announcer", "note", "toast"], "nothing that changes by itself every second"
    announced(shown, "The connection was lost. Reconnecting.")
    start(port=server.port)
    announced(shown, "Connected.")
