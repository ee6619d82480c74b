"""`tidewheel demo`: everything together, live in the browser and in the terminal."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tidewheel as tw
from tidewheel.cli import (
    ExitCode,
    Stop,
    command,
    make_private_folder,
    opened_log,
    out,
    parse_duration,
    say,
    start_text,
    stoppable,
)
from tidewheel_transit.commands.demo_parts import Parts

if TYPE_CHECKING:
    from tidewheel_transit.commands.demo_watch import Positions

__all__ = ["RETENTION_AGE", "demo", "keep_an_hour"]

CELLS = "vehicle-cell"
"""The job that is always there: its results are checked."""
GROUP = "demo"
"""The name under which the jobs note how far they have come."""

RETENTION_AGE: tw.time.Duration = 70 * 60 * 1_000_000
"""How long the records of the demo's topics stay: the map rewinds an hour."""

EARLY = "2 s"
"""How often windows show what they have so far: every window ends five seconds after the one before."""
_EARLY_JOBS = ("vehicle-distribution", "delay-distribution", "final-stop-distribution", "flow-direction")
"""The jobs whose results are of what is now; a journey that has not ended is no such result."""

_PORT = 8080
_LOOK_SECONDS = 1.0
_PLAIN_SECONDS = 3.0
_PLAIN_SELDOM = 30.0
_DRAIN_SECONDS = 120.0
_END_SECONDS = 90.0


@command(panel="Begin here")
def demo(
    length: Annotated[
        int | None,
        typer.Option("--for", metavar="DURATION", parser=parse_duration, help="Stop after 30s, 5min ... of results."),
    ] = None,
    rate: Annotated[float, typer.Option(min=1, help="Events per second.")] = 700,
    jobs: Annotated[
        list[str] | None,
        typer.Option("--job", metavar="JOB", help="Only this one, besides vehicle-cell; may be given several times."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="PATH", help="The log to use.", show_default="a new one in a temporary folder"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="The port of the live map.", show_default="8080, or a free one if that is taken"
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the map in the browser.")] = True,
) -> None:
    """Run everything: a simulated city, the log, all jobs on Spark, and the live map.

    Starts the simulator, the lookup of final stops, the jobs and the server of the map as processes of their own, with
    a log between them. The map shows the city; the terminal shows how fast events come in and are processed, how far
    the jobs are behind, how long a position takes from its ingestion to its result in the log, and the latest results.
    Ctrl-C ends it: the simulator first, then the jobs when they have finished what is there. At the end it tells what
    was processed, and checks that all of it is accounted for and that every position on a journey has its result, once.
    It may go on for days: the topics that it makes keep about an hour.

        tidewheel demo
        tidewheel demo --for 30s --no-open
        tidewheel demo --job emergency-stop                 (that one and vehicle-cell: easier on a small machine)
        tidewheel demo --rate 5000 --log city.tw            (and meanwhile, elsewhere: tidewheel topics --log city.tw)
    """
    say("Tidewheel demo: a simulated city → log → Spark → log → the live map. Ctrl-C ends it.", style="bold")
    with stoppable() as stop, _place(log) as address:
        say(f"log: {address}", style="dim")
        start_from = _ends(address)
        chosen = ["--all"] if jobs is None else [CELLS, *(job for job in jobs if job != CELLS)]
        with Parts() as parts:
            running = ["run", *chosen, "--name", GROUP, "--config", _config(address), "--log", address]
            parts.start("jobs", *running, environment=_quick_start())
            parts.start("simulator", "simulate", "--log", address, "--rate", f"{rate:g}", "--steady")
            if jobs is None or "final-stop-distribution" in jobs:
                parts.start("lookups", "ask", "final-stop", "--provider", "simulator", "--log", address)
            with opened_log(address) as opened:
                parts.start("map", "serve", "--log", address, "--port", str(_port(port)), "--lines", _lines(address))
                passed = _Demo(opened, start_from, parts, stop, open_page=open_page).run(length)
    if not passed:
        raise typer.Exit(ExitCode.FAILED)
    if length is not None:
        stop.unfinished()


def _port(asked: int | None) -> int:
    """The port that was asked for; otherwise the usual one, or any if that is taken."""
    if asked is not None:
        return asked
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _PORT))
        except OSError:
            return 0
    return _PORT


