"""Tidewheel: correct event-stream analytics for PySpark, from the sensor to the browser."""

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
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
