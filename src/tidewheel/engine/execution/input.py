"""The inputs of a stream: topics of a log, or any DataFrame."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from google.protobuf.message import Message

from tidewheel.engine.datasource.options import METADATA
from tidewheel.engine.execution.dataframe.watermark import has_watermark, marked_columns
from tidewheel.engine.operators.operator import SideInput
from tidewheel.engine.spark.arrow_schema import arrow_schema
from tidewheel.engine.spark.worker import registry_for
from tidewheel.errors import DefinitionError, TopicNotFoundError
from tidewheel.model import watermarks
from tidewheel.model.watermarks import Bounded, Inherited, Strategy
from tidewheel.transport.events.codec import ENVELOPE_COLUMNS, decode_columns
from tidewheel.transport.events.registry import type_name, types
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import OnDamage
from tidewheel.transport.topics.types import carried_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DataFrameInput", "LogInput", "polars_schema", "side_input_rows", "type_of"]

_METADATA = ("_append_time", "_key")
_LOG_TIMES = {"event_time": "event_time", "ingestion_time": "ingestion_time", "arrival": "_append_time"}

_WATERMARKS: dict[str, Strategy] = {
    "event_time": watermarks.bounded("1 s"),
    # Ingestion stamps a message when it receives it, and appends it a moment later: meanwhile others were appended.
    "ingestion_time": watermarks.arrival("1 s"),
    "arrival": watermarks.arrival(),
}


def polars_schema(schema: pa.Schema) -> dict[str, pl.DataType]:
    """The polars types of Arrow columns."""
    frame = pl.from_arrow(pa.Table.from_batches([], schema=schema))
    assert isinstance(frame, pl.DataFrame)
    return dict(frame.schema)


@dataclass(frozen=True)
class LogInput:
    """Topics of one log, all of one message type."""

    log: Log
    topics: tuple[str, ...]
    message: str
    watermark: Strategy
    time: str = "event_time"

    @classmethod
    def of(
        cls,
        log: Log,
        topics: str | Sequence[str],
        *,
        type: str | type[Message] | None,
        time: str,
        watermark: Strategy | None,
    ) -> LogInput:
        """Check what was asked for, and find the type of the messages if it was not said."""
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if not names:
            raise DefinitionError('stream: name a topic of the log, like stream(log, "input.arrival")')
        if time not in _LOG_TIMES:
            raise DefinitionError(
                f"stream: time must be event_time, ingestion_time or arrival, got {time!r}. The log knows how far "
                "these have come; for another column, read the topic as a DataFrame and say stream(df, time=...)"
            )
        if type is not None and not isinstance(type, str):
            types.register(type)
        name = type_name(type) if type is not None else type_of(log, names)
        if watermark is None:
            watermark = _WATERMARKS[time]
        return cls(log, names, name, watermark, time)

    @property
    def time_column(self) -> str:
        """The column that the events' time is in."""
        return _LOG_TIMES[self.time]

    def schema(self) -> dict[str, pl.DataType]:
        message = registry_for(self.log.address, self.message).schema(self.message)
        columns = [pa.field(name, pa.timestamp("us", "UTC")) for name in ENVELOPE_COLUMNS]
        return polars_schema(pa.schema([*columns, *message, *(METADATA.field(name) for name in _METADATA)]))

    def options(self) -> dict[str, str]:
        """The options of the source."""
        return {
            "log": self.log.address,
            "metadata": ",".join(_METADATA),
            "watermark": json.dumps(self.watermark.to_json()),
        }

    def __repr__(self) -> str:
        return f"{', '.join(self.topics)} of {self.log!r}"


