"""What the tests of the log use."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.transport.log_kinds import KAFKA, LOGS, KafkaLogs
from tidewheel.transport.kafka.broker.local_cluster import LocalKafka
from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log


@pytest.fixture(
    params=[
        *LOGS,
        pytest.param("kafka blocks", marks=pytest.mark.slow),
        pytest.param("kafka events", marks=pytest.mark.long),
    ],
    scope="session",
)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of log."""
    return str(request.param)


@pytest.fixture(scope="session")
def kafka_logs(kafka: LocalKafka) -> KafkaLogs:
    """Makes logs on Kafka."""
    return KafkaLogs(kafka.address)


@pytest.fixture(autouse=True)
def _cleared() -> Iterator[None]:
    yield
    KafkaLogs.clear()


@pytest.fixture(scope="session")
def make_log(kind: str, request: pytest.FixtureRequest) -> Callable[[Path], Log]:
    """Makes empty logs of a kind, one in each folder it is given."""
    if kind not in KAFKA:
        return LOGS[kind]
    logs: KafkaLogs = request.getfixturevalue("kafka_logs")
    return lambda _: logs.make(KAFKA[kind])


@pytest.fixture
def log(make_log: Callable[[Path], Log], tmp_path: Path) -> Iterator[Log]:
    """An empty log."""
    with make_log(tmp_path) as log:
        yield log


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Log]:
    """An empty log of the kind that lets everything leave at once when it is maintained; others take their time."""
    with open_log(tmp_path / "embedded.tw") as log:
        yield log


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Starts processes that share nothing with this one, within milliseconds; their functions are in log_workers."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tidewheel.transport.log.consumer", "tidewheel.transport.sqlite.log"])
    return context
