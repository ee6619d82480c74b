"""Create and configure the SparkSession."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tidewheel.engine.datasource.source import TidewheelSource
from tidewheel.engine.spark.cds_archive import options_with
from tidewheel.engine.spark.java_home import INSTALLED, spark_home
from tidewheel.engine.spark.local_fs import write_files_directly
from tidewheel.engine.spark.log_filter import without_chatter
from tidewheel.engine.spark.pickling import register_modules
from tidewheel.errors import SetupError
from tidewheel.java import find_java
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import log_file

__all__ = ["LOCAL_SETTINGS", "SETTINGS", "check_reach", "end_spark", "session"]

SETTINGS: Mapping[str, str] = {
    # Larger Arrow batches: what is aggregated before a shuffle is aggregated per Arrow batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # No limit by size: to look whether it is reached, after every row, takes Spark as long as writing the row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # JVM and Python workers over Unix sockets: half the time of a small batch.
    "spark.python.unix.domain.socket.enabled": "true",
    # Transforming state needs RocksDB; the changelog makes its commits small.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A task has one core: threads that wait for each other on it only cost.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
}
"""What every session gets. What the caller gives comes on top."""

LOCAL_SETTINGS: Mapping[str, str] = {
    # On a local disk the default manager starts some 40 processes a batch. This one renames instead; that two drivers
    # never write one checkpoint is held by the job's lock.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
}
"""What a session on this machine gets besides."""


def session(
    spark: SparkSession | None = None,
    *,
    name: str = "tidewheel",
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start or get a SparkSession on which `format("tidewheel")` reads and writes logs.

    Without arguments it starts Spark on this machine: with the Python that runs now, a Java that is found or brought,
    state in RocksDB, and quiet logs. A session of your own is taken as it is and only learns the format.

    >>> spark = session()
    >>> spark.range(3).count()
    3
    """
    if spark is None:
        started_with = {"JAVA_HOME": os.environ.get("JAVA_HOME")}
        cores = os.cpu_count() or 1
        chosen = {**SETTINGS, "spark.sql.shuffle.partitions": str(cores)}
        if master.startswith("local"):
            java = find_java()
            started_with["JAVA_HOME"] = str(spark_home(java))
            # Without a home, the Spark that starts is the one that is installed here, where the workers are, too.
            if "SPARK_HOME" not in os.environ and not master.startswith("local-cluster"):
                started_with[INSTALLED] = "1"
            quiet = files("tidewheel.engine.spark").joinpath("log4j2.properties")
            options = [f"-Dlog4j2.configurationFile={quiet}", *_collector(), *options_with(java)]
            chosen |= {**LOCAL_SETTINGS, "spark.driver.extraJavaOptions": " ".join(options)}
        chosen |= settings or {}
        # Workers would take whatever python3 the PATH has.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(name).master(master)
        for key, value in chosen.items():
            builder = builder.config(key, value)
        # Not every kind of worker gets Spark's executorEnv; all of them inherit what Java was started with.
        threads = os.environ.get("POLARS_MAX_THREADS", chosen["spark.executorEnv.POLARS_MAX_THREADS"])
        with _environment(**started_with, POLARS_MAX_THREADS=threads), without_chatter():
            spark = builder.getOrCreate()
        _end_quietly(spark.sparkContext)
        if master.startswith("local"):
            write_files_directly(spark)
    register_modules()
    spark.dataSource.register(TidewheelSource)
    return spark


def _end_quietly(context: SparkContext) -> None:
    """Keep PySpark quiet when Spark stops: Java may hang up before its accumulator server does, which would print a
    traceback."""
    server = context._accumulatorServer

    def handle_error(request: Any, client: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError):
            type(server).handle_error(server, request, client)

    server.handle_error = handle_error  # type: ignore[assignment, method-assign]


def check_reach(spark: SparkSession, log: Log) -> None:
    """Refuse a log in a file where tasks run on other machines: they would not find it, or find another."""
    master = str(spark.conf.get("spark.master"))
    if log_file(log.address) is not None and not re.match(r"local\b|spark://(localhost|127\.[0-9.]+)(:|$)", master):
        raise SetupError(
            f"the log {log.address} is a file on this machine, and Spark's master {master} runs tasks on others, which "
            "do not have it; run Spark here (tidewheel.session(), or the master local[*])"
        )


def _collector() -> list[str]:
    """The garbage collector option, unless one was chosen. Batches arrive in blocks of megabytes, for which Java's
    default collector scans the whole heap every few blocks: a sixth of a small batch. The parallel collector does not,
    and its longer pauses do not matter here. It may use a twentieth of the time; by default it would use a hundredth,
    and all the memory that it is allowed."""
    given = " ".join(
        os.environ.get(name, "") for name in ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
    )
    return [] if re.search(r"-XX:\+Use\w+GC\b", given) else ["-XX:+UseParallelGC", "-XX:GCTimeRatio=19"]


def end_spark(*, timeout: float = 30.0) -> None:
    """Stop the Spark that `session` started, and its Java, and wait until it is gone (at most `timeout` seconds)."""
    gateway = SparkContext._gateway
    if gateway is not None:
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # what it ends on
        with suppress(subprocess.TimeoutExpired):
            gateway.proc.wait(timeout)


@contextmanager
def _environment(**values: str | None) -> Iterator[None]:
    """Set environment variables for a block."""
    before = {name: os.environ.get(name) for name in values}

    def put(wanted: Mapping[str, str | None]) -> None:
        for name, value in wanted.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    put(values)
    try:
        yield
    finally:
        put(before)
