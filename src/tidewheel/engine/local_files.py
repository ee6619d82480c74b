"""How Spark writes the files of this machine: without starting processes for each.

Where Hadoop's native library is missing, as it is beside PySpark, Hadoop sets the permissions of every file that it
makes by starting `chmod`, and writes a file of checksums beside each: two processes for every file of a checkpoint,
which took a fifth of a small batch.
"""

from __future__ import annotations

import logging
from importlib.resources import files

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

__all__ = ["write_files_directly"]

_CLASS = "tidewheel.LocalFiles"
_logger = logging.getLogger(__name__)


def write_files_directly(spark: SparkSession) -> None:
    """Give Spark's Java a file system that sets permissions by itself, and writes no files of checksums: what a
    checkpoint holds is checked when it is read, in its own formats."""
    jvm, context = spark._jvm, spark._jsc
    assert jvm is not None
    hadoop = jvm.org.apache.hadoop
    local = hadoop.fs.FileSystem.getLocal(context.hadoopConfiguration())
    if local.getClass().getName() != _CLASS:
        try:
            # The compiler is the one that Spark brings along for the code of its queries.
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
            compiler.cook(files("tidewheel.engine").joinpath("LocalFiles.java").read_text(encoding="utf-8"))
            settings = hadoop.conf.Configuration(context.hadoopConfiguration())
            settings.setClassLoader(compiler.getClassLoader())
            settings.set("fs.file.impl", _CLASS)
            local.close()  # so that the next one to ask makes it anew, for everyone
            local = hadoop.fs.FileSystem.getLocal(settings)
        except (Py4JJavaError, TypeError) as error:  # slower, and no worse
            _logger.warning("Spark will start a process for each file that it writes: %s", error)
            local = hadoop.fs.FileSystem.getLocal(context.hadoopConfiguration())
    local.setWriteChecksum(False)
