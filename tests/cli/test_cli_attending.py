"""Attending to work: whatever becomes of the line that tells how it is doing, the work goes on."""

from __future__ import annotations

import json
import threading

import pytest

from tidewheel.cli.attending import Stop, attend
from tidewheel.cli.run import _Count
from tidewheel.errors import LogError
from tidewheel.transport.log import Retention, records
from tidewheel.transport.sqlite import SqliteLog


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

    assert attend(work, stop=Stop(), status=status, line=str, as_json=as_json) == "done"
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert told == ([{"asked": 1}, {"asked": 3}] if as_json else [])


def test_a_status_that_fails_is_told(capfd, monkeypatch):
    monkeypatch.setattr("tidewheel.cli.attending._PLAIN_REFRESH", 0.0)
    asked = threading.Event()

    def status():
        asked.set()
        raise LogError("records have left")

    attend(lambda: asked.wait(60), stop=Stop(), status=status, line=str)
    assert "how it is doing cannot be told: records have left" in capfd.readouterr().err


def test_results_that_leave_while_they_are_counted_do_no_harm(tmp_path):
    class Fleeting(SqliteLog):
        """Retention comes between a look at the topics and the next."""

        def topics(self):
            found = super().topics()
            self.maintain()
            return found

    with Fleeting(tmp_path / "city.tw") as log:
        count = _Count(log, ["analytics.x"])
        log.create_topic("analytics.x", retention=Retention(size=0))
        for n in range(5):
            log.append("analytics.x", records([b"%d" % n]))
        assert count() <= 5
        log.append("analytics.x", records([b"5"]))
        before = count()
        log.append("analytics.x", records([b"6"]))
        assert count() <= before + 1
