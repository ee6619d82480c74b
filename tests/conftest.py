"""What every test may use."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from tests import ROOT
from tests.support.command import environment
from tidewheel.cli import main
from tidewheel.engine.execution.session import session
from tidewheel.engine.spark.local_fs import FSYNC
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log

if TYPE_CHECKING:
    from tidewheel.transport.kafka.broker.local_cluster import LocalKafka

# How long a machine takes that others use too says nothing about what is tested. The same cases are drawn in every run,
# so that who changes something knows what broke it; `make test RANDOM=1` draws new ones.
settings.register_profile("tidewheel", deadline=None, derandomize="TIDEWHEEL_TEST_RANDOM" not in os.environ)
settings.load_profile("tidewheel")

# Every test is over before code that Java compiles with care would have paid for its compilation.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, then those with long ones. What is left for the end is short, so that no worker
    waits for another."""
    files = {kind: {item.path for item in items if item.get_closest_marker(kind)} for kind in ("slow", "long")}
    items.sort(key=lambda item: (item.path not in files["slow"], item.path not in files["long"]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests each folder has, and how long they took with all that was set up for them."""
    tests: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            folder = report.nodeid.partition("::")[0].rpartition("/")[0]
            tests[folder] += report.when == "setup"
            seconds[folder] += report.duration
    if tests:
        terminalreporter.section("time by folder")
    for folder, total in seconds.most_common():
        terminalreporter.write_line(f"{total:8.1f} s {tests[folder]:5} tests  {folder}")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared conformance cases and recordings that may stand beside the checkout."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no ../shared beside the checkout: recordings and conformance cases are not here")
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log for each test; none of them pulls the plug, so nobody waits for the disk."""
    with open_log(tmp_path / "test.tw", sync="normal") as log:
        yield log


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark, started once; it does not wait for the disk either."""
    spark = session(settings={FSYNC: "false"})
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A Kafka of one node, started once: tests name their topics so that no other test has them, and do not kill it."""
    from tests.support.kafka import local_kafka

    with local_kafka(tmp_path_factory.mktemp("kafka") / "shared") as cluster:
        yield cluster


@pytest.fixture
def inside(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command within this process: the same code, without the time that a process takes to start."""

    def call(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["tidewheel", *map(str, arguments)])
        for name, value in environment().items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        try:
            main()
            ended = 0
        except SystemExit as exit:
            ended = int(exit.code or 0)
        out, err = capfd.readouterr()
        assert ended == code, f"exit code {ended}\n{out}\n{err}"
        return subprocess.CompletedProcess([], ended, out, err)

    return call
