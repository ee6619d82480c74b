"""Spark's file system for local files: durable, and without starting a process for each file.

Where Hadoop's native library is missing, as it is beside PySpark, Hadoop sets the permissions of every file that it
makes by starting `chmod`: two processes for every file of a checkpoint and its checksums, which took a fifth of a small
batch. And it leaves it to the system when a file reaches the disk, although the log counts on a batch's offsets from
the moment that it has the batch's results.
"""

from __future__ import annotations

import logging
from importlib.resources import files
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

__all__ = ["FSYNC", "force_checkpoints", "sink_forces", "write_files_directly"]

FSYNC = "spark.tidewheel.checkpoint.fsync"
"""The setting of a session that says whether files of checkpoints are forced to the disk: true (as it is) or false."""

_CLASS = "tidewheel.LocalFiles"
_logger = logging.getLogger(__name__)


def sink_forces(spark: SparkSession) -> bool:
    """Whether the sink has to force a checkpoint's files: not if Spark's Java does it, or if it is switched off."""
    return bool(_local(spark).getClass().getName() != _CLASS) and _wanted(spark)


def write_files_directly(spark: SparkSession) -> None:
    """Give Spark's Java a file system that sets permissions itself and forces checkpoints to disk."""
    jvm, context = spark._jvm, spark._jsc
    assert jvm is not None
    hadoop = jvm.org.apache.hadoop
    local = hadoop.fs.FileSystem.getLocal(context.hadoopConfiguration())
    if local.getClass().getName() != _CLASS:
        try:
            # The compiler is the one that Spark brings along for the code of its queries.
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
            compiler.cook(files("tidewheel.engine.spark").joinpath("LocalFiles.java").read_text(encoding="utf-8"))
            settings = hadoop.conf.Configuration(context.hadoopConfiguration())
            settings.setClassLoader(compiler.getClassLoader())
            settings.set("fs.file.impl", _CLASS)
            local.close()  # so that the next one to ask makes it anew, for everyone
            local = hadoop.fs.FileSystem.getLocal(settings)
        except (Py4JJavaError, TypeError) as error:  # slower, and less safe if the power fails
            _logger.warning(
                "Spark starts a process for each file that it writes, and does not force checkpoints to the disk: %s",
                error,
            )
            local = hadoop.fs.FileSystem.getLocal(context.hadoopConfiguration())
    if local.getClass().getName() == _CLASS:
        local.setDurable(_wanted(spark))


def force_checkpoints(spark: SparkSession, wanted: bool) -> None:
    """Force files of checkpoints to the disk from now on, or not; for all queries of this Java."""
    local = _local(spark)
    if local.getClass().getName() == _CLASS:
        local.setDurable(wanted)


def _local(spark: SparkSession) -> Any:
    jvm, context = spark._jvm, spark._jsc
    assert jvm is not None
    return jvm.org.apache.hadoop.fs.FileSystem.getLocal(context.hadoopConfiguration())


def _wanted(spark: SparkSession) -> bool:
    return str(spark.conf.get(FSYNC, "true")).lower() != "false"