def _lines(address: str) -> str:
    """The lines of the simulated city, in a file beside the log."""
    from tidewheel_transit.lines import lines

    path = Path(f"{address}.lines.geojson")
    path.write_text(json.dumps(lines()), encoding="utf-8")
    return str(path)


def _config(address: str) -> str:
    """The parameters of the jobs, in a file beside the log."""
    path = Path(f"{address}.jobs.toml")
    path.write_text("".join(f'[{job}]\nearly = "{EARLY}"\n' for job in _EARLY_JOBS), encoding="utf-8")
    return str(path)


def _quick_start() -> dict[str, str]:
    """Let Java translate its code once and for good, quickly. To make it as fast as can be takes more of two cores in
    the first minute than the jobs do, and at the demo's volume saves little later: most of the work is not Java's."""
    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    return {} if "TieredStopAtLevel" in given else {"SPARK_SUBMIT_OPTS": f"{given} -XX:TieredStopAtLevel=1".strip()}


class _Demo:
    """The demo from its start to the last figure."""

    def __init__(self, log: tw.Log, start_from: Positions, parts: Parts, stop: Stop, *, open_page: bool) -> None:
        # Here, not at the top: the processes are on their way before this one reads its own large libraries.
        from tidewheel_transit.commands.demo_view import Dashboard
        from tidewheel_transit.commands.demo_watch import Watch

        self._log = log
        self._start_from = start_from
        self._parts = parts
        self._simulator = parts["simulator"]
        self._job = parts["jobs"]
        self._map = parts["map"]
        self._stop = stop
        self._watch = Watch(log, start_from=start_from, group=GROUP)
        self._dashboard = Dashboard()
        self._began = self._printed = time.monotonic()
        self._started = tw.time.now()
        self._pause = _PLAIN_SECONDS
        self._stage = ""
        self._ready: tw.time.Instant | None = None
        self._addressed: tw.time.Instant | None = None
        self._to_open = open_page and _has_screen()

    def run(self, length: tw.time.Duration | None) -> bool:
        """Run the demo; False if something is missing in the end."""
        from rich.live import Live

        console = out()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        with self._live or nullcontext():
            self._attend(length)
            finished = self._end()
            self._show("ended", always=True)
        return self._sum_up() and finished

    def _attend(self, length: tw.time.Duration | None) -> None:
        """Show the demo until it is to end. Its time counts from the first batch on: Spark takes a while to start."""
        while not self._stop.wait(_LOOK_SECONDS):
            self._parts.check()
            keep_an_hour(self._log, before=self._start_from)
            self._print_map_address()
            if self._ready is None and self._job.status.get("batches"):
                self._ready = tw.time.now()
            if self._ready is not None and length is not None and tw.time.now() - self._ready >= length:
                return
            self._show("Ctrl-C ends it" if self._ready is not None else self._start_text())

    def _start_text(self) -> str:
        """Describe what Spark is doing, and how long it takes."""
        return start_text(self._started, first_batch=self._job.status.get("state") == "running") + " ..."

    def _print_map_address(self) -> None:
        url = self._map.status.get("url")
        if url is not None and self._addressed is None:
            self._addressed = tw.time.now()
            if self._live is None:
                say(f"the live map: {url}", style="bold")
            if self._to_open:
                typer.launch(str(url))

    def _end(self) -> bool:
        """Stop the simulator first, then the job when it has finished its input."""
        self._simulator.stop()
        while self._simulator.wait(_LOOK_SECONDS) is None:
            self._show("stopping the simulator ...")
        if self._job.status.get("state") != "running":
            return True  # Spark is not there yet, so there is nothing to finish
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._watch.lag() > 0 and self._job.code is None and time.monotonic() < deadline:
            self._show("finishing what is there ...")
            time.sleep(_LOOK_SECONDS)
        self._job.stop()
        deadline = time.monotonic() + _END_SECONDS
        while self._job.wait(_LOOK_SECONDS) is None and time.monotonic() < deadline:
            self._show("stopping the job ...")
        if self._job.code != ExitCode.FINE:
            say(f"the job ended with exit code {self._job.code}:\n{self._job.said}", style="red")
        return self._job.code == ExitCode.FINE

    def _show(self, stage: str, *, always: bool = False) -> None:
        url = str(self._map.status.get("url", ""))
        snapshot = self._watch.look(seconds=time.monotonic() - self._began, job=self._job.status, url=url)
        console = out()
        if self._live is not None:
            self._live.update(self._dashboard.draw(snapshot, height=console.height, stage=stage), refresh=True)
            return
        doing = stage.partition(":")[0]
        waited = time.monotonic() - self._printed
        if always or doing != self._stage or waited >= self._pause:
            from tidewheel_transit.commands.demo_view import plain

            console.print(f"{plain(snapshot)} ({stage})", soft_wrap=True)
            self._pause = _PLAIN_SECONDS if doing != self._stage else min(2 * self._pause, _PLAIN_SELDOM)
            self._printed, self._stage = time.monotonic(), doing

    def _sum_up(self) -> bool:
        """Say what was processed, and whether all of it is there."""
        from tidewheel.ingest import adds_up
        from tidewheel_transit.commands.demo_view import first_of_all, summary

        console = out()
        if self._job.status.get("state") != "running":
            console.print("Ended before Spark was there: nothing was processed.")
            return True
        with console.status("checking that every position has its result ..."):
            check = self._watch.check()
        latency = self._watch.latency(ingested_since=self._ready or tw.time.now())
        reports = self._watch.reports()
        text = summary(self._job.status, self._watch.results, reports, latency, check)
        if self._addressed is not None:
            text += f"\n{first_of_all(self._addressed, self._watch.firsts())}"
        console.print(text, soft_wrap=not console.is_terminal)
        console.print(f"The log stays until the next demo: tidewheel topics --log {self._log.address}", style="dim")
        return check.passed and all(adds_up(report) for report in reports)


