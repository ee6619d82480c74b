"""Running scripts on the reference and on Spark."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from tidewheel.engine.execution.query_start import start_query
from tidewheel.engine.execution.run_options import RunSettings
from tidewheel.engine.execution.targets import Target
from tidewheel.engine.operators.operator import LATE, METRICS, RESULTS
from tidewheel.engine.runtime.flow import prepared
from tidewheel.engine.runtime.stage_runner import late_output
from tidewheel.engine.spark.worker import registry_for
from tidewheel.engine.streams.result import Result, arrow_of, result_schema
from tidewheel.engine.streams.stream import Stream
from tidewheel.engine.streams.stream_factory import stream
from tidewheel.errors import DefinitionError, JobError
from tidewheel.model import watermarks
from tidewheel.model.time import Instant
from tidewheel.testing.bundles import Bundle, Bundles
from tidewheel.testing.interpreter import interpreter, late_row, plain_row, shown
from tidewheel.testing.rows import MIDNIGHT, Outcome, Row, micros
from tidewheel.topic_names import input_topic
from tidewheel.transport.events.codec import decode_columns, decode_envelopes, encode, encode_columns, pack
from tidewheel.transport.events.event_pb2 import Punctuation
from tidewheel.transport.events.registry import TypeRegistry, type_name
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import RECORDS, records
from tidewheel.transport.sqlite.log import SqliteLog
from tidewheel.transport.topics.types import publish_types

__all__ = ["Pipeline", "by_value", "columns_of", "outcome_of", "result_of", "run_on_reference", "run_on_spark"]

Pipeline = Callable[[Stream], Result]
"""What a script runs: from its rows as a stream to a result."""

_INPUT = input_topic("script")
_INSTANT = pl.Datetime("us", "UTC")


@dataclass
class _Given:
    """A script's rows in a log, and the pipelines over them."""

    log: Log
    message: str
    columns: dict[str, pl.DataType]
    results: list[Result]
    now: Instant = MIDNIGHT

    def frame(self, bundle: Bundle) -> pl.DataFrame:
        """The rows of a bundle as the log's reader gives them."""
        times = pl.Series([time for time, _ in bundle.rows], dtype=pl.Int64).cast(_INSTANT)
        values = [{name: values.get(name) for name in self.columns} for _, values in bundle.rows]
        clock = pl.lit(bundle.clock, pl.Int64).cast(_INSTANT)
        return pl.DataFrame(values, schema=self.columns).select(
            times.alias("event_time"),
            clock.alias("ingestion_time"),
            *self.columns,
            clock.alias("_append_time"),
            pl.lit(None, pl.Binary).alias("_key"),
        )


@contextmanager
def _given(script: Bundles, pipelines: Sequence[Pipeline]) -> Iterator[_Given]:
    columns = columns_of(script)
    with tempfile.TemporaryDirectory(prefix="tidewheel-script-") as folder:
        held: list[_Given] = []
        with SqliteLog(Path(folder, "script.tw"), clock=lambda: held[0].now if held else MIDNIGHT) as log:
            made = TypeRegistry()
            message = define_message(made, "script", arrow_of(columns))
            publish_types(log, made, [message])
            rows = stream(log, _INPUT, type=message, watermark=watermarks.punctuated(future=None))
            held.append(_Given(log, message, columns, [result_of(pipeline, rows) for pipeline in pipelines]))
            yield held[0]


def result_of(pipeline: Pipeline, rows: Stream) -> Result:
    """Call a pipeline on the rows; refuse a value that is not a result."""
    result = pipeline(rows) if callable(pipeline) else None
    if not isinstance(result, Result):
        raise DefinitionError(
            "Script.run: a pipeline is a function that takes a stream and returns a result, like "
            f'lambda rows: rows.key_by("key").window(...).aggregate(...); got {result or pipeline!r}'
        )
    return result


def columns_of(script: Bundles) -> dict[str, pl.DataType]:
    """The columns of a script's rows, and their types."""
    given = [values for bundle in script.bundles for _, values in bundle.rows]
    names = dict.fromkeys(name for values in given for name in values)
    declared = {name: kind() if isinstance(kind, type) else kind for name, kind in (script.columns or {}).items()}
    found: dict[str, pl.DataType] = {}
    for name in names | declared:
        if name in declared:
            found[name] = declared[name]
            continue
        try:
            kind = pl.Series(name, [values.get(name) for values in given], strict=True).dtype
        except (TypeError, pl.exceptions.PolarsError) as error:
            raise DefinitionError(
                f"Script: the values of the column {name!r} are not of one type ({error}); fix them, or say the type: "
                f"Script(columns={{{name!r}: pl.Float64}})"
            ) from None
        if kind == pl.Null:
            raise DefinitionError(
                f"Script: the column {name!r} is null in every row; say its type: "
                f"Script(columns={{{name!r}: pl.Int64}})"
            )
        found[name] = pl.Datetime("us", "UTC") if isinstance(kind, pl.Datetime) else kind
    return found


# On the reference ---------------------------------------------------------------------------------------------------


