"""Attending to work: whatever becomes of the line that tells how it is doing, the work goes on."""

from __future__ import annotations

import io
import json
import re
import threading

import pytest
from rich.console import Console

from tests.support.command import eventually
from tidewheel.cli.progress import Stop, run_with_progress
from tidewheel.cli.progress_count import ResultCount
from tidewheel.errors import LogError
from tidewheel.transport.log.log_types import Retention, records
from tidewheel.transport.sqlite.log import SqliteLog


@pytest.mark.parametrize("as_json", [False, True])
def test_a_status_that_fails_does_not_end_the_work(as_json, capfd):
    asked, enough = [], threading.Event()

    def status():
        asked.append(1)
        if len(asked) == 3:
            enough.set()
        if len(asked) == 2:
            raise LogError("records have left")
        return {"asked": len(asked)}

    def work():
        assert enough.wait(60)
        return "done"

    assert run_with_progress(work, stop=Stop(), status=status, line=str, as_json=as_json) == "done"
    reported = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert reported == ([{"asked": 1}, {"asked": 3}] if as_json else [])


def test_a_status_that_fails_is_reported(capfd, monkeypatch):
    monkeypatch.setattr("tidewheel.cli.progress._PLAIN_REFRESH", 0.0)
    asked = threading.Event()

    def status():
        asked.set()
        raise LogError("records have left")

    run_with_progress(lambda: asked.wait(60), stop=Stop(), status=status, line=str)
    assert "how it is doing is not known: records have left" in capfd.readouterr().err


def test_elsewhere_a_line_is_printed_when_it_says_something_else(capfd, monkeypatch):
    monkeypatch.setattr("tidewheel.cli.progress._PLAIN_REFRESH", 0.0)
    monkeypatch.setattr("tidewheel.cli.progress._REFRESH", 0.01)
    asked: list[int] = []
    enough = threading.Event()

    def status():
        asked.append(1)
        if len(asked) == 20:
            enough.set()
        return {"state": "starting" if len(asked) < 10 else "running"}

    run_with_progress(lambda: enough.wait(60), stop=Stop(), status=status, line=lambda now: f"it is {now['state']}")
    assert capfd.readouterr().err.splitlines() == ["it is starting", "it is running"]


def test_on_a_terminal_one_line_is_kept_up_to_date(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, soft_wrap=True, width=40)
    monkeypatch.setattr("tidewheel.cli.progress.out", lambda *, stderr: console)
    monkeypatch.setattr("tidewheel.cli.progress._REFRESH", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    stop, reported = Stop(), {"done": 1}

    def seen(text: str) -> None:
        eventually(lambda: text in screen.getvalue(), f"the line says {text}", timeout=60)

    def work():
        seen("1 done")
        reported["done"] = 2
        seen("2 done")
        stop.set()
        seen("stopping ... 2 done")
        return "done"

    def line(now):
        return f"{now['done']} done " + "and so on " * 10

    assert run_with_progress(work, stop=stop, status=lambda: reported, line=line) == "done"
    drawn = screen.getvalue()
    assert drawn.count("\n") == 1, "another line only in the end"
    assert drawn.endswith("\r\x1b[1A\x1b[2K"), "and then it is wiped away"
    shown = [re.sub(r"\x1b\[[0-?]*[@-~]|[\r\n]", "", frame) for frame in drawn.split("\r\x1b[2K")]
    assert {len(each) for each in shown if each} == {40}, "cut at the edge"
    words = [re.search(r"(stopping \.\.\. )?\d done", each)[0] for each in shown if each]
    assert list(dict.fromkeys(words)) == ["1 done", "2 done", "stopping ... 2 done"]


def test_results_that_leave_while_they_are_counted_do_no_harm(tmp_path):
    class Fleeting(SqliteLog):
        """Retention comes between a look at the topics and the next."""

        def topics(self):
            found = super().topics()
            self.maintain()
            return found

    with Fleeting(tmp_path / "city.tw") as log:
        count = ResultCount(log, ["analytics.x"])
        log.create_topic("analytics.x", retention=Retention(size=0))
        for n in range(5):
            log.append("analytics.x", records([b"%d" % n]))
        assert count() <= 5
        log.append("analytics.x", records([b"5"]))
        before = count()
        log.append("analytics.x", records([b"6"]))
        assert count() <= before + 1
