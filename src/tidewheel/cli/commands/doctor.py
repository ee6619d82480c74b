"""`tidewheel doctor`: check the installation and suggest fixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidewheel.cli.options import DEFAULT_LOG, ExitCode, JsonOption, LogOption, out
from tidewheel.cli.progress import print_json

if TYPE_CHECKING:
    from tidewheel.cli.doctor_checks import Finding

__all__ = ["doctor"]

_MARKS = {"ok": ("OK", "green"), "warning": ("warning", "yellow"), "problem": ("problem", "bold red")}


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Do not start Spark: takes a few seconds at most.")] = False,
    log: LogOption = DEFAULT_LOG,
    as_json: JsonOption = False,
) -> None:
    """Check the installation and suggest fixes.

    Looks at the log, if it is there (room on its disk, its clocks, what holds a job's watermark), at Python, Java,
    Spark, memory, the disk where the log is or will be, ports and optional packages; then starts Spark on a small log
    of its own and runs a job, as tidewheel run would. Ends with 0 if there is no problem; warnings are about what only
    some commands need.

        tidewheel doctor
        tidewheel doctor --quick
    """
    from tidewheel.cli.doctor_checks import QUICK_CHECKS, check_spark_starts
    from tidewheel.cli.log_health import check_log
    from tidewheel.transport.open_log import log_file

    problems = 0
    file = log_file(log)
    folder = Path.cwd() if file is None else file.absolute().parent
    console = out()
    checks: list[tuple[str, Callable[[], Sequence[Finding]]]] = [("log", partial(check_log, log))]
    checks += [
        (check.__name__.removeprefix("check_").replace("_", " "), partial(check, folder))
        for check in [*QUICK_CHECKS, *([] if quick else [check_spark_starts])]
    ]
    for what, find in checks:
        with console.status(f"checking {what} ..."):
            findings = find()
        for finding in findings:
            problems += finding.level == "problem"
            if as_json:
                print_json({"level": finding.level, "what": finding.what, "found": finding.found, "fix": finding.fix})
                continue
            mark, style = _MARKS[finding.level]
            console.print(f"[{style}]{mark:>7}[/{style}]  [bold]{finding.what}[/bold]: ", end="")
            console.print(finding.found, markup=False)
            if finding.fix:
                console.print(f"         → {finding.fix}", style=style, markup=False)
    if problems:
        raise typer.Exit(ExitCode.FAILED)
