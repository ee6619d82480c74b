"""`make bench`: measure everything, print a table, write JSON."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tidewheel.bench import log, spark
from tidewheel.bench.events import positions
from tidewheel.bench.figures import Figure, show, write
from tidewheel.engine.session import session

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the evaluation."""
    parser = argparse.ArgumentParser(prog="python -m tidewheel.bench", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="how many events to read and append")
    parser.add_argument("--output", type=Path, default=Path("build/bench/foundation.json"))
    options = parser.parse_args(arguments)
    if options.events < 10_000:
        parser.error(f"--events must be at least 10,000, got {options.events}")
    console = Console()
    figures: list[Figure] = []
    with console.status("simulating events") as status, tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        frame = positions(options.events)
        status.update("appending to the log")
        figures += log.appends(frame.head(options.events // 5), folder)
        figures += log.room(frame, folder)
        status.update("reading with Spark")
        engine = session()
        figures += spark.reading(frame, folder, engine)
        status.update("timing small batches")
        figures += spark.batch_times(frame.head(50_000), folder, engine)
        engine.stop()
    show(figures, console)
    write(figures, options.output)
    console.print(f"\nwritten to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
