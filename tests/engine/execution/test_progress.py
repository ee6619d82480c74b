"""Progress for people: times and durations, a table in a notebook, and one that moves."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import tidewheel as tw
from tidewheel.engine.execution.progress import Progress
from tidewheel.engine.execution.watch import watch
from tidewheel.errors import DefinitionError, JobError
from tidewheel.model.time import instant
from tidewheel.model.watermark_hold import Holder
from tidewheel.transport.events.codec import encode, pack
from tidewheel.transport.log.log_types import records
from tidewheel_transit.transit_pb2 import VehiclePosition

NOON = instant("2026-01-01T12:00:00Z")


def test_times_are_shown_as_times():
    progress = Progress(
        batches=3, events=1_200, rate=400.4, batch_ms=1_234.5, lag=7, watermark=NOON, clock=NOON + 32_198_400_000_000
    )
    assert repr(progress) == (
        "Progress(batches=3, events=1,200, rate=400/s, batch=1.2 s, lag=7, watermark=2026-01-01T12:00:00Z, "
        "behind=372 d)"
    )
    assert progress.behind == 32_198_400_000_000
    assert str(NOON) not in progress._repr_html_()
    assert "2026-01-01T12:00:00Z (372 d behind the clock)" in progress._repr_html_()


def test_nothing_is_made_up_before_there_is_a_watermark():
    assert repr(Progress()) == "Progress(batches=0, events=0, rate=0/s, batch=0 s, lag=0, watermark=none yet)"
    assert Progress(watermark=NOON).behind is None
    assert "none yet" in Progress()._repr_html_()


def test_what_is_unusual_is_reported():
    held = (Holder("input.<b>", 2, since=0, mark=None, fed=0),)
    progress = Progress(state=5 << 20, damaged=3, held_by=held)
    assert repr(progress).endswith("state=5.0 MiB, damaged=3, held_by=input.<b>/2)")
    assert "held by input.&lt;b&gt;/2 for" in progress._repr_html_()
    assert "<td>3 records left out</td>" in progress._repr_html_()


class Ending:
    """Ends after a given number of looks."""

    def __init__(self, looks, end=None):
        self.looks, self.end = looks, end

    def wait(self, timeout=None):
        assert timeout == 0.5
        self.looks -= 1
        if self.looks >= 0:
            return False
        if self.end is not None:
            raise self.end
        return True

    def __repr__(self):
        return f"{max(self.looks, 0) // 2} left"


def test_a_line_is_printed_whenever_something_changed(capsys):
    watch(Ending(4), 500_000)
    assert capsys.readouterr().out.splitlines() == ["1 left", "0 left"]


def test_what_it_failed_with_is_raised_after_its_last_state_was_shown(capsys):
    with pytest.raises(JobError, match="broke"):
        watch(Ending(0, JobError("it broke")), 500_000)
    assert capsys.readouterr().out == "0 left\n"


def test_an_interrupt_ends_the_watching(capsys):
    watch(Ending(0, KeyboardInterrupt()), 500_000)
    assert capsys.readouterr().out == "0 left\n"
    with pytest.raises(DefinitionError, match="every must be more than nothing"):
        watch(Ending(0), 0)


def test_a_notebook_updates_one_display(monkeypatch, capsys):
    shown = []
    handle = SimpleNamespace(update=lambda what: shown.append(("updated", repr(what))))

    def display(what, *, display_id):
        assert display_id is True
        shown.append(("displayed", repr(what)))
        return handle

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    watch(Ending(1), 500_000)
    assert shown == [("displayed", "0 left"), ("updated", "0 left"), ("updated", "0 left")]
    assert capsys.readouterr().out == ""


def test_a_run_shows_how_far_it_has_come(spark, log, tmp_path, capsys):
    event = encode(pack(VehiclePosition(vehicle=7), event_time=NOON, ingestion_time=NOON))
    log.append("input.vehicle-position", records([event] * 3, event_times=[NOON] * 3))
    rows = tw.stream(log, "input.vehicle-position").select("vehicle").each_row().named("rows")
    topic = log.topic("analytics.rows")
    run = rows.start(results=topic, checkpoint=tmp_path / "state", available_now=True, spark=spark)
    assert "<Run of rows: " in repr(run)
    run.watch(every="100 ms")
    assert capsys.readouterr().out.splitlines()[-1] == repr(run)
    assert repr(run) == "<Run of rows: ended, 1 batch, 3 events, lag 0, watermark 2026-01-01T11:59:59Z>"
    html = run._repr_html_()
    assert "<b>Run</b> of rows" in html
    assert "2026-01-01T11:59:59Z" in html
    assert "<td>ended</td>" in html
