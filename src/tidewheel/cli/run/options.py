"""The options of `tidewheel run` that apply to every job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tidewheel.cli.options import DEFAULT_LOG, DurationOption, JsonOption, LogOption, SkipDamagedOption, parse_instant
from tidewheel.engine.datasource.batch_limit import MAX_BYTES
from tidewheel.topic_names import analytics

__all__ = ["RunCommandOptions"]


@dataclass(frozen=True, kw_only=True)
class RunCommandOptions:
    """The options of `tidewheel run` that do not depend on the job."""

    log: LogOption = DEFAULT_LOG
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Parameters in TOML: a table for each job, and one called all.")
    ] = None
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="The checkpoint folder; for a log on Kafka by default one below ~/.local/share/tidewheel.",
            show_default="LOG.checkpoints/NAME",
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(help="The name of the run: of its checkpoint, its progress, and dead.NAME.", show_default="JOB"),
    ] = None
    version: Annotated[
        str | None,
        typer.Option(help="Run beside another version: its topics and its checkpoint end in .VERSION."),
    ] = None
    results: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic of the results.", show_default=analytics("JOB"))
    ] = None
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End when everything that is in the log now is processed.")
    ] = False
    batch: Annotated[
        bool, typer.Option("--batch", help="Run once over everything in the log, to its end: nothing is late.")
    ] = False
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="ARCHIVE|RECORDING",
            help="With --batch: read this archive, or these recordings (an option for each), instead of the log.",
        ),
    ] = None
    processor: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The processor of the messages of recordings."),
    ] = None
    start_from: Annotated[
        str,
        typer.Option(
            "--from", metavar="earliest|latest|TIME", help="Where a new checkpoint starts; an existing one continues."
        ),
    ] = "earliest"
    max_events: Annotated[
        int, typer.Option("--max-events-per-batch", min=1, help="The maximum number of events in a batch.")
    ] = 100_000
    max_bytes: Annotated[
        int,
        typer.Option("--max-bytes-per-batch", min=1, help="The maximum number of bytes of records in a batch."),
    ] = MAX_BYTES
    accept_changes: Annotated[
        bool,
        typer.Option("--accept-changes", help="Continue with changed parameters and steps, if the job keeps no state."),
    ] = False
    skip_damaged: SkipDamagedOption = False
    append_to_existing: Annotated[
        bool,
        typer.Option(
            "--append-to-existing",
            help="Write into topics that hold results of another run, although the checkpoint is new.",
        ),
    ] = False
    fsync: Annotated[
        bool,
        typer.Option(
            "--fsync/--no-fsync",
            help="Force the checkpoint to disk in each batch, so that it survives a power failure.",
        ),
    ] = True
    length: DurationOption = None
    as_json: JsonOption = False

    def check(self, *, jobs: int) -> None:
        """Refuse options that contradict each other, or that do not fit the number of jobs."""
        if self.start_from not in ("earliest", "latest"):
            parse_instant(self.start_from)
        if self.sources and not self.batch:
            raise typer.BadParameter("archives and recordings are read as a batch: add --batch", param_hint="--input")
        if self.results is not None and jobs > 1:
            raise typer.BadParameter(
                "results of several jobs go to a topic for each; leave it out", param_hint="--results"
            )
        streaming = {
            "--available-now": self.available_now,
            "--checkpoint": self.checkpoint is not None,
            "--from": self.start_from != "earliest",
            "--accept-changes": self.accept_changes,
            "--no-fsync": not self.fsync,
            "--for": self.length is not None,
        }
        for option, given in streaming.items():
            if self.batch and given:
                raise typer.BadParameter(
                    "cannot be combined with --batch, which reads all there is, once", param_hint=option
                )
