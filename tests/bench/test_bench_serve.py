"""The benchmark of the live view measures what it says, in a short run with a few clients."""

from __future__ import annotations

from functools import partial

import pytest

from bench.__main__ import main
from bench.figures import best_rate
from bench.serve import PARTS, measure

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_a_short_run_gives_every_figure(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.serve._WARM_UP", 0.5)
    monkeypatch.setattr("bench.serve.best_rate", partial(best_rate, repeat=1))
    parts = measure(tmp_path, lambda _: None, only=["a", "b", "c"], seconds=2.0, clients=5)
    alike, apart, reading = parts
    for figures in (alike[:7], alike[7:], apart):
        found = {figure.name: figure.value for figure in figures}
        assert 0 < found["append to message, p50"] <= found["append to message, p99"]
        assert 0 < found["frames a client"] < 15
        assert found["bytes a client"] > 10
        assert found["processor of the server"] > 0
    assert "1 client " in alike[0].group
    assert "5 clients" in alike[7].group
    rate, share, size = reading
    assert rate.value * share.value == pytest.approx(1_000_000)
    assert 1 < size.value < 200


def test_a_part_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["serve", "--only", "z"])
    assert f"there are {', '.join(PARTS)}" in capsys.readouterr().err


def test_without_a_browser_it_says_what_is_missing_and_keeps_the_rest(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["serve", "--only", "d", "--output", str(tmp_path)]) == 0
    assert "need Chromium in the path" in " ".join(capsys.readouterr().out.split())
