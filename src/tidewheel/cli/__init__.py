"""The command line: one file for each command, `app` for all of them together."""

from tidewheel.cli.app import main

__all__ = ["main"]
