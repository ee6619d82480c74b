"""Pause, rewind, and back to live; and the clock."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.browser_support import centre
from tests.support.serve_support import CELLS, counts, hexadecimal, stop_of
from tidewheel.model.time import now

pytestmark = pytest.mark.long

SECOND = 1_000_000
HERE = CELLS["here"]
KEY = hexadecimal(HERE)
PLACE = centre(HERE)
CLOCKS = "() => ['clock', 'moment'].map((name) => document.querySelector(`[data-test=${name}]`).textContent)"

SHOWN = "() => window.tidewheel.app.eventClock.shown.value"


def test_rewinding_shows_the_past_and_live_is_a_click_away(log, start, screen):
    shown = screen(start()).look_at(*PLACE)
    end = now() // SECOND * SECOND
    counts(log, {HERE: 3}, end=end)
    shown.shows("vehicle-distribution", {KEY: 3})
    reported = shown.evaluate("() => window.tidewheel.app.clock.now()")
    shown.until("since => window.tidewheel.app.clock.now() > since + 3000", reported)
    counts(log, {HERE: 9}, end=end + 5 * SECOND)
    shown.shows("vehicle-distribution", {KEY: 9})

    shown.test("slider").focus()
    back = shown.evaluate("since => Math.ceil((window.tidewheel.app.clock.now() - since - 1500) / 1000)", reported)
    for _ in range(back):
        shown.page.keyboard.press("ArrowLeft")
    shown.shows("vehicle-distribution", {KEY: 3})
    expect(shown.page.locator("html")).to_have_attribute("data-moment", "past")
    expect(shown.test("moment")).to_contain_text("ago")
    clocks = [shown.evaluate(CLOCKS) for _ in range(20)]
    assert all(bar.startswith(strip) for strip, bar in clocks), "the strip and the time bar tell the same event time"
    assert len({strip for strip, _ in clocks}) == 1, "and it stands still"
    shown.until(r"() => /[#&]t=\d+/.test(location.hash)")
    shown.shoot("past")

    counts(log, {HERE: 5}, end=end + 10 * SECOND)
    stop_of(log, 1)
    expect(shown.page.locator("[data-test=alerts] li, [data-test=alerts] .empty").first).to_be_attached()
    shown.shows("vehicle-distribution", {KEY: 3})  # what is new does not disturb
    shown.test("live").click()
    shown.shows("vehicle-distribution", {KEY: 5})
    expect(shown.page.locator("html")).to_have_attribute("data-moment", "live")
    expect(shown.alerts).to_have_count(1)
    shown.until("() => !/[#&]t=/.test(location.hash)")


def test_a_past_that_plays_moves_on_and_becomes_live_when_it_has_caught_up(log, start, screen):
    shown = screen(start()).look_at(*PLACE)
    end = now() // SECOND * SECOND
    counts(log, {HERE: 3}, end=end)
    shown.shows("vehicle-distribution", {KEY: 3})
    reported = shown.evaluate("() => window.tidewheel.app.clock.now()")
    shown.until("since => window.tidewheel.app.clock.now() > since + 4000", reported)
    counts(log, {HERE: 9}, end=end + 5 * SECOND)
    shown.shows("vehicle-distribution", {KEY: 9})
    since = shown.evaluate("() => window.tidewheel.app.clock.now()")
    shown.until("time => window.tidewheel.app.state.status.value.event_time >= time", (end + 4 * SECOND) // 1_000)
    # Long enough to be seen when it is played, even if frames take their time.
    shown.until("since => window.tidewheel.app.clock.now() > since + 4000", since)
    counts(log, {HERE: 5}, end=end + 60 * SECOND)
    shown.shows("vehicle-distribution", {KEY: 5})

    shown.test("slider").focus()
    back = shown.evaluate("since => Math.ceil((window.tidewheel.app.clock.now() - since - 1500) / 1000)", reported)
    for _ in range(back):
        shown.page.keyboard.press("ArrowLeft")
    shown.shows("vehicle-distribution", {KEY: 3})
    clocks, before = shown.evaluate(CLOCKS), shown.evaluate(SHOWN)
    shown.test("play").click()
    expect(shown.test("play")).to_have_attribute("aria-label", "Pause")
    shown.shows("vehicle-distribution", {KEY: 9})
    shown.until(f"before => ({SHOWN})() > before", before)
    shown.until(f"before => ({CLOCKS})().every((text, n) => text.slice(0, 8) !== before[n].slice(0, 8))", clocks)
    expect(shown.page.locator("html")).to_have_attribute("data-moment", "past")
    expect(shown.test("moment")).to_contain_text("ago")
    shown.shoot("playing")

    for _ in range(4):
        shown.test("speed").click()
    expect(shown.page.locator("html")).to_have_attribute("data-moment", "live")
    shown.shows("vehicle-distribution", {KEY: 5})


def test_pause_holds_what_is_seen_and_before_there_was_nothing(log, start, screen):
    end = now() // SECOND * SECOND
    counts(log, {HERE: 3}, end=end)
    shown = screen(start()).look_at(*PLACE)
    shown.shows("vehicle-distribution", {KEY: 3})
    shown.page.keyboard.press("Space")
    expect(shown.page.locator("html")).to_have_attribute("data-moment", "past")
    expect(shown.test("play")).to_have_attribute("aria-label", "Play")
    counts(log, {HERE: 9}, end=end + 5 * SECOND)
    shown.page.keyboard.press(",")
    shown.shows("vehicle-distribution", {})
    shown.page.keyboard.press("Home")
    shown.shows("vehicle-distribution", {KEY: 9})


def test_the_details_of_a_replay_have_their_plot_though_its_events_are_years_old(log, start, screen):
    end = (now() - 5 * 365 * 86_400 * SECOND) // SECOND * SECOND
    for step in range(5):
        counts(log, {HERE: 3 + step}, end=end + step * 60 * SECOND)
    shown = screen(start()).look_at(*PLACE, more=f"tab=details&sel=vehicle-distribution:{KEY}")
    expect(shown.test("details-value")).to_have_text("7")
    plot = shown.test("details").locator("[data-test=plot]")
    expect(plot).to_have_attribute("data-seconds", "240")
    shown.page.keyboard.press("Space")
    expect(shown.page.locator("html")).to_have_attribute("data-moment", "past")
    expect(plot).to_have_attribute("data-seconds", "240")


def test_the_strip_shows_event_time_watermark_and_rates(log, start, screen):
    end = now() // SECOND * SECOND
    counts(log, {HERE: 3}, end=end, watermark=end)
    shown = screen(start(speed=1.0)).look_at(*PLACE)
    expect(shown.test("clock")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    expect(shown.test("watermark")).to_have_text(re.compile(r"^watermark [\d.]+ m?s behind$"))
    expect(shown.test("results")).to_contain_text("/s")
    expect(shown.test("dead")).to_have_text("0")
