"""`tidewheel replay`: recordings into the log, as if they happened now or as fast as possible."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidewheel.cli.connectors import run_connectors
from tidewheel.cli.options import (
    DEFAULT_LOG,
    DurationOption,
    JsonOption,
    LogOption,
    ProcessorOption,
    opened_log,
    parse_speed,
)
from tidewheel.cli.processors import make_processor
from tidewheel.cli.progress import stoppable

__all__ = ["replay"]


def replay(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Recordings: JSON lines, plain, gzip or zstd.", show_default=False),
    ],
    log: LogOption = DEFAULT_LOG,
    processor: ProcessorOption = None,
    speed: Annotated[
        str, typer.Option(metavar="NUMBER|max", help="1: the original timing; max: as fast as the log takes it.")
    ] = "1",
    loop: Annotated[
        bool, typer.Option("--loop", help="Repeat endlessly, each round later than the one before.")
    ] = False,
    to_now: Annotated[
        bool,
        typer.Option("--now", help="Move all times so that the first event happens now; not with a speed above 1."),
    ] = False,
    volume: Annotated[int, typer.Option(min=1, help="The number of replays side by side, each with its own keys.")] = 1,
    stagger: Annotated[str, typer.Option(metavar="DURATION", help="How much later each of them starts.")] = "1 s",
    limit: Annotated[int | None, typer.Option(min=0, help="The maximum number of messages.")] = None,
    source: Annotated[
        str, typer.Option(metavar="NAME", help="The name of the source in the ingestion counts.")
    ] = "replay",
    length: DurationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay recordings into the log.

    The messages of all files, merged in the order of their arrival, go through the processor as if they came from the
    broker. Each becomes a record of a topic, is filtered by a named rule, or goes to the dead letters; tidewheel topics
    shows the account. With --volume the load is multiplied: copies of everything, each with keys of its own.

        tidewheel replay monday.jsonl.gz --processor events
        tidewheel replay monday.jsonl.gz tuesday.jsonl.zst --processor events --speed max
        tidewheel replay monday.jsonl.gz --processor mine --now --loop --volume 16
    """
    from tidewheel.ingest.pipeline import Pipeline
    from tidewheel.ingest.replay.replay import Replay

    factor = parse_speed(speed)
    chosen = make_processor(processor)
    recordings = Replay(
        files,
        processor=chosen,
        speed="max" if factor is None else factor,
        loop=loop,
        now=to_now,
        volume=volume,
        stagger=stagger,
        limit=limit,
    )
    with stoppable() as stop, opened_log(log) as opened:
        pipeline = Pipeline(opened, chosen, source=source)
        run_connectors([(recordings, pipeline)], stop=stop, length=length, as_json=as_json)
        if length is not None or not loop:
            stop.unfinished()
