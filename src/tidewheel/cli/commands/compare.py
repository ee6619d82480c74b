"""`tidewheel compare`: how the final tables of two topics of results differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel.cli.options import (
    DEFAULT_LOG,
    ExistingLogOption,
    ExitCode,
    JsonOption,
    SkipDamagedOption,
    existing_log,
    out,
    report_damage,
)
from tidewheel.cli.progress import print_json

if TYPE_CHECKING:
    import polars as pl

    from tidewheel.transport.topics.materialize import Comparison

__all__ = ["compare"]


def compare(
    first: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic of results.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to compare it with.", show_default=False)],
    log: ExistingLogOption = DEFAULT_LOG,
    examples: Annotated[int, typer.Option(min=0, help="How many rows of each kind to show.")] = 5,
    partial: Annotated[
        bool, typer.Option("--partial", help="Compare what is there, although the second topic is behind.")
    ] = False,
    nested: Annotated[
        bool,
        typer.Option(
            "--nested-windows",
            help="Windows of one key are nested by design, like hours and days: none replaces another.",
        ),
    ] = False,
    skip_damaged: SkipDamagedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare what two topics of results come to in the end.

    Of windows that is the last result of each key and window that was not retracted, in whatever panes it came, and of
    sessions that grew what they have become; of other results all of them. Windows that are not over in one of the
    topics are left out, and counted. Ends with exit code 1 if anything differs, if nothing could be compared, or if the
    second topic has yet to come to what is final in the first (unless --partial), so that a script may go on with
    tidewheel switch only if it is safe.

        tidewheel compare analytics.delays analytics.delays.v2
        tidewheel compare analytics.delays analytics.delays.v2 && tidewheel switch analytics.delays analytics.delays.v2
    """
    from tidewheel.transport.topics.materialize import compare as compare_tables
    from tidewheel.transport.topics.materialize import materialize

    with existing_log(log) as opened:
        on_damage = report_damage if skip_damaged else None
        one, two = (materialize(opened, topic, nested=nested, on_damage=on_damage) for topic in (first, second))
        found = compare_tables(one, two)
    if as_json:
        print_json(_as_json(found, examples))
    else:
        _show(found, first, second, examples)
    if not found.equal or (found.behind and not partial):
        raise typer.Exit(ExitCode.FAILED)


def _as_json(found: Comparison, examples: int) -> dict[str, Any]:
    kinds = {"only_first": found.only_first, "only_second": found.only_second, "changed": found.changed}
    return {
        "equal": found.equal,
        "same": found.same,
        "open": found.open,
        "behind": found.behind,
        "columns": list(found.columns),
        **{kind: frame.height for kind, frame in kinds.items()},
        "examples": {kind: [_plain(row) for row in _few(frame, examples)] for kind, frame in kinds.items()},
    }


def _few(frame: pl.DataFrame, count: int) -> list[dict[str, Any]]:
    return frame.head(count).to_dicts()


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, (int, float, str, type(None))) else str(value) for name, value in row.items()
    }


def _show(found: Comparison, first: str, second: str, examples: int) -> None:
    console = out()

    def line(text: str) -> None:
        console.print(text, markup=False)

    line(f"{found.same:,} the same")
    for what, frame in ((f"only in {first}", found.only_first), (f"only in {second}", found.only_second)):
        if frame.height:
            line(f"{frame.height:,} {what}:")
            for row in _few(frame, examples):
                line(f"  {_words(row)}")
    if found.changed.height:
        line(f"{found.changed.height:,} differ:")
        for row in _few(found.changed, examples):
            others = {name.removesuffix("_other"): value for name, value in row.items() if name.endswith("_other")}
            same = {
                name: row[name]
                for name in row
                if not name.endswith("_other") and others.get(name, row[name]) == row[name]
            }
            changes = ", ".join(f"{name} {row[name]} → {other}" for name, other in others.items() if row[name] != other)
            line(f"  {_words(same)}: {changes}")
    if found.columns:
        line(f"not compared, since only one of them has it: {', '.join(found.columns)}")
    if found.open:
        line(f"{found.open:,} left out: their windows are not over in both")
    if found.behind:
        line(
            f"{second} is behind: {found.behind:,} results of {first} are final that it may still come to; "
            "compare again later, or only what is there with --partial"
        )
    if found.open and not (found.same or found.only_first.height or found.only_second.height or found.changed.height):
        line("so nothing could be compared")


def _words(row: dict[str, Any]) -> str:
    return "  ".join(f"{name}={value}" for name, value in row.items() if value is not None)