@dataclass(frozen=True)
class DataFrameInput:
    """Any DataFrame, streaming or not, with a column of event times."""

    frame: DataFrame = field(repr=False)
    time: str
    watermark: Strategy
    lookups: Log | None = None

    @classmethod
    def of(
        cls, frame: DataFrame, *, time: str | None, watermark: Strategy | None, lookups: Log | None = None
    ) -> DataFrameInput:
        """Make the input, and refuse invalid arguments."""
        if time is None:
            raise DefinitionError(
                'stream: which column has the event time? Say stream(df, time="..."); '
                f"there are {', '.join(frame.columns)}"
            )
        if time not in frame.columns:
            raise DefinitionError(f"stream: there is no column {time!r}; there are {', '.join(frame.columns)}")
        kind = dict(frame.dtypes)[time]
        if not kind.startswith("timestamp"):
            raise DefinitionError(
                f"stream: the time column {time!r} is {kind}; it must be a timestamp: cast it, like "
                f'df.withColumn("{time}", to_timestamp("{time}"))'
            )
        if frame.isStreaming and has_watermark(frame):
            return cls(frame, time, _inherited(frame, time, watermark), lookups)
        chosen = watermark or watermarks.bounded("10 min")
        if frame.isStreaming and (not isinstance(chosen, Bounded) or chosen.idle is not None):
            idle = isinstance(chosen, Bounded)
            reason = (
                "which moves only when rows come: idle=" if idle else "which can be bounded(...) or monotonic(): this"
            )
            raise DefinitionError(
                f"stream: over a streaming DataFrame the watermark is Spark's, {reason} is not available, got "
                f"{chosen!r}. {'Leave idle= out, or write' if idle else 'Write'} the rows to a log first and read "
                "that: "
                'tw.stream(log, "topic", watermark=...)'
            )
        return cls(frame, time, chosen, lookups)

    @property
    def time_column(self) -> str:
        """The column that the events' time is in."""
        return self.time

    @property
    def topics(self) -> tuple[str, ...]:
        return ()

    def schema(self) -> dict[str, pl.DataType]:
        return polars_schema(arrow_schema(self.frame.schema))

    @property
    def spark(self) -> SparkSession:
        """The session that it belongs to."""
        return self.frame.sparkSession

    def __repr__(self) -> str:
        return f"{'streaming' if self.frame.isStreaming else 'static'} DataFrame by {self.time}"


def _inherited(frame: DataFrame, time: str, given: Strategy | None) -> Inherited:
    """The watermark that a DataFrame has, if it fits what was asked for."""
    marked = marked_columns(frame)
    of = f" of its column {marked[0]!r}" if marked else ""
    if given is not None:
        raise DefinitionError(
            f"stream: watermark={given!r}, but the DataFrame has a watermark already{of}, and Spark allows no second "
            "one. Leave watermark= out to go on with it; or take withWatermark out of the DataFrame"
        )
    if marked and time not in marked:
        raise DefinitionError(
            f"stream: time={time!r}, but the DataFrame's watermark is{of}. Say time={marked[0]!r}, or "
            f"df.withWatermark({time!r}, ...) instead of the other; if the times of {time!r} are never before those, "
            f"drop {marked[0]!r} from the DataFrame"
        )
    return Inherited(future=None)


def side_input_rows(log: Log, of: SideInput, *, on_damage: OnDamage | None = None) -> pl.DataFrame:
    """Read all that a log has for a side input now; nothing if there is no such topic yet."""
    try:
        info = log.topic_info(of.topic)
    except TopicNotFoundError:
        return of.accepted(())
    frames = [
        pl.DataFrame(pl.from_arrow(decode_columns(of.message, batch.records.column("value")).columns))
        for partition in range(info.partitions)
        for batch in log.read(of.topic, partition, info.first_offsets[partition], on_damage=on_damage)
    ]
    return of.accepted(frames)


def type_of(log: Log, topics: Sequence[str]) -> str:
    """The message type of the newest event of the topics."""
    for topic in topics:
        found = carried_type(log, topic)
        if found is not None:
            return found
    raise DefinitionError(
        f"stream: {', '.join(topics)} holds no event yet, so the type of its messages is not known; "
        "say it with type=..."
    )


def definition(of: LogInput | DataFrameInput) -> Mapping[str, Any]:
    """The part of an input that must not change while there is state."""
    if isinstance(of, LogInput):
        return {"topics": list(of.topics), "type": of.message, "time": of.time, "watermark": of.watermark.to_json()}
    # As messages may get new fields, it may get new columns; and its watermark is Spark's, which takes another delay.
    return {"time": of.time}
