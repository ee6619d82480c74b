"""The checks of `tidewheel doctor`: each reports what it found and how to fix it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Literal

from tidewheel import __version__
from tidewheel.cli.options import size
from tidewheel.errors import TidewheelError
from tidewheel.topic_names import input_topic

__all__ = ["QUICK_CHECKS", "Check", "Finding", "check_spark_starts"]

_GIGABYTE = 1 << 30
_SPARK_SECONDS = 240
_PORTS = {
    8090: ("tidewheel ingest --http", "tidewheel ingest --http 127.0.0.1:PORT"),
    8080: ("the live map", "tidewheel serve --port PORT"),
}
"""What uses a port, and the option that gives it another one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a check."""

    level: Literal["ok", "warning", "problem"]
    what: str
    found: str
    fix: str = ""


_JOB = '''
import tidewheel as tw

@tw.job("doctor", reads="input.doctor")
def doctor(rows: tw.Stream) -> tw.Result:
    """How many rows there are in each ten seconds."""
    return rows.key_by("key").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())
'''
"""A job as users write it, with state."""

Check = Callable[[Path], Sequence[Finding]]
"""A check; it is given the folder of the log."""


def check_python(_: Path) -> list[Finding]:
    """Check the interpreter and this package, and those of the Python that Spark's workers are set to use."""
    found = f"{sys.version.split()[0]} ({sys.executable}), tidewheel {__version__}"
    findings = [Finding("ok", "Python", found)]
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        chosen = os.environ.get(name)
        if chosen and shutil.which(chosen) != sys.executable:
            findings.append(_other_python(name, chosen, found))
    return findings


