"""Tidewheel: correct event-stream analytics for PySpark, from the sensor to the browser.

    import tidewheel as tw

    visits = (
        tw.stream(df, time="ts")                    # any DataFrame, or topics of a log
        .key_by("user")
        .window(tw.windows.session("30 min"))
        .aggregate(clicks=tw.agg.count())
    )
    print(visits.explain())                         # what comes out when, what is kept, how it runs
    visits.df().show()

`help(tw.stream)`, `help(tw.windows)` and so on tell more of each.

Where rows come from
    session             a SparkSession that reads and writes logs, new or your own
    stream              a stream over topics of a log, or over any DataFrame
    sql                 a statement with MATCH_RECOGNIZE, over DataFrames or streams
    open_log            the log in a file: topics of events and results
    types               the message types that are known, and a place to register your own
    codec               events as bytes: whole columns at once, or one at a time
    records             bytes as records that a log takes, with keys and times
    Retention           how long a topic keeps its records
    Consumer            reads topics, and remembers how far under the name of a group
    Archive             the Parquet files that `tidewheel archive` writes

What is computed
    windows             windows in event time: tumbling, sliding, session, calendar, count, custom
    triggers            when a window gives results: early, on time, late
    agg                 aggregates: count, sum, mean, percentile, top_k, custom, ...
    watermarks          how far event time has come: bounded, percentile, punctuated, ...
    geo                 places: cells, regions, distances
    time                instants and durations: microseconds from text and back, and the clock
    Lookup              what to look up about rows outside the stream
    Timer               a state column of a process function that wakes it in event time
    ProcessingTimer     the same in processing time
    Clock               the time of a call of a process function

Event patterns
    pattern             the first stage of a pattern: which events, in what order, make a match
    any_of              one of several patterns
    all_of              several patterns, in any order
    rising              a trend: each value above the one before
    falling             a trend: each value below the one before
    monotonic           a trend: values go one way
    measures            what a match tells of its events: first, last, min, max, sum, mean, count, collect, previous
    PatternRegistry     patterns in a topic, changed while jobs run
    pattern_to_json     a pattern as text that lasts
    pattern_from_json   the pattern of such a text

Jobs
    job                 makes a job of a function, with parameters that are options
    run                 starts jobs and results of one log as one query
    run_dataframe       runs a function of plain Spark as a job, for what streams have not, like joins
    RunOptions          the options of a run: its session, where it begins, how much a batch reads
    materialize         what a topic of results comes to: the last result of each key and window
    Aliases             which topic a name stands for, while versions of a job come and go
    back_up             saves a log with the checkpoints of its jobs
    restore             puts both back
    reader_function     a function that runs inside the log's reader, for `format("tidewheel")`
    ReaderFunction      its type
    DecodedBatch        what it gets: events of one partition in columns
    ReadInfo            what else it gets: the time of the batch, and which of its tasks this is

What you hold
    Stream              rows with an event time: filter, select, with_columns, key_by, window, match
    KeyedStream         a stream whose results are per key
    WindowedStream      a stream cut into windows: trigger, accumulate, aggregate
    Result              what comes out: df, start, explain, and a stream again
    Pattern             a pattern, as `pattern` makes it
    Job                 a job, as `job` makes it
    Run                 a running job: progress, watch, wait, stop
    Progress            how a run is doing
    topic_names         what topics are called: of events, results, late rows, dead letters
    Log                 a log, as `open_log` gives it
    TypeRegistry        message types by name
    errors              what can go wrong: every error is a TidewheelError
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tidewheel import errors, topic_names
from tidewheel.model import watermarks

if TYPE_CHECKING:
    from tidewheel.engine.backup.backup import back_up
    from tidewheel.engine.backup.restore import restore
    from tidewheel.engine.datasource.reader_function import DecodedBatch, ReaderFunction, ReadInfo, reader_function
    from tidewheel.engine.execution.run_options import RunOptions
    from tidewheel.engine.execution.running_query import Progress, Run
    from tidewheel.engine.execution.session import session
    from tidewheel.engine.jobs.archive import Archive
    from tidewheel.engine.jobs.dataframe_job import run_dataframe
    from tidewheel.engine.jobs.job import Job, job
    from tidewheel.engine.jobs.run import run
    from tidewheel.engine.sql.sql import sql
    from tidewheel.engine.streams.keyed_stream import KeyedStream
    from tidewheel.engine.streams.result import Result
    from tidewheel.engine.streams.stream import Stream
    from tidewheel.engine.streams.stream_factory import stream
    from tidewheel.engine.streams.windowed_stream import WindowedStream
    from tidewheel.model import aggregates as agg
    from tidewheel.model import time, triggers, windows
    from tidewheel.model.process.lookup import Lookup
    from tidewheel.model.process.process import Clock, ProcessingTimer, Timer
    from tidewheel.patterns import Pattern, all_of, any_of, falling, measures, monotonic, pattern, rising
    from tidewheel.patterns.define import geo as geo
    from tidewheel.patterns.serde.pattern_json import pattern_from_json, pattern_to_json
    from tidewheel.transport.events import codec
    from tidewheel.transport.events.registry import TypeRegistry, types
    from tidewheel.transport.log.consumer import Consumer
    from tidewheel.transport.log.log import Log
    from tidewheel.transport.log.log_types import Retention, records
    from tidewheel.transport.open_log import open_log
    from tidewheel.transport.topics.aliases import Aliases
    from tidewheel.transport.topics.materialize import materialize
    from tidewheel.transport.topics.pattern_registry import PatternRegistry

__version__ = "0.1.0"

__all__ = [
    "Aliases",
    "Archive",
    "Clock",
    "Consumer",
    "DecodedBatch",
    "Job",
    "KeyedStream",
    "Log",
    "Lookup",
    "Pattern",
    "PatternRegistry",
    "ProcessingTimer",
    "Progress",
    "ReadInfo",
    "ReaderFunction",
    "Result",
    "Retention",
    "Run",
    "RunOptions",
    "Stream",
    "Timer",
    "TypeRegistry",
    "WindowedStream",
    "agg",
    "all_of",
    "any_of",
    "back_up",
    "codec",
    "errors",
    "falling",
    "geo",
    "job",
    "materialize",
    "measures",
    "monotonic",
    "open_log",
    "pattern",
    "pattern_from_json",
    "pattern_to_json",
    "reader_function",
    "records",
    "restore",
    "rising",
    "run",
    "run_dataframe",
    "session",
    "sql",
    "stream",
    "time",
    "topic_names",
    "triggers",
    "types",
    "watermarks",
    "windows",
]

# Spark and polars take their time to import: a program that only looks at a log should not wait for them.
_HOMES = {
    "Archive": "engine.jobs.archive",
    "back_up": "engine.backup.backup",
    "restore": "engine.backup.restore",
    "Job": "engine.jobs.job",
    "job": "engine.jobs.job",
    **dict.fromkeys(
        ["DecodedBatch", "ReadInfo", "ReaderFunction", "reader_function"],
        "engine.datasource.reader_function",
    ),
    "KeyedStream": "engine.streams.keyed_stream",
    "Stream": "engine.streams.stream",
    "WindowedStream": "engine.streams.windowed_stream",
    "stream": "engine.streams.stream_factory",
    "Result": "engine.streams.result",
    "Lookup": "model.process.lookup",
    "Clock": "model.process.process",
    "ProcessingTimer": "model.process.process",
    "Timer": "model.process.process",
    "run": "engine.jobs.run",
    "run_dataframe": "engine.jobs.dataframe_job",
    "Progress": "engine.execution.running_query",
    "Run": "engine.execution.running_query",
    "RunOptions": "engine.execution.run_options",
    "session": "engine.execution.session",
    "sql": "engine.sql.sql",
    "Consumer": "transport.log.consumer",
    "Log": "transport.log.log",
    "Retention": "transport.log.log_types",
    "records": "transport.log.log_types",
    "open_log": "transport.open_log",
    "Aliases": "transport.topics.aliases",
    "materialize": "transport.topics.materialize",
    "pattern_from_json": "patterns.serde.pattern_json",
    "pattern_to_json": "patterns.serde.pattern_json",
    "PatternRegistry": "transport.topics.pattern_registry",
    "TypeRegistry": "transport.events.registry",
    "types": "transport.events.registry",
    **dict.fromkeys(
        [
            "Pattern",
            "all_of",
            "any_of",
            "falling",
            "monotonic",
            "pattern",
            "rising",
        ],
        "patterns",
    ),
}


_MODULES = {
    "measures": "patterns.measures",
    "agg": "model.aggregates",
    "codec": "transport.events.codec",
    "geo": "patterns.define.geo",
    "time": "model.time",
    "triggers": "model.triggers",
    "windows": "model.windows",
}


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
