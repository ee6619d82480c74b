"""Small generated traffic for the jobs, and their results as tables that oracles can be compared with."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import polars as pl

import tidewheel as tw
from tests.transit.jobs.job_oracles import SECOND, Batches, Reported, Row
from tests.transit.jobs.lookup_run import LookupRun
from tests.transit.jobs.pure_run import Outputs, run_pure
from tidewheel.engine.jobs.job import Job
from tidewheel_transit.final_stop import FINAL_STOP
from tidewheel_transit.jobs import final_stop_distribution

BEGIN = 1_772_431_200 * SECOND  # 2026-03-02T06:00:00Z
INSTANT = pl.Datetime("us", "UTC")


def position(dice: random.Random, second: int) -> Row:
    """A position within a few cells, mostly on a journey."""
    nowhere = dice.random() < 0.1
    return {
        "event_time": BEGIN + second * SECOND,
        "event": "vp",
        "mode": "bus",
        "operator": dice.choice([1, 2]),
        "vehicle": dice.choice([1, 2]),
        "lat": None if nowhere else 60.1710 + 0.0008 * dice.randrange(10),
        "lon": None if nowhere else 24.9400 + 0.0010 * dice.randrange(4),
        "speed": dice.choice([None, 0.0, 0.5, 5.0, 10.0, 12.5]),
        "acc": dice.choice([None, -2.5, -1.0, -0.5, 0.0, 1.0]),
        "route": dice.choice(["550", "550", "550", "71", None]),
        "direction": dice.choice([1, 1, 1, None]),
        "start": dice.choice(["08:00", "08:00", "09:00"]),
        "operating_day": "2026-03-02",
        "odometer": dice.choice([None, 0, 100, 250]),
        "doors": dice.choice([None, 0, 1]),
        "stop": dice.choice([None, "1", "2"]),
        "journey": "deadrun" if dice.random() < 0.1 else "journey",
        "temporal": "ongoing",
    }


def heading(dice: random.Random, second: int) -> Row:
    """A position of a vehicle that is on one journey at a time."""
    row = position(dice, second)
    mine = random.Random(f"{row['operator']} {row['vehicle']} {second}")
    return row | {
        "route": mine.choice(["550", "550", "71", None]),
        "direction": mine.choice([1, 1, 1, None]),
        "start": mine.choice(["08:00", "09:00"]),
    }


def arrival(dice: random.Random, second: int) -> Row:
    """An event at a stop, mostly an ARS with a schedule."""
    scheduled = BEGIN + (second // 60 + dice.randrange(-3, 4)) * 60 * SECOND
    return position(dice, second) | {
        "event": dice.choice(["ars", "ars", "ars", "arr"]),
        "scheduled_arrival": None if dice.random() < 0.2 else scheduled,
    }


def stop_and_go(dice: random.Random, second: int) -> Row:
    """A position of a fleet that brakes all the time."""
    step = second % 4
    fields = {
        "speed": [12.5, 5.0, 0.5, 0.0][step] if dice.random() < 0.8 else dice.choice([None, 10.0, 0.5]),
        "acc": [1.0, -2.5, -1.0, 0.0][step] if dice.random() < 0.8 else dice.choice([None, -0.5, 0.5]),
        "operator": 1,
    }
    return position(dice, second) | fields


def convoy(dice: random.Random, second: int) -> Row:
    """A position of vehicles that mostly drive one route, now nearer to each other and now farther:
    never just as far, which rounding would decide."""
    return position(dice, second) | {
        "route": dice.choice(["550"] * 9 + [None]),
        "direction": 1,
        "operator": 1,
        "vehicle": dice.choice([1, 2, 3]),
        "lat": None if dice.random() < 0.05 else 60.17 + 0.008 * dice.random(),
        "lon": 24.94,
    }


def traffic(
    seed: int,
    make: Callable[[random.Random, int], Row] = position,
    *,
    rows: int = 120,
    seconds: int = 90,
    stretch: int = 1,
) -> Batches:
    """Rows out of order, some of them twice, in batches; each watermark leaves some of what follows behind."""
    dice = random.Random(seed)
    made = [make(dice, dice.randrange(seconds) * stretch) for _ in range(rows)]
    delayed = [(row["event_time"] + dice.choice([0, 0, 1, 2, 4, 15]) * stretch * SECOND, row) for row in made]
    again = [
        (time + dice.choice([0, 1, 8]) * stretch * SECOND, dict(row)) for time, row in delayed if dice.random() < 0.2
    ]
    came = [row for _, row in sorted([*delayed, *again], key=lambda found: found[0])]
    batches: list[tuple[list[Row], int | None]] = []
    while came:
        size = dice.choice([1, 5, 20, 60])
        part, came = came[:size], came[size:]
        highest = max(row["event_time"] for row in part)
        batches.append((part, None if dice.random() < 0.2 else highest - dice.randrange(4) * stretch * SECOND))
    return batches


def at_once(batches: Batches) -> Batches:
    """The same rows in one batch: none is late."""
    return [([row for rows, _ in batches for row in rows], None)]


@cache
def _log() -> tw.Log:
    return tw.open_log(f"{tempfile.mkdtemp()}/jobs.tw")


def run_job(job: Job, batches: Batches, **parameters: Any) -> Outputs:
    """Everything that a job gives for these batches, without Spark."""
    [(topic, message)] = job.reads.items()
    stream = tw.stream(_log(), topic, type=message)
    frames = [(to_frame(rows, dict(stream.schema)), watermark) for rows, watermark in batches]
    return run_pure(job(stream, **parameters), frames)


def run_with_stops(batches: Batches, known: Mapping[Any, Row], **parameters: Any) -> Outputs:
    """Everything that the job of final stops gives for these batches, if these stops are known from the first on."""
    [(topic, message)] = final_stop_distribution.reads.items()
    stream = tw.stream(_log(), topic, type=message)
    running = LookupRun(final_stop_distribution(stream, **parameters))
    running.answer(FINAL_STOP, known.items(), seen=BEGIN)
    for number, (rows, watermark) in enumerate(batches):
        running.step(to_frame(rows, dict(stream.schema)), watermark, clock=number * SECOND)
    running.end()
    return running.outputs


def to_frame(rows: list[Row], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Rows as the log's reader gives them."""
    raw = {name: pl.Int64() if isinstance(kind, pl.Datetime) else kind for name, kind in schema.items()}
    values = [{name: row.get(name) for name in schema} for row in rows]
    return pl.DataFrame(values, schema=raw).cast(schema)


