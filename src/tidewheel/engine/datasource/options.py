"""The options of `format("tidewheel")`: text, as Spark passes them, checked when a query is defined."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from tidewheel.engine.datasource.batch_limit import MAX_BYTES
from tidewheel.engine.datasource.output_encoding import Encodings, load_encodings
from tidewheel.engine.datasource.reader_function import ReaderFunction, load_reader_function
from tidewheel.engine.spark.arrow_schema import spark_schema
from tidewheel.engine.spark.worker import registry_for, warm_worker
from tidewheel.errors import DefinitionError
from tidewheel.model import watermarks
from tidewheel.model.time import Duration, duration, instant
from tidewheel.model.watermarks import Strategy
from tidewheel.transport.events.codec import ENVELOPE_COLUMNS
from tidewheel.transport.log.log_types import StartFrom

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RAW_COLUMNS", "ReadOptions", "WriteOptions", "parse_start_from"]

_INSTANT = pa.timestamp("us", "UTC")
RAW_COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("append_time", _INSTANT),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""What comes out when no type is named: the records as they are."""

METADATA = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_key", pa.binary()),
        ("_append_time", _INSTANT),
        ("_clock", _INSTANT),
    ]
)
"""What `metadata` may name."""

MALFORMED = pa.schema([("_error", pa.string()), ("_raw", pa.binary())])
"""What `malformed=keep` adds."""


