"""What checkpoints know steps by: stable names with versions, which no renaming of a class changes."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import tidewheel as tw
from tidewheel.engine.checkpoint.definition import described, differences
from tidewheel.engine.checkpoint.state_fingerprint import StateFingerprint
from tidewheel.engine.operators.operator import Operation
from tidewheel.engine.operators.passthrough import Passthrough
from tidewheel.engine.operators.patterns.match_recognize import MatchRecognize
from tidewheel.match_recognize.syntax import row_pattern
from tidewheel.model.aggregates.aggregate import Aggregate
from tidewheel.model.triggers.trigger import Trigger
from tidewheel.model.windows import Windows
from tidewheel_transit.transit_pb2 import VehiclePosition

SOURCE = Path(tw.__file__).parent


def kinds(base: type) -> list[type]:
    """The classes of ours that are made from this one and that somebody may hold."""
    found = [kind for made in base.__subclasses__() for kind in (made, *kinds(made))]
    return [kind for kind in found if kind.__module__.startswith("tidewheel.")]


def all_modules() -> None:
    """Import every module that may hold one."""
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[0] not in ("apps", "bench", "cli", "ingest", "serve", "testing") and "dataclass" in path.read_text(
            encoding="utf-8"
        ):
            importlib.import_module(".".join(("tidewheel", *parts)).removesuffix(".__init__"))


def test_every_kind_has_a_stable_name_of_its_own():
    all_modules()
    named = {
        kind: vars(kind).get("stable_name") for base in (Windows, Trigger, Aggregate, Operation) for kind in kinds(base)
    }
    # A dataclass made anew for its slots leaves the first one behind; and some are only there to be made from.
    held = {kind: name for kind, name in named.items() if name is not None}
    missing = [kind.__qualname__ for kind, name in named.items() if name is None and concrete(kind)]
    assert missing == []
    names = {(kind.__module__, kind.__qualname__): name for kind, name in held.items()}
    assert [name for name, count in Counter(names.values()).items() if count > 1] == []
    assert all(re.fullmatch(r"[a-z_]+(\.[a-z_]+)?/\d+", str(name)) for name in names.values())
    assert len(names) > 40


def concrete(kind: type) -> bool:
    public = not kind.__name__.startswith("_")
    return public and dataclasses.is_dataclass(kind) and not getattr(kind, "__abstractmethods__", None)


def classes_in(form: object) -> set[str]:
    """All that a definition says a thing is."""
    if isinstance(form, dict):
        own = {form["$is"]} if "$is" in form else set()
        return own.union(*map(classes_in, form.values()))
    return set().union(*map(classes_in, form)) if isinstance(form, list) else set()


def flows(log: tw.Log) -> dict[str, tw.Result]:
    moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition)
    keyed = moves.filter(pl.col("speed") > 3).key_by("vehicle")
    sometimes = tw.triggers.after_watermark(early=tw.triggers.every("5 s"), late=tw.triggers.each_batch())
    stop = tw.pattern("fast", pl.col("speed") > 10).next("standing", pl.col("speed") < 1).one_or_more().within("10 s")
    depot = tw.Lookup("depot", keys={"operator": pl.Int32, "vehicle": pl.Int32}, returns={"depot": pl.String})
    return {
        "rows": keyed.each_row(),
        "windows": keyed.window(tw.windows.session(gap="30 s"), lateness="5 s")
        .trigger(sometimes)
        .aggregate(n=tw.agg.count(), fastest=tw.agg.max("speed"), who=tw.agg.arg_max("vehicle", by="speed")),
        "previous": keyed.previous("speed", ttl="1 h"),
        "first": moves.deduplicate("vehicle", horizon="1 min"),
        "repeats": moves.deduplicate("event_time", "vehicle", horizon="1 min"),
        "pattern": keyed.match(stop, measures={"n": tw.measures.count("standing")}),
        "patterns": keyed.match_from(log.topic("control.patterns")),
        "lookup": moves.select("operator", "vehicle").lookup(depot),
    }


def test_definitions_name_no_class(log):
    for name, result in flows(log).items():
        found = classes_in(json.loads(json.dumps(result.flow().definition())))
        assert found, name
        assert [each for each in found if "/" not in each] == [], name


DIGESTS = {
    "rows": "353d95a716dc14ec",
    "windows": "5f2e46b9260aa299",
    "previous": "f3738bd28fc05059",
    "first": "b51959b6db4136f1",
    "repeats": "b505f639c2eebdd1",
    "pattern": "5bab4c8f2301cc41",
    "patterns": "3596bc60a57aec05",
    "lookup": "530a4bef80141f5a",
}


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_a_job_is_what_it_was(log, name):
    """Checkpoints hold these digests. One that changes refuses all of them: give its kind another version then."""
    steps = flows(log)[name].flow().definition()
    assert StateFingerprint.of(2, {name: json.loads(json.dumps(steps))}).steps == DIGESTS[name]


def test_a_class_that_is_renamed_is_the_same_step():
    @dataclasses.dataclass(frozen=True)
    class Renamed(Passthrough):
        stable_name = Passthrough.stable_name

    assert described(Renamed()) == described(Passthrough())

    @dataclasses.dataclass(frozen=True)
    class Own:
        x: int = dataclasses.field()

    assert described(Own(3)) == {"$is": "Own", "x": 3}
    assert differences({"what": described(Passthrough())}, {"what": {"$is": "window/1"}}) == ["each_row() → window()"]


def test_the_rows_of_a_clause_have_names_too():
    nodes = ast.parse(inspect.getsource(row_pattern)).body
    held = [node for node in nodes if isinstance(node, ast.ClassDef) and node.decorator_list]
    assert held
    assert all("stable_name" in ast.unparse(node) for node in held)
    assert MatchRecognize.stable_name == "match_recognize/1"


def test_options_of_a_process_function_are_stored_by_the_names_they_had(log):
    def passed(events, state, clock):
        return events.with_columns(output=None), state

    def steps(*outputs):
        columns = {"event_time": pl.Datetime("us", "UTC"), "vehicle": pl.Int32, "output": pl.String}
        moves = tw.stream(log, "input.vehicle-position", type=VehiclePosition).key_by("vehicle")
        result = moves.process(passed, schema=columns, outputs=outputs)
        return json.loads(json.dumps(result.flow().definition()))

    assert '"streams": ["alerts"]' in json.dumps(steps("alerts"))
    assert '"output": {"event_time": ' in json.dumps(steps("alerts"))
    assert differences(steps("alerts"), steps("notes")) == ["outputs: alerts → notes"]
