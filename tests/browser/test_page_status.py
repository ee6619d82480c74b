"""The page's account of the stream's health."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.support.serve_support import positions, vehicles
from tidewheel.model.time import duration, now
from tidewheel.model.watermark_hold import Holder
from tidewheel.transport.topics.held_watermarks import HeldWatermarks
from tidewheel.transport.topics.run_states import FIRST_BATCH, RUNNING, STARTING, RunState, RunStates


def test_a_watermark_that_is_held_is_reported_with_who_holds_it_until_it_moves(log, start, screen):
    vehicles(log, (1, 24.94, 60.17))
    at = now()
    job = HeldWatermarks(log)
    job.report("final-stops", [Holder("input.door", 2, at - duration("5 min"), None, at - duration("5 min"))], now=at)
    shown = screen(start()).look_at(24.94, 60.17)
    shown.page.locator("#tab-status").click()
    held = shown.test("held")
    expect(held).to_contain_text("final-stops watermark held by input.door/2 for 5 min")
    expect(held).to_contain_text("never an event")
    shown.shoot()
    job.report("final-stops", [], now=now())
    expect(held).to_be_hidden()


def test_while_spark_starts_the_page_says_so_and_how_long_it_takes(log, start, screen):
    positions(log, (1, 24.94, 60.17))
    run, since = RunStates(log), now() - duration("8 s")
    run.report("demo", RunState(STARTING, since))
    shown = screen(start()).look_at(24.94, 60.17)
    starting = shown.test("starting")
    expect(starting).to_contain_text("Spark is starting")
    expect(starting).to_contain_text("15 to 40 s")
    shown.until("() => window.tidewheel.view().vehicles === 1")
    shown.shoot()
    run.report("demo", RunState(FIRST_BATCH, since))
    expect(starting).to_contain_text("Spark works on its first batch")
    run.report("demo", RunState(RUNNING, since))
    expect(starting).to_be_hidden()
