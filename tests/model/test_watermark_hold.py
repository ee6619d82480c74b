"""Who holds a watermark back, and since when."""

from __future__ import annotations

from typing import Any

from tidewheel.model.block_stats import BlockStats
from tidewheel.model.watermark_hold import Holder, hold_text, holders
from tidewheel.model.watermarks import Strategy, advance, bounded

SECOND = 1_000_000


def block(at: int) -> BlockStats:
    return BlockStats(1, append_time=at * SECOND, min_event_time=at * SECOND, max_event_time=at * SECOND)


def after(*batches: dict[tuple[str, int], int | None], **strategies: Strategy) -> dict[str, Any]:
    """The state after one batch a second, each with blocks of these event times."""
    state: dict[str, Any] = {}
    given = {"a": bounded("1 s"), "b": bounded("1 s"), **strategies}
    for second, batch in enumerate(batches, start=1):
        blocks = {part: [] if at is None else [block(at)] for part, at in batch.items()}
        state, _ = advance(given, state, blocks, clock=second * SECOND)
    return state


def test_an_input_that_never_had_an_event_holds_the_watermark_since_it_is_waited_for() -> None:
    state = after(*({("a", 0): second, ("a", 1): None, ("b", 0): second} for second in range(1, 21)))
    assert state["watermark"] is None
    (holder,) = holders(state, now=20 * SECOND)
    assert holder == Holder("a", 1, since=1 * SECOND, mark=None, fed=1 * SECOND)
    assert hold_text([holder], now=20 * SECOND) == "held by a/1 for 19 s: never an event"


def test_an_input_that_falls_silent_holds_the_watermark_since_its_last_event() -> None:
    state = after(*({("a", 0): second, ("b", 0): second if second < 5 else None} for second in range(1, 21)))
    (holder,) = holders(state, now=20 * SECOND)
    assert holder == Holder("b", 0, since=4 * SECOND, mark=3 * SECOND, fed=4 * SECOND)
    assert hold_text([holder], now=20 * SECOND) == "held by b/0 for 16 s: no event since"


def test_an_input_whose_events_do_not_move_it_is_reported_as_such() -> None:
    state = after(*({("a", 0): second, ("b", 0): min(second, 4)} for second in range(1, 21)))
    (holder,) = holders(state, now=20 * SECOND)
    assert hold_text([holder], now=20 * SECOND) == "held by b/0 for 16 s: events, but none whose time moves it"


def test_nobody_holds_a_watermark_that_moves_or_that_waits_for_nobody() -> None:
    moving = after(*({("a", 0): second, ("b", 0): second} for second in range(1, 21)))
    assert holders(moving, now=20 * SECOND) == ()
    idle = after(*({("a", 0): second, ("b", 0): None} for second in range(1, 21)), b=bounded("1 s", idle="5 s"))
    assert holders(idle, now=20 * SECOND) == ()


def test_all_that_never_had_an_event_hold_it() -> None:
    state = after(*({("a", 0): second, **{("b", number): None for number in range(3)}} for second in range(1, 21)))
    held = holders(state, now=20 * SECOND)
    assert [holder.place for holder in held] == ["b/0", "b/1", "b/2"]
    assert hold_text(held, now=80 * SECOND) == "held by b/0 and 2 more for 1 min 19 s: never an event"


def test_states_of_earlier_versions_name_nobody() -> None:
    assert holders({"inputs": {"a/0": {"fed": 0}}, "watermark": None}, now=20 * SECOND) == ()
