"""Run the Python of Markdown pages, one page after another, in this folder: `python run_pages.py PAGE ...`.

Starting Spark takes longer than all the code of a page, so the pages share one. Each begins with a folder that holds
nothing but a log of simulated traffic and a folder of orders. Prints a line of JSON for each page: what went wrong, and
what it printed.
"""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import sys
import traceback
from contextlib import redirect_stdout
from datetime import datetime, timedelta, timezone
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

from tidewheel.transport.log.log import Log
from tidewheel.transport.open_log import open_log
from tidewheel_transit.simulator import Simulator

LOG = "city.tw"


def code_blocks(text: str) -> list[str]:
    """The blocks of Python in the text of a page."""
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def code_of(page: Path) -> str:
    """All blocks of Python in it."""
    return "\n".join(code_blocks(page.read_text(encoding="utf-8")))


def _fresh_folder() -> Log:
    if not any(part.startswith(("pytest", "pages")) for part in Path.cwd().parts):
        raise SystemExit("run it in an empty folder of its own, called pages...: all that is in it is removed")
    for path in Path.cwd().iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    log = open_log(LOG)
    simulated = Simulator(start=1_760_000_000_000_000).advance(1_760_000_020_000_000).records()
    for topic, batch in simulated.topics.items():
        log.append(topic, batch)
    write_orders(Path("orders"))
    return log


def write_orders(folder: Path) -> None:
    """A day of orders in Parquet files, out of order by up to some hours."""
    chance = random.Random(20)
    day = datetime(2026, 3, 1, tzinfo=timezone.utc)
    seconds = sorted((chance.uniform(0, 86_400) for _ in range(600)), key=lambda at: at + chance.expovariate(1 / 1_800))
    orders = pl.DataFrame(
        {
            "user": [f"user-{chance.randrange(12)}" for _ in seconds],
            "country": [chance.choice(["fi", "se", "ee"]) for _ in seconds],
            "amount": [chance.randrange(1, 500) / 4 for _ in seconds],
            "ts": [day + timedelta(seconds=at) for at in seconds],
        }
    )
    folder.mkdir()
    for number, part in enumerate(orders.iter_slices(200)):
        part.write_parquet(folder / f"{number}.parquet")


def _run(code: str) -> tuple[str, str]:
    """What went wrong, and what was printed."""
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            # Spark sends functions of the main module to its workers by value, as it does when the code is a script.
            exec(compile(code, "page", "exec"), {"__name__": "__main__"})
    except BaseException:
        return traceback.format_exc(), printed.getvalue()
    finally:
        spark = SparkSession.getActiveSession()
        for query in spark.streams.active if spark is not None else ():
            query.stop()
    return "", printed.getvalue()


def main(pages: list[str]) -> None:
    """All the pages."""
    for page in pages:
        with _fresh_folder() as log:
            error, printed = _run(code_of(Path(page)))
            counts = {topic.name: topic.count for topic in log.topics()}
        print(json.dumps({"page": page, "error": error, "printed": printed, "counts": counts}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
