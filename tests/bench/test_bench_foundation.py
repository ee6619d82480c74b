"""The benchmark of the foundation measures what it says: a short run gives every figure, as a table and as JSON."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from bench.figures import show, write
from bench.foundation import measure

pytestmark = pytest.mark.long

EVENTS = 10_000


def test_a_short_run_gives_every_figure(spark, tmp_path):
    parts = list(measure(EVENTS, tmp_path, lambda _: None, seconds=1, batches=2, repeat=1, engine=spark))
    simulated, appended, room, read, small = ({figure.name: figure.value for figure in part} for part in parts)
    assert min(value for part in (simulated, appended, room, read) for value in part.values()) > 0

    assert list(simulated) == ["as columns", "as encoded records", "into the log", "as MQTT messages"]

    columns, single, ratio, _ = appended.values()
    assert ratio == pytest.approx(columns / single)

    assert 300 < room["as JSON"] < 700
    assert room["binary against JSON"] == pytest.approx(100 * room["as binary"] / room["as JSON"])
    assert room["the log's file, binary"] < room["as binary"], "blocks are compressed"

    assert read["log against Parquet"] == pytest.approx(100 * read["from the log"] / read["Spark from Parquet"])
    one_by_one = read["from the log, decoded one message at a time"]
    assert read["columns against one at a time"] == pytest.approx(read["from the log"] / one_by_one)

    for name in (
        "1,000 events",
        "no events (the clock alone)",
        "1,000 events, Spark from Parquet files to Parquet files",
    ):
        assert 0 < small[f"{name}, p50"] <= small[f"{name}, p99"]
    phases = sum(value for name, value in small.items() if name.startswith("of a batch of 1,000: "))
    assert 0 < phases < 2 * small["1,000 events, p99"]

    figures = [figure for part in parts for figure in part]
    write(figures, tmp_path / "bench" / "foundation.json")
    written = json.loads((tmp_path / "bench" / "foundation.json").read_text())["figures"]
    assert [(each["name"], each["value"], each["met"]) for each in written] == [
        (figure.name, figure.value, figure.met) for figure in figures
    ]
    table = io.StringIO()
    show(figures, Console(file=table, width=200))
    for figure in figures:
        assert figure.name in table.getvalue()
        assert (figure.met is None) == (figure.aim == "")
