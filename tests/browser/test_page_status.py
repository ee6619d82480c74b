"""The page's account of the stream's health."""

from __future__ import annotations

from playwright.sync_api import expect
from serve_support import vehicles

from tidewheel.model.time import duration, now
from tidewheel.model.watermark_hold import Holder
from tidewheel.transport.held_watermarks import HeldWatermarks


def test_a_watermark_that_is_held_is_told_with_who_holds_it_until_it_moves(log, start, screen):
    vehicles(log, (1, 24.94, 60.17))
    at = now()
    job = HeldWatermarks(log)
    job.tell("final-stops", [Holder("input.door", 2, at - duration("5 min"), None, at - duration("5 min"))], now=at)
    shown = screen(start()).look_at(24.94, 60.17)
    shown.page.locator("#tab-status").click()
    held = shown.test("held")
    expect(held).to_contain_text("final-stops watermark held by input.door/2 for 5 min")
    expect(held).to_contain_text("never an event")
    shown.shoot()
    job.tell("final-stops", [], now=now())
    expect(held).to_be_hidden()
