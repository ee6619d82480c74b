"""Spark's classes, loaded once and kept in a file that Java maps when it starts: half the time of a start.

Java checks that the file fits the Java and the jars that it was made with, and does without it if not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zlib
from importlib.metadata import version
from pathlib import Path

from tidewheel.errors import SetupError
from tidewheel.java import Java, find_java
from tidewheel.user_folders import cache_folder

__all__ = ["archive_of", "make_archive", "options_with"]

_TIMEOUT_SECONDS = 300
_QUIET = "-Xlog:disable"
"""An archive that no longer fits is no matter for a warning: it only saves time."""

_PROGRAM = """
import sys
import tidewheel as tw
from tidewheel.engine.execution.session import end_spark
from tidewheel.transport.events.event_pb2 import Punctuation
from tidewheel.transport.events import codec
from tidewheel.transport.open_log import open_log
from tidewheel.transport.log.log_types import records

with open_log(sys.argv[1] + "/log.tw") as log:
    values = [codec.encode(codec.pack(Punctuation(), event_time=n * 1_000_000)) for n in range(20)]
    log.append("some", records(values, event_times=[n * 1_000_000 for n in range(20)]))
    counts = tw.stream(log, "some", type=Punctuation).window(tw.windows.tumbling("5 s")).aggregate(n=tw.agg.count())
    tw.run(counts.named("counts"), log=log, checkpoint=sys.argv[1] + "/c", available_now=True).wait()
end_spark(timeout=120)
"""


def archive_of(java: Java) -> Path:
    """The path of the archive for this Java and this Spark in the user's cache, if it exists."""
    place = zlib.crc32(os.fsencode(java.path.resolve()) + os.fsencode(sys.prefix))
    return cache_folder() / f"spark-{version('pyspark')}-java-{java.version}-{place:08x}.jsa"


def options_with(java: Java) -> list[str]:
    """The Java options that use the archive, if there is one."""
    archive = archive_of(java)
    return [f"-XX:SharedArchiveFile={archive}", _QUIET] if archive.is_file() else []


def make_archive(java: Java | None = None) -> Path:
    """Make the archive by a small job from a log to a log. Takes half a minute, and 180 MB of disk."""
    java = java or find_java()
    if not (java.home / "lib" / "server" / "classes.jsa").is_file():
        raise SetupError(
            f"{java.path} (Java {java.version}, {java.origin}) lacks the archive of its own classes that this one "
            "would build on, as packaged Javas do. Spark runs on it all the same; to have it start faster, install a "
            "Java with your system's packages, for the PATH or for JAVA_HOME"
        )
    archive = archive_of(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        fresh = Path(folder) / archive.name
        options = [os.environ.get("SPARK_SUBMIT_OPTS", ""), f"-XX:ArchiveClassesAtExit={fresh}", _QUIET]
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, folder],
            env={**os.environ, "SPARK_SUBMIT_OPTS": " ".join(options)},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0 or not fresh.is_file():
            said = done.stderr.strip().splitlines()[-1:] or [f"it ended with exit code {done.returncode}"]
            raise SetupError(
                f"no class archive could be made with {java.path} (Java {java.version}): {said[0]}. Spark starts "
                "without one, too, only more slowly"
            )
        fresh.replace(archive)
    return archive