def micros(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Datetime).cast(pl.Int64))


def materialize(
    outputs: Outputs, keys: list[str], values: list[str], *, mode: str = "value"
) -> dict[Any, tuple[Any, ...]]:
    """(key, window) → values, when every result has replaced the one before, or was retracted; the time of each is its
    window's last microsecond."""
    table: dict[Any, tuple[Any, ...]] = {}
    if "results" not in outputs:
        return table
    for row in micros(outputs["results"]).iter_rows(named=True):
        key = tuple(row[name] for name in keys)
        place = (key[0] if len(key) == 1 else key, (row["window_start"], row["window_end"]))
        found = tuple(row[name] for name in values)
        assert row["event_time"] == row["window_end"] - 1
        if row["retraction"]:
            assert table.pop(place) == found, "what is retracted was said"
        elif mode == "delta":
            table[place] = tuple(a + b for a, b in zip(table.get(place, (0,) * len(found)), found, strict=True))
        else:
            assert mode == "value" or place not in table, "what is replaced was retracted before"
            table[place] = found
    return table


def with_unresolved(outputs: Outputs) -> Outputs:
    """Outputs of final stops, with vehicles whose stop is not known among the results, under the number 0."""
    results, apart = outputs.get("results"), outputs.get("unresolved")
    assert results is None or not results["cell"].is_in([None, 0], nulls_equal=True).any(), "no cell has this number"
    if apart is None:
        return outputs
    assert apart["cell"].null_count() == apart.height
    apart = apart.with_columns(cell=pl.lit(0, pl.Int64))
    return {**outputs, "results": apart if results is None else pl.concat([results, apart.select(results.columns)])}


def counted(outputs: Outputs, *, stage: int = 0) -> dict[str, int]:
    """What became of the rows of a stage."""
    metrics = outputs["metrics"].filter(pl.col("stage") == stage)
    return {name: int(metrics[name].sum()) for name in ("events", "accepted", "late", "skipped")}


def skipped(outputs: Outputs) -> Counter[str]:
    """How many rows were skipped, by reason."""
    found: Counter[str] = Counter()
    if "metrics" not in outputs:
        return found
    skips = outputs["metrics"].filter(pl.col("skipped") > 0)
    for reason, count in skips.select("skipped_reason", "skipped").iter_rows():
        found[reason] += count
    return found


def late_rows(outputs: Outputs) -> Reported:
    """Rows that were too late, for whichever stage."""
    return _reported(frame for output, frame in outputs.items() if output == "late" or output.startswith("late_"))


def repeated_rows(outputs: Outputs) -> Reported:
    """Rows that were told apart since they repeat another."""
    return _reported(frame for output, frame in outputs.items() if output == "duplicates")


def _reported(frames: Iterable[pl.DataFrame]) -> Reported:
    found: Reported = Counter()
    for frame in frames:
        found.update(micros(frame).select("operator", "vehicle", "event_time").rows())
    return found


def height(outputs: Outputs, name: str) -> int:
    return outputs[name].height if name in outputs else 0
