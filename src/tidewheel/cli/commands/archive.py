"""`tidewheel archive`: topics of the log as Parquet files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel.cli.options import (
    DEFAULT_LOG,
    DurationOption,
    ExistingLogOption,
    JsonOption,
    SkipDamagedOption,
    existing_log,
    parse_duration,
    say,
)
from tidewheel.cli.progress import print_json, run_with_progress, stoppable
from tidewheel.errors import DefinitionError
from tidewheel.topic_names import INPUT, kind_of

if TYPE_CHECKING:
    from tidewheel.transport.log.log import Log

__all__ = ["archive"]

_BACKLOG = 100_000  # so much is written at once, not at the next turn


def archive(
    folder: Annotated[str, typer.Option("--to", metavar="FOLDER", help="The archive; created if it is missing.")],
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="What to archive.", show_default="all input.*"),
    ] = None,
    log: ExistingLogOption = DEFAULT_LOG,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End when everything that is in the log now is archived.")
    ] = False,
    every: Annotated[
        int,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="How often to write; longer intervals make larger files."
        ),
    ] = "1min",  # type: ignore[assignment]  # typer parses the default, too
    length: DurationOption = None,
    skip_damaged: SkipDamagedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write topics to Parquet files, by topic and by day and hour of event time.

    Every event is in the archive once: it goes on where it stopped, whatever stopped it. Columns are the event's own,
    as decoded, and its place in the log. Malformed records are in the topic dead.archive, and with --skip-damaged word
    of each damaged stretch. Jobs run over the archive with tidewheel run JOB --batch --input FOLDER; anything else that
    reads Parquet can read it, too.

        tidewheel archive --to city.archive --available-now
        tidewheel archive input.arrival --to city.archive --every 10min
    """
    from tidewheel.engine.jobs.archive import Archiver

    with stoppable() as stop, existing_log(log) as opened:
        chosen = topics or _inputs(opened)
        done = {"events": 0, "lag": 0}

        def work() -> bool:
            began = time.monotonic()
            with Archiver.open(opened, folder, chosen, skip_damaged=skip_damaged) as archiver:
                there = archiver.lag
                while not stop.is_set():
                    done.update(events=done["events"] + archiver.step(), lag=archiver.lag)
                    if available_now and (done["events"] >= there or not done["lag"]):
                        return True
                    if available_now or done["lag"] > _BACKLOG:
                        continue
                    left = every / 1_000_000
                    if length is not None:
                        left = min(left, began + length / 1_000_000 - time.monotonic())
                    if left <= 0:
                        return True
                    stop.wait(left)
            return False

        ended = run_with_progress(work, stop=stop, status=lambda: dict(done), line=_line, as_json=as_json)
        if as_json:
            print_json(done)
        say(f"{done['events']:,} events archived in {folder}; {done['lag']:,} left")
        if not ended and (available_now or length is not None):
            stop.unfinished()


def _inputs(log: Log) -> list[str]:
    found = [info.name for info in log.topics() if kind_of(info.name) == INPUT and info.count]
    if not found:
        raise DefinitionError(f"{log.address} has no topics input.* with events; name the topics to archive")
    return found


def _line(status: Mapping[str, Any]) -> str:
    return f"{status['events']:,} events archived, {status['lag']:,} left"
