"""Where the jars of Kafka's broker come from, and what is said where they do not come."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tidewheel.errors import SetupError
from tidewheel.java import Java, find_java
from tidewheel.transport.kafka.broker import broker_jars as module
from tidewheel.transport.kafka.broker.broker_jars import broker_jars


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tidewheel"


def tool(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, maven: str | None, ivy: str) -> Java:
    """A Maven and a Java that do as they are told, and note that they were called."""
    tools = tmp_path / "tools" / "bin"
    if maven is not None:
        tool(tools / "mvn", f"echo mvn >>{tmp_path}/called; {maven}")
    tool(tools / "java", f"echo ivy >>{tmp_path}/called; {ivy}")
    for name in ("touch", "sed", "dirname"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    return Java(tools / "java", 17, "test")


BROUGHT = "touch {0}/kafka_2.13-4.3.1.jar {0}/log4j-slf4j-impl-2.25.4.jar"
BY_MAVEN = "for one; do case $one in -DoutputDirectory=*) to=${one#*=};; esac; done; " + BROUGHT.format("$to")
BY_IVY = 'for one; do to=$one; done; to=$(dirname "$to"); ' + BROUGHT.format("$to")


def test_they_are_brought_once(cache, tmp_path, monkeypatch):
    java = fake(tmp_path, monkeypatch, maven=BY_MAVEN, ivy="exit 1")
    said: list[str] = []
    folder = broker_jars(java, progress=said.append)
    assert folder == cache / "kafka-4.3.1"
    assert broker_jars(java, progress=said.append) == folder
    assert (tmp_path / "called").read_text() == "mvn\n"
    (told,) = said
    assert "by Maven (45 MB" in told
    assert {path.name for path in cache.iterdir()} == {"kafka-4.3.1", "kafka-4.3.1.lock"}, "nothing half-done is left"


@pytest.mark.parametrize("maven", [None, "echo '[ERROR] no route to host' >&2; exit 1", "true"])
def test_ivy_brings_them_where_maven_does_not(maven, cache, tmp_path, monkeypatch):
    java = fake(tmp_path, monkeypatch, maven=maven, ivy=BY_IVY)
    folder = broker_jars(java, progress=print)
    assert (folder / "kafka_2.13-4.3.1.jar").exists()
    assert (tmp_path / "called").read_text() == ("ivy\n" if maven is None else "mvn\nivy\n")


def test_where_neither_brings_them_both_reasons_are_told_with_the_mend(cache, tmp_path, monkeypatch):
    maven = "echo 'lots of words'; echo '[ERROR] Could not transfer: Unknown host repo.maven.apache.org' >&2; exit 1"
    java = fake(tmp_path, monkeypatch, maven=maven, ivy="echo '  Host repo1.maven.org not found.'; exit 1")
    with pytest.raises(SetupError) as told:
        broker_jars(java, progress=print)
    text = str(told.value)
    assert "Maven: [ERROR] Could not transfer: Unknown host" in text
    assert "Ivy: Host repo1.maven.org not found." in text
    assert f"copy the folder {cache / 'kafka-4.3.1'} from one that has it" in text
    assert {path.name for path in cache.iterdir()} == {"kafka-4.3.1.lock"}


def test_without_maven_and_without_ivy_both_are_named(cache, tmp_path, monkeypatch):
    java = fake(tmp_path, monkeypatch, maven=None, ivy="exit 1")
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(SetupError, match="Maven: there is no mvn on the PATH; Ivy: there is none in the jars of PySp"):
        broker_jars(java, progress=print)


@pytest.mark.long
@pytest.mark.slow
def test_spark_s_ivy_really_brings_what_a_broker_needs(cache, tmp_path, monkeypatch):
    java = find_java()
    monkeypatch.setenv("PATH", os.devnull)
    try:
        folder = broker_jars(java, progress=print)
    except SetupError as error:
        pytest.skip(str(error))
    names = {path.name for path in folder.iterdir()}
    assert len(names) == 46
    assert {name for name in names if not name.endswith(".jar")} == set()
    assert {"kafka-clients-4.3.1.jar", "log4j-core-2.25.4.jar", "scala-library-2.13.18.jar"} < names
