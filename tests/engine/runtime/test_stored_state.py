"""Jobs go on from the state that an earlier version left: what each kind of step keeps is in `stored_state.json`.

To add what a new kind or a new version keeps: `python -m tests.engine.runtime.test_stored_state`. What is there never
changes.
"""

from __future__ import annotations

import base64
import json
import tempfile
import zlib
from pathlib import Path

import pytest

import tidewheel as tw
from tests.engine.checkpoint.test_stable_names import classes_in, kinds
from tests.engine.runtime.stored_state_cases import AFTER, BEFORE, CASES, TOPIC, JobRun
from tidewheel.engine.operators.operator import Operation
from tidewheel.engine.runtime.arrow_ipc import from_bytes
from tidewheel.errors import FlowError
from tidewheel.model.aggregates.aggregate import Aggregate

STORED = Path(__file__).with_name("stored_state.json")
MADE_OF = ("agg.totals/1", "agg.kept_rows/1", "agg.unmerged/1")


def job(name: str, log: tw.Log) -> tw.Result:
    row = {"event_time": "1970-01-01T00:00:01Z", "key": "a", "v": 1, "x": 0.5}
    if all(info.name != TOPIC for info in log.topics()):
        log.append_rows(TOPIC, [row], time="event_time")
    return CASES[name](tw.stream(log, TOPIC).select("key", "v", "x"), log)


def left_by(name: str, log: tw.Log) -> list[dict[str, bytes]]:
    run = JobRun(job(name, log))
    run.run(BEFORE, None)
    return run.state


def stored() -> dict[str, list[dict[str, bytes]]]:
    texts = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    return {name: [_read(stage) for stage in stages] for name, stages in texts.items()}


def _read(stage: dict[str, str]) -> dict[str, bytes]:
    return {name: zlib.decompress(base64.b64decode(text)) for name, text in stage.items()}


def layout(state: list[dict[str, bytes]]) -> list[dict[str, object]]:
    """The names and the columns of what is kept."""
    return [{name: from_bytes(data).schema for name, data in stage.items() if name} for stage in state]


def kept(log: tw.Log) -> set[str]:
    return set().union(*(classes_in(json.loads(json.dumps(job(name, log).flow().definition()))) for name in CASES))


def test_there_is_a_case_for_every_kind_that_keeps_state(log):
    operations = {kind.stable_name for kind in kinds(Operation) if kind.keeps_state and "stable_name" in vars(kind)}
    aggregates = {kind.stable_name for kind in kinds(Aggregate) if "stable_name" in vars(kind)}
    assert len(operations) > 6
    assert len(aggregates) > 20
    assert (operations | aggregates) - kept(log) == set()
    assert set(stored()) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_job_goes_on_from_the_state_of_an_earlier_version(log, name):
    result = job(name, log)
    run = JobRun(result)
    run.run(BEFORE, None)
    expected = run.run(AFTER, BEFORE.watermarks[-1])
    assert len([output for output, _ in expected if output != "metrics"]) > 1
    assert JobRun(result, stored()[name]).run(AFTER, BEFORE.watermarks[-1]) == expected


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_has_the_names_and_columns_that_it_had(log, name):
    """Whoever changes them raises the version of what is kept: `stable_name`, or the number in the frame's name."""
    assert layout(left_by(name, log)) == layout(stored()[name])
    assert all(len(stage) > 1 for stage in stored()[name])


@pytest.mark.parametrize("name", ["sliced windows", "sessions", "count windows", "lookup"])
def test_state_of_another_version_is_refused(log, name):
    [state] = stored()[name]
    later = {each.replace("/1", "/9") if "job/0/" in each else each: data for each, data in state.items()}
    later[""] = later[""].replace(b"/1", b"/9")
    with pytest.raises(FlowError, match=r"CheckpointError: the state of this .* holds '\w+/9.* does not know"):
        JobRun(job(name, log), [later]).run(AFTER, BEFORE.watermarks[-1])


if __name__ == "__main__":
    texts = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    with tempfile.TemporaryDirectory() as folder, tw.open_log(Path(folder, "x.tw")) as there:
        for case in CASES:
            if case not in texts:
                texts[case] = [
                    {name: base64.b64encode(zlib.compress(data, 9)).decode() for name, data in stage.items()}
                    for stage in left_by(case, there)
                ]
    STORED.write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")
