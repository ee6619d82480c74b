"""Caches of a Python worker process between batches."""

from __future__ import annotations

import ctypes
import gc
import sys
import traceback
from functools import lru_cache
from types import TracebackType
from typing import Any

from tidewheel.engine.spark.neighbour_modules import ModuleSource, import_from, known_modules
from tidewheel.engine.spark.pickling import dumps, loads
from tidewheel.lazy_pandas import defer_pandas
from tidewheel.transport.events import event_pb2
from tidewheel.transport.events.registry import TypeRegistry, types
from tidewheel.transport.events.schema_inference import GENERATED
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import log_file, open_log
from tidewheel.transport.topics.types import load_types, type_version

__all__ = ["CachedClosure", "registry_for", "warm_worker", "shared_log"]

_HANG_UPS = (BrokenPipeError, ConnectionResetError, EOFError)
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # as <malloc.h> numbers them
_LARGE, _SPARE = 32 << 20, 128 << 20  # bytes: the largest block that may be kept, and how much in all
_warm = False
_logs: dict[str, tuple[tuple[int, int] | None, Log]] = {}
_registries: dict[str, tuple[tuple[str, str, int], TypeRegistry]] = {}


def shared_log(address: str, *, create: bool = False) -> Log:
    """The log at this address, opened once in each process: Spark's workers live on from batch to batch."""
    held = _logs.get(address)
    # A file that was removed and made anew under the same name is another log.
    if held is not None and held[0] == _file(address):
        return held[1]
    for other in [other for other in _logs if _file(other) == (0, 0)]:
        _logs.pop(other)[1].close()  # its file is gone: nobody will ask for it again
    log = open_log(address, create=create)
    _logs[address] = _file(address), log
    warm_worker()
    return log


def warm_worker() -> None:
    """Prepare a worker, once, when it has imported all that it needs."""
    global _warm
    if not _warm and "pyspark" in _program():
        _warm = True
        # Workers collect garbage after every task; all that was imported stays for good and need not be looked at.
        gc.freeze()
        _keep_memory()


def _keep_memory() -> None:
    """Keep freed memory for the next batch. By default the C library returns large blocks to the system as soon as they
    are free; getting them back, page by page, took a quarter of the time that decoding takes."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library than Linux's
        return
    mallopt(_MMAP_THRESHOLD, _LARGE)
    mallopt(_TRIM_THRESHOLD, _SPARE)


class CachedClosure:
    """An object that a worker unpickles once instead of in each task: Spark sends the same ones to all tasks of a
    query, and parsing an SQL statement, for example, takes longer than a small batch."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _revived, (type(self), dumps(self.__dict__), known_modules())


@lru_cache(maxsize=32)
def _revived(kind: type[CachedClosure], data: bytes, modules: tuple[ModuleSource, ...]) -> CachedClosure:
    import_from(modules)
    found = object.__new__(kind)
    found.__dict__.update(loads(data))
    return found


def _hang_up_quietly() -> None:
    """Print nothing when a stopped query closes the pipes of its workers: each would print pages about it."""
    print_exc, excepthook = traceback.print_exc, sys.excepthook

    def quiet_print_exc(*args: Any, **options: Any) -> None:
        if not isinstance(sys.exc_info()[1], _HANG_UPS):
            print_exc(*args, **options)

    def quiet_excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, _HANG_UPS):
            excepthook(kind, error, trace)

    traceback.print_exc, sys.excepthook = quiet_print_exc, quiet_excepthook


def _program() -> str:
    """The name of the module that this process runs: Spark starts its workers as modules of PySpark."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec.name if spec is not None else ""


if "pyspark" in _program():
    _hang_up_quietly()
    defer_pandas()


def _file(address: str) -> tuple[int, int] | None:
    """What tells a log's file from another of the same name; None if it is not in a file, (0, 0) if that is gone."""
    path = log_file(address)
    if path is None:
        return None
    try:
        status = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return status.st_dev, status.st_ino


def registry_for(address: str, name: str) -> TypeRegistry:
    """A registry that knows the type. A worker has not seen what the user's program registered, so types that are not
    installed are read from the log; types made from columns always are, since another log may have others of the same
    name."""
    if (name in types and not name.startswith(GENERATED)) or _file(address) == (0, 0):
        return types
    log = shared_log(address)
    version = type_version(log)
    held = _registries.get(address)
    if held is None or held[0] != version:
        registry = TypeRegistry()
        registry.register(event_pb2)
        load_types(log, registry)
        _registries[address] = held = (version, registry)
    return held[1]