def run_on_reference(script: Bundles, pipeline: Pipeline) -> Outcome:
    """Run a script on the reference interpreters of the stages, one after the other."""
    with _given(script, [pipeline]) as given:
        [result] = given.results
        if result.ops:
            raise DefinitionError(
                'Script.run: the reference does no steps after the last stage that keeps state; use on="spark"'
            )
        flow = result.named("script").flow()
        stages = flow.stages
        steps = [interpreter(stage) for stage in stages]
        results: list[Row] = []
        outputs: dict[str, list[Row]] = {}
        for bundle in script.bundles:
            frame = given.frame(bundle)
            for number, (stage, step) in enumerate(zip(stages, steps, strict=True)):
                found = step(prepared(stage, frame), bundle)
                outputs.setdefault(late_output(number), []).extend(found.late)
                for name, rows in found.outputs.items():
                    outputs.setdefault(flow.output(number, name), []).extend(rows)
                if number + 1 < len(stages):
                    frame = _frame_of(found.rows, result_schema(stage))
            results += found.shown
        late = outputs.pop(LATE, [])
        further = {name: _by_time(rows) if name.startswith(LATE) else rows for name, rows in outputs.items()}
        return Outcome(results, _by_time(late), further)


def _frame_of(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Rows as the next stage takes them; times may be given in µs."""
    columns = {}
    for name, kind in schema.items():
        values = [row[name] for row in rows]
        counted = any(isinstance(value, int) for value in values)
        columns[name] = pl.Series(values, dtype=pl.Int64 if kind == _INSTANT and counted else kind).cast(kind)
    return pl.DataFrame(columns)


# On Spark -----------------------------------------------------------------------------------------------------------


def run_on_spark(script: Bundles, pipelines: Sequence[Pipeline], spark: SparkSession | None = None) -> list[Outcome]:
    """Run scripts on the engine, all pipelines in one query: each bundle is a block of the log and a batch of the
    query."""
    with _given(script, pipelines) as given, by_value(pipelines):
        log = given.log
        for bundle in script.bundles:
            given.now = bundle.clock
            log.append(_INPUT, _records(given, bundle))
        outputs = [[name for name in result.schemas() if name != METRICS] for result in given.results]
        run = start_query(
            {
                result.named(f"script-{number}"): {name: Target(log.topic(f"{name}-{number}")) for name in names}
                for number, (result, names) in enumerate(zip(given.results, outputs, strict=True))
            },
            log,
            checkpoint=Path(log.address).parent / "checkpoint",
            name="script",
            settings=RunSettings(spark=spark, available_now=True, max_events_per_batch=1, key_groups=1, clock="log"),
        )
        run.wait()
        for name, reason in run.failed.items():
            raise JobError(f"Script.run: {name} failed: {reason}")
        return [
            outcome_of(result, {name: _read(log, f"{name}-{number}") for name in names})
            for number, (result, names) in enumerate(zip(given.results, outputs, strict=True))
        ]


def outcome_of(result: Result, found: dict[str, list[dict[str, Any]]]) -> Outcome:
    """The rows of each output as they are compared."""
    stage = result.stages[-1]
    results = found.pop(RESULTS)
    rejected = [late_row(values, values["late_reason"], micros(values["late_by"])) for values in found.pop(LATE, [])]
    outputs = {
        name: _by_time([late_row(values, values["late_reason"], micros(values["late_by"])) for values in rows])
        if name.startswith(LATE)
        else [plain_row(values) for values in rows]
        for name, rows in found.items()
    }
    return Outcome(shown(stage, results), _by_time(rejected), outputs)


@contextmanager
def by_value(pipelines: Sequence[Pipeline]) -> Iterator[None]:
    """Pickle functions of the pipelines' own modules by value: Spark's workers cannot import a test file."""
    names = {getattr(pipeline, "__module__", None) or "" for pipeline in pipelines} - {"__main__"}
    known = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    modules = [
        sys.modules[name]
        for name in names
        if name in sys.modules and not name.startswith("tidewheel.") and name not in known
    ]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _records(given: _Given, bundle: Bundle) -> pa.RecordBatch:
    """A bundle as one append: its rows, and a marker. One that names no watermark moves none."""
    parts = []
    if bundle.rows:
        frame = given.frame(bundle)
        times = frame["event_time"].to_arrow()
        values = encode_columns(
            given.message,
            frame.select(given.columns.keys()),
            event_time=times,
            ingestion_time=frame["ingestion_time"].to_arrow(),
            registry=registry_for(given.log.address, given.message),
        )
        parts.append(records(values, event_times=times, type=given.message))
    if bundle.watermark is not None or not bundle.rows:
        marker = encode(pack(Punctuation(), event_time=None))
        parts.append(records([marker], punctuations=[bundle.watermark]))
    return pa.Table.from_batches(parts, schema=RECORDS).combine_chunks().to_batches()[0]


def _read(log: Log, topic: str) -> list[dict[str, Any]]:
    """Read the rows that a topic got, in their order."""
    rows: list[dict[str, Any]] = []
    for batch in log.read(topic, 0, 0):
        values = batch.records.column("value")
        for kind in set(decode_envelopes(values).columns["type"].to_pylist()) - {type_name(Punctuation)}:
            frame = pl.from_arrow(decode_columns(kind, values, registry=registry_for(log.address, kind)).columns)
            assert isinstance(frame, pl.DataFrame)
            rows += frame.to_dicts()
    return rows


def _by_time(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda late: (late["at"] is not None, late["at"] or 0, repr(late)))
