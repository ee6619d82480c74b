"""The log as a Spark data source: `spark.readStream.format("tidewheel")`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidewheel.engine.checkpoint.checkpoint import EVERY_BATCH
from tidewheel.engine.checkpoint.checkpoint_file import read_json, write_json
from tidewheel.engine.datasource.backfill import SuspendedFlows, plan_catch_up
from tidewheel.engine.datasource.batch_planner import OffsetRange, check_topics, first_offset, plan_batch, split
from tidewheel.engine.datasource.batch_reader import read_ranges
from tidewheel.engine.datasource.offset import Offset
from tidewheel.engine.datasource.options import ReadOptions
from tidewheel.engine.datasource.reader_function import ReadInfo
from tidewheel.engine.spark.arrow_schema import arrow_schema
from tidewheel.engine.spark.worker import shared_log
from tidewheel.model.time import Instant, now
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Partition

__all__ = ["TidewheelSource"]


@dataclass
class _Share(InputPartition):
    """What one task reads."""

    ranges: Sequence[OffsetRange]
    info: ReadInfo

    def __init__(self, ranges: Sequence[OffsetRange], info: ReadInfo) -> None:
        super().__init__(None)
        self.ranges = ranges
        self.info = info


class TidewheelSource(DataSource):
    """Reads and writes topics of a log. The options are those of `ReadOptions` and `WriteOptions`."""

    @classmethod
    def name(cls) -> str:
        return "tidewheel"

    def schema(self) -> StructType | str:
        """The columns that come out: see `ReadOptions`."""
        return ReadOptions.of(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader for `spark.read`: what the topics hold now."""
        return _TopicReader(ReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader for `spark.readStream`."""
        return _TopicStreamReader(ReadOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Make the writer for `df.write`."""
        # Not at the top: every query starts processes that only plan, and need not import how rows are written.
        from tidewheel.engine.datasource.sink import BatchSink

        return BatchSink(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Make the writer for `df.writeStream`."""
        from tidewheel.engine.datasource.sink import StreamSink

        return StreamSink(self.options, schema, overwrite=overwrite)


class _ReaderBase:
    """The part that both readers share."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @property
    def _log(self) -> Log:
        return shared_log(self._options.log)

    def _first(self, clock: Instant) -> Offset:
        options = self._options
        control = [topic for topic, strategy in options.watermark.items() if not strategy.takes_part]
        return first_offset(self._log, options.topics, options.start_from, clock=clock, whole=control)

    def _shares(self, before: Offset, after: Offset) -> list[_Share]:
        parts = [
            ((), before, after),
            *((catch_up.flows, catch_up.start, catch_up.end) for catch_up in after.catch_ups.values()),
        ]
        if self._options.backfill_file is not None:
            # A batch that was planned before a flow came back, and is repeated now, is not for that flow.
            for name, waiting in SuspendedFlows.read(self._options.backfill_file).catch_ups.items():
                if name not in after.catch_ups and name not in after.ended_catch_ups:
                    since = Offset.from_json(waiting["since"])
                    parts.append((tuple(waiting["flows"]), since, since))
        elsewhere = tuple(flow for flows, _, _ in parts for flow in flows)
        found = []
        for flows, start, end in parts:
            shares = split(
                self._log,
                start,
                end,
                tasks=self._options.tasks,
                worth=self._options.worth,
                skip_damaged=self._options.skip_damaged,
            )
            # A batch that only moves the clock still has to tell it.
            found += [(flows, start, end, ranges, number == 0) for number, ranges in enumerate(shares or [[]])]
        return [
            _Share(
                ranges,
                ReadInfo(start.watermark, end.watermark, after.clock, number, len(found), first, flows, elsewhere),
            )
            for number, (flows, start, end, ranges, first) in enumerate(found)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part of the batch, in a worker."""
        assert isinstance(partition, _Share)
        return read_ranges(self._log, self._options, partition.ranges, partition.info, arrow_schema(self._schema))


class _TopicReader(_ReaderBase, DataSourceReader):
    """A bounded read: everything between the start and the end of the topics at planning."""

    def partitions(self) -> list[InputPartition]:
        before = self._first(now() if self._options.clock == "wall" else 0)
        after = plan_batch(
            self._log,
            self._options.watermark,
            before,
            limit=None,
            clock=now(),
            tick=0,
            by_log=self._options.clock == "log",
            skip_damaged=self._options.skip_damaged,
        )
        return list(self._shares(before, after))


class _TopicStreamReader(_ReaderBase, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Spark makes this object anew as it likes: the truth is in the offsets."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._until: Mapping[Partition, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        options = self._options
        known = None if options.first_file is None else Path(options.first_file)
        checkpointed = None if known is None else read_json(known, needs=("version", "log", "positions"))
        if checkpointed is not None:
            return {name: value for name, value in checkpointed.items() if name != EVERY_BATCH}
        clock = now() if options.clock == "wall" else 0
        offset = self._first(clock).to_json()
        if known is not None:
            write_json(known, {**offset, EVERY_BATCH: True})
        return offset

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_events)

    def prepareForTriggerAvailableNow(self) -> None:
        log = self._log
        self._until = {
            (topic, number): end
            for topic in self._options.topics
            for number, end in enumerate(log.topic_info(topic).next_offsets)
        }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        options = self._options
        if options.stop_file is not None and Path(options.stop_file).exists():
            return start
        if isinstance(limit, ReadMaxRows):
            most: int | None = limit.max_rows
        elif isinstance(limit, ReadAllAvailable):
            most = None
        else:
            most = options.max_events
        most_bytes = None if isinstance(limit, ReadAllAvailable) else options.max_bytes
        before = Offset.from_json(start)
        after = plan_batch(
            self._log,
            options.watermark,
            before,
            limit=most,
            limit_bytes=most_bytes,
            clock=now(),
            tick=options.tick,
            until=self._until,
            by_log=options.clock == "log",
            ticking=options.ticking and self._until is None,  # what is read to its end must end
            skip_damaged=options.skip_damaged,
        )
        if options.backfill_file is not None:
            suspended_flows = SuspendedFlows.read(options.backfill_file)
            after = plan_catch_up(
                self._log,
                options.watermark,
                before,
                after,
                suspended_flows,
                limit=most,
                limit_bytes=most_bytes,
                clock=now(),
                skip_damaged=options.skip_damaged,
            )
        return start if after is before else after.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return list(self._shares(Offset.from_json(start), Offset.from_json(end)))

    def commit(self, end: dict[str, Any]) -> None:
        if self._options.group is not None:
            done = Offset.from_json(end)
            check_topics(self._log, done, history=False)
            self._log.commit(self._options.group, done.positions)
