"""The routing service and the lookup worker as processes of their own, to be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Service:
    """A routing service that runs."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "tidewheel_transit.final_stop.service", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, "the service did not start"
        self.port = self.url.rpartition(":")[2].strip("/")

    def set(self, **faults: Any) -> None:
        request = urllib.request.Request(f"{self.url}faults", json.dumps(faults).encode(), method="PUT")
        with urllib.request.urlopen(request) as response:
            assert response.status == 200

    def count(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.url}count") as response:
            return json.load(response)

    def kill(self) -> None:
        self.process.kill()  # SIGKILL
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def service(*options: str) -> Iterator[Service]:
    running = Service(*options)
    try:
        yield running
    finally:
        running.kill()


ASKER = """
import sys
import tidewheel as tw
from tidewheel_transit.final_stop import FINAL_STOP
from tidewheel_transit.final_stop.routing_service import RoutingService
from tidewheel_transit.transit_pb2 import VehiclePosition
from tidewheel.ingest.lookup import LookupWorker, Limits

limits = Limits(concurrency=8, timeout="1 s", attempt_timeout="500 ms", backoff="20 ms", retry_failed="200 ms",
                breaker_failures=5, breaker_pause="200 ms")
log = tw.open_log(sys.argv[1])
LookupWorker(log, FINAL_STOP, RoutingService(sys.argv[2]), topics="input.vehicle-position", type=VehiclePosition,
      limits=limits).run()
"""


def start_worker(log: Any, url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", ASKER, log.address, url])


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
