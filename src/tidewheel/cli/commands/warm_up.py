"""`tidewheel warm-up`: Spark starts in half the time from now on."""

from __future__ import annotations

import time

from tidewheel.cli.options import out, say

__all__ = ["warm_up"]


def warm_up() -> None:
    """Let Spark start faster on this machine from now on.

    Most of the time that Spark takes to start is spent on loading its classes. This loads them once and keeps them in
    a file in your cache folder (about 180 MB), which Java maps when it starts. Do it again after Spark or Java was
    replaced: until then it starts as if there were no such file.

        tidewheel warm-up
    """
    from tidewheel.engine.spark.cds_archive import make_archive

    began = time.monotonic()
    with out().status("loading Spark's classes ..."):
        archive = make_archive()
    say(f"made {archive} ({archive.stat().st_size / 1e6:.0f} MB) in {time.monotonic() - began:.0f} s")
