"""A real Kafka on this machine for the tests, and what Spark needs to reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.maven import jars
from tidewheel.errors import SetupError
from tidewheel.java import find_java
from tidewheel.transport.kafka.broker.broker_jars import broker_jars
from tidewheel.transport.kafka.broker.local_cluster import LocalKafka

# Spark 4.3's own connector is not in the repository; this one works with it.
_CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def connector_jars() -> str:
    """For `spark.jars`."""
    return ",".join(map(str, jars("kafka-connector", *_CONNECTOR, alone=True)))


def local_kafka(folder: Path, **options: Any) -> LocalKafka:
    """A Kafka that is not up yet. Where its jars are not to be had, the test is skipped with the reason."""
    try:
        broker_jars(find_java(needed_by="Kafka"), progress=print)
    except SetupError as error:
        pytest.skip(str(error))
    return LocalKafka(folder, **options)
