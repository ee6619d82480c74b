"""The figures of the live view: from a result in the log to the message at the client, and what that takes.

Results come as fast as the demo makes them, a tenth of a second's worth at a time, from this process. The server and
the clients are processes of their own. All of them share this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa

from bench.events import positions as simulated
from bench.figures import Figure, best_rate, with_aim
from bench.page import FRAMES, measure_page
from bench.parts import Part, run_parts
from tidewheel.model.time import now
from tidewheel.serve.view.decode import Decoder, prepared
from tidewheel.serve.view.history import History
from tidewheel.serve.view.view import LayerView
from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import types
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel_transit.layers import LAYERS
from tidewheel_transit.transit_pb2 import VehicleCell

__all__ = ["PARTS", "SECONDS", "Bench", "measure"]

SECONDS: Final = 15.0
CLIENTS: Final = 1_000

_RATE: Final = 700
_STEP: Final = 0.1
_WARM_UP: Final = 3.0
_TOPIC: Final = "analytics.vehicle-cell"
_LAYER: Final = next(layer for layer in LAYERS if layer.topic == _TOPIC)


@dataclass(frozen=True)
class Bench:
    """Where to work, whom to tell, and for how long."""

    folder: Path
    say: Callable[[str], object]
    seconds: float = SECONDS
    clients: int = CLIENTS
    frames: int = FRAMES


def measure(
    folder: Path,
    say: Callable[[str], object],
    *,
    only: Sequence[str] = (),
    seconds: float = SECONDS,
    clients: int = CLIENTS,
    frames: int = FRAMES,
) -> Iterator[list[Figure]]:
    """The figures of these parts, or of all, part by part."""
    return run_parts(PARTS, Bench(folder, say, seconds, clients, frames), only)


def _alike(bench: Bench) -> list[Figure]:
    figures = []
    for count in (1, bench.clients):
        who = "1 client that sees" if count == 1 else f"{count:,} clients that see"
        group = f"{_RATE} results/s to {who} everything"
        figures += _figures(group, _stream(bench, count, "same"))
    return figures


def _apart(bench: Bench) -> list[Figure]:
    group = f"{_RATE} results/s to {bench.clients:,} clients, each with a region of its own"
    return _figures(group, _stream(bench, bench.clients, "own"))


def _figures(group: str, report: dict[str, float]) -> list[Figure]:
    return [
        with_aim(group, "append to message, p50", report["p50"], "ms", most=250),
        with_aim(group, "append to message, p99", report["p99"], "ms", most=1_000),
        Figure(group, "frames a client", report["frames"], "/s"),
        Figure(group, "bytes a client", report["bytes"] / 1_000, "kB/s"),
        Figure(group, "snapshots for clients that were behind", report["snapshots"], ""),
        Figure(group, "processor of the server", report["server"], "% of a core"),
        Figure(group, "processor of the clients", report["cpu"], "% of a core"),
    ]


def _stream(bench: Bench, count: int, kind: str) -> dict[str, float]:
    """A server, its clients, and results for a while."""
    path = bench.folder / f"{kind}-{count}.tw"
    with open_log(path, sync="normal") as log:
        _append(log, 0, _RATE)
        server = _process("tidewheel.cli", "--end-with-stdin", "serve", "--log", str(path), "--port", "0", "--json")
        clients = None
        try:
            url = json.loads(_line(server))["url"]
            threading.Thread(target=_drain, args=(server,), daemon=True).start()
            bench.say(f"{count:,} clients connect ...")
            clients = _process("bench.serve_clients", url, str(count), kind, str(_LAYER.expiry))
            _await(clients, "ready")
            bench.say(f"{count:,} clients look on ...")
            _write(log, _WARM_UP)
            _report(clients)
            before, began = _cpu(server.pid), time.monotonic()
            _write(log, bench.seconds)
            took, seconds = _cpu(server.pid) - before, time.monotonic() - began
            _report(clients)
            report: dict[str, float] = json.loads(_line(clients))
            return {**report, "server": 100 * took / seconds}
        finally:
            for process in (clients, server):
                if process is not None:
                    process.kill()
                    process.wait()


def _write(log: Log, seconds: float) -> None:
    """Results at the demo's rate."""
    began, count = time.monotonic(), round(_RATE * _STEP)
    for step in range(round(seconds / _STEP)):
        _append(log, step * count, count)
        time.sleep(max(0.0, began + (step + 1) * _STEP - time.monotonic()))


