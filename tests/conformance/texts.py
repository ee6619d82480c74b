"""The windows and triggers of the cases, which are written as text."""

from __future__ import annotations

import re

from tidewheel.model import triggers, windows
from tidewheel.model.panes import END_OF_TIME, Window
from tidewheel.model.triggers import Trigger
from tidewheel.model.windows import Windows


def _processing_time(
    *, delay: str = "0 s", align_period: str | None = None, align_offset: str = "0 s", again_at_once: bool = False
) -> Trigger:
    return triggers.after_processing_time(delay, period=align_period, offset=align_offset, unchanged=again_at_once)


_TRIGGERS = {
    "Never": triggers.never,
    "Always": triggers.each_batch,
    "Default": triggers.default,
    "AfterCount": triggers.after_count,
    "AfterWatermark": triggers.after_watermark,
    "AfterProcessingTime": _processing_time,
    "Every": triggers.every,
    "Repeatedly": triggers.repeatedly,
    "AfterAny": triggers.any_of,
    "AfterAll": triggers.all_of,
    "AfterEach": triggers.in_order,
    "OrFinally": triggers.or_finally,
}


def trigger_of(text: str, *, unchanged: bool = False, again_at_once: bool = False) -> Trigger:
    """The trigger. again_at_once: a processing-time trigger is armed anew by its firing, not by an element."""
    text = re.sub(r"every (\d+)ms processing time", rf'Every("\1 ms", aligned=True, unchanged={unchanged})', text)
    text = re.sub(
        r"first element in pane, aligned to (\d+)s with offset 12:(\d\d):(\d\d)",
        lambda found: f"align_period={found[1]}s, align_offset={int(found[2]) * 60 + int(found[3])}s",
        text,
    )
    text = re.sub(r"first element in pane \+ (\d+)s", r"delay=\1s", text)
    text = re.sub(r"=([\d.]+)s", r'="\1 s"', text.replace(" then ", ", "))
    if again_at_once:
        text = re.sub(r"(AfterProcessingTime\([^)]*)\)", r"\1, again_at_once=True)", text)
    found = eval(text, {"__builtins__": {}}, dict(_TRIGGERS))  # the cases are trusted as the tests are
    return found if isinstance(found, Trigger) else found()


def windows_of(text: str, *, transformed: bool = False) -> Windows:
    """The windows. transformed: the custom timestamps of windows that have them are asked for."""
    if found := re.fullmatch(r"(?:FixedWindows\((\d+)\)|fixed\((\d+)(ms|s)\))", text):
        return windows.tumbling(f"{found[1] or found[2]} {found[3] or 's'}")
    if found := re.fullmatch(r"Sessions\((\d+)\)", text):
        return windows.session(gap=f"{found[1]} s")
    if found := re.fullmatch(r"sliding\((\d+)ms every (\d+)ms\)", text):
        return windows.sliding(f"{found[1]} ms", every=f"{found[2]} ms")
    if text == "global":
        return windows.global_()
    if found := re.fullmatch(r"CustomTimestampingFixedWindowsWindowFn\((\d+)\)", text):
        grid = windows.tumbling(f"{found[1]} s")
        if not transformed:
            return grid
        return windows.custom(lambda time: grid.assign(time, ()), timestamp=lambda window, time: time + 100_000_000)
    if text == "custom: [ts, ts of next element)":
        return windows.custom(lambda time: [(time, END_OF_TIME)], merge=_until_the_next)
    raise ValueError(f"windows of an unknown kind: {text!r}")


def _until_the_next(given: list[Window]) -> list[tuple[Window, list[Window]]]:
    """Each window ends where the next begins; those that begin together become one."""
    starts = sorted({window.start for window in given})
    ends = [*starts[1:], max(window.end for window in given)]
    return [
        (Window(start, end), [window for window in given if window.start == start])
        for start, end in zip(starts, ends, strict=True)
    ]
