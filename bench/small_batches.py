"""How long a small batch takes, from the log through state and checkpoint to the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.figures import Figure, percentiles, with_aim
from bench.profiles import profile
from bench.streams import START, TOPIC, append, reading_type, readings
from bench.window_queries import last_batch
from tidewheel.engine.spark.local_fs import force_checkpoints
from tidewheel.engine.streams.stream_factory import stream
from tidewheel.model import aggregates as agg
from tidewheel.model import watermarks
from tidewheel.model.windows import tumbling
from tidewheel.topic_names import analytics
from tidewheel.transport.events.registry import types
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.types import publish_types

if TYPE_CHECKING:
    from bench.window_bench import Bench

__all__ = ["small_batches"]

_ROWS = 1_000
_SPAN = 10_000_000  # of event time in a batch: a window closes in each
_WARM = 60  # in the first ones Java compiles itself
_MEASURED = 60
_TICKS = 20
_LIMIT_MS = 150
_DURABLE_MS = 10


def small_batches(bench: Bench) -> list[Figure]:
    """Batches of 1,000 events, in each of which a window closes, and batches that only move the clock. So little is
    done soonest in one key group: a state operator for each core is for more. Every other batch does not wait for the
    disk: that is what durable checkpoints cost."""
    group = "A small batch from the log to the log, with state and checkpoint, tumbling windows of 10 s, 2,000 keys"
    bench.say("small batches")
    needed = _WARM + 2 * _MEASURED
    one = _batches(bench, watermarks.bounded("1 s"), "one", needed, feed=True, key_groups=1)[_WARM:]
    full = _batches(bench, watermarks.bounded("1 s"), "full", needed, feed=True)[_WARM:]
    bench.say("empty batches, one a second")
    idle = watermarks.bounded("1 s", idle="1 us", future=None)
    empty = _batches(bench, idle, "empty", 3 + 2 * _TICKS, feed=False)[3:]
    figures = []
    for name, batches, aim in (
        ("1,000 events in one key group", one, True),
        ("1,000 events in a key group for each core", full, False),
        ("no events (the clock alone), a key group for each core", empty, False),
    ):
        p50, p99 = _times(batches, durable=True)
        met = p50 <= _LIMIT_MS if aim else None
        figures += [
            Figure(group, f"{name}, p50", p50, "ms", f"at most {_LIMIT_MS}" if aim else "", met),
            Figure(group, f"{name}, p99", p99, "ms"),
            with_aim(
                group,
                f"{name}: its checkpoint forced to the disk, of that p50",
                p50 - _times(batches, durable=False)[0],
                "ms",
                most=_DURABLE_MS,
            ),
        ]
    if not figures[0].met:
        figures += profile(f"{group}: 1,000 events in one key group", [each for each in one if each["durable"]])
    return figures


def _times(batches: Sequence[Mapping[str, Any]], *, durable: bool) -> tuple[float, float]:
    return percentiles([each["durationMs"]["triggerExecution"] for each in batches if each["durable"] == durable])


def _batches(
    bench: Bench,
    watermark: watermarks.Strategy,
    name: str,
    needed: int,
    *,
    feed: bool,
    key_groups: int | None = None,
) -> list[dict[str, Any]]:
    """The reports of so many batches; with `feed` each gets its events when the one before has ended. Of those with an
    odd number the checkpoint's files are not forced to the disk; a report tells it as `durable`."""
    with open_log(bench.folder / f"small-{name}.tw") as log:
        publish_types(log, types, [reading_type()])
        put = _feeder(log)
        put(0)
        source = stream(log, TOPIC, type=reading_type(), watermark=watermark)
        result = source.key_by("key").window(tumbling("10 s")).aggregate(events=agg.count(), total=agg.sum("value"))
        run = result.start(
            checkpoint=bench.folder / f"small-{name}",
            results=log.topic(analytics(name)),
            spark=bench.spark,
            key_groups=key_groups,
        )
        found: dict[int, dict[str, Any]] = {}
        try:
            while len(found) < needed:
                # Of the last batch alone: to report all of them again and again would slow down what is measured.
                report = last_batch(run.query)
                if report is not None and report["batchId"] not in found:
                    found[report["batchId"]] = {**report, "durable": report["batchId"] % 2 == 0}
                    force_checkpoints(bench.spark, report["batchId"] % 2 == 1)  # of the next one
                    if feed:
                        put(len(found))
                if not run.active:
                    raise RuntimeError(f"the query ended: {run.query.exception()}")
                time.sleep(0.01)
        finally:
            run.stop()
            force_checkpoints(bench.spark, True)
    return [found[number] for number in sorted(found)]


def _feeder(log: Log) -> Callable[[int], None]:
    def put(turn: int) -> None:
        append(log, readings(_ROWS, 2_000, first=START + turn * _SPAN, span=_SPAN, seed=turn))

    return put