def _append(log: Log, first: int, count: int) -> None:
    log.append(_TOPIC, _results(first, count))


def _results(first: int, count: int) -> pa.RecordBatch:
    """So many vehicles of the fleet, each a bit further on."""
    at = now()
    frame = pl.DataFrame({"vehicle": [(first + number) % _RATE for number in range(count)]}).with_columns(
        operator=pl.col("vehicle") % 4 + 1,
        cell=pl.lit(617_294_883_729_440_767),
        mode=pl.lit("bus"),
        lat=60.1 + pl.col("vehicle") % 97 / 500,
        lon=24.0 + pl.col("vehicle") / _RATE / 2 + first % 1_000 / 1e6,
        speed=pl.col("vehicle") % 20 + 0.5,
        heading=pl.col("vehicle") % 360,
        route=(pl.col("vehicle") % 60).cast(pl.String),
        direction=pl.col("vehicle") % 2 + 1,
        delay=pl.col("vehicle") % 300 - 150,
    )
    values = codec.encode_columns(VehicleCell, frame, event_time=pa.array([at] * count))
    return records(values, event_times=[at] * count)


def _reading(bench: Bench) -> list[Figure]:
    """Results from the log to the view and the history, without anybody looking on."""
    count, blocks = 1_000, 100
    fields = [name for name in types.schema(VehicleCell).names if name != "cell"]
    positions = simulated(count * blocks)
    frame = positions.select("event_time", *fields, cell=pl.lit(617_294_883_729_440_767))
    with open_log(bench.folder / "reading.tw", sync="normal") as log:
        for part in frame.iter_slices(count):
            times = part["event_time"].to_arrow()
            values = codec.encode_columns(VehicleCell, part.drop("event_time"), event_time=times)
            log.append(_TOPIC, records(values, event_times=times))
        history = History(limit=1 << 30)

        def work() -> None:
            view, decode = LayerView(_LAYER), Decoder(types)
            for batch in log.read(_TOPIC, 0, 0):
                for frame in decode(batch).frames:
                    rows = prepared(_LAYER, frame)
                    history.add(_LAYER.name, rows)
                    view.apply(rows, now=now())

        rate = best_rate(count * blocks, work)
    group = "Reading results: decoded, into view and history, encoded for clients"
    return [
        with_aim(group, "blocks of 1,000, all of them shown", rate, "results/s", least=10_000),
        Figure(group, "10,000 results/s take", 100 * 10_000 / rate, "% of a core"),
        Figure(group, "history in memory", history.packed_bytes / history.packed_rows, "bytes/result"),
    ]


def _page(bench: Bench) -> list[Figure]:
    return measure_page(bench.say, frames=bench.frames)


def _process(module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended before it reported anything")
    return line


def _await(process: subprocess.Popen[str], word: str) -> None:
    if _line(process).strip() != word:
        raise RuntimeError(f"{process.args!r} did not say {word}")


def _report(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _drain(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for _ in process.stdout:
        pass


def _cpu(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields: list[Any] = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


PARTS: Final[Mapping[str, Part[Bench]]] = {
    "a": Part("from the log to 1 and to 1,000 clients that see the same", _alike),
    "b": Part("to 1,000 clients that each see something else", _apart),
    "c": Part("reading results", _reading),
    "d": Part("the page: main thread per frame, in headless Chromium", _page),
}
"""By the letter that `--only` takes."""
