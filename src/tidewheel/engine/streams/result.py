"""Results: what a stage gives, as a stream of its own, as a DataFrame, or started into topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pyarrow as pa
from google.protobuf.message import Message

from tidewheel.engine.execution.input import LogInput
from tidewheel.engine.operators.lateness import LATE_BY, REASON
from tidewheel.engine.operators.operator import LATE, METRICS, RESULTS, BatchTime
from tidewheel.engine.operators.windows.pane_schema import PANE_COLUMNS
from tidewheel.engine.runtime.flow import Flow, Stage
from tidewheel.engine.runtime.row_op import RowOp
from tidewheel.engine.runtime.stage_runner import late_output, metrics_frame
from tidewheel.engine.streams.explain.display import result_html, summary
from tidewheel.engine.streams.explain.explain import explain
from tidewheel.engine.streams.explain.graph import graph_of
from tidewheel.engine.streams.explain.mermaid import mermaid
from tidewheel.engine.streams.explain.svg import svg
from tidewheel.engine.streams.row_ops import after_ops
from tidewheel.engine.streams.stream import Stream
from tidewheel.errors import DefinitionError
from tidewheel.topic_names import job_of
from tidewheel.transport.log.log import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from typing_extensions import Unpack

    from tidewheel.engine.execution.dataframe.batch_sinks import Sink
    from tidewheel.engine.execution.run_options import RunOptions
    from tidewheel.engine.execution.running_query import Run
    from tidewheel.engine.execution.targets import Target

__all__ = ["Result", "arrow_of", "result_schema"]


def result_schema(stage: Stage) -> dict[str, pl.DataType]:
    """The columns of a stage's results."""
    return stage.outputs()[RESULTS]


def arrow_of(schema: Mapping[str, pl.DataType]) -> pa.Schema:
    """Polars columns as plain Arrow."""
    return pl.DataFrame(schema=dict(schema)).to_arrow(compat_level=pl.CompatLevel.oldest()).schema


