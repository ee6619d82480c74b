"""Results written into a log as jobs write them, and clients of the real server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import polars as pl
import pyarrow as pa
from websockets.sync.client import ClientConnection, connect

from tidewheel.model.time import Instant, now
from tidewheel.serve import Server, serve
from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.events.schema_inference import define_message
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.types import publish_types
from tidewheel_transit.transit_pb2 import EmergencyStop, VehicleCell, VehicleCount, VehiclePosition

CELLS = {"here": 617294884152279039, "there": 617294883858939903, "north": 617294883500326911}
PATIENCE = 120.0


def put(
    log: Log,
    kind: Any,
    topic: str,
    columns: Mapping[str, Sequence[Any]],
    *,
    times: Sequence[Instant] | Instant | None = None,
    keys: Sequence[bytes] | None = None,
    watermark: Instant | None = None,
) -> None:
    """Results in one append, and the watermark behind them, as the sink does it."""
    frame = pl.DataFrame(columns)
    given = now() if times is None else times
    event_times = [given] * frame.height if isinstance(given, int) else list(given)
    values = codec.encode_columns(kind, frame, event_time=pa.array(event_times, pa.int64()))
    batch = records(values, keys=keys, event_times=event_times)
    if watermark is not None:
        batch = pa.concat_batches([batch, codec.punctuation(watermark)])
    log.append(topic, batch)


def vehicles(log: Log, *each: tuple[int, float, float], time: Instant | None = None, **more: Any) -> None:
    """Vehicles of operator 1, by number, longitude and latitude."""
    numbers, lons, lats = zip(*each, strict=True)
    columns = {"operator": [1] * len(each), "vehicle": numbers, "lon": lons, "lat": lats, "mode": ["bus"] * len(each)}
    columns |= {name: value if isinstance(value, list) else [value] * len(each) for name, value in more.items()}
    put(log, VehicleCell, "analytics.vehicle-cell", columns, times=time)


def positions(
    log: Log, *each: tuple[int, float | None, float | None], time: Instant | None = None, **more: Any
) -> None:
    """What vehicles of operator 1 send, by number, longitude and latitude."""
    numbers, lons, lats = zip(*each, strict=True)
    columns = {"operator": [1] * len(each), "vehicle": numbers, "mode": ["bus"] * len(each)}
    columns |= {name: pl.Series(place, dtype=pl.Float64) for name, place in (("lon", lons), ("lat", lats))}
    columns |= {name: [value] * len(each) for name, value in more.items()}
    put(log, VehiclePosition, "input.vehicle-position", columns, times=time)


def counts(
    log: Log,
    cells: Mapping[int, int],
    *,
    end: Instant,
    watermark: Instant | None = None,
    topic: str = "analytics.vehicle-distribution",
    **more: Any,
) -> None:
    """Vehicles per cell in the window of 30 s that ends then."""
    size = len(cells)
    stamps = pl.Series([end], dtype=pl.Datetime("us", "UTC"))
    columns = {
        "cell": list(cells),
        "vehicles": list(cells.values()),
        "window_start": [*(stamps - pl.Series([30_000_000]).cast(pl.Duration("us")))] * size,
        "window_end": [*stamps] * size,
        "pane_timing": ["ON_TIME"] * size,
        **{name: [value] * size for name, value in more.items()},
    }
    put(log, VehicleCount, topic, columns, times=end - 1, watermark=watermark)


def stop_of(
    log: Log, vehicle: int, *, time: Instant | None = None, mode: str = "bus", difference: float = 12.0
) -> None:
    """An emergency stop."""
    columns = {"operator": [1], "vehicle": [vehicle], "mode": [mode], "lat": [60.2], "lon": [24.9]}
    put(log, EmergencyStop, "analytics.emergency-stop", {**columns, "speed_difference": [difference]}, times=time)


def hexadecimal(cell: int) -> str:
    return f"{cell:x}"


def eventually(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE} s in vain: {what}"
        time.sleep(0.02)
    return found


@contextmanager
def servers(log: Log, **usual: Any) -> Iterator[Callable[..., Server]]:
    """What starts servers of a log, which end with its `with`: with the usual options, unless told otherwise."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(serve(log, **{"port": 0, **usual, **options}))


