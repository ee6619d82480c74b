"""Detect outliers among recorded times: one wrong clock must not hold up a whole recording."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from tidewheel.model.time import Duration, Instant

__all__ = ["plausible_times"]

_T = TypeVar("_T")
_AROUND: Final = 10
_MINUTE: Final[Duration] = 60_000_000


def plausible_times(
    items: Iterable[_T], time_of: Callable[[_T], Instant | None]
) -> Iterator[tuple[_T, Instant | None]]:
    """Each item with its time; None where it has none, or one that is far from those of its neighbours, the ten before
    it and the ten after.

    Far is more than a minute and the length of their middle half away from that middle half. So messages may be hours
    apart, and a pause may lie between two of them; but what has most of its neighbours on the other side is wrong.

    >>> seconds = [1, 2, 2_000_000_000, 3, 4, 5]
    >>> [time for _, time in plausible_times(seconds, lambda second: second * 1_000_000)]
    [1000000, 2000000, None, 3000000, 4000000, 5000000]
    """
    before: deque[Instant] = deque(maxlen=_AROUND)
    ahead: deque[tuple[_T, Instant | None]] = deque()
    last: Instant | None = None

    def next_item() -> tuple[_T, Instant | None]:
        nonlocal last
        item, time = ahead.popleft()
        if time is None:
            return item, None
        near = last is not None and abs(time - last) <= _MINUTE  # nearly always, and quick to tell
        if near or not _is_far(time, [*before, time, *(each for _, each in ahead if each is not None)]):
            last = time
        before.append(time)
        return item, time if time == last else None

    for item in items:
        ahead.append((item, time_of(item)))
        if len(ahead) > _AROUND:
            yield next_item()
    while ahead:
        yield next_item()


def _is_far(time: Instant, times: Sequence[Instant]) -> bool:
    ordered = sorted(times)
    low, high = ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]
    return not low - (high - low) - _MINUTE <= time <= high + (high - low) + _MINUTE
