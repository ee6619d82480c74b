"""Scripts: what arrives, and how time moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from pyspark.sql import SparkSession

from tidewheel.engine.streams.result import Result
from tidewheel.engine.streams.stream import Stream
from tidewheel.errors import DefinitionError
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.time import Instant, duration
from tidewheel.testing.bundles import Bundle, Bundles, is_valid_time
from tidewheel.testing.micro_batches import run_on_dataframe
from tidewheel.testing.rows import MIDNIGHT, Outcome, Time, as_text, at_time
from tidewheel.testing.runner import run_on_reference, run_on_spark

__all__ = ["Script"]


@dataclass(frozen=True, slots=True)
class Script(Bundles):
    """What arrives, in bundles, and how time moves. Every method gives a new script.

    A bundle is what a batch is: a clock, then rows, then the watermark that follows from them. Calls gather in one
    bundle as long as they come in that order; one that goes back in it begins the next. So rows that are added one
    after another arrive together (`batch` puts a cut between them), rows that are added after a watermark are judged by
    it, and a clock that moves after rows moves in a bundle of its own or in that of the rows that follow. The clock is
    at midnight until it is moved. Columns get their types from their values; `columns` names those of others.

    >>> from tidewheel import agg, triggers, windows
    >>> script = (
    ...     Script()
    ...     .add(at="12:00:01", v=1).batch()
    ...     .clock("+5 s").add(at="12:00:02", v=1).watermark("12:00:10")
    ...     .add(at="12:00:03", v=1).end()
    ... )
    >>> len(script.bundles)
    3
    >>> when = triggers.after_watermark(early=triggers.each_batch())
    >>> ten = windows.tumbling("10 s")
    >>> found = script.run(lambda events: events.window(ten).trigger(when).aggregate(n=agg.count()))
    >>> [(pane["timing"], pane["n"]) for pane in found], found.late[0]["late_by"]
    ([('EARLY', 1), ('ON_TIME', 2)], 7000000)
    """

    _open: int = 0  # what the last bundle has reached: 0 nothing is open, 1 a clock, 2 rows, 3 a watermark

    def add(self, *, at: Time | None, **columns: Any) -> Script:
        """Add a row with this event time (None: it has none) and these columns."""
        for name in columns:
            if name.startswith("_") or name in ("event_time", "ingestion_time"):
                raise DefinitionError(f"Script.add: a column cannot be called {name!r}; the event time is given as at=")
        base, bundle = self._bundle(2)
        rows = (*bundle.rows, (None if at is None else at_time(at, "at"), columns))
        return replace(base, bundles=(*base.bundles[:-1], replace(bundle, rows=rows)), _open=2)

    def watermark(self, time: Time) -> Script:
        """Move the watermark: everything before this time was seen. It moves at the end of the bundle."""
        mark = at_time(time, "watermark")
        before = max((bundle.watermark for bundle in self.bundles if bundle.watermark is not None), default=mark)
        if mark < before:
            raise DefinitionError(
                f"Script.watermark: it never goes back, from {as_text(before)} to {as_text(mark)}; give a later time"
            )
        base, bundle = self._bundle(3, again=False)
        return replace(base, bundles=(*base.bundles[:-1], replace(bundle, watermark=mark)), _open=3)

    def clock(self, time: Time) -> Script:
        """Set what the clock shows (processing time): a time, or how much it moves on, like "+1 s"."""
        now = self._now()
        if isinstance(time, str) and time.strip().startswith("+"):
            then = now + duration(time, what="clock")
        else:
            then = at_time(time, "clock")
        if then < now:
            raise DefinitionError(
                f"Script.clock: it never goes back, from {as_text(now)} to {as_text(then)}; give a later time"
            )
        base, bundle = self._bundle(1, again=False)
        return replace(base, bundles=(*base.bundles[:-1], replace(bundle, clock=then)), _open=1)

    def batch(self) -> Script:
        """End the bundle here; if none is open, a batch with nothing in it."""
        made = self if self._open else self._bundle(1)[0]
        return replace(made, _open=0)

    def end(self) -> Script:
        """End the input: every window is over."""
        return self.watermark(END_OF_TIME)

    def bounded(self, delay: str | timedelta) -> Script:
        """Add the watermark that `watermarks.bounded(delay)` gives to the same rows: after each bundle it moves, in a
        bundle of its own, to the latest time so far less the delay. Such a script also runs over a streaming DataFrame.

        >>> rows = Script().add(at="12:00:07", v=1).batch().add(at="12:00:01", v=2).add(at="12:00:20", v=3)
        >>> [as_text(bundle.watermark) for bundle in rows.bounded("5 s").bundles if bundle.watermark is not None]
        ['12:00:02', '12:00:15']
        """
        behind = duration(delay, what="delay")
        if any(bundle.watermark is not None for bundle in self.bundles):
            raise DefinitionError("Script.bounded: the script has watermarks of its own; leave them out")
        made: list[Bundle] = []
        reached: Instant | None = None
        for bundle in self.bundles:
            made.append(bundle)
            latest = max((time for time, _ in bundle.rows if is_valid_time(time)), default=None)
            if latest is not None and (reached is None or latest > reached):
                reached = latest
                made.append(Bundle(bundle.clock, watermark=latest - behind))
        return replace(self, bundles=tuple(made), _open=0)

    def run(
        self,
        pipeline: Callable[[Stream], Result],
        *,
        on: Literal["reference", "spark", "dataframe"] = "reference",
        spark: SparkSession | None = None,
    ) -> Outcome:
        """Run a pipeline and return what comes out: a function that is given the script's rows as a stream and returns
        a result.

        The reference runs the stages one behind the other; lookups and MATCH_RECOGNIZE clauses run on Spark only. On
        "spark" the rows are in a log, and every bundle is a batch. On "dataframe" they are a streaming DataFrame: every
        bundle with rows is a micro-batch, and the watermark is Spark's, which follows the rows by a delay and is in
        force from the next micro-batch on. So a script must have just these watermarks, as those of `bounded` do.
        """
        if on == "reference":
            return run_on_reference(self, pipeline)
        if on == "spark":
            return run_on_spark(self, [pipeline], spark)[0]
        if on == "dataframe":
            return run_on_dataframe(self, pipeline, spark)
        raise DefinitionError(f'Script.run: on must be "reference", "spark" or "dataframe", got {on!r}')

    def _now(self) -> Instant:
        return self.bundles[-1].clock if self.bundles else MIDNIGHT

    def _bundle(self, place: int, *, again: bool = True) -> tuple[Script, Bundle]:
        """The script with the bundle that takes this call as its last."""
        if self._open and (self._open < place or (again and self._open == place)):
            return self, self.bundles[-1]
        bundle = Bundle(self._now())
        return replace(self, bundles=(*self.bundles, bundle)), bundle