class Viewer:
    """A client that keeps what it was sent, as the page does."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.hello = self.next("hello")
        self.layers: dict[str, dict[str, Any]] = {}
        self.status: dict[str, Any] = {}
        self.snapshots: list[Any] = []
        self.errors: list[str] = []

    def next(self, kind: str) -> dict[str, Any]:
        """The next message of a kind."""
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self.receive(max(0.0, deadline - time.monotonic()))
            if message["type"] == kind:
                return message

    def receive(self, timeout: float = PATIENCE) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(timeout))
        if message["type"] == "snapshot":
            self.snapshots.append(message["id"])
            self.layers = {name: {item["k"]: item for item in items} for name, items in message["layers"].items()}
        elif message["type"] == "update":
            for name, items in message["changed"].items():
                self.layers.setdefault(name, {}).update({item["k"]: item for item in items})
            for name, keys in message["gone"].items():
                for key in keys:
                    del self.layers[name][key]  # a key that is not shown cannot go
        elif message["type"] == "status":
            self.status = message
        elif message["type"] == "error":
            self.errors.append(message["message"])
        elif message["type"] == "hello":
            self.hello = message
        return message

    def send(self, message: Any) -> None:
        self.socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))

    def subscribe(self, *layers: str, id: Any = 1, **more: Any) -> None:
        """Subscribe, and have the snapshot."""
        self.send({"type": "subscribe", "id": id, "layers": layers, **more})
        while self.next("snapshot")["id"] != id:
            pass

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Take messages until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"in vain: {what}; {self.layers}"
            self.receive()


@contextmanager
def viewer(server: Server, query: str = "", **options: Any) -> Iterator[Viewer]:
    address = f"{server.url.replace('http', 'ws', 1)}/api/live{query}"
    with connect(address, **options) as socket:
        yield Viewer(socket)


def own_results(
    log: Log,
    topic: str,
    columns: Mapping[str, Sequence[Any]],
    schema: Mapping[str, pa.DataType],
    *,
    keys: Sequence[str],
    times: Sequence[Instant] | None = None,
    watermark: Instant | None = None,
) -> None:
    """Results or events of a type that only this log knows, as a job of one's own writes them."""
    registry = TypeRegistry()
    kind = define_message(registry, topic.partition(".")[2], pa.schema(dict(schema)))
    publish_types(log, registry, [kind])
    frame = pl.DataFrame(columns)
    event_times = [now()] * frame.height if times is None else list(times)
    values = codec.encode_columns(kind, frame, event_time=pa.array(event_times, pa.int64()), registry=registry)
    batch = records(values, keys=[key.encode() for key in keys], event_times=event_times)
    if watermark is not None:
        batch = pa.concat_batches([batch, codec.punctuation(watermark)])
    log.append(topic, batch)


_STAMP = pa.timestamp("us", "UTC")
_WINDOW = {"window_start": _STAMP, "window_end": _STAMP, "pane_timing": pa.string(), "retraction": pa.bool_()}


def orders(log: Log, *each: tuple[str, str, float], time: Instant) -> None:
    """Orders of (user, country, amount): events that are nowhere."""
    users, countries, amounts = zip(*each, strict=True)
    columns = {"user": users, "country": countries, "amount": amounts}
    schema = {"user": pa.string(), "country": pa.string(), "amount": pa.float64()}
    own_results(log, "input.order", columns, schema, keys=users, times=[time] * len(each))


def sessions(
    log: Log,
    *each: tuple[str, Instant, Instant, int, float],
    timing: str = "ON_TIME",
    back: bool = False,
    watermark: Instant | None = None,
) -> None:
    """Sessions of (user, start, end, orders, spent)."""
    users, starts, ends, counts, spent = zip(*each, strict=True)
    columns = {"user": users, "orders": counts, "spent": spent, **_window(starts, ends, timing, back)}
    schema = {"user": pa.string(), "orders": pa.int64(), "spent": pa.float64(), **_WINDOW}
    times = [end - 1 for end in ends]
    own_results(log, "analytics.sessions", columns, schema, keys=users, times=times, watermark=watermark)


def revenue(
    log: Log, countries: Mapping[str, tuple[float, int]], *, end: Instant, watermark: Instant | None = None
) -> None:
    """Revenue and orders of each country in the minute that ends then."""
    size = len(countries)
    columns = {
        "country": list(countries),
        "revenue": [revenue for revenue, _ in countries.values()],
        "orders": [orders for _, orders in countries.values()],
        **_window([end - 60_000_000] * size, [end] * size, "ON_TIME", False),
    }
    schema = {"country": pa.string(), "revenue": pa.float64(), "orders": pa.int64(), **_WINDOW}
    times = [end - 1] * size
    own_results(log, "analytics.revenue", columns, schema, keys=list(countries), times=times, watermark=watermark)


def _window(starts: Sequence[Instant], ends: Sequence[Instant], timing: str, back: bool) -> dict[str, Any]:
    stamps = [pl.Series(times, dtype=pl.Int64).cast(pl.Datetime("us", "UTC")) for times in (starts, ends)]
    size = len(starts)
    return {
        "window_start": stamps[0],
        "window_end": stamps[1],
        "pane_timing": [timing] * size,
        "retraction": [back] * size,
    }
