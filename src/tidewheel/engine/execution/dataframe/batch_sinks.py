"""Sinks of a result's outputs over DataFrames: each micro-batch is computed once and written to all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidewheel.engine.execution.dataframe.output_columns import BATCH_ID, OUTPUT, check_output
from tidewheel.errors import CheckpointError, DefinitionError, JobError

__all__ = ["BatchSinks", "Sink"]

Sink = Callable[[DataFrame, int], None] | Mapping[str, Any]
"""What writes the rows of an output: a function of a micro-batch's rows and its number, or a folder or table."""

_FILES = ("parquet", "orc", "json", "csv")
_DELTA = "delta"


@dataclass(frozen=True)
class BatchSinks:
    """The function for `foreachBatch`: writes the outputs of a micro-batch to their sinks, in the order given."""

    sinks: Mapping[str, Callable[[DataFrame, int], None]]

    @classmethod
    def of(cls, sinks: Mapping[str, Sink], known: Sequence[str], checkpoint: str) -> BatchSinks:
        """Check what was asked for."""
        if not sinks:
            raise DefinitionError(
                f"writeStream: name an output and its sink, like writeStream({known[0]}=write, checkpoint=...), where "
                f"write is a function (batch_df, batch_id) -> None; the outputs are {', '.join(known)}"
            )
        for output in sinks:
            check_output("writeStream", output, known)
        return cls({output: _sink(output, sink, checkpoint) for output, sink in sinks.items()})

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a micro-batch."""
        rows.persist()
        try:
            # This looks at every partition, so that all state is computed, here and only here, whatever sinks look at.
            counts = rows.agg(*(f.count_if(f.col(OUTPUT) == output).alias(output) for output in self.sinks)).first()
            assert counts is not None
            for output, sink in self.sinks.items():
                if isinstance(sink, _Stored) and not counts[output]:
                    continue
                own = rows.where(f.col(OUTPUT) == output).select(
                    f"`{output}`.*", f.lit(batch_id).cast("bigint").alias(BATCH_ID)
                )
                try:
                    sink(own, batch_id)
                except Exception as error:  # a sink is the user's code: the error names it
                    raise JobError(
                        f"writeStream: the sink of {output!r} failed in micro-batch {batch_id}: "
                        f"{type(error).__name__}: {error}"
                    ) from error
        finally:
            rows.unpersist()


@dataclass(frozen=True)
class _Stored:
    """A folder or table that has each micro-batch once, however often it is written."""

    format: str
    output: str
    checkpoint: str
    path: str | None
    table: str | None
    options: Mapping[str, Any]
    known: dict[str, str] = field(default_factory=dict)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if "id" not in self.known:
            self.known["id"] = _query_id(rows.sparkSession, self.checkpoint)
            if self.path is not None and self.format != _DELTA:
                _take_folder(rows.sparkSession, self.path, self.known["id"], batch_id, self.output)
        if self.format != _DELTA:
            # A folder for each micro-batch, which Spark reads as a column: to write it again changes nothing.
            writer = rows.drop(BATCH_ID).write.format(self.format).options(**self.options).mode("overwrite")
            writer.save(f"{self.path}/{BATCH_ID}={batch_id}")
            return
        # Delta remembers for each application the last version that it wrote, and passes over what it has.
        application = f"{self.known['id']}/{self.output}"
        writer = rows.write.format(_DELTA).mode("append").options(**self.options)
        writer = writer.option("txnAppId", application).option("txnVersion", str(batch_id))
        if self.table is not None:
            writer.saveAsTable(self.table)
        else:
            writer.save(self.path)


def _sink(output: str, given: Sink, checkpoint: str) -> Callable[[DataFrame, int], None]:
    if callable(given):
        return given
    if not isinstance(given, Mapping):
        raise DefinitionError(
            f"writeStream: the sink of {output!r} must be a function (batch_df, batch_id) -> None, or a folder or "
            f'table such as {{"format": "parquet", "path": "out/{output}"}}, got {given!r}'
        )
    options = dict(given)
    kind = str(options.pop("format", None) or "")
    path, table = options.pop("path", None), options.pop("table", None)
    if kind not in (*_FILES, _DELTA):
        raise DefinitionError(
            f"writeStream: the sink of {output!r} has the format {kind!r}; {', '.join((*_FILES, _DELTA))} have a "
            "micro-batch that is repeated once. For another, give a function (batch_df, batch_id) -> None"
        )
    if (path is None) == (table is None) or (table is not None and kind != _DELTA):
        needed = "path, or table" if kind == _DELTA else "path"
        raise DefinitionError(
            f"writeStream: the sink of {output!r} of the format {kind} needs one {needed}, got {given!r}"
        )
    return _Stored(kind, output, checkpoint, None if path is None else str(path), table, options)


def _take_folder(spark: SparkSession, path: str, query: str, batch_id: int, output: str) -> None:
    """Refuse a folder whose micro-batches would be overwritten by others with the same numbers: those of another
    query, or those that this query wrote after the checkpoint that it continues from. Readers ignore files that
    begin with _."""
    mark = f"{path}/_query"
    try:
        owner = spark.read.text(mark).first()
    except AnalysisException:  # there is none
        owner = None
    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(path)
        number = f.regexp_extract("path", rf"{BATCH_ID}=(\d+)/", 1).try_cast("bigint")
        found = files.agg(f.count("*").alias("files"), f.max(number).alias("last")).first()
    except AnalysisException:  # the folder is not there yet
        found = None
    held, last = (0, None) if found is None else (found["files"], found["last"])
    fix = "Name another folder for this run, or move what is there elsewhere"
    if held and (owner is None or owner.value != query):
        whose = "files that no run of writeStream put there" if owner is None else "results of another run"
        raise CheckpointError(
            f"writeStream: the sink of {output!r}, {path}, holds {whose}; those of a new checkpoint begin with "
            f"micro-batch 0 again and would overwrite them. {fix}"
        )
    if last is not None and last > batch_id:
        raise CheckpointError(
            f"writeStream: the sink of {output!r}, {path}, holds micro-batch {last}, and the checkpoint goes on with "
            f"{batch_id}: it is older than the results, and would overwrite some of them with others. {fix}, and give "
            "the run a new checkpoint"
        )
    if owner is None or owner.value != query:
        spark.createDataFrame([(query,)], "value STRING").coalesce(1).write.mode("overwrite").text(mark)


def _query_id(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query, which lasts as long as its checkpoint: a new checkpoint counts micro-batches anew."""
    metadata = spark.read.text(f"{checkpoint}/metadata").first()
    assert metadata is not None
    return str(json.loads(metadata.value)["id"])
