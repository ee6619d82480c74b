"""Makes the picture of the README, `make picture`: the demo with all its jobs, in the dark, after a minute and a half.

Needs Chromium. Where no graphics card is, it takes about three minutes.
"""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.browser_support import ARGUMENTS, CHROMIUM, SHOTS

VIEW = "c=24.935,60.192&z=11.7&on=vehicles,vehicle-distribution,emergency-stop&theme=dark&tab=alerts"
WARM_UP = 90.0
"""Seconds: by then the windows are full, and somebody has braked hard."""
SLOW = 180_000
ENOUGH = """() => {
    const drawn = window.tidewheel.drawn();
    return drawn.vehicles > 200 && drawn["vehicle-distribution"] > 100;
}"""


def main(target: Path) -> None:
    if CHROMIUM is None:
        sys.exit("the picture needs Chromium in the path: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "tidewheel.cli",
            "demo",
            "--port",
            "0",
            "--no-open",
            "--log",
            f"{folder}/city.tw",
        ]
        demo = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            url = address(demo)
            print(f"the demo is at {url}; it runs for {WARM_UP:g} s", flush=True)
            time.sleep(WARM_UP)
            picture = photograph(url)
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate(timeout=SLOW / 1_000)
    SHOTS.mkdir(parents=True, exist_ok=True)
    (SHOTS / "picture.png").write_bytes(picture)
    with Image.open(io.BytesIO(picture)) as image:
        # Few pixels have the colours of legends and rare modes: they are to keep them, and large dark areas theirs.
        small = image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=2)
    small.save(target, optimize=True)
    print(f"{target}: {target.stat().st_size / 1_000:.0f} kB")


def address(demo: subprocess.Popen[str]) -> str:
    assert demo.stderr is not None
    for line in demo.stderr:
        if found := re.search(r"the live map: (\S+)", line):
            return found[1]
    sys.exit("the demo ended before it told of its map")


def photograph(url: str) -> bytes:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            context = browser.new_context(
                viewport={"width": 1440, "height": 900}, reduced_motion="reduce", color_scheme="dark"
            )
            context.set_default_timeout(SLOW)
            page = context.new_page()
            page.set_default_timeout(SLOW)
            page.goto(f"{url}/#{VIEW}")
            page.wait_for_function(ENOUGH, timeout=SLOW)
            page.screenshot()  # the first one waits for shores and names
            return page.screenshot()
        finally:
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
