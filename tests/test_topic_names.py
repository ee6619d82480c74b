"""Topic names have one home: what stands before the first dot is written in `topic_names.py` and nowhere else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tidewheel
import tidewheel_transit
from tests import ROOT
from tidewheel import topic_names
from tidewheel.engine.operators.operator import LATE, METRICS, RESULTS
from tidewheel.engine.runtime.stage_runner import late_output
from tidewheel.topic_names import kind_of, output_topic

CORE = Path(tidewheel.__file__).parent
OTHERS = (Path(tidewheel_transit.__file__).parent, ROOT / "bench")
KINDS = [
    topic_names.ANALYTICS,
    topic_names.DEAD,
    topic_names.INGESTED,
    topic_names.INPUT,
    topic_names.LATE,
    topic_names.LOOKUPS,
    topic_names.METRICS,
]
OWN = [topic_names.ALIASES_TOPIC, topic_names.HOLDS_TOPIC, topic_names.RUNS_TOPIC, topic_names.TYPES_TOPIC]
BARE = re.compile(rf"(?:{'|'.join([*KINDS, 'lookup'])})\.")
NAME = re.compile(rf"(?:{BARE.pattern}[A-Za-z0-9_.-]*|{'|'.join(OWN)})")


def texts(source: str) -> list[str]:
    """The string constants of a module, also those inside f-strings, but not what is said in docstrings."""
    tree = ast.parse(source)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    ]


def modules(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if not path.name.endswith("_pb2.py")]


@pytest.mark.parametrize(
    "path",
    [path for path in modules(CORE) if path != Path(topic_names.__file__)],
    ids=lambda path: str(path.relative_to(CORE)),
)
def test_the_core_writes_no_topic_name_of_its_own(path):
    written = [text for text in texts(path.read_text(encoding="utf-8")) if NAME.fullmatch(text)]
    stable = {"lookup.definition/1"}  # no topic: what a lookup is called in checkpoints
    assert [text for text in written if text not in stable] == []


@pytest.mark.parametrize("path", [path for folder in OTHERS for path in modules(folder)], ids=lambda path: path.name)
def test_others_name_whole_topics_but_put_none_together(path):
    assert [text for text in texts(path.read_text(encoding="utf-8")) if BARE.fullmatch(text)] == []


def test_what_is_written_is_found():
    found = texts('"""late."""\ntopic = f"late.{name}"\nwhere = name.startswith("input.")\n')
    assert [text for text in found if BARE.fullmatch(text)] == ["late.", "input."]
    assert [text for text in ("__types", "input.doctor", "lookup.", "later.x", "dead") if NAME.fullmatch(text)] == [
        "__types",
        "input.doctor",
        "lookup.",
    ]


def test_the_topics_of_outputs_are_of_their_kinds():
    assert output_topic(RESULTS, "delay") == topic_names.analytics("delay")
    assert output_topic(LATE, "delay") == topic_names.late("delay")
    assert output_topic(METRICS, "delay") == topic_names.metrics("delay")
    assert [kind_of(output_topic(late_output(depth), "delay")) for depth in range(3)] == [topic_names.LATE] * 3


def test_a_kind_is_what_stands_before_the_first_dot():
    named = [topic_names.dead("x"), topic_names.ingested("x.y"), topic_names.lookups("x"), topic_names.input_topic("x")]
    assert [kind_of(topic) for topic in named] == ["dead", "ingested", "lookups", "input"]
    assert [kind_of(topic) for topic in ("late", "later.x", "late_x.y", "late_2.x.y")] == [
        "",
        "later",
        "late_x",
        "late",
    ]
    assert kind_of(topic_names.dead(topic_names.lookup_group("x"))) == topic_names.DEAD
    assert [topic for topic in OWN if not topic_names.is_internal(topic)] == []
    assert not topic_names.is_internal("_x")
