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

What is computed
    windows             windows in event time: tumbling, sliding, session, calendar, count, custom
    triggers            when a window gives results: early, on time, late
    agg                 aggregates: count, sum, mean, percentile, top_k, custom, ...
    watermarks          how far event time has come: bounded, percentile, punctuated, ...
    geo                 places: cells, regions, distances
    Lookup              what to look up about rows outside the stream
    Timer               a state column of a process function that wakes it in event time
    ProcessingTimer     the same in processing time
    Clock               the time of a call of a process function

Event patterns
    pattern             the first stage of a pattern: which events, in what order, make a match
    any_of              one of several patterns
    all_of              several patterns, in any order
    previous            a column of the event before, in a condition
    rising              a trend: each value above the one before
    falling             a trend: each value below the one before
    monotonic           a trend: values go one way
    first               a measure: the value of a stage's first event
    last                a measure: the value of a stage's last event
    min                 a measure: the least value
    max                 a measure: the greatest value
    sum                 a measure: the sum of values
    mean                a measure: the mean of values
    count               a measure: how many events
    collect             a measure: the list of values
    PatternBook         patterns in a topic, changed while jobs run

Jobs
    job                 makes a job of a function, with parameters that are options
    run                 starts jobs and results of one log as one query
    run_frame           runs a function of plain Spark as a job, for what streams have not, like joins
    reader_function     a function that runs inside the log's reader, for `format("tidewheel")`

What you hold
    Stream              rows with an event time: filter, select, with_columns, key_by, window, match
    KeyedStream         a stream whose results are per key
    WindowedStream      a stream cut into windows: trigger, accumulate, aggregate
    Result              what comes out: df, start, explain, and a stream again
    Pattern             a pattern, as `pattern` makes it
    Job                 a job, as `job` makes it
    Run                 a job at work: progress, watch, wait, stop
    Progress            how a run is doing
    Log                 a log, as `open_log` gives it
    TypeRegistry        message types by name
    errors              what can go wrong: every error is a TidewheelError
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tidewheel import errors
from tidewheel.model import watermarks

if TYPE_CHECKING:
    from tidewheel.engine.frame_job import run_frame
    from tidewheel.engine.job import Job, job
    from tidewheel.engine.launch import run
    from tidewheel.engine.options import reader_function
    from tidewheel.engine.result import Result
    from tidewheel.engine.run import Progress, Run
    from tidewheel.engine.session import session
    from tidewheel.engine.sql import sql
    from tidewheel.engine.stream import KeyedStream, Stream, stream
    from tidewheel.engine.windowed_stream import WindowedStream
    from tidewheel.model import aggregates as agg
    from tidewheel.model import triggers, windows
    from tidewheel.model.lookup import Lookup
    from tidewheel.model.process import Clock, ProcessingTimer, Timer
    from tidewheel.patterns import (
        Pattern,
        all_of,
        any_of,
        collect,
        count,
        falling,
        first,
        last,
        max,
        mean,
        min,
        monotonic,
        pattern,
        previous,
        rising,
        sum,
    )
    from tidewheel.patterns import geo as geo
    from tidewheel.transport.log import Log, open_log
    from tidewheel.transport.pattern_book import PatternBook
    from tidewheel.transport.registry import TypeRegistry, types

__version__ = "0.1.0"

__all__ = [
    "Clock",
    "Job",
    "KeyedStream",
    "Log",
    "Lookup",
    "Pattern",
    "PatternBook",
    "ProcessingTimer",
    "Progress",
    "Result",
    "Run",
    "Stream",
    "Timer",
    "TypeRegistry",
    "WindowedStream",
    "agg",
    "all_of",
    "any_of",
    "collect",
    "count",
    "errors",
    "falling",
    "first",
    "geo",
    "job",
    "last",
    "max",
    "mean",
    "min",
    "monotonic",
    "open_log",
    "pattern",
    "previous",
    "reader_function",
    "rising",
    "run",
    "run_frame",
    "session",
    "sql",
    "stream",
    "sum",
    "triggers",
    "types",
    "watermarks",
    "windows",
]

# Spark and polars take their time to import: a program that only looks at a log should not wait for them.
_HOMES = {
    "Job": "engine.job",
    "job": "engine.job",
    "reader_function": "engine.options",
    "KeyedStream": "engine.stream",
    "Stream": "engine.stream",
    "WindowedStream": "engine.windowed_stream",
    "stream": "engine.stream",
    "Result": "engine.result",
    "Lookup": "model.lookup",
    "Clock": "model.process",
    "ProcessingTimer": "model.process",
    "Timer": "model.process",
    "run": "engine.launch",
    "run_frame": "engine.frame_job",
    "Progress": "engine.run",
    "Run": "engine.run",
    "session": "engine.session",
    "sql": "engine.sql",
    "Log": "transport.log",
    "open_log": "transport.log",
    "PatternBook": "transport.pattern_book",
    "TypeRegistry": "transport.registry",
    "types": "transport.registry",
    **dict.fromkeys(
        [
            "Pattern",
            "all_of",
            "any_of",
            "collect",
            "count",
            "falling",
            "first",
            "last",
            "max",
            "mean",
            "min",
            "monotonic",
            "pattern",
            "previous",
            "rising",
            "sum",
        ],
        "patterns",
    ),
}


_MODULES = {"agg": "model.aggregates", "geo": "patterns.geo", "triggers": "model.triggers", "windows": "model.windows"}


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
