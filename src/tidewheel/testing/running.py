"""Running scripts on the reference and on Spark."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from tidewheel.engine.each_row import EachRow
from tidewheel.engine.flow import Stage, prepared
from tidewheel.engine.halves import METRICS
from tidewheel.engine.launch import Target, start_flows
from tidewheel.engine.looked_up import LookedUp
from tidewheel.engine.matched import DROPPED, TIMED_OUT, Matched, PatternMatch
from tidewheel.engine.operator import LATE, RESULTS
from tidewheel.engine.result import Result, arrow_of
from tidewheel.engine.stream import Stream, stream
from tidewheel.engine.window_columns import TIME
from tidewheel.engine.workers import registry_for
from tidewheel.errors import DefinitionError
from tidewheel.model import watermarks
from tidewheel.model.deduplicate import DUPLICATES
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME, Element, Pane
from tidewheel.model.process import Process
from tidewheel.model.process_reference import ProcessReference
from tidewheel.model.reference import Reference
from tidewheel.model.repeats import Repeats, RepeatsReference
from tidewheel.model.time import Instant
from tidewheel.model.windowing import Windowing
from tidewheel.patterns.reference import PatternReference
from tidewheel.testing.rows import MIDNIGHT, Outcome, Row, micros, pane, row
from tidewheel.testing.script import Bundle, Script
from tidewheel.transport.codec import decode_columns, decode_envelopes, encode, encode_columns, pack
from tidewheel.transport.dynamic import define_message
from tidewheel.transport.event_pb2 import Punctuation
from tidewheel.transport.log import RECORDS, Log, records
from tidewheel.transport.registry import TypeRegistry, type_name
from tidewheel.transport.sqlite import SqliteLog
from tidewheel.transport.type_topic import publish_types

__all__ = ["run_on_reference", "run_on_spark"]

Pipeline = Callable[[Stream], Result]
_INPUT = "input.script"
_OURS = ("ingestion_time", "_append_time", "_key")
_INSTANT = pl.Datetime("us", "UTC")


@dataclass
class _Given:
    """A script's rows in a log, and the pipeline over them."""

    log: Log
    message: str
    columns: dict[str, pl.DataType]
    result: Result
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
def _given(script: Script, pipeline: Pipeline) -> Iterator[_Given]:
    columns = _columns(script)
    with tempfile.TemporaryDirectory(prefix="tidewheel-script-") as folder:
        held: list[_Given] = []
        with SqliteLog(Path(folder, "script.tw"), clock=lambda: held[0].now if held else MIDNIGHT) as log:
            made = TypeRegistry()
            message = define_message(made, "script", arrow_of(columns))
            publish_types(log, made, [message])
            rows = stream(log, _INPUT, type=message, watermark=watermarks.punctuated(future=None))
            result = pipeline(rows) if callable(pipeline) else None
            if not isinstance(result, Result):
                raise DefinitionError(
                    "Script.run: a pipeline is a function that takes a stream and returns a result, like "
                    f'lambda rows: rows.key_by("key").window(...).aggregate(...); got {result or pipeline!r}'
                )
            held.append(_Given(log, message, columns, result))
            yield held[0]


