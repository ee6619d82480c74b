"""`make bench`: measure everything, print a table, write JSON."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import foundation, patterns, serve, transit, windows
from bench.figures import Figure, show, write
from bench.parts import Part
from tidewheel.errors import SetupError

__all__ = ["main"]

_SETS = ("foundation", "windows", "patterns", "transit", "serve")
_PARTS: Mapping[str, Mapping[str, Part[Any]]] = {
    "windows": windows.PARTS,
    "patterns": patterns.PARTS,
    "transit": transit.PARTS,
    "serve": serve.PARTS,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the evaluation."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("set", nargs="?", choices=_SETS, help="which figures; without it, all")
    parser.add_argument(
        "--events",
        type=int,
        help=f"how many events (foundation: {foundation.EVENTS:,}, windows: {windows.EVENTS:,}, "
        f"patterns: {patterns.EVENTS:,} by default)",
    )
    parser.add_argument(
        "--minutes", type=float, default=transit.MINUTES, help="how long the jobs of transit run (default: %(default)g)"
    )
    known = "; ".join(
        f"{name}: " + ", ".join(f"{letter} ({part.about})" for letter, part in parts.items())
        for name, parts in _PARTS.items()
    )
    parser.add_argument("--only", default="", help=f"only these parts of a set, like a,c. {known}")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="the folder of the JSON files")
    options = parser.parse_args(arguments)
    if options.events is not None and options.events < 10_000:
        parser.error(f"--events must be at least 10,000, got {options.events}")
    if options.minutes <= 0:
        parser.error(f"--minutes must be above 0, got {options.minutes:g}")
    only = [name.strip() for name in options.only.split(",") if name.strip()]
    if only and options.set not in _PARTS:
        parser.error(f"--only is for {', '.join(_PARTS)}: python -m bench windows --only a,c")
    strange = [name for name in only if name not in _PARTS[options.set]]
    if strange:
        parser.error(f"--only: there is no part {strange[0]!r}; there are {', '.join(_PARTS[options.set])}")
    console = Console()
    for name in [options.set] if options.set else _SETS:
        path = options.output / f"{name}.json"
        figures: list[Figure] = []
        with console.status(name) as status, tempfile.TemporaryDirectory() as temporary:
            folder, say = Path(temporary), status.update
            if name == "windows":
                parts = windows.measure(options.events or windows.EVENTS, folder, say, only=only)
            elif name == "patterns":
                parts = patterns.measure(options.events or patterns.EVENTS, folder, say, only=only)
            elif name == "transit":
                parts = transit.measure(options.minutes, folder, say, only=only)
            elif name == "serve":
                parts = serve.measure(folder, say, only=only)
            else:
                parts = foundation.measure(options.events or foundation.EVENTS, folder, say)
            try:
                for part in parts:
                    figures += part
                    write(figures, path)  # what was measured is not lost when a later part fails
            except SetupError as error:
                console.print(f"{name}: the rest is left out: {error}", style="yellow", markup=False)
        show(figures, console)
        console.print(f"\nwritten to {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
