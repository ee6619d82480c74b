"""The figures of the live map's page: how much of the browser's main thread a frame and a message take.

The page is fed inside the tab (`web/bench`): hexagons that are new every five seconds, and vehicles that report every
second. Headless Chromium draws in software, so frames per second say nothing about a reader's machine; the page's own
work for a frame does.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure, with_aim
from tidewheel.errors import SetupError

__all__ = ["FRAMES", "measure_page"]

FRAMES: Final = 200
CELLS: Final = 5_000
VEHICLES: Final = 2_000

_ROOT = Path(__file__).resolve().parents[1]
_SECONDS = 240
_ARGUMENTS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--no-sandbox"]


def measure_page(say: Callable[[str], object], *, frames: int = FRAMES) -> list[Figure]:
    """The page's own milliseconds, over so many frames after the first ones."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SetupError("the page's figures need Chromium in the path; get it with: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise SetupError(
            f"the page's figures need playwright; get it with: pip install 'tidewheel[dev]' ({error})"
        ) from error
    say("the page is built with a feed of its own ...")
    folder = _built()
    with _served(folder) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS)
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(_SECONDS * 1_000)
            page.goto(f"{url}/index.html?cells={CELLS}&movers={VEHICLES}")
            say(f"{CELLS:,} hexagons and {VEHICLES:,} vehicles are drawn ...")
            page.wait_for_function(_ALL_DRAWN, arg=[CELLS, VEHICLES])
            page.evaluate("() => window.tidewheel.stats.reset()")
            say(f"{frames} frames ...")
            page.wait_for_function("count => window.tidewheel.stats.frames >= count", arg=frames)
            measured: dict[str, Any] = page.evaluate(_MEASURED)
        finally:
            browser.close()
    group = f"The page with {CELLS:,} hexagons and {VEHICLES:,} vehicles that report every second: main thread"
    return [
        with_aim(group, "own work per frame, p50", measured["frame50"], "ms", most=8),
        with_aim(group, "own work per frame, p99", measured["frame99"], "ms", most=16.7),
        Figure(group, "own work per message (ten a second), p50", measured["message50"], "ms"),
        Figure(group, "own work per message, p99", measured["message99"], "ms"),
        Figure(group, "frames that were measured", measured["frames"], ""),
    ]


_ALL_DRAWN = """([cells, movers]) => {
    const drawn = window.tidewheel?.drawn() ?? {};
    return drawn.cells === cells && drawn.movers === movers && window.tidewheel.stats.frames > 3;
}"""
_MEASURED = """() => {
    const {stats} = window.tidewheel;
    const [frame50, frame99] = [stats.frame.quantile(0.5), stats.frame.quantile(0.99)];
    const [message50, message99] = [stats.message.quantile(0.5), stats.message.quantile(0.99)];
    return {frame50, frame99, message50, message99, frames: stats.frames};
}"""


def _built() -> Path:
    """The page with its feed, from the sources beside this package."""
    script = _ROOT / "web" / "build.py"
    if not script.exists():
        raise SetupError(f"the page's figures are measured in a source checkout: there is no {script}")
    done = subprocess.run([sys.executable, str(script), "build:bench"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"the page could not be built for measuring:\n{done.stdout}{done.stderr}")
    return _ROOT / "build" / "page-bench"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The files of a folder, at an address of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
