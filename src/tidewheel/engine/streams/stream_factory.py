"""`stream`: the streams that a job begins with, over topics of a log or over a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl
from google.protobuf.message import Message

from tidewheel.engine.execution.input import DataFrameInput, LogInput
from tidewheel.engine.runtime.row_op import RowOp
from tidewheel.engine.streams.row_ops import after_ops
from tidewheel.engine.streams.stream import Stream
from tidewheel.errors import DefinitionError
from tidewheel.model.watermarks import Strategy, bounded
from tidewheel.transport.log.log import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["stream"]

_TIME = "event_time"
_NONE_RETRACTED = (
    "a row retracts an earlier one (its retraction is true), but the stream was made with retracting=False; leave "
    "that out, and use windows, which follow retractions, on a new checkpoint"
)


def stream(
    source: Log | DataFrame,
    topic: str | Sequence[str] | None = None,
    *,
    type: str | type[Message] | None = None,
    time: str | None = None,
    watermark: Strategy | str | timedelta | None = None,
    lookups: Log | None = None,
    retracting: bool | None = None,
) -> Stream:
    """Make a stream over topics of a log, or over any DataFrame with a column of event times.

    Rows with a boolean column `retraction`, as all results of windows have it, may retract earlier ones. Windows
    follow that, and what cannot is refused.

    Args:
        source: The log, or the DataFrame.
        topic: The topic of the log, or several that hold events of one type.
        type: The message type; by default what the events in the topic say.
        time: The DataFrame's time column. For a log it may be `ingestion_time` or `arrival`, whose watermark is that of
            the log's clock (for `ingestion_time` a second behind it).
        watermark: How far event time has come: a strategy, or a duration such as "10 minutes", which is that of
            `watermarks.bounded`. By default it is bounded by 1 s, over a DataFrame by 10 min; a streaming DataFrame
            that has a watermark of Spark's keeps it: leave it out there.
        lookups: The log that has the answers for `lookup` over a DataFrame.
        retracting: False says that no row retracts another: then everything may follow, and a row that is a retraction
            all the same is an error.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> log = open_log(tempfile.mkdtemp() + "/city.tw")
    >>> row = {"event_time": "2026-01-31T12:00:00Z", "vehicle": 7, "speed": 12.5}
    >>> _ = log.append_rows("input.position", [row], time="event_time")
    >>> positions = stream(log, "input.position")
    >>> fast = positions.filter(pl.col("speed") > 20).select("vehicle", kmh=pl.col("speed") * 3.6)
    >>> list(fast.schema)
    ['event_time', 'vehicle', 'kmh']
    """
    if isinstance(watermark, str | timedelta):
        watermark = bounded(watermark)
    elif not isinstance(watermark, Strategy | None):
        raise DefinitionError(
            f'stream: watermark must be a duration, such as "10 min", or one of tidewheel.watermarks, got {watermark!r}'
        )
    if not isinstance(time, str | None):
        raise DefinitionError(f'stream: time is the name of a column, such as time="ts", got {time!r}')
    given: LogInput | DataFrameInput
    if isinstance(source, Log):
        if lookups is not None:
            raise DefinitionError("stream: lookups is for a DataFrame; a log has its answers in topics of its own")
        given = LogInput.of(source, topic or (), type=type, time=time or _TIME, watermark=watermark)
    elif _is_dataframe(source):
        if topic is not None or type is not None:
            raise DefinitionError("stream: topic and type are for a log; a DataFrame has its columns")
        given = DataFrameInput.of(source, time=time, watermark=watermark, lookups=lookups)
    else:
        raise DefinitionError(f"stream: expected a log (open_log(...)) or a DataFrame, got {source!r}")
    schema = given.schema()
    ops: tuple[RowOp, ...] = ()
    if given.time_column != _TIME:
        if _TIME in schema and isinstance(given, DataFrameInput):
            raise DefinitionError(
                f"stream: the time is that of {time!r}, which a stream calls {_TIME!r}, and there is another column "
                f'of that name, which would be lost. Rename it, like df.withColumnRenamed("{_TIME}", "sent_at"), or '
                f"drop it; or say time={_TIME!r} if that is the time"
            )
        ops = (RowOp("with_columns", (pl.col(given.time_column).alias(_TIME),)),)
    # Results of another query that retracts results say so in each row.
    said = schema.get("retraction") == pl.Boolean
    if retracting and not said:
        raise DefinitionError(
            "stream: retracting=True, but there is no boolean column retraction that would say which rows retract "
            f"others; there are {', '.join(schema)}"
        )
    if said and retracting is False:
        ops += (RowOp("refuse", (pl.col("retraction"),), _NONE_RETRACTED),)
    return Stream(given, (), ops, after_ops(ops, schema), said if retracting is None else retracting)


def _is_dataframe(source: object) -> bool:
    # Not at the top: who reads a log can do without PySpark until the job is started.
    from pyspark.sql import DataFrame

    return isinstance(source, DataFrame)
