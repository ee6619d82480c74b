"""`tidewheel backup`: the log and the checkpoints of its jobs, saved together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tidewheel.cli.options import DEFAULT_LOG, ExistingLogOption, JsonOption, existing_log, out, say, size
from tidewheel.cli.progress import Stop, print_json, run_with_progress, stoppable
from tidewheel.errors import BackupError

if TYPE_CHECKING:
    from tidewheel.engine.backup.backup import Backup, Progress
    from tidewheel.engine.backup.manifest import Manifest

__all__ = ["backup", "run_interruptibly"]

_T = TypeVar("_T")


class _Interrupted(BackupError):
    """Raised inside the work when a stop was asked for; what was begun is cleared away on the way out."""


def backup(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="The target: a new or empty folder.", show_default=False)
    ],
    log: ExistingLogOption = DEFAULT_LOG,
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint",
            metavar="FOLDER",
            help="A checkpoint elsewhere; an option for each. Those in LOG.checkpoints are saved anyway.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--verify", help="Read an existing backup and check that it is complete.")
    ] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Back up although blocks of the log are damaged, and list them.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Save the log and the checkpoints of its jobs, as they are at one moment.

    Everything may go on meanwhile: jobs, ingestion, the map. Writers wait for some milliseconds, in which the last
    changes of the checkpoints are copied. Log and checkpoints belong together: a job whose checkpoint is older or
    newer than the log would miss events or results, so they are saved, and restored, as one. Never copy the log's file
    by itself while it is in use: what is in its journal (LOG-wal) is missing in the copy.

    A backup is a folder with a manifest, which has the size and the SHA-256 of every file and is written last: what was
    interrupted is no backup. To put one back: tidewheel restore FOLDER.

        tidewheel backup backups/monday
        tidewheel backup backups/monday --checkpoint state/fast --checkpoint state/delay
        tidewheel backup backups/monday --verify
    """
    if check:
        if checkpoints:
            raise typer.BadParameter(
                "cannot be combined with --verify, which reads what is there", param_hint="--checkpoint"
            )
        _verify(Path(folder), as_json=as_json)
        return
    from tidewheel.engine.backup.backup import back_up

    with existing_log(log) as opened:
        made = run_interruptibly(
            lambda progress: back_up(
                opened, folder, checkpoints=checkpoints or (), skip_damaged=skip_damaged, progress=progress
            ),
            as_json=as_json,
        )
    _report(made, folder, as_json=as_json)


def _verify(folder: Path, *, as_json: bool) -> None:
    """Read a backup and check that it is complete."""
    from tidewheel.engine.backup.manifest import Manifest, verify

    total = Manifest.read(folder).size

    def work(progress: Progress) -> Manifest:
        done = 0

        def add(count: int) -> None:
            nonlocal done
            done += count
            progress("reading", done, total)

        return verify(folder, progress=add)

    manifest = run_interruptibly(work, as_json=as_json)
    if as_json:
        print_json(_fields(manifest))
    else:
        out().print(f"{folder} is whole: {_words(manifest)}", markup=False)


def _report(made: Backup, folder: str, *, as_json: bool) -> None:
    """Say what a backup has, and what it lacks."""
    if as_json:
        waited = round(made.held_seconds * 1_000)
        missing = list(made.without_checkpoint)
        facts = {"waited_ms": waited, "without_checkpoint": missing, "damaged": list(made.damaged)}
        print_json({**_fields(made.manifest), **facts})
    else:
        out().print(f"{folder}: {_words(made.manifest)}", markup=False)
        say(f"writers had to wait for {made.held_seconds * 1_000:,.0f} ms")
        for each in made.damaged:
            say(f"damaged in the log, and so in its backup: {each}", style="red")
    if made.without_checkpoint:
        say(
            f"no checkpoint of {', '.join(made.without_checkpoint)} is in it: if that is a job, name its folder with "
            "--checkpoint; if it is a consumer, its position is in the log",
            style="yellow",
        )


def run_interruptibly(work: Callable[[Progress], _T], *, as_json: bool) -> _T:
    """Run work that reports its progress, and show it; Ctrl-C and SIGTERM end it in good order."""
    state: dict[str, Any] = {"doing": "looking", "done": 0, "total": 0}

    with stoppable() as stop:

        def progress(what: str, done: int, total: int) -> None:
            state.update(doing=what, done=done, total=total)
            if stop.is_set():
                raise _Interrupted("stopped")

        try:
            return run_with_progress(
                lambda: work(progress),
                stop=stop,
                status=lambda: {**state, "stopping": stop.is_set()},
                line=_line,
                as_json=as_json,
            )
        except _Interrupted:
            _say_stopped(stop)
            raise


def _say_stopped(stop: Stop) -> None:
    say("stopped; nothing of it is left")
    stop.unfinished()


def _line(status: Mapping[str, Any]) -> str:
    if not status["total"]:
        return f"{status['doing']} ..."
    return f"{status['doing']}: {size(status['done'])} of {size(status['total'])}"


def _words(manifest: Manifest) -> str:
    jobs = ", ".join(each.name for each in manifest.checkpoints)
    return (
        f"the log as it was at {manifest.made}, {manifest.records:,} records in {manifest.topics} topics, and "
        f"{len(manifest.checkpoints)} checkpoints{f' ({jobs})' if jobs else ''}; {size(manifest.size)}"
    )


def _fields(manifest: Manifest) -> dict[str, Any]:
    return {
        "made": manifest.made,
        "log": manifest.address,
        "identity": manifest.log,
        "topics": manifest.topics,
        "records": manifest.records,
        "checkpoints": {each.name: each.folder for each in manifest.checkpoints},
        "files": len(manifest.files),
        "bytes": manifest.size,
    }
