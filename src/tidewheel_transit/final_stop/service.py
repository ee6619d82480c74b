"""A routing service to try things with: a real server, with delays and errors as set, that answers from the timetable
of the simulator.

    python -m tidewheel_transit.final_stop.service --port 8085 --delay 0.2 --errors 0.1

`POST /` takes the query of `RoutingService`. `PUT /faults` changes what goes wrong while it runs, as JSON:

    delay    seconds before each answer        hang     share of requests that are never answered
    errors   share that get a 503              garbage  share that get something that is no answer
    unknown  routes that it does not know

`GET /count` returns how many requests came, and how many were being answered at a time at most. Which requests go wrong
follows from the seed and their number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from dataclasses import dataclass, field, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tidewheel_transit.final_stop.simulator_stops import SimulatedFinalStops

__all__ = ["Faults", "RoutingServer"]

_HANG_SECONDS = 3_600.0


@dataclass(frozen=True)
class Faults:
    """The faults that the service injects."""

    delay: float = 0.0
    errors: float = 0.0
    hang: float = 0.0
    garbage: float = 0.0
    unknown: tuple[str, ...] = field(default=())


class RoutingServer(ThreadingHTTPServer):
    """The server; `serve_forever` runs it."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int = 0, *, faults: Faults | None = None, seed: int = 7) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.faults = faults or Faults()
        self.requests = 0
        self.at_once = 0
        self.most_at_once = 0
        self._chance = random.Random(seed)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The address of the service."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def begin(self) -> float:
        """Count a request; returns the number that decides what goes wrong with it."""
        with self._lock:
            self.requests += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            return self._chance.random()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have given up: that is no error of the service."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def end(self) -> None:
        """Note that a request is done with."""
        with self._lock:
            self.at_once -= 1


class _Handler(BaseHTTPRequestHandler):
    server: RoutingServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        drawn, faults = self.server.begin(), self.server.faults
        try:
            time.sleep(faults.delay)
            if drawn < faults.errors:
                self._send(503, b"busy")
            elif drawn < faults.errors + faults.hang:
                time.sleep(_HANG_SECONDS)
            elif drawn < faults.errors + faults.hang + faults.garbage:
                self._send(200, b'{"data": 7')
            else:
                self._send(200, json.dumps(_answer(json.loads(asked)["variables"], faults)).encode())
        finally:
            self.server.end()

    def do_PUT(self) -> None:
        changes: dict[str, Any] = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        known = {each.name for each in fields(Faults)}
        if set(changes) - known:
            self._send(400, f"faults are {', '.join(sorted(known))}".encode())
            return
        if "unknown" in changes:
            changes["unknown"] = tuple(changes["unknown"])
        self.server.faults = replace(self.server.faults, **changes)
        self._send(200, b"{}")

    def do_GET(self) -> None:
        counts = {"requests": self.server.requests, "most_at_once": self.server.most_at_once}
        self._send(200, json.dumps(counts).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the counts say enough."""


def _answer(variables: dict[str, Any], faults: Faults) -> dict[str, Any]:
    feed, _, route = str(variables["route"]).partition(":")
    key = (route, variables["direction"] + 1, variables["date"], "")
    found = None if route in faults.unknown else asyncio.run(SimulatedFinalStops().ask(key))
    if found is None:
        return {"data": {"fuzzyTrip": None}}
    stop = {"gtfsId": f"{feed}:{found['final_stop']}", "lat": found["final_lat"], "lon": found["final_lon"]}
    return {"data": {"fuzzyTrip": {"stops": [stop]}}}


def main() -> None:
    """Run it, and say on the first line of the output where it is."""
    parser = argparse.ArgumentParser(description="A routing service that answers from the simulator's timetable.")
    parser.add_argument("--port", type=int, default=0)
    for name in ("delay", "errors", "hang", "garbage"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    faults = Faults(delay=given.delay, errors=given.errors, hang=given.hang, garbage=given.garbage)
    asyncio.run(SimulatedFinalStops().ask(("", 1, "", "")))  # the timetable takes a moment: not at a client's expense
    server = RoutingServer(given.port, faults=faults, seed=given.seed)
    print(server.url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