@dataclass(frozen=True, repr=False)
class Result(Stream):
    """The results of a windowed aggregation, a process function or a pattern: a stream again, so it can be keyed and
    windowed on.

    Besides its results it has outputs by name: `late` (rows that came too late, with `late_reason` and `late_by`),
    `metrics`, those that a process function names, of a pattern `timed_out` and `dropped`, and `failed` of a lookup,
    wherever it stands: if two stages have one of that name, the later's is called like `failed_2`, by its place.

    >>> import tempfile
    >>> import tidewheel as tw
    >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
    >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7, "speed": 12.5}
    >>> _ = log.append_rows("input.position", [row], time="event_time")
    >>> positions = tw.stream(log, "input.position")
    >>> fastest = positions.window(tw.windows.tumbling("10 s")).aggregate(speed=tw.agg.max("speed")).named("fastest")
    >>> list(fastest.schemas())
    ['results', 'late', 'metrics']
    >>> print(fastest.explain().splitlines()[3])
      What: speed = max('speed').
    >>> fastest.flow().name
    'fastest'
    """

    name: str | None = None
    writes: str | type[Message] | None = None
    """The message type of the results; without one a type is made of their columns."""
    key: tuple[str, ...] = ()
    """The columns that make the key of a result in its topic; those of the last `key_by` if none are named."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of the job that made it."""

    def named(self, name: str) -> Result:
        """Give the result a name: topics and state are called after it."""
        return replace(self, name=name)

    def apart(self, **outputs: pl.Expr) -> Result:
        """Send results for which a condition holds to the output of its name, not to the others.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7, "route": "4"}
        >>> _ = log.append_rows("input.position", [row], time="event_time")
        >>> positions = tw.stream(log, "input.position")
        >>> counted = positions.key_by("route").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
        >>> list(counted.apart(without_route=pl.col("route").is_null()).schemas())
        ['results', 'without_route', 'late', 'metrics']
        """
        if not outputs:
            raise DefinitionError('apart: give a condition by name, like apart(nowhere=pl.col("cell").is_null())')
        result = self
        for name, condition in outputs.items():
            if name in result.schemas():
                raise DefinitionError(f"apart: there is an output {name!r} already; give it another name")
            result = result._with(RowOp("apart", (condition,), name))
        return result

    def explain(self, format: Literal["text", "mermaid", "svg"] = "text") -> str:
        """Say in plain words what will come out when, what is kept for how long, and how it will run. As "mermaid" or
        "svg" the graph: these steps inside the operators that Spark runs them in, with parallelism and state. (A
        notebook shows the picture of a result by itself.)

        >>> import tempfile
        >>> import tidewheel as tw
        >>> log = tw.open_log(tempfile.mkdtemp() + "/city.tw")
        >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7, "route": "4"}
        >>> _ = log.append_rows("input.position", [row], time="event_time")
        >>> rows = tw.stream(log, "input.position").key_by("route").each_row()
        >>> print(rows.explain("mermaid").splitlines()[0])
        flowchart TD
        """
        outputs = list(self.schemas())
        if format == "text":
            return explain(self.input, self.flow(), outputs)
        if format not in ("mermaid", "svg"):
            raise DefinitionError(f'explain: the format is "text", "mermaid" or "svg", got {format!r}')
        graph = graph_of(self.input, self.flow(), outputs=outputs)
        return mermaid(graph) if format == "mermaid" else svg(graph)

    def flow(self) -> Flow:
        """Make the flow that is run."""
        # A result is of its window's end, which early ones are ahead of: no clock is wrong.
        results = PANE_COLUMNS.keys() <= self.input.schema().keys()
        future = None if results else self.input.watermark.future
        return Flow(self.name or "result", self.input.topics, self.stages, future, self.ops)

    def schemas(self) -> dict[str, pa.Schema]:
        """Return the columns of every output."""
        flow = self.flow()
        outputs = {RESULTS: arrow_of(self.schema)}
        columns = result_schema(self.stages[-1])
        for op in self.ops:
            if op.output is not None:
                outputs[op.output] = arrow_of(columns)
            columns = after_ops([op], columns)
        for depth, each in enumerate(self.stages):
            if each.operation.rejects_rows:
                late = dict(each.schema) | {REASON: pl.String(), LATE_BY: pl.Duration("us")}
                outputs[late_output(depth)] = arrow_of(_plain(late))
            own = each.outputs() if each.others else {}
            outputs |= {flow.output(depth, name): arrow_of(_plain(own[name])) for name in each.others}
        sample = metrics_frame("", 0, BatchTime(None, None, 0), 0, 0, None)
        outputs[METRICS] = arrow_of(dict(sample.schema))
        return outputs

    def df(
        self, output: str | None = None, *, spark: SparkSession | None = None, key_groups: int | None = None
    ) -> DataFrame:
        """Return a plain DataFrame, streaming or static like the input. With the name of an output it has that output's
        columns. Without one it has all outputs: the column `output` names the output of each row, results have their
        own columns, every other output is in a struct of its name.

        `batch_id` is the number of the micro-batch that gave the row (null if the input is no stream: there is none).
        Rows of a key come in the order in which they were made, a retraction before what replaces it.

        >>> import tidewheel as tw
        >>> spark = tw.session()
        >>> table = spark.sql("SELECT 'a' AS key, timestamp_seconds(id) AS at FROM range(12)")
        >>> keyed = tw.stream(table, time="at").key_by("key")
        >>> counted = keyed.window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
        >>> [row.n for row in counted.df("results").orderBy("window_start").collect()]
        [10, 2]
        """
        from tidewheel.engine.execution.dataframe.output import as_dataframe

        if not isinstance(output, str | None):
            raise DefinitionError(f'df: name an output, such as df("results"), got {output!r}; a session is spark=')
        return as_dataframe(self, spark, key_groups=key_groups, outputs=output)

    def writeStream(
        self,
        *,
        checkpoint: str | Path,
        available_now: bool = False,
        trigger: str | timedelta | None = None,
        name: str | None = None,
        spark: SparkSession | None = None,
        key_groups: int | None = None,
        **sinks: Sink,
    ) -> StreamingQuery:
        """Start one streaming query that writes each output to a sink of its own, like
        `writeStream(results=upsert, late={"format": "parquet", "path": "late"}, checkpoint="state/orders")`.

        Each micro-batch is computed once, and its sinks are written one after another from what was computed. If one of
        them fails the query fails, and the error names it. After a failure Spark repeats the last micro-batch, with the
        same number and the same rows. Delta tables and folders have it once then; a function has to see to that itself
        (a transaction that also notes the number).

        Args:
            checkpoint: The folder of the query's progress and state.
            available_now: Read what is there now, and end.
            trigger: How often a micro-batch begins, such as "10 s"; else as soon as there is something to read.
            name: The query's name.
            spark: The session, if the stream is read from a log; that of a DataFrame is its own.
            key_groups: Into how many groups keys are hashed, each with a Spark partition and state of its own.
            sinks: By the name of the output, a function of a DataFrame with its rows of a micro-batch and the number of
                that micro-batch, as `foreachBatch` takes it; or a table or folder: `{"format": "delta", "path": ...}`
                (or `"table"`), or `{"format": "parquet", "path": ...}` (also `orc`, `json`, `csv`), with options of the
                format beside it.

        >>> import tempfile
        >>> import tidewheel as tw
        >>> spark, folder = tw.session(), tempfile.mkdtemp()
        >>> rows = spark.sql("SELECT timestamp_seconds(id) AS at FROM range(25)")
        >>> rows.write.parquet(folder + "/rows")
        >>> stream = spark.readStream.schema("at TIMESTAMP").parquet(folder + "/rows")
        >>> counts = tw.stream(stream, time="at", watermark="1 s")
        >>> counts = counts.window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
        >>> found = []
        >>> query = counts.writeStream(
        ...     results=lambda rows, batch_id: found.extend(row.n for row in rows.collect()),
        ...     checkpoint=folder + "/checkpoint",
        ...     available_now=True,
        ... )
        >>> query.awaitTermination()
        >>> found  # the last window is still open
        [10, 10]
        """
        from tidewheel.engine.execution.dataframe.output import write_stream

        return write_stream(
            self,
            sinks,
            checkpoint=checkpoint,
            available_now=available_now,
            trigger=trigger,
            name=name,
            spark=spark,
            key_groups=key_groups,
        )

    def start(
        self,
        *,
        checkpoint: str | Path,
        results: Topic | None = None,
        late: Topic | None = None,
        metrics: Topic | None = None,
        outputs: Mapping[str, Topic] | None = None,
        type: str | type[Message] | None = None,
        **options: Unpack[RunOptions],
    ) -> Run:
        """Start it on its log, into topics of the same log, each result once whatever crashes.

        Args:
            checkpoint: The folder of the query's progress and state.
            results: Where results go.
            late: Where rows go that came too late.
            metrics: Where metrics go.
            outputs: Where other outputs go, by name, like `{"timed_out": log.topic("timed_out.stops")}`.
            type: The message type of the results; without one a type is made of their columns.
            options: See `help(tidewheel.RunOptions)`: `spark`, `available_now`, `start_from`, `max_events_per_batch`,
                `max_bytes_per_batch`, `skip_damaged`, `append_to_existing`, `key_groups`, `accept_changes`, `clock`.
        """
        from tidewheel.engine.execution.query_start import start_query
        from tidewheel.engine.execution.run_options import RunSettings

        known = self.schemas()
        misplaced = next((name for name in options if name in known), None)
        if misplaced is not None:
            raise DefinitionError(f'start: {misplaced} is an output; say outputs={{"{misplaced}": topic}}')
        settings = RunSettings.of("start", options)
        if not isinstance(self.input, LogInput):
            raise DefinitionError(
                "start writes to a log what comes from a log; over a DataFrame, use writeStream(results=...) or "
                'df("results").writeStream'
            )
        named = {RESULTS: results, LATE: late, METRICS: metrics}
        chosen = {name: topic for name, topic in named.items() if topic is not None} | dict(outputs or {})
        if not chosen:
            raise DefinitionError('start: say where the results go, like results=log.topic("analytics.delay")')
        for output, topic in chosen.items():
            if not isinstance(topic, Topic):
                raise DefinitionError(
                    f'start: {output} go to a topic of the log, like log.topic("analytics.delay"), got {topic!r}'
                )
        name = self.name or (job_of(results.name) if results is not None else "result")
        return start_query(
            {self.named(name): self._targets(chosen, type)},
            self.input.log,
            checkpoint=checkpoint,
            name=name,
            settings=settings,
        )

    def _targets(self, topics: Mapping[str, Topic], type: str | type[Message] | None) -> dict[str, Target]:
        """The targets of these outputs, by name."""
        from tidewheel.engine.execution.targets import Target

        known = self.schemas()
        strange = [name for name in topics if name not in known]
        if strange:
            raise DefinitionError(f"start: there is no output {strange[0]!r}; there are {', '.join(known)}")
        return {
            name: Target(topic, type or self.writes, self.key) if name == RESULTS else Target(topic)
            for name, topic in topics.items()
        }

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return summary(f"Result {self.name}" if self.name else "Result", self.input, self.schema)

    def _repr_html_(self) -> str:
        return result_html(self.name, self.input, self.flow(), self.schemas())


def _plain(schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    return {name: kind for name, kind in schema.items() if not name.startswith("__")}