def _other_python(name: str, chosen: str, ours: str) -> Finding:
    """Whether another Python runs the same Tidewheel."""
    what = f"Python of {name}"
    program = "import sys, tidewheel; print(sys.version.split()[0], tidewheel.__version__)"
    try:
        output = subprocess.run([chosen, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        fix = f"unset {name}, or set it to {sys.executable}: Spark's workers run Tidewheel, too"
        return Finding("problem", what, f"{chosen} does not run Tidewheel: {said}", fix)
    python, package = output.split()
    found = f"{python} ({chosen}), tidewheel {package}"
    if (python.split(".")[:2], package) == (sys.version.split()[0].split(".")[:2], __version__):
        return Finding("ok", what, found)
    return Finding("problem", what, f"{found}, while this is {ours}", f"unset {name}, or set it to {sys.executable}")


def check_installation(_: Path) -> list[Finding]:
    """Check that all that installed packages add by entry points can be loaded."""
    findings = []
    for group in ("jobs", "processors", "types", "layers", "commands"):
        points = entry_points(group=f"tidewheel.{group}")
        fix = ""
        broken = []
        for point in points:
            try:
                point.load()
            except Exception as error:  # whatever the package does when it is imported
                broken.append(f"{point.name} ({error})")
                fix = f"fix or remove the package that offers it: {point.value}"
        found = ", ".join(sorted(points.names)) or "none"
        found += f"; cannot be loaded: {', '.join(broken)}" if broken else ""
        findings.append(Finding("problem" if fix else "ok", f"Installed {group}", found, fix))
    return findings


def check_java(_: Path) -> list[Finding]:
    """Check for a Java that Spark can run on, started the way Spark starts it."""
    from tidewheel.engine.spark.java_home import spark_home
    from tidewheel.java import find_java

    try:
        java = find_java()
    except TidewheelError as error:
        return [Finding("problem", "Java", "none that fits", str(error))]
    found = f"{java.version} ({java.path}, from {java.origin})"
    try:
        launcher = spark_home(java) / "bin" / "java"
    except TidewheelError as error:
        return [Finding("problem", "Java", found, str(error))]
    try:
        subprocess.run([launcher, "-version"], capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        fix = "programs must be allowed in the temporary folder: set TMPDIR to another one"
        return [Finding("problem", "Java", f"{found}, but {launcher} does not run: {error}", fix)]
    return [Finding("ok", "Java", found)]


def check_spark(_: Path) -> list[Finding]:
    """Check the version of PySpark."""
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return [Finding("problem", "PySpark", "not installed", "pip install 'pyspark>=4.2,<5'")]
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if not (4, 2) <= numbers < (5, 0):
        return [Finding("problem", "PySpark", found, "Tidewheel supports 4.2 and later: pip install 'pyspark>=4.2,<5'")]
    return [Finding("ok", "PySpark", found)]


def check_memory(_: Path) -> list[Finding]:
    """Check the memory for Spark's driver, which may take 2 GiB, and the Python workers; and the cores."""
    cores = f"{os.cpu_count()} cores"
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return [Finding("ok", "Memory", f"unknown here; {cores}")]
    if free < 2 * _GIGABYTE:
        fix = "a job takes about 2 GiB: close other programs, or run it where there is more"
        return [Finding("warning", "Memory", f"{size(free)} free, {cores}", fix)]
    return [Finding("ok", "Memory", f"{size(free)} free, {cores}")]


def check_disk(folder: Path) -> list[Finding]:
    """Check room and speed where the log is."""
    if not folder.is_dir():
        return [Finding("problem", "Disk", f"the folder {folder} does not exist", f"make it: mkdir -p {folder}")]
    free = shutil.disk_usage(folder).free
    try:
        with tempfile.TemporaryDirectory(prefix="tidewheel-doctor-", dir=folder) as place:
            took = _sync_times(Path(place) / "written")
            _try_log(Path(place) / "doctor.tw")
    except (OSError, TidewheelError) as error:
        return [Finding("problem", "Disk", f"a log cannot be written in {folder}: {error}", "choose another: --log")]
    median = statistics.median(took) * 1_000
    found = f"{size(free)} free in {folder}, {median:.1f} ms to write 64 KiB durably"
    if free < _GIGABYTE:
        level: Literal["problem", "warning"] = "problem" if free < _GIGABYTE // 10 else "warning"
        return [Finding(level, "Disk", found, "a city's day takes about 10 GiB: free some, or put the log elsewhere")]
    if median > 50:
        return [Finding("warning", "Disk", found, "every append waits that long: put the log on a faster disk")]
    return [Finding("ok", "Disk", found)]


def check_ports(_: Path) -> list[Finding]:
    """Check the loopback, which Spark's processes use, and the ports of HTTP ingestion and the live map."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            pass
    except OSError as error:
        fix = "Spark talks over it: allow connections on 127.0.0.1"
        return [Finding("problem", "Loopback", f"no connection to 127.0.0.1: {error}", fix)]
    findings = [Finding("ok", "Loopback", "connections on 127.0.0.1 work")]
    for port, (use, another) in _PORTS.items():
        try:
            with socket.create_server(("127.0.0.1", port)):
                findings.append(Finding("ok", f"Port {port}", f"free for {use}"))
        except OSError as error:
            fix = f"give another one: {another}"
            findings.append(Finding("warning", f"Port {port}", f"is not available for {use}: {error}", fix))
    return findings


def check_packages(_: Path) -> list[Finding]:
    """Check for packages that only some commands need."""
    findings = []
    for extra, modules, use in (
        ("mqtt", ["paho.mqtt"], "MQTT: ingest --mqtt, record"),
        ("lookup", ["httpx"], "lookups over HTTP: ask"),
        ("serve", ["starlette", "uvicorn", "websockets"], "HTTP: ingest --http, and the live map: serve"),
        ("kafka", ["confluent_kafka"], "Kafka: kafka"),
    ):
        missing = [module for module in modules if not _installed(module)]
        if missing:
            fix = f"pip install 'tidewheel[{extra}]'"
            findings.append(Finding("warning", use, f"{', '.join(missing)} not installed", fix))
        else:
            findings.append(Finding("ok", use, f"{', '.join(modules)} installed"))
    return findings


def check_spark_starts(_: Path) -> list[Finding]:
    """Run Spark, a job and the log together, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="tidewheel-doctor-") as folder:
        log = str(Path(folder) / "doctor.tw")
        began = time.monotonic()
        try:
            job = Path(folder) / "doctor_job.py"
            job.write_text(_JOB, encoding="utf-8")
            _fill(log)
            output = _command("run", str(job), "--log", log, "--available-now")
        except subprocess.TimeoutExpired:
            fix = "look at what the machine is doing; then: tidewheel --debug doctor"
            return [Finding("problem", "Spark", f"no answer within {_SPARK_SECONDS} s", fix)]
        except subprocess.CalledProcessError as error:
            said = str(error.stderr).strip().splitlines() or [str(error)]
            return [Finding("problem", "Spark", f"the job failed: {said[-1]}", "all of it: tidewheel --debug run JOB")]
    status = json.loads(output.splitlines()[-1])
    found = f"{status['results']} results of {status['events']} events, after {time.monotonic() - began:.0f} s"
    if not status["results"]:
        return [Finding("problem", "Spark", found, "it runs and gives nothing; that is a mistake of Tidewheel's")]
    return [Finding("ok", "Spark", f"starts and runs a job: {found}")]


QUICK_CHECKS: Sequence[Check] = (
    check_python,
    check_installation,
    check_java,
    check_spark,
    check_memory,
    check_disk,
    check_ports,
    check_packages,
)


def _sync_times(path: Path) -> list[float]:
    took = []
    with open(path, "wb") as file:
        for _ in range(20):
            began = time.perf_counter()
            file.write(os.urandom(1 << 16))
            file.flush()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return took


def _try_log(path: Path) -> None:
    """The log needs locks and shared memory that not every file system has."""
    from tidewheel.transport.log.log_types import records
    from tidewheel.transport.open_log import open_log

    with open_log(path) as log:
        log.append("doctor", records([b"well"]))
        log.topic_info("doctor")


def _fill(address: str) -> None:
    """Append a row for each second of the last minutes: events in the future would not move the watermark."""
    from tidewheel.transport.open_log import open_log

    begin = int(time.time()) - 300
    with open_log(address) as log:
        rows = [{"key": str(n % 3), "at": begin + n} for n in range(250)]
        log.append_rows(input_topic("doctor"), rows, time="at", key="key")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _command(*arguments: str) -> str:
    command = [sys.executable, "-m", "tidewheel.cli", *arguments, "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SPARK_SECONDS, check=True).stdout
