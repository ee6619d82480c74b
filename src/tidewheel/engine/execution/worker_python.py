"""Check that Spark's Python workers match this program.

Asked before the first batch, once for each session. Otherwise Java tells it in the middle of the query, in eighty lines
of its own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidewheel.errors import SetupError

__all__ = ["check_workers"]

_NEEDED = ("tidewheel", "polars", "pyarrow", "google.protobuf")
_LOOK = """
import importlib.util, sys
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
print("%d.%d" % sys.version_info[:2], *[name for name in sys.argv[1:] if not there(name)])
"""
_REMEDY = (
    "Before the session is made, say os.environ['PYSPARK_PYTHON'] = sys.executable (or export PYSPARK_PYTHON={here} "
    "before the program starts), or let tidewheel.session() make it; on a cluster install the same there"
)
_checked: set[tuple[str, str]] = set()


def check_workers(spark: SparkSession) -> None:
    """Refuse a session whose workers run another Python than this program, or lack the packages."""
    context: Any = getattr(spark, "_sc", None)  # a client of Spark Connect has none
    session = str(context.applicationId if context is not None else getattr(spark, "session_id", id(spark)))
    executable = "" if context is None else str(context.pythonExec)
    if (session, executable) in _checked:
        return
    sure = context is not None and str(context.master).startswith("local") and _looked_at(context, executable)
    if not sure:
        _check_on_worker(spark, executable)
    _checked.add((session, executable))


def _looked_at(context: Any, executable: str) -> bool:
    """Check the Python of local workers without starting a Spark task; False if only a task could tell."""
    path = shutil.which(executable)
    if path is None:
        raise _refusal(executable, "which is not there")
    if _same(path) and _installed():
        return True
    try:
        done = subprocess.run([path, "-c", _LOOK, *_NEEDED], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        output = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise _refusal(path, f"which does not run: {output[-1] if output else error}") from None
    version, *missing = done.stdout.split()
    if version != _version():
        raise _refusal(path, f"which is Python {version}, and this is {_version()}")
    if missing and not (context._python_includes or context.getConf().get("spark.submit.pyFiles")):
        raise _refusal(path, f"which does not find the package {missing[0].partition('.')[0]}")
    return not missing


def _same(path: str) -> bool:
    """Whether it is the Python that runs now, of the same environment (a link in another one leads to the same
    file)."""
    here = os.path.abspath(sys.executable)
    return os.path.dirname(os.path.abspath(path)) == os.path.dirname(here) and os.path.samefile(path, here)


def _installed() -> bool:
    """Whether this Python finds the packages in its site-packages."""
    found = [importlib.util.find_spec(name) for name in ("tidewheel", "polars")]
    return all(spec is not None and f"{os.sep}site-packages{os.sep}" in (spec.origin or "") for spec in found)


def _check_on_worker(spark: SparkSession, executable: str) -> None:
    """Ask one worker for its Python and packages."""
    try:
        answers = spark.range(1).mapInArrow(_report, "version STRING").collect()
    except (PySparkException, Py4JError) as error:
        text = str(error)
        found = re.search(r"No module named '?([\w.]+)", text)
        differs = re.search(r"PYTHON_VERSION_MISMATCH.*?\(?(\d\.\d+)\)?", text, re.DOTALL)
        if found is not None:
            raise _refusal(executable, f"which does not find the package {found[1].partition('.')[0]}") from error
        if differs is not None:
            raise _refusal(executable, f"which is Python {differs[1]}, and this is {_version()}") from error
        raise
    theirs, ours = answers[0].version, _package_version()
    if theirs != ours:
        raise _refusal(executable, f"which has Tidewheel {theirs}, and this program {ours}")


def _report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import, in a worker, all that a query needs, and return the version of the package."""
    from tidewheel.engine.execution import state_operator

    assert state_operator
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"version": [_package_version()]})


def _package_version() -> str:
    from tidewheel import __version__

    return str(__version__)


def _version() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def _refusal(executable: str, found: str) -> SetupError:
    called = executable or "the server's"
    return SetupError(f"Spark's workers run {called}, {found}. {_REMEDY.format(here=sys.executable)}")