def keep_an_hour(log: tw.Log, *, before: Positions) -> None:
    """Limit the topics that have no limit yet; those that were there before stay as they are."""
    theirs = {topic for topic, _ in before}
    for info in log.topics():
        if info.name not in theirs and info.retention == tw.Retention() and not info.compact:
            log.create_topic(info.name, retention=tw.Retention(age=RETENTION_AGE))


def _has_screen() -> bool:
    """Whether a browser that is opened would be seen."""
    return out().is_terminal and (
        sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    )


def _ends(address: str) -> Positions:
    """The ends of the topics of a log that is there already: what comes after that is the demo's."""
    if not os.path.exists(address):
        return {}
    with opened_log(address) as log:
        return {(info.name, number): end for info in log.topics() for number, end in enumerate(info.next_offsets)}


@contextmanager
def _place(log: str | None) -> Iterator[str]:
    """The log's address. Without one a new folder, in place of those that earlier demos left."""
    if log is not None:
        yield os.path.abspath(log)
        return
    base = Path(tempfile.gettempdir()) / f"tidewheel-demo-{os.getuid()}"
    make_private_folder(base, use="where the demo keeps its logs")
    for old in base.iterdir():
        with suppress(OSError), open(old / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if a demo is still there
            shutil.rmtree(old)
    folder = Path(tempfile.mkdtemp(dir=base))
    with open(folder / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield str(folder / "demo.tw")
