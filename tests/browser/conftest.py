"""A browser for each file of tests, a fresh page for each test, and servers of its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.browser_support import ARGUMENTS, CHROMIUM, Screen
from tests.support.serve_support import servers
from tidewheel.serve import Server
from tidewheel.serve.http.page import Page as BuiltPage
from tidewheel.transport.log.log import Log

_WATER = {"type": "FeatureCollection", "features": []}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ends with the file: while it is there, nothing else in this process can use asyncio."""
    if CHROMIUM is None:
        pytest.skip("no Chromium in the path: apt-get install chromium")
    if not BuiltPage().built:
        pytest.skip("the page is not built: make web")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def start(log: Log) -> Iterator[Callable[..., Server]]:
    """Starts servers of the log, which end with the test. By default results expire slowly: a browser that draws in
    software on a busy machine takes its time."""
    with servers(log, speed=0.1) as start:
        yield start


@pytest.fixture
def screen(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Screen]]:
    """Makes pages, as a reader's browser would be. How each looks in the end is kept, and none may have complained.

    Without `land` the map is all water: the shores of a whole region take seconds a frame where no graphics card is.
    """
    screens = []
    with ExitStack() as stack:

        def screen(server: Server | str, *, land: bool = False, **options: Any) -> Screen:
            settings = {"viewport": {"width": 960, "height": 600}, "reduced_motion": "reduce", "color_scheme": "light"}
            context = stack.enter_context(browser.new_context(**{**settings, **options}))  # type: ignore[arg-type]
            if not land:
                context.route("**/land.json", lambda route: route.fulfill(json=_WATER))
            url = server if isinstance(server, str) else server.url
            screens.append(Screen(context.new_page(), url, request.node.name.removeprefix("test_")))
            return screens[-1]

        yield screen
        for shown in screens:
            shown.shoot()
        complaints = [text for shown in screens for text in shown.unforgiven()]
    assert not complaints, "the page complained in the browser's console"
