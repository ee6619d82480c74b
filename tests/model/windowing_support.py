"""What the tests of windowing share: tiny aggregates, and a way to run the reference step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidewheel.model.panes import Element, Pane
from tidewheel.model.reference.windows import Reference
from tidewheel.model.windowing import Windowing


@dataclass(frozen=True)
class Values:
    """All values, in the order of their arrival."""

    mergeable: bool = True

    def of(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        return [row["v"] for row in rows]


def at(time: int | None, value: Any = 1, key: Any = "k", **more: Any) -> Element:
    return Element(time, (key,), {"v": value, **more})


class Run:
    """The reference with one aggregate, `v`; watermark and clock stay where they are unless told otherwise."""

    def __init__(self, windows: Any, trigger: Any = None, **options: Any) -> None:
        if trigger is not None:
            options["trigger"] = trigger
        self.reference = Reference(Windowing(windows, {"v": Values()}, allow_loss=True, **options))
        self.clock = 0
        self.late: list[tuple[Any, str, int | None]] = []

    def panes(self, *elements: Element, watermark: int | None = None, clock: int | None = None) -> list[Pane]:
        self.clock = self.clock if clock is None else clock
        output = self.reference.step(elements, watermark=watermark, clock=self.clock)
        self.late += [(late.element.values["v"], late.reason, late.by) for late in output.late]
        return output.panes

    def step(self, *elements: Element, watermark: int | None = None, clock: int | None = None) -> list[Any]:
        """Panes in short: (start, end, values, timing and index), a retraction with a minus before its timing."""
        panes = self.panes(*elements, watermark=watermark, clock=clock)
        return [
            (
                *pane.window,
                "".join(map(str, pane.values["v"])),
                f"{'-' * pane.retraction}{pane.timing.value} {pane.index}",
            )
            for pane in panes
        ]
