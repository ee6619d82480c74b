"""The page in a real browser: what it shows, in its elements and in its pixels."""

from __future__ import annotations

import io
import math
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import polars_h3 as plh3
from PIL import Image
from playwright.sync_api import ConsoleMessage, Locator, Page, expect

from tests import ROOT
from tidewheel.model.time import Instant, now

__all__ = ["ARGUMENTS", "CHROMIUM", "PATIENCE", "SHOTS", "Clock", "Screen", "centre", "far", "near", "neighbour"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--no-sandbox",
    "--force-color-profile=srgb",
]
SHOTS = ROOT / "build" / "screenshots"
PATIENCE = 120.0
"""Seconds; drawn in software on a busy machine a frame may take one."""

expect.set_options(timeout=PATIENCE * 1_000)

Colour = tuple[float, float, float]


class Clock:
    """The server's clock, which can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> Instant:
        return now() + self.ahead


class StandingClock(Clock):
    """One that stands still until it is put forward."""

    def __init__(self) -> None:
        super().__init__()
        self._began = now()

    def __call__(self) -> Instant:
        return super().__call__() if self.ahead else self._began


class Screen:
    """A page on the map of a server, and what is seen there."""

    def __init__(self, page: Page, url: str, name: str) -> None:
        self.page = page
        self.url = url
        self.name = name
        self.complaints: list[str] = []
        self.forgiven: list[str] = []
        self._shots = 0
        page.set_default_timeout(PATIENCE * 1_000)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, fragment: str = "", *, query: str = "") -> Screen:
        """Go there, and wait until it is connected and has drawn."""
        self.page.goto(f"{self.url}/{query}{'#' + fragment if fragment else ''}")
        expect(self.connection).to_have_attribute("data-state", "open")
        self.until("() => window.tidewheel.stats.frames > 0 && window.tidewheel.app.map.region !== null")
        return self

    def look_at(self, lon: float, lat: float, *, zoom: float = 14, more: str = "") -> Screen:
        return self.open(f"c={lon:.5f},{lat:.5f}&z={zoom}{'&' + more if more else ''}")

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")

    def forgive(self, *patterns: str) -> None:
        """What the browser itself says of connections that a test breaks."""
        self.forgiven += patterns

    def unforgiven(self) -> list[str]:
        return [text for text in self.complaints if not any(re.search(pattern, text) for pattern in self.forgiven)]

    # What the page tells.

    @property
    def connection(self) -> Locator:
        return self.page.locator("[data-test=connection]")

    @property
    def alerts(self) -> Locator:
        return self.page.locator("[data-test=alerts] li")

    def test(self, name: str) -> Locator:
        return self.page.locator(f"[data-test={name}]")

    def switch(self, layer: str) -> Locator:
        return self.page.locator(f"#layer-{layer}")

    def toggle(self, layer: str) -> None:
        """As a reader does: the box itself is hidden under what is drawn for it."""
        self.page.locator(f"label[for='layer-{layer}']").click()

    def chip(self, field: str, value: str) -> Locator:
        return self.page.locator(f"[data-filter={field}] [data-value='{value}']")

    def evaluate(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)

    def until(self, script: str, argument: Any = None, *, patience: float = PATIENCE) -> None:
        self.page.wait_for_function(script, arg=argument, polling=50, timeout=patience * 1_000)

    def shows(self, layer: str, values: Mapping[str, Any]) -> None:
        """Wait until these items, with these values, and no others are in the page's view, and drawn."""
        script = """([layer, wanted]) => {
            const items = window.tidewheel.app.store.items(layer);
            const drawn = window.tidewheel.drawn()[layer];
            return items.size === Object.keys(wanted).length && (drawn === undefined || drawn === items.size) &&
                Object.entries(wanted).every(([key, value]) => items.get(key)?.v === value);
        }"""
        try:
            self.until(script, [layer, dict(values)])
        except Exception as error:
            items = self.evaluate("layer => [...window.tidewheel.app.store.items(layer).values()]", layer)
            drawn = self.evaluate("() => window.tidewheel.drawn()")
            raise AssertionError(f"{layer} should show {values}, has {items}, draws {drawn}") from error

    # What is to be seen.

    def place(self, lon: float, lat: float) -> tuple[float, float]:
        """The pixel at which a place is drawn."""
        camera = self.evaluate("() => window.tidewheel.app.map.camera.value")
        box = self.page.locator("#map").bounding_box()
        assert box is not None
        size = 512 * 2 ** camera["zoom"]
        x, y = _mercator(lon, lat)
        mid_x, mid_y = _mercator(camera["lon"], camera["lat"])
        return box["x"] + box["width"] / 2 + (x - mid_x) * size, box["y"] + box["height"] / 2 + (y - mid_y) * size

    def pixels(self, at: tuple[float, float], *, reach: int = 2) -> np.ndarray:
        """Red, green and blue around a pixel, as they are on the screen now."""
        size = 2 * reach + 1
        clip = {"x": round(at[0]) - reach, "y": round(at[1]) - reach, "width": size, "height": size}
        with Image.open(io.BytesIO(self.page.screenshot(clip=clip, animations="allow"))) as image:  # type: ignore[arg-type]
            return np.asarray(image.convert("RGB"), dtype=float)

    def colour(self, at: tuple[float, float], *, reach: int = 2) -> Colour:
        red, green, blue = self.pixels(at, reach=reach).mean(axis=(0, 1))
        return float(red), float(green), float(blue)

    def sees(self, look: Callable[[], Any], what: str) -> Any:
        """Look until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not (found := look()):
            if time.monotonic() > deadline:
                self.shoot("in-vain")
                raise AssertionError(f"looked {PATIENCE} s in vain: {what}")
        return found

    def ramp(self, layer: str) -> list[Colour]:
        """The colours of a layer's legend, from low to high."""
        text = self.page.locator(f"[data-layer='{layer}'] .ramp").evaluate("it => getComputedStyle(it).backgroundImage")
        return _colours(text)

    def category(self, layer: str, name: str) -> Colour:
        """The colour that the legend of a layer gives a category."""
        entry = self.page.locator(f"[data-layer='{layer}'] .categories li").get_by_text(name, exact=True)
        (colour,) = _colours(entry.locator("i").evaluate("it => getComputedStyle(it).backgroundColor"))
        return colour

    def shoot(self, what: str = "") -> None:
        """Keep how it looks."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self._shots += 1
        self.page.screenshot(path=SHOTS / f"{self.name}-{self._shots}{'-' + what if what else ''}.png")


def centre(cell: int) -> tuple[float, float]:
    """Longitude and latitude of a cell's centre."""
    frame = pl.DataFrame({"cell": [cell]}, schema={"cell": pl.UInt64})
    return frame.select(plh3.cell_to_lng("cell").alias("lon"), plh3.cell_to_lat("cell").alias("lat")).row(0)


def neighbour(cell: int) -> int:
    """A cell beside it."""
    ring = pl.DataFrame({"cell": [cell]}, schema={"cell": pl.UInt64}).select(plh3.grid_disk("cell", 1).alias("ring"))
    return min(int(found) for found in ring.item() if int(found) != cell)


def far(one: Sequence[float], other: Sequence[float]) -> float:
    """How different two colours are: 0 not at all, 441 black and white."""
    return math.dist(one, other)


def near(one: Sequence[float], other: Sequence[float], within: float = 45) -> bool:
    return far(one, other) <= within


def _mercator(lon: float, lat: float) -> tuple[float, float]:
    return (lon + 180) / 360, (1 - math.asinh(math.tan(math.radians(lat))) / math.pi) / 2


def _colours(css: str) -> list[Colour]:
    found = re.findall(r"rgb\((\d+),? (\d+),? (\d+)\)", css)
    return [(float(red), float(green), float(blue)) for red, green, blue in found]