class _Options:
    """Spark's options: text by name, in any case; every one must be known."""

    def __init__(self, given: Mapping[str, str], known: str) -> None:
        warm_worker()  # reading options is the first thing that a worker of Spark's does for us
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known.split()}
        # Spark adds what concerns itself; only what looks like ours and is not is a mistake worth stopping for.
        passing = {"checkpointlocation", "queryname", "mergeschema"}
        strange = [name for name in given if name.lower() not in names.keys() | passing]
        if strange:
            raise DefinitionError(
                f'format("tidewheel"): no option {strange[0]!r}; there are {", ".join(names.values())}'
            )

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def need(self, name: str, example: str) -> str:
        value = self.get(name)
        if not value:
            raise DefinitionError(f'format("tidewheel"): the option {name!r} is missing; for example {example}')
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        text = (self.get(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise DefinitionError(f'format("tidewheel"): {name!r} must be true or false, got {text!r}')
        return text == "true"

    def number(self, name: str, default: int) -> int:
        text = self.get(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise DefinitionError(f'format("tidewheel"): {name!r} must be a whole number above 0, got {text!r}')
        return int(text)


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading topics.

    | option | meaning | default |
    |---|---|---|
    | `log` | the log's address | (needed; or the path given to `load`) |
    | `topics` | names, separated by commas | (needed) |
    | `type` | the message type to decode into columns, or a JSON object of topic → type | records as they are |
    | `startFrom` | `earliest`, `latest`, or a time | `earliest` |
    | `maxEventsPerBatch` | the limit per batch (whole blocks, at least one) | 500000 |
    | `maxBytesPerBatch` | likewise in bytes of keys and values, uncompressed | 268435456 |
    | `watermark` | a watermark strategy as JSON | bounded by 1 s |
    | `clock` | a batch's clock: when it is planned (`wall`), or of its last append (`log`: for replays) | `wall` |
    | `tick` | how often at most an idle stream moves its watermark | 1 s |
    | `ticking` | `true`: an idle stream also has batches that only move the clock, for what waits for it | `false` |
    | `malformed` | `fail`, `keep` (columns `_error`, `_raw`), or `dead` (to the topic `dead.<group>`) | `fail` |
    | `skipDamaged` | `true`: go on without blocks that are damaged (reported in `dead.<group>`) | `false`: fail |
    | `metadata` | further columns: `_topic`, `_partition`, `_offset`, `_key`, `_append_time`, `_clock` | none |
    | `group` | the consumer group whose progress is noted in the log | none |
    | `tasks` | how many tasks read a large batch at most | the number of cores |
    | `transform` | a function that runs inside the reader (see `reader_function`) | none |
    | `transformSchema` | the columns that the function gives, as DDL | (needed with `transform`) |
    """

    log: str
    topics: tuple[str, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    start_from: StartFrom = "earliest"
    max_events: int = 500_000
    max_bytes: int = MAX_BYTES
    watermark: Mapping[str, Strategy] = field(default_factory=dict)
    clock: Literal["wall", "log"] = "wall"
    tick: Duration = 1_000_000
    ticking: bool = False
    malformed: Literal["fail", "keep", "dead"] = "fail"
    skip_damaged: bool = False
    metadata: tuple[str, ...] = ()
    group: str | None = None
    tasks: int = 1
    worth: int = 20_000
    stop_file: str | None = None
    backfill_file: str | None = None
    first_file: str | None = None
    function: str | None = None
    transform_schema: str | None = None

    NAMES: ClassVar[str] = (
        "log path topics type startFrom maxEventsPerBatch maxBytesPerBatch watermark clock tick ticking malformed "
        "skipDamaged metadata group tasks stopFile backfillFile firstFile transform transformSchema"
    )

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """Read and check the options."""
        options = _Options(given, cls.NAMES)
        log = options.get("path") or options.need("log", '.option("log", "city.tw")')
        topics = tuple(
            name.strip()
            for name in options.need("topics", '.option("topics", "input.arrival")').split(",")
            if name.strip()
        )
        metadata = tuple(name.strip() for name in (options.get("metadata") or "").split(",") if name.strip())
        unknown = [name for name in metadata if name not in METADATA.names]
        if unknown:
            raise DefinitionError(f"no metadata column {unknown[0]!r}; there are {', '.join(METADATA.names)}")
        malformed = options.get("malformed") or "fail"
        if malformed not in ("fail", "keep", "dead"):
            raise DefinitionError(f"'malformed' must be fail, keep or dead, got {malformed!r}")
        clock = options.get("clock") or "wall"
        if clock not in ("wall", "log"):
            raise DefinitionError(f"'clock' must be wall or log, got {clock!r}")
        group = options.get("group")
        if malformed == "dead" and not group:
            raise DefinitionError("'malformed' = dead needs the option 'group', which names the topic dead.<group>")
        skip_damaged = options.flag("skipDamaged", default=False)
        if skip_damaged and not group:
            raise DefinitionError("'skipDamaged' needs the option 'group', which names the topic dead.<group>")
        function = options.get("transform")
        if function and not options.get("transformSchema"):
            raise DefinitionError("'transform' needs 'transformSchema': the columns that the function gives, as DDL")
        result = cls(
            log=log,
            topics=topics,
            types=_types(options.get("type"), topics),
            start_from=parse_start_from(options.get("startFrom") or "earliest"),
            max_events=options.number("maxEventsPerBatch", 500_000),
            max_bytes=options.number("maxBytesPerBatch", MAX_BYTES),
            watermark=_watermark(options.get("watermark"), topics),
            clock=clock,  # type: ignore[arg-type]  # checked above
            tick=duration(options.get("tick") or "1 s", what="tick"),
            ticking=(options.get("ticking") or "false").lower() == "true",
            malformed=malformed,  # type: ignore[arg-type]  # checked above
            skip_damaged=skip_damaged,
            metadata=metadata,
            group=group,
            tasks=options.number("tasks", os.cpu_count() or 1),
            stop_file=options.get("stopFile"),
            backfill_file=options.get("backfillFile"),
            first_file=options.get("firstFile"),
            function=function,
            transform_schema=options.get("transformSchema"),
        )
        distinct = set(result.types.values())
        if function is None and len(distinct) > 1:
            raise DefinitionError(
                f"topics of different types ({', '.join(sorted(distinct))}) cannot be one DataFrame; read them apart"
            )
        return result

    @cached_property
    def transform(self) -> ReaderFunction | None:
        """The function that runs inside the reader. Only there: processes that plan need not import what it needs."""
        return load_reader_function(self.function) if self.function else None

    def schema(self) -> StructType | str:
        """The columns that come out."""
        if self.transform_schema is not None:
            return self.transform_schema
        if not self.types:
            return spark_schema(RAW_COLUMNS)
        name = next(iter(self.types.values()))
        message = registry_for(self.log, name).schema(name)
        columns = [pa.field(name, _INSTANT) for name in ENVELOPE_COLUMNS]
        columns += list(message)
        columns += [METADATA.field(name) for name in self.metadata]
        columns += list(MALFORMED) if self.malformed == "keep" else []
        return spark_schema(pa.schema(columns))


@dataclass(frozen=True)
class WriteOptions:
    """Options for writing rows.

    | option | meaning | default |
    |---|---|---|
    | `log` | the log's address | (needed; or the path given to `start` or `save`) |
    | `topic` | where to | the column `_topic` of each row |
    | `type` | the message type that the columns fill, besides those of the event's times | made of them, or `value` |
    | `time` | without `type`: the column of the event times | `event_time` |
    | `key` | columns whose values, joined by a slash, are the record's key | the column `_key`, or none |
    | `encodings` | for exchange batches (a column `batch_bytes`): where each of their outputs goes | rows as above |
    | `exclusive` | topics that must be empty when the query first writes: nobody else's results | none |
    | `fsync` | whether the checkpoint's offsets and commits are forced to the disk before a batch is written | `true` |
    | `everyBatch` | whether batches without rows are noted in the log, too | `false`, but with `encodings` |
    """

    log: str
    topic: str | None = None
    type: str | None = None
    time: str | None = None
    key: tuple[str, ...] = ()
    encodings: Encodings | None = None
    exclusive: tuple[str, ...] = ()
    """Topics that are refused if they hold records when the query writes for the first time."""
    checkpoint: str | None = None
    """Where the query's checkpoint is, if the writer knows: Spark's own option `checkpointLocation`."""
    fsync: bool = True
    every_batch: bool = False

    NAMES: ClassVar[str] = "log path topic type time key encodings exclusive fsync everyBatch"

    @classmethod
    def of(cls, given: Mapping[str, str]) -> WriteOptions:
        """Read and check the options."""
        options = _Options(given, cls.NAMES)
        encodings = options.get("encodings")
        return cls(
            log=options.get("path") or options.need("log", '.option("log", "city.tw")'),
            topic=options.get("topic") or None,
            type=options.get("type") or None,
            time=options.get("time") or None,
            key=_names(options.get("key")),
            encodings=load_encodings(encodings) if encodings else None,
            exclusive=_names(options.get("exclusive")),
            checkpoint=options.get("checkpointLocation"),
            fsync=options.flag("fsync", default=True),
            every_batch=options.flag("everyBatch", default=False),
        )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _json(text: str | None, name: str) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise DefinitionError(f'format("tidewheel"): {name!r} is not JSON: {error}') from None


def _types(text: str | None, topics: tuple[str, ...]) -> Mapping[str, str]:
    if not text:
        return {}
    if not text.lstrip().startswith("{"):
        return dict.fromkeys(topics, text)
    named: dict[str, str] = _json(text, "type")
    missing = [topic for topic in topics if topic not in named]
    if missing:
        raise DefinitionError(f"'type' names no type for the topic {missing[0]!r}")
    return {topic: named[topic] for topic in topics}


def parse_start_from(text: str, *, what: str = "'startFrom'") -> StartFrom:
    """Parse a start position: `earliest`, `latest`, or a time."""
    if text in ("earliest", "latest"):
        return text  # type: ignore[return-value]  # one of the two
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=instant(text, what=what))


def _watermark(text: str | None, topics: tuple[str, ...]) -> Mapping[str, Strategy]:
    if text is None:
        return dict.fromkeys(topics, watermarks.bounded("1 s"))
    fields = _json(text, "watermark")
    if "kind" in fields:
        return dict.fromkeys(topics, watermarks.from_json(fields))
    return {topic: watermarks.from_json(fields[topic]) for topic in topics}
