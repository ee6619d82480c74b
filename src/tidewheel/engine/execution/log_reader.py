"""Topics of a log, read by Spark for all results of a query at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidewheel.engine.datasource.reader_function import reader_function
from tidewheel.engine.execution.computation import Computation
from tidewheel.engine.execution.input import LogInput
from tidewheel.engine.execution.map_side_reader import MapSideReader
from tidewheel.engine.runtime.exchange_rows import EXCHANGE
from tidewheel.errors import DefinitionError
from tidewheel.model.watermarks import Strategy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["from_log", "read_topics", "topics_read"]


def from_log(
    spark: SparkSession,
    results: Sequence[Computation],
    running: Sequence[Computation],
    key_groups: int,
    options: Mapping[str, str],
    *,
    ended: bool = False,
) -> DataFrame:
    """Read the topics of a log as exchange batches: a stream, or if it has `ended` all that is there."""
    reader = MapSideReader([result.flow() for result in running], key_groups, ended=ended)
    return read_topics(spark, results, reader, EXCHANGE, options, ended=ended)


def read_topics(
    spark: SparkSession,
    results: Sequence[Computation],
    transform: MapSideReader,
    schema: str,
    options: Mapping[str, str],
    *,
    ended: bool = False,
) -> DataFrame:
    """Read the topics of these results with a function inside the log's reader."""
    inputs = [result.input for result in results if isinstance(result.input, LogInput)]
    kinds: dict[str, str] = {}
    marks: dict[str, Any] = {}
    for topic, message, strategy in topics_read(results):
        if kinds.setdefault(topic, message) != message:
            raise DefinitionError(f"topic {topic!r} is read as {kinds[topic]} and as {message}; choose one")
        mark = strategy.to_json()
        if marks.setdefault(topic, mark) != mark:
            raise DefinitionError(
                f"topic {topic!r} is read with two watermarks, {marks[topic]} and {mark}; results that share a "
                "query share the watermark of a topic: use one, or start them apart"
            )
    reader = (spark.read if ended else spark.readStream).format("tidewheel")
    for key, value in {**inputs[0].options(), **options}.items():
        reader = reader.option(key, value)
    return (
        reader.option("topics", ",".join(sorted(kinds)))
        .option("type", json.dumps(kinds))
        .option("watermark", json.dumps(marks))
        .option("transform", reader_function(transform))
        .option("transformSchema", schema)
        .load()
    )


def topics_read(results: Iterable[Computation]) -> Iterator[tuple[str, str, Strategy]]:
    """The topics that results read, with the type of their messages and the watermark."""
    for result in results:
        if isinstance(result.input, LogInput):
            for topic in result.input.topics:
                yield topic, result.input.message, result.input.watermark
            for side_input in result.flow().side_inputs.values():
                yield side_input.topic, side_input.message, side_input.strategy
