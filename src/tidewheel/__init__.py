"""Tidewheel: correct event-stream analytics for PySpark, from the sensor to the browser."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tidewheel import errors
from tidewheel.model import aggregates as agg
from tidewheel.model import geo, triggers, watermarks, windows
from tidewheel.model.process import Clock, ProcessingTimer, Timer

if TYPE_CHECKING:
    from tidewheel.engine.job import Job, job
    from tidewheel.engine.launch import run
    from tidewheel.engine.options import reader_function
    from tidewheel.engine.result import Result
    from tidewheel.engine.run import Progress, Run, start
    from tidewheel.engine.session import session
    from tidewheel.engine.stream import KeyedStream, Stream, WindowedStream, stream
    from tidewheel.transport.log import Log, open_log
    from tidewheel.transport.registry import TypeRegistry, types

__version__ = "0.1.0"

__all__ = [
    "Clock",
    "Job",
    "KeyedStream",
    "Log",
    "ProcessingTimer",
    "Progress",
    "Result",
    "Run",
    "Stream",
    "Timer",
    "TypeRegistry",
    "WindowedStream",
    "agg",
    "errors",
    "geo",
    "job",
    "open_log",
    "reader_function",
    "run",
    "session",
    "start",
    "stream",
    "triggers",
    "types",
    "watermarks",
    "windows",
]

# Spark takes a second to import: a program that only looks at a log should not wait for it.
_HOMES = {
    "Job": "engine.job",
    "job": "engine.job",
    "reader_function": "engine.options",
    "KeyedStream": "engine.stream",
    "Stream": "engine.stream",
    "WindowedStream": "engine.stream",
    "stream": "engine.stream",
    "Result": "engine.result",
    "run": "engine.launch",
    "Progress": "engine.run",
    "Run": "engine.run",
    "start": "engine.run",
    "session": "engine.session",
    "Log": "transport.log",
    "open_log": "transport.log",
    "TypeRegistry": "transport.registry",
    "types": "transport.registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
