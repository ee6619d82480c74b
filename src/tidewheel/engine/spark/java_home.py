"""The JAVA_HOME that Spark's launcher gets."""

from __future__ import annotations

import os
import stat
import tempfile
import zlib
from pathlib import Path

from tidewheel.atomic_file import atomic_writer
from tidewheel.java import Java
from tidewheel.transport.log.private_files import make_private_folder

__all__ = ["INSTALLED", "spark_home"]

INSTALLED = "TIDEWHEEL_INSTALLED_PYSPARK"
"""Set for Spark's launcher when its Python workers are to import PySpark as it is installed.

Knowing its home, Spark hands them a zip of PySpark first, which each of them would compile anew: a second of every one
of the half dozen kinds of workers that a query starts. The launcher itself needs to know."""

_SHIM = """#!/bin/sh
[ -z "${installed}" ] || case " $* " in
  *" org.apache.spark.launcher.Main "*) ;;
  *) unset SPARK_HOME ;;
esac
for argument do
  shift
  case "$argument" in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


def spark_home(java: Java) -> Path:
    """A folder to be JAVA_HOME for Spark: its `bin/java` starts the Java without what Spark's launcher asks for and
    it lacks or warns about: a module that nothing here uses, and a package that has left newer Javas; and without
    Spark's home where `INSTALLED` is set."""
    # The name carries the user and the target: the folder is shared by everyone on the machine and outlives upgrades.
    home = Path(tempfile.gettempdir()) / f"tidewheel-java-{os.getuid()}-{zlib.crc32(os.fsencode(java.path)):08x}"
    make_private_folder(home, use="from where Spark is to start Java")
    shim = home / "bin" / "java"
    dropped = ["--add-modules=jdk.incubator.vector"]
    if java.version >= 24:
        dropped.append("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    text = _SHIM.format(java=java.path, dropped="|".join(dropped), installed=INSTALLED)
    if not shim.is_file() or shim.read_text() != text:
        shim.parent.mkdir(exist_ok=True)
        with atomic_writer(shim, durable=False, concurrent=True) as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode | stat.S_IXUSR)
    return home
