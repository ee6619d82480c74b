"""A whole question: what, where in event time, when, and how results relate; refused if it would lose data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal, Protocol

from tidewheel.errors import DefinitionError
from tidewheel.model.panes import END_OF_TIME, Window
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.time import Duration, Instant, duration, format_duration
from tidewheel.model.triggers import Trigger, default
from tidewheel.model.windows import Count, Windows, typed_back

__all__ = ["EarlyWindows", "Mode", "Summarizing", "Timestamp", "Windowing"]

Mode = Literal["delta", "value", "retracting"]
EarlyWindows = Literal["all", "next"]
Timestamp = Literal["end", "earliest", "latest"]

_DEFAULT = default()
_CHOICES: dict[str, tuple[str, ...]] = {
    "mode": ("delta", "value", "retracting"),
    "early_windows": ("all", "next"),
    "timestamp": ("end", "earliest", "latest"),
}


class Summarizing(Protocol):
    """What windowing must know of an aggregate."""

    @property
    def mergeable(self) -> bool:
        """Whether windows that merge can merge its results."""

    def of(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """The result over elements in the order of their arrival; each has its event time as `__time`."""


@dataclass(frozen=True, slots=True, repr=False)
class Windowing:
    """Windows, their aggregates, the trigger, and how panes follow each other.

    mode: a pane has what came since the last ("delta"), everything ("value"), or everything after the last pane was
    retracted ("retracting"). lateness: how long after its end a window still takes elements. early_windows: which of
    a key's open windows may give early panes. timestamp: the event time of a pane. allow_loss: take triggers that
    finish before all accepted elements are shown. weighted: elements have a weight (see `retractable`), and a window of
    which all was retracted is as if it had never been.
    """

    stored: ClassVar[StoredFields] = StoredFields(
        "windows",
        "aggregates",
        "trigger",
        "mode",
        "lateness",
        "early_windows",
        "timestamp",
        "allow_loss",
        "weighted",
        micros=("lateness",),
    )

    windows: Windows
    aggregates: Mapping[str, Summarizing]
    trigger: Trigger = _DEFAULT
    mode: Mode = "value"
    lateness: Duration = 0
    early_windows: EarlyWindows = "all"
    timestamp: Timestamp = "end"
    allow_loss: bool = False
    weighted: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.windows, Windows):
            raise DefinitionError(f'window: expected windows like windows.tumbling("10 s"), got {self.windows!r}')
        if not isinstance(self.trigger, Trigger):
            raise DefinitionError(f"trigger: expected a trigger like triggers.default(), got {self.trigger!r}")
        if not isinstance(self.lateness, (int, str, timedelta)) or isinstance(self.lateness, bool):
            raise DefinitionError(f'lateness must be a duration like "5 s", got {self.lateness!r}')
        object.__setattr__(self, "lateness", duration(self.lateness, what="lateness", bare=True))
        if self.lateness < 0:
            raise DefinitionError(
                f"lateness must not be negative, got {format_duration(self.lateness)}; leave it out, or say how long a "
                'window waits for late rows, like "5 s"'
            )
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise DefinitionError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")
        object.__setattr__(self, "aggregates", dict(self.aggregates))
        self._check_aggregates()
        if isinstance(self.windows, Count):
            self._check_count()
        elif not self.allow_loss:
            self._check_loss()

    @property
    def retracts(self) -> bool:
        """Whether a result may be retracted: always before the next one, or when nothing is left of its window."""
        if self.mode == "value" and self.weighted:
            trigger, merging = self.trigger, self.windows.merging
            once = self.lateness == 0 or (trigger.finishes and not trigger.fires_late and not merging)
            return trigger.fires_early or not once
        return self.mode == "retracting"

    def closes_at(self, window: Window) -> Instant:
        """The watermark at which a window gives its last pane and is forgotten: what comes after that is too late.

        The end of the input closes every window, however long late elements would be accepted.
        """
        return min(window.end + self.lateness, END_OF_TIME)

    def _check_aggregates(self) -> None:
        if not self.aggregates:
            raise DefinitionError("aggregate: at least one is needed, got none; count the elements with n=agg.count()")
        for name, aggregate in self.aggregates.items():
            if not isinstance(name, str) or not name or name.startswith("__"):
                raise DefinitionError(f"aggregate: a name must be text that does not begin with __, got {name!r}")
            if not callable(getattr(aggregate, "of", None)):
                raise DefinitionError(f"aggregate {name}: expected an aggregate like agg.count(), got {aggregate!r}")
            if self.windows.merging and not aggregate.mergeable:
                raise DefinitionError(
                    f"aggregate {name}: the results of {aggregate!r} cannot be merged, but {self.windows!r} merges "
                    "windows. Use another aggregate, or windows that do not merge, like windows.tumbling."
                )

    def _check_count(self) -> None:
        given: dict[str, tuple[Any, Any]] = {
            "trigger": (self.trigger, default()),
            "lateness": (self.lateness, 0),
            "mode": (self.mode, "value"),
            "early_windows": (self.early_windows, "all"),
            "timestamp": (self.timestamp, "end"),
            "weighted": (self.weighted, False),
        }
        for name, (value, only) in given.items():
            if value != only:
                raise DefinitionError(
                    f"{self.windows!r} gives each window once, when the watermark has passed its last element: "
                    f"{name} must be {only!r}, got {value!r}. Leave {name} out, or use windows of time."
                )

    def _check_loss(self) -> None:
        trigger = self.trigger
        if trigger.may_finish:
            raise DefinitionError(
                f"trigger {trigger!r} finishes before the window is over, so later elements would not be shown. "
                f"Use repeatedly(...), or after_watermark(early=...), or pass allow_loss=True."
            )
        if self.lateness > 0 and trigger.finishes:
            raise DefinitionError(
                f"trigger {trigger!r} finishes when the watermark passes the window, so elements that are accepted "
                f"within the lateness of {format_duration(self.lateness)} would not be shown. "
                "Use after_watermark(late=each_batch()), or repeatedly(...), or lateness 0, or pass allow_loss=True."
            )

    def __repr__(self) -> str:
        options = [repr(self.windows), repr(dict(self.aggregates))]
        options += [] if self.trigger == default() else [f"trigger={self.trigger!r}"]
        options += [] if self.mode == "value" else [f"mode={self.mode!r}"]
        options += [f"lateness={typed_back(self.lateness)}"] if self.lateness else []
        options += [] if self.early_windows == "all" else [f"early_windows={self.early_windows!r}"]
        options += [] if self.timestamp == "end" else [f"timestamp={self.timestamp!r}"]
        options += ["allow_loss=True"] if self.allow_loss else []
        options += ["weighted=True"] if self.weighted else []
        return f"Windowing({', '.join(options)})"