def _columns(script: Script) -> dict[str, pl.DataType]:
    """The columns of a script's rows, and their types."""
    given = [values for bundle in script.bundles for _, values in bundle.rows]
    names = dict.fromkeys(name for values in given for name in values)
    told = {name: kind() if isinstance(kind, type) else kind for name, kind in (script.columns or {}).items()}
    found: dict[str, pl.DataType] = {}
    for name in names | told:
        if name in told:
            found[name] = told[name]
            continue
        try:
            kind = pl.Series(name, [values.get(name) for values in given], strict=True).dtype
        except (TypeError, pl.exceptions.PolarsError) as error:
            raise DefinitionError(
                f"Script: the values of the column {name!r} are not of one type ({error}); mend them, or say the type: "
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


def run_on_reference(script: Script, pipeline: Pipeline) -> Outcome:
    """What the interpreter gives."""
    with _given(script, pipeline) as given:
        stages = given.result.stages
        if len(stages) != 1 or given.result.ops:
            raise DefinitionError(
                f"Script.run: the reference runs one stage that keeps state, the pipeline has {len(stages)}"
                f'{" and steps after it" if given.result.ops else ""}; use on="spark", or test the stages one by one'
            )
        [stage] = stages
        bundles = [(prepared(stage, given.frame(bundle)), bundle) for bundle in script.bundles]
        if isinstance(stage.what, EachRow):
            rows = [values for frame, _ in bundles for values in frame.to_dicts()]
            return Outcome([_row(values) for values in rows], [])
        if isinstance(stage.what, Process):
            return _processed(stage, stage.what, bundles)
        if isinstance(stage.what, Repeats):
            return _deduplicated(stage.what, bundles)
        if isinstance(stage.what, PatternMatch):
            return _matched(stage.what, bundles)
        if isinstance(stage.what, Matched):
            raise DefinitionError('Script.run: a MATCH_RECOGNIZE clause runs on="spark" only')
        if isinstance(stage.what, LookedUp):
            raise DefinitionError('Script.run: a lookup runs on="spark" only')
        return _windowed(stage, stage.what, bundles)


def _windowed(stage: Stage, windowing: Windowing, bundles: Iterable[tuple[pl.DataFrame, Bundle]]) -> Outcome:
    reference = Reference(windowing)
    results: list[Row] = []
    late: list[Row] = []
    for frame, bundle in bundles:
        elements = [
            Element(values[TIME], tuple(values[name] for name in stage.keys), values) for values in frame.to_dicts()
        ]
        output = reference.step(elements, watermark=bundle.watermark, clock=bundle.clock)
        results += [_pane(found) for found in output.panes]
        late += [_late(verdict.element.values, verdict.reason, verdict.by) for verdict in output.late]
    return Outcome(results, _by_time(late))


def _pane(found: Pane) -> Row:
    return pane(
        found.key,
        None if found.window.start <= START_OF_TIME else found.window.start,
        None if found.window.end >= END_OF_TIME else found.window.end,
        timing=found.timing.value,
        index=found.index,
        first=found.first,
        last=found.last,
        event_time=found.event_time,
        retraction=found.retraction,
        aggregates=found.values,
    )


def _processed(stage: Stage, process: Process, bundles: Iterable[tuple[pl.DataFrame, Bundle]]) -> Outcome:
    reference = ProcessReference(process, stage.schema)
    results: list[Row] = []
    late: list[Row] = []
    outputs: dict[str, list[Row]] = {name: [] for name in process.streams}
    for frame, bundle in bundles:
        found = reference.step(frame, watermark=bundle.watermark, clock=bundle.clock)
        late += [_late(values, values.pop("reason"), values.pop("late_by")) for values in found.pop(LATE)]
        results += [_row(values) for values in found.pop(RESULTS)]
        for name, rows in found.items():
            outputs[name] += [_row(values) for values in rows]
    return Outcome(results, _by_time(late), outputs)


def _deduplicated(repeats: Repeats, bundles: Iterable[tuple[pl.DataFrame, Bundle]]) -> Outcome:
    reference = RepeatsReference(repeats)
    results: list[Row] = []
    late: list[Row] = []
    duplicates: list[Row] = []
    for frame, bundle in bundles:
        kept, again, rejected = reference.step(frame.to_dicts(), watermark=bundle.watermark)
        results += [_row(values) for values in kept]
        duplicates += [_row(values) for values in again]
        late += [_late(values, reason, by) for values, reason, by in rejected]
    return Outcome(results, _by_time(late), {DUPLICATES: duplicates})


def _matched(what: PatternMatch, bundles: Iterable[tuple[pl.DataFrame, Bundle]]) -> Outcome:
    reference = PatternReference(what.matcher, what.schema)
    results: list[Row] = []
    late: list[Row] = []
    outputs: dict[str, list[Row]] = {TIMED_OUT: [], DROPPED: []}
    for frame, bundle in bundles:
        found = reference.step(frame, watermark=bundle.watermark)
        results += [_row(values) for values in found["matches"]]
        late += [_late(values, values.pop("reason"), values.pop("late_by")) for values in found["late"]]
        for name, rows in outputs.items():
            rows += [_row(values) for values in found[name]]
    return Outcome(results, _by_time(late), outputs)


# On Spark -----------------------------------------------------------------------------------------------------------


def run_on_spark(script: Script, pipeline: Pipeline, spark: SparkSession | None = None) -> Outcome:
    """What the engine gives: each bundle is a block of the log and a batch of a query that reads one block a batch."""
    with _given(script, pipeline) as given, _by_value(pipeline):
        log, result = given.log, given.result
        for bundle in script.bundles:
            given.now = bundle.clock
            log.append(_INPUT, _records(given, bundle))
        named = result.named("script")
        targets = {name: Target(log.topic(name)) for name in result.schemas() if name != METRICS}
        start_flows(
            {named: targets},
            log,
            checkpoint=Path(log.address).parent / "checkpoint",
            name="script",
            spark=spark,
            available_now=True,
            max_events_per_batch=1,
            buckets=1,
            clock="log",
        ).wait()
        found = {name: _read(log, name) for name in targets}
        stage = result.stages[-1]
        results = found.pop(RESULTS)
        rejected = [_late(values, values["late_reason"], micros(values["late_by"])) for values in found.pop(LATE, [])]
        outputs = {name: [_row(values) for values in rows] for name, rows in found.items()}
        if not isinstance(stage.what, Windowing):
            return Outcome([_row(values) for values in results], _by_time(rejected), outputs)
        names = list(stage.what.aggregates)
        return Outcome([_shown(values, stage.keys, names) for values in results], _by_time(rejected), outputs)


@contextmanager
def _by_value(pipeline: Pipeline) -> Iterator[None]:
    """Spark's workers cannot import a file of tests: functions of the pipeline's own module travel as they are."""
    module = sys.modules.get(getattr(pipeline, "__module__", None) or "")
    travels = module is not None and not module.__name__.startswith("tidewheel.") and module.__name__ != "__main__"
    if not travels or module.__name__ in cloudpickle.list_registry_pickle_by_value():  # type: ignore[union-attr,no-untyped-call]
        yield
        return
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
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
        parts.append(records(values, event_times=times))
    if bundle.watermark is not None or not bundle.rows:
        marker = encode(pack(Punctuation(), event_time=None))
        parts.append(records([marker], punctuations=[bundle.watermark]))
    return pa.Table.from_batches(parts, schema=RECORDS).combine_chunks().to_batches()[0]


def _read(log: Log, topic: str) -> list[dict[str, Any]]:
    """The rows that a topic got, in their order."""
    rows: list[dict[str, Any]] = []
    for batch in log.read(topic, 0, 0):
        values = batch.records.column("value")
        for kind in set(decode_envelopes(values).columns["type"].to_pylist()) - {type_name(Punctuation)}:
            frame = pl.from_arrow(decode_columns(kind, values, registry=registry_for(log.address, kind)).columns)
            assert isinstance(frame, pl.DataFrame)
            rows += frame.to_dicts()
    return rows


def _shown(values: Mapping[str, Any], keys: Iterable[str], names: Iterable[str]) -> Row:
    return pane(
        tuple(values[name] for name in keys),
        micros(values["window_start"]),
        micros(values["window_end"]),
        timing=values["pane_timing"],
        index=values["pane_index"],
        first=values["pane_first"],
        last=values["pane_last"],
        event_time=micros(values["event_time"]),
        retraction=values["retraction"],
        aggregates={name: values[name] for name in names},
    )


def _late(values: Mapping[str, Any], reason: str, by: int | None) -> Row:
    return _row({**values, "late_reason": reason, "late_by": by})


def _row(values: Mapping[str, Any]) -> Row:
    hidden = (*_OURS, "event_time")
    kept = {name: value for name, value in values.items() if name not in hidden and not name.startswith("__")}
    if "at" in kept:
        raise DefinitionError("Script.run: a column 'at' cannot be told from the time of a row; call it otherwise")
    return row(at=micros(values["event_time"]), **kept)


def _by_time(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda late: (late["at"] is not None, late["at"] or 0, repr(late)))
