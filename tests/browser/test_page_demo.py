"""All of it: from the simulator through Spark to the pixels."""

from __future__ import annotations

import re

import pytest
from browser_support import Screen
from cli_support import Running
from playwright.sync_api import expect


def address(running: Running) -> str:
    assert running.process.stderr is not None
    for line in running.process.stderr:
        if found := re.search(r"the live map: (\S+)", line):
            return found[1]
    raise AssertionError("the demo ended before it told of its map")


def moved(shown: Screen, places: dict[str, list[float]]) -> int:
    now_at = shown.tell(_PLACES)
    return sum(key in now_at and now_at[key] != place for key, place in places.items())


_ENOUGH = "() => window.tidewheel.view().vehicles > 50 && window.tidewheel.view()['vehicle-distribution'] > 20"
_PLACES = "() => Object.fromEntries([...window.tidewheel.app.store.items('vehicles').values()].map(({k, p}) => [k, p]))"


@pytest.mark.slow
def test_the_demo_is_on_the_map_and_moves(tmp_path, screen):
    path = tmp_path / "demo.tw"
    jobs = ["--job", "vehicle-distribution", "--job", "emergency-stop"]
    with Running("demo", *jobs, "--rate", 300, "--port", 0, "--no-open", "--log", path) as demo:
        shown = screen(address(demo)).look_at(24.94, 60.19, zoom=11)
        shown.forgive("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")  # the demo ends first
        shown.until(_ENOUGH, patience=240)  # Spark has to start
        places = shown.tell(_PLACES)
        shown.sees(lambda: moved(shown, places) > 20, "vehicles elsewhere than before")
        shown.until("() => Number.parseInt(document.querySelector('[data-test=events]').textContent) > 0")
        expect(shown.test("watermark")).to_contain_text("watermark −")
        at = shown.place(24.94, 60.19)
        shown.sees(lambda: shown.pixels(at, reach=100).std(axis=(0, 1)).max() > 10, "more than bare water")
        shown.shoot("demo")
