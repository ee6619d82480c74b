"""`tidewheel restore`: put a log and its checkpoints back from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidewheel.cli.commands.backup import run_interruptibly
from tidewheel.cli.options import DEFAULT_LOG, JsonOption, LogOption, out, say
from tidewheel.cli.progress import print_json
from tidewheel.errors import DefinitionError

__all__ = ["restore"]


def restore(
    folder: Annotated[str | None, typer.Argument(metavar="[FOLDER]", help="The backup.", show_default=False)] = None,
    log: LogOption = DEFAULT_LOG,
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint",
            metavar="NAME=FOLDER",
            help="The folder for the checkpoint of this name; may be given several times.",
            show_default="LOG.checkpoints/NAME",
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace the existing log and checkpoints, and lose what came in since the backup."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Put a backup in place: the log, and with it the checkpoints of its jobs.

    All of it or nothing: everything is copied and compared with the manifest before anything is touched, and a damaged
    backup changes nothing. Jobs then go on where they were, with no result missing or there twice. What came in after
    the backup was made is not in it.

    The log goes to --log. Checkpoints that were in LOG.checkpoints are there again; those from elsewhere go back to
    where they were if the log does, and else into LOG.checkpoints, too. What is there already is only replaced with
    --replace, and never while anybody uses it. A restore that was interrupted while it changed names is finished by the
    next one, also without FOLDER; until then nobody can open the log.

        tidewheel restore backups/monday --log city.tw
        tidewheel restore backups/monday --log city.tw --replace
        tidewheel restore backups/monday --log test/city.tw  (beside the one that runs)
        tidewheel restore --log city.tw                       (finish one that was interrupted)
    """
    from tidewheel.engine.backup.restore import finish
    from tidewheel.engine.backup.restore import restore as put_in_place

    if "://" in log:
        raise DefinitionError(f"backups are of logs in a file, not of {log}")
    done = finish(log)
    if done is not None:
        say(f"a restore of {done.backup} was interrupted; it is finished now")
    elif folder is None:
        raise typer.BadParameter("which backup? tidewheel restore FOLDER")
    if folder is not None and (done is None or done.backup != str(Path(folder).absolute())):
        source, places = folder, dict(map(_place, checkpoints or ()))
        done = run_interruptibly(
            lambda progress: put_in_place(source, log, checkpoints=places, replace=replace, progress=progress),
            as_json=as_json,
        )
    assert done is not None
    if as_json:
        print_json(
            {
                "backup": done.backup,
                "made": done.made,
                "records": done.records,
                "log": str(done.log),
                "checkpoints": {name: str(path) for name, path in done.checkpoints.items()},
            }
        )
        return
    out().print(f"{done.log}: {done.records:,} records, as at {done.made}", markup=False)
    for name, path in done.checkpoints.items():
        out().print(f"{path}: the checkpoint {name}", markup=False)


def _place(text: str) -> tuple[str, str]:
    name, given, path = text.partition("=")
    if not (name and given and path):
        raise typer.BadParameter(f"looks like NAME=FOLDER, got {text!r}", param_hint="--checkpoint")
    return name, path
