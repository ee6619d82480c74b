"""Running scripts over a streaming DataFrame: bundles are micro-batches, and the watermark is Spark's."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidewheel.engine.execution.dataframe.output_columns import BATCH_ID
from tidewheel.engine.execution.running_query import translate_error
from tidewheel.engine.execution.session import session
from tidewheel.engine.operators.operator import METRICS
from tidewheel.engine.spark.arrow_schema import arrow_schema, in_utc, spark_schema, to_spark
from tidewheel.engine.streams.result import Result, arrow_of
from tidewheel.engine.streams.stream_factory import stream
from tidewheel.errors import DefinitionError
from tidewheel.model import watermarks
from tidewheel.model.panes import END_OF_TIME
from tidewheel.model.time import Duration, Instant, format_duration
from tidewheel.testing.bundles import Bundle, Bundles, is_valid_time
from tidewheel.testing.rows import Outcome, as_text
from tidewheel.testing.runner import Pipeline, by_value, columns_of, outcome_of, result_of

__all__ = ["run_on_dataframe"]

_TIME = "event_time"
_INSTANT = pl.Datetime("us", "UTC")
_EVER: Duration = 200 * 365 * 86_400 * 1_000_000
"""A delay by which Spark's watermark stays before 1970, where it begins: it never moves."""


def run_on_dataframe(script: Bundles, pipeline: Pipeline, spark: SparkSession | None = None) -> Outcome:
    """Run a script over a streaming DataFrame: a file for each bundle that has rows, read one by one."""
    delay = _delay(script)
    columns = {_TIME: _INSTANT, **columns_of(script)}
    spark = session(spark)
    with tempfile.TemporaryDirectory(prefix="tidewheel-script-") as folder, by_value([pipeline]):
        rows = Path(folder, "rows")
        rows.mkdir()
        schema = spark_schema(arrow_of(columns))
        for number, bundle in enumerate(bundle for bundle in script.bundles if bundle.rows):
            path = rows / f"{number}.parquet"
            pq.write_table(_table(bundle, columns, arrow_schema(schema)), path)
            os.utime(path, (number, number))  # Spark reads files in the order of their times
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(rows))
        follows = watermarks.bounded(timedelta(microseconds=delay), future=None)
        result = result_of(pipeline, stream(frame, time=_TIME, watermark=follows)).named("script")
        if result.flow().waits_for_clock:
            raise DefinitionError(
                "Script.run: the pipeline waits for the clock (processing time), which over a DataFrame is the "
                'machine\'s own and cannot be scripted; use on="spark"'
            )
        return outcome_of(result, _collected(result, Path(folder, "checkpoint")))


def _collected(result: Result, checkpoint: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of every output, in the order of the micro-batches."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in result.schemas() if name != METRICS}

    def keep(name: str) -> Any:
        return lambda rows, _: found[name].extend(_dicts(rows))

    try:
        sinks = {name: keep(name) for name in found}
        result.writeStream(checkpoint=checkpoint, available_now=True, key_groups=1, **sinks).awaitTermination()
    except PySparkException as error:
        raise translate_error("script", error) from error
    return found


def _dicts(rows: DataFrame) -> list[dict[str, Any]]:
    found = []
    for batch in rows.drop(BATCH_ID).toArrow().to_batches():
        for row in pl.DataFrame(pl.from_arrow(in_utc(batch))).to_dicts():
            if isinstance(row.get("late_by"), float):
                row["late_by"] = timedelta(microseconds=round(row["late_by"] * 1_000_000))
            found.append(row)
    return found


def _table(bundle: Bundle, columns: dict[str, pl.DataType], exact: pa.Schema) -> pa.Table:
    """The rows of a bundle in Spark's types."""
    times = pl.Series([time for time, _ in bundle.rows], dtype=pl.Int64).cast(_INSTANT).alias(_TIME)
    own = {name: kind for name, kind in columns.items() if name != _TIME}
    values = [{name: values.get(name) for name in own} for _, values in bundle.rows]
    frame = pl.DataFrame(values, schema=own).select(times, *own)
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
    return pa.Table.from_batches([to_spark(batch, exact) for batch in table.to_batches()], schema=exact)


@dataclass(frozen=True)
class _Round:
    """The rows of a bundle, and how the watermark moves before the next rows."""

    bundle: int
    latest: Instant | None
    marks: tuple[Instant, ...]


def _delay(script: Bundles) -> Duration:
    """The delay by which the script's watermarks follow its rows; scripts with others cannot run over a DataFrame."""
    rounds = _rounds(script)
    marked = [each for each in rounds if each.marks]
    if not marked:
        return _EVER
    first = marked[0]
    if first.latest is None:
        raise _refused(f"the watermark moves to {as_text(first.marks[0])} before there is a row that has a time")
    delay = first.latest - first.marks[-1]
    if delay < 0:
        raise _refused(
            f"the watermark is {as_text(first.marks[-1])} after bundle {first.bundle}, and the latest row of "
            f"{as_text(first.latest)} is before that"
        )
    if delay % 1_000 or any(mark % 1_000 for each in marked for mark in each.marks):
        raise _refused("Spark counts whole milliseconds, and the watermarks of the script do not")
    reached: Instant | None = None
    for each in rounds:
        reached = each.marks[-1] if each.marks else reached
        wanted = None if each.latest is None else each.latest - delay
        if reached != wanted or len(each.marks) > 1:
            has = "none" if reached is None else " and ".join(map(as_text, each.marks or [reached]))
            raise _refused(
                f"after bundle {first.bundle} the watermark is {format_duration(delay)} behind the latest row, so "
                f"after bundle {each.bundle} it is {'none' if wanted is None else as_text(wanted)}, and the script "
                f"has {has}"
            )
    return delay


def _rounds(script: Bundles) -> list[_Round]:
    found: list[_Round] = []
    latest: Instant | None = None
    for number, bundle in enumerate(script.bundles):
        if bundle.rows:
            times = [time for time, _ in bundle.rows if is_valid_time(time)]
            latest = max(times if latest is None else [*times, latest], default=None)
            found.append(_Round(number, latest, ()))
        if bundle.watermark == END_OF_TIME:
            raise _refused("a streaming DataFrame does not end: give a later row in place of end()")
        if bundle.watermark is not None:
            if not found:
                raise _refused(f"the watermark moves to {as_text(bundle.watermark)} before there are rows")
            if bundle.watermark not in found[-1].marks:
                found[-1] = replace(found[-1], marks=(*found[-1].marks, bundle.watermark))
    if not found:
        raise _refused("there are no rows that could make a micro-batch")
    return found


def _refused(reason: str) -> DefinitionError:
    return DefinitionError(
        "Script.run: over a DataFrame the watermark is Spark's, which follows the latest row by a delay that stays the "
        f'same; {reason}. script.bounded("5 s") gives a script such watermarks; on="spark" takes any'
    )
