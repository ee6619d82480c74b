"""The progress and the final summary of `tidewheel run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidewheel.cli.options import say
from tidewheel.cli.progress import Stop, print_json, run_with_progress
from tidewheel.cli.progress_count import ResultCount
from tidewheel.errors import LogError
from tidewheel.model.time import approximate_duration, format_instant, now
from tidewheel.model.watermark_hold import hold_text

if TYPE_CHECKING:
    from tidewheel.engine.execution.running_query import Progress, Run
    from tidewheel.transport.log.log import Log

__all__ = ["follow_run"]


def follow_run(
    begin: Callable[[], Run],
    log: Log,
    name: str,
    topics: Sequence[str],
    *,
    stop: Stop,
    length: int | None,
    as_json: bool,
) -> tuple[bool, Mapping[str, str]]:
    """Show the progress of a run until it ends. Returns whether it ended by itself, and the failed jobs, each with the
    reason."""
    from tidewheel.transport.topics.run_states import ENDED, FIRST_BATCH, RUNNING, STARTING, RunState, RunStates

    count = ResultCount(log, topics)
    running: list[Run] = []
    states, since = RunStates(log), now()

    def report(stage: str) -> None:
        with suppress(LogError):  # it may be busy; this is for those who look on
            states.report(name, RunState(stage, since))

    def work() -> bool:
        report(STARTING)
        started = begin()
        running.append(started)
        report(FIRST_BATCH)
        deadline = None if length is None else time.monotonic() + length / 1_000_000
        while not started.wait(0.2):
            if stop.is_set() or (deadline is not None and time.monotonic() >= deadline):
                started.stop()
                return False
        return True

    def status() -> dict[str, Any]:
        if not running:
            return {"job": name, "state": "starting"}
        progress = running[0].progress()
        if progress.batches:
            report(RUNNING)
        return _status(name, progress, results=count(), failed=running[0].failed)

    try:
        ended = run_with_progress(work, stop=stop, status=status, line=_line, as_json=as_json)
        final = status()
    finally:
        report(ENDED)
    if as_json:
        print_json(final)
    say(_summary(final, topics))
    failed = final.get("failed", {})
    for job, reason in failed.items():
        say(f"{job} was taken out: {reason}. Fix it and start again: it resumes where it stopped", style="red")
    return ended, failed


def _status(name: str, progress: Progress, *, results: int, failed: Mapping[str, str]) -> dict[str, Any]:
    return {
        "job": name,
        "state": "running",
        "batches": progress.batches,
        "events": progress.events,
        "results": results,
        "rate": round(progress.rate, 1),
        "batch_ms": progress.batch_ms,
        "lag": progress.lag,
        "watermark": None if progress.watermark is None else format_instant(progress.watermark),
        "behind_seconds": None if progress.watermark is None else round((now() - progress.watermark) / 1e6, 3),
        "damaged": progress.damaged,
        "held_by": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "since": format_instant(each.since),
                "watermark": None if each.mark is None else format_instant(each.mark),
            }
            for each in progress.held_by
        ],
        "held": hold_text(progress.held_by, now=now()),
        "failed": dict(failed),
    }


def _line(status: Mapping[str, Any]) -> str:
    if status["state"] == "starting":
        return f"{status['job']}: starting Spark ..."
    behind = status["behind_seconds"]
    watermark = "" if behind is None else f", watermark {approximate_duration(round(behind * 1_000_000))} behind"
    if status["held"]:
        watermark = f"{watermark or ', no watermark'} ({status['held']})"
    failed = f", taken out: {', '.join(status['failed'])}" if status["failed"] else ""
    failed += f", {status['damaged']:,} damaged" if status["damaged"] else ""
    return (
        f"{status['job']}: {status['events']:,} events, {status['results']:,} results ({status['rate']:,.0f} events/s, "
        f"last batch {status['batch_ms']:,.0f} ms), lag {status['lag']:,}{watermark}{failed}"
    )


def _summary(status: Mapping[str, Any], topics: Sequence[str]) -> str:
    if status["state"] == "starting":
        return f"{status['job']}: stopped before it began"
    return (
        f"{status['job']}: {status['events']:,} events processed, {status['results']:,} results in "
        f"{', '.join(topics)}; {status['lag']:,} events left{_damaged(status)}"
    )


def _damaged(status: Mapping[str, Any]) -> str:
    lost = status["damaged"]
    return f"; {lost:,} in damaged blocks were passed over: tidewheel tail dead.{status['job']}" if lost else ""
