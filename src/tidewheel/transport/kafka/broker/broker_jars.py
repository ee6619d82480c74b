"""The jars of Kafka's broker: downloaded once, into the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from tidewheel.errors import SetupError
from tidewheel.java import Java
from tidewheel.user_folders import cache_folder

__all__ = ["KAFKA_VERSION", "broker_jars"]

KAFKA_VERSION = "4.3.1"

# Kafka's own dependencies have Log4j, but not what takes SLF4J's messages to it: without that no broker logs anything.
_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>tidewheel</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies>
{dependencies}
</dependencies>
</project>
"""
_IVY = """<ivy-module version="2.0">
<info organisation="tidewheel" module="kafka"/>
<configurations><conf name="default"/></configurations>
<dependencies>
{dependencies}
</dependencies>
</ivy-module>
"""
_TIMEOUT_SECONDS = 900


class _DownloadError(Exception):
    """One of the ways to the jars failed; the text says why."""


def broker_jars(java: Java, *, progress: Callable[[str], None]) -> Path:
    """Return the folder with the jars of the broker, downloading them the first time: 45 MB from Maven Central."""
    folder = cache_folder() / f"kafka-{KAFKA_VERSION}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may want them at once
        if not folder.is_dir():
            _download(folder, java, progress)
    return folder


def _download(folder: Path, java: Java, progress: Callable[[str], None]) -> None:
    part = folder.with_name(f"{folder.name}.part")
    failures = []
    for name, download in (("Maven", _by_maven), ("Ivy", _by_ivy)):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            with tempfile.TemporaryDirectory(dir=folder.parent) as work:
                download(part, Path(work), java, progress)
            missing = [f"{own}-{version}.jar" for _, own, version in _ARTIFACTS]
            missing = [jar for jar in missing if not (part / jar).is_file()]
            if missing:
                raise _DownloadError(f"it ended well, but brought no {' and no '.join(missing)}")
        except _DownloadError as error:
            failures.append(f"{name}: {error}")
            continue
        part.rename(folder)
        return
    shutil.rmtree(part, ignore_errors=True)
    raise SetupError(
        f"the jars of Kafka {KAFKA_VERSION} could not be downloaded from Maven Central ({'; '.join(failures)}). They "
        f"are needed once: connect this machine to the network, or copy the folder {folder} from one that has it"
    )


def _by_maven(part: Path, work: Path, java: Java, progress: Callable[[str], None]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise _DownloadError("there is no mvn on the PATH")
    progress(f"downloading Kafka {KAFKA_VERSION} by Maven (45 MB, only this once) ...")
    dependencies = "\n".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{own}</artifactId><version>{version}</version></dependency>"
        for group, own, version in _ARTIFACTS
    )
    pom = work / "pom.xml"
    pom.write_text(_POM.format(dependencies=dependencies))
    _run(
        [maven, "--quiet", "--batch-mode", "-Dstyle.color=never", "--file", str(pom), _COPY,
         f"-DoutputDirectory={part}", "-DincludeScope=runtime"],
        java,
    )  # fmt: skip


def _by_ivy(part: Path, work: Path, java: Java, progress: Callable[[str], None]) -> None:
    spark = find_spec("pyspark")
    home = Path(spark.origin).parent if spark is not None and spark.origin is not None else work
    jar = next(iter(sorted(home.glob("jars/ivy-*.jar"))), None)
    if jar is None:
        raise _DownloadError(f"there is none in the jars of PySpark ({home / 'jars'})")
    progress(f"downloading Kafka {KAFKA_VERSION} by Ivy (45 MB, only this once; about a minute) ...")
    dependencies = "\n".join(
        f'<dependency org="{group}" name="{own}" rev="{version}" conf="default-&gt;default"/>'
        for group, own, version in _ARTIFACTS
    )
    described = work / "ivy.xml"
    described.write_text(_IVY.format(dependencies=dependencies))
    _run(
        [str(java.path), "-cp", str(jar), "org.apache.ivy.Main", "-warn", "-ivy", str(described),
         "-cache", str(work / "cache"), "-confs", "default", "-retrieve", f"{part}/[artifact]-[revision].[ext]"],
        java,
    )  # fmt: skip


def _run(command: list[str], java: Java) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "JAVA_HOME": str(java.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _DownloadError(f"it was not done after {_TIMEOUT_SECONDS // 60} minutes") from None
    except OSError as error:
        raise _DownloadError(f"{command[0]} does not run: {error.strerror}") from None
    if done.returncode != 0:
        raise _DownloadError(_reason(done.stdout + done.stderr) or f"exit code {done.returncode}")


def _reason(output: str) -> str:
    """What Maven or Ivy says went wrong, without the dozens of lines around it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for mark in ("[ERROR]", "Server access error", "Host ", "not found"):  # the cause before what came of it
        for line in lines:
            if mark in line:
                return line[:300]
    return lines[-1][:300] if lines else ""
