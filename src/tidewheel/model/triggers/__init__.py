"""When: what makes a window give a pane. The functions here build the triggers."""

from __future__ import annotations

from datetime import timedelta

from tidewheel.errors import DefinitionError
from tidewheel.model.time import duration
from tidewheel.model.triggers.after_watermark import AfterWatermark
from tidewheel.model.triggers.combinators import AllOf, AnyOf, InOrder, OrFinally, Repeatedly
from tidewheel.model.triggers.trigger import (
    AfterCount,
    AfterProcessingTime,
    Completeness,
    EachBatch,
    Never,
    State,
    Trigger,
)

__all__ = [
    "AfterCount",
    "AfterProcessingTime",
    "AfterWatermark",
    "AllOf",
    "AnyOf",
    "Completeness",
    "EachBatch",
    "InOrder",
    "Never",
    "OrFinally",
    "Repeatedly",
    "State",
    "Trigger",
    "after_count",
    "after_processing_time",
    "after_watermark",
    "all_of",
    "any_of",
    "completeness",
    "default",
    "each_batch",
    "every",
    "in_order",
    "never",
    "or_finally",
    "repeatedly",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports


def never() -> Never:
    """Fire only when the window closes.

    >>> never().fires_early, never().fires_on_time
    (False, False)
    """
    return Never()


def each_batch() -> EachBatch:
    """Fire whenever elements came, once a batch.

    >>> after_watermark(early=each_batch())
    after_watermark(early=each_batch())
    """
    return EachBatch()


def after_count(count: int) -> AfterCount:
    """Fire once, when n elements have come.

    >>> after_count(100)
    after_count(100)
    """
    return AfterCount(count)


def after_processing_time(
    delay: str | timedelta = "0 s",
    *,
    period: str | timedelta | None = None,
    offset: str | timedelta = "0 s",
    unchanged: bool = False,
) -> AfterProcessingTime:
    """Fire once, so long after the first element of a pane, or at the next time of a grid.

    >>> after_processing_time("10 s"), after_processing_time(period="1 min", offset="5 s")
    (after_processing_time(delay='10 s'), after_processing_time(period='1 min', offset='5 s'))
    """
    return AfterProcessingTime(
        delay=duration(delay, what="after_processing_time delay"),
        period=None if period is None else duration(period, what="after_processing_time period"),
        offset=duration(offset, what="after_processing_time offset"),
        unchanged=unchanged,
    )


def completeness(percent: float, *, expected: int | str) -> Completeness:
    """Fire once, when a percentage of the expected elements has come; a column may hold the expected number.

    >>> completeness(90, expected="vehicles")
    completeness(90, expected='vehicles')
    """
    if isinstance(percent, (int, float)) and 0 < percent < 1:
        raise DefinitionError(f"completeness: percent is out of 100, got {percent!r}; say {100 * percent:g}")
    return Completeness(percent, expected)


def after_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> AfterWatermark:
    """Fire when the watermark passes the window, with early and late panes if triggers for them are given.

    >>> after_watermark(early=after_count(10), late=each_batch())
    after_watermark(early=after_count(10), late=each_batch())
    """
    return AfterWatermark(early, late)


def repeatedly(trigger: Trigger) -> Repeatedly:
    """Restart a trigger whenever it finishes.

    >>> repeatedly(after_count(10))
    repeatedly(after_count(10))
    """
    return Repeatedly(trigger)


def default() -> Repeatedly:
    """Fire when the watermark passes the window, and with each batch that comes later.

    >>> repeatedly(after_watermark())
    default()
    """
    return Repeatedly(AfterWatermark())


def every(period: str | timedelta, *, aligned: bool = False, unchanged: bool = False) -> Repeatedly:
    """Fire so long after the first new element, again and again; aligned: at the multiples of the period.

    >>> every("1 s", aligned=True)
    repeatedly(after_processing_time(period='1 s'))
    """
    length = duration(period, what="every")
    if aligned:
        return Repeatedly(AfterProcessingTime(period=length, unchanged=unchanged))
    return Repeatedly(AfterProcessingTime(delay=length, unchanged=unchanged))


def any_of(*triggers: Trigger) -> AnyOf:
    """Fire once, when one of these triggers fires.

    >>> any_of(after_count(10), after_processing_time("1 s"))
    any_of(after_count(10), after_processing_time(delay='1 s'))
    """
    return AnyOf(triggers)


def all_of(*triggers: Trigger) -> AllOf:
    """Fire once, when all of these triggers would fire at the same time.

    >>> repeatedly(all_of(after_count(10), after_processing_time("1 s")))
    repeatedly(all_of(after_count(10), after_processing_time(delay='1 s')))
    """
    return AllOf(triggers)


def in_order(*triggers: Trigger) -> InOrder:
    """Fire as each of these triggers does, one after the other.

    >>> in_order(after_count(1), repeatedly(after_count(100)))
    in_order(after_count(1), repeatedly(after_count(100)))
    """
    return InOrder(triggers)


def or_finally(main: Trigger, last: Trigger) -> OrFinally:
    """Repeat `main` until `last` fires.

    >>> or_finally(every("10 s"), after_watermark())
    or_finally(repeatedly(after_processing_time(delay='10 s')), after_watermark())
    """
    return OrFinally(main, last)
