"""A run as a batch (`tidewheel run JOB --batch`): over all that a log, an archive or recordings hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tidewheel.cli.options import say
from tidewheel.cli.processors import make_processor
from tidewheel.cli.progress import Stop, print_json, run_with_progress
from tidewheel.cli.progress_count import ResultCount
from tidewheel.cli.run.recording_input import RecordingInput, check_recordings, recording_input
from tidewheel.topic_names import dead

if TYPE_CHECKING:
    from tidewheel.engine.streams.result import Result
    from tidewheel.transport.log.log import Log

__all__ = ["Given", "run_as_batch"]


@dataclass(frozen=True)
class Given:
    """What a batch reads: an archive, or recordings, or if there is neither the log."""

    archive: str | None = None
    recordings: Sequence[Path] = ()
    processor: str | None = None

    @classmethod
    def of(cls, paths: Sequence[str], processor: str | None) -> Given:
        """What `--input` names: a folder is an archive, files are recordings."""
        files = [Path(path) for path in paths if Path(path).is_file()]
        for path in paths:
            if not Path(path).exists():
                raise typer.BadParameter(
                    f"there is neither an archive (a folder) nor a recording (a file) {path}", param_hint="--input"
                )
        if len(files) < len(paths) and len(paths) > 1:
            raise typer.BadParameter(
                f"name one archive, or one or more recordings, got {', '.join(paths)}", param_hint="--input"
            )
        if processor is not None and not files:
            raise typer.BadParameter(
                "reads the messages of recordings: name one with --batch --input FILE", param_hint="--processor"
            )
        check_recordings(files)
        if files:
            make_processor(processor)  # one that is not there, or not named, is refused before the log is opened
        return cls(None if files or not paths else paths[0], files, processor)

    def __str__(self) -> str:
        return ", ".join(map(str, self.recordings)) or self.archive or ""


def run_as_batch(
    results_on: Callable[[Log], Sequence[Result]],
    log: Log,
    given: Given,
    name: str,
    topics: Sequence[str],
    *,
    append_to_existing: bool,
    stop: Stop,
    as_json: bool,
    skip_damaged: bool = False,
) -> None:
    """Run results over what is given, write them to `log`, and print what came out."""
    with (
        nullcontext()
        if not given.recordings
        else recording_input(
            given.recordings, given.processor, beside=log, name=name, stop=stop, as_json=as_json
        ) as messages
    ):
        _run(
            results_on(log if messages is None else messages.log),
            log,
            given,
            name,
            topics,
            append=append_to_existing,
            stop=stop,
            as_json=as_json,
            messages=messages,
            skip_damaged=skip_damaged,
        )


def _run(
    results: Sequence[Result],
    log: Log,
    given: Given,
    name: str,
    topics: Sequence[str],
    *,
    append: bool,
    stop: Stop,
    as_json: bool,
    messages: RecordingInput | None,
    skip_damaged: bool,
) -> None:
    from tidewheel.engine.jobs.batch import run_batch

    count = ResultCount(log, topics)
    history = None if messages is None else messages.log

    def status() -> dict[str, Any]:
        return {"job": name, "state": "batch", "results": count()}

    run_with_progress(
        lambda: run_batch(
            *results,
            log=log,
            archive=given.archive,
            history=history,
            name=name,
            append_to_existing=append,
            skip_damaged=skip_damaged,
        ),
        stop=stop,
        status=status,
        line=lambda _: f"{name}: running over {given or log.address} ...",
        as_json=as_json,
    )
    final = {**status(), "state": "ended"}
    letters, place = 0, dead(name)
    if messages is not None:
        letters = messages.write_dead_letters(log, place)
        final |= {"messages": messages.account(), "dead_letters": place if letters else None}
    if as_json:
        print_json(final)
    say(f"{name}: {final['results']:,} results in {', '.join(topics)}")
    if letters:
        say(f"{letters:,} dead letters are in {place}, each with its reason: tidewheel tail {place}", style="yellow")
