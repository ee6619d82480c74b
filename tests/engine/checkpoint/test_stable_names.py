"""What checkpoints know steps by: stable names with versions, which no renaming of a class changes."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import json
import re
import warnings
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

import tidewheel
import tidewheel as tw
import tidewheel_transit
import tidewheel_transit.jobs
from tidewheel.engine.checkpoint import definition
from tidewheel.engine.checkpoint.definition import described, differences
from tidewheel.engine.checkpoint.state_fingerprint import StateFingerprint
from tidewheel.engine.operators.operator import Operation
from tidewheel.engine.operators.passthrough import Passthrough
from tidewheel.engine.operators.patterns.match_recognize import MatchRecognize
from tidewheel.errors import DefinitionError
from tidewheel.match_recognize.syntax import row_pattern
from tidewheel.model.aggregates.aggregate import Aggregate
from tidewheel.model.process.exact_duplicates import ExactDuplicates
from tidewheel.model.process.process import Process
from tidewheel.model.stored_fields import StoredFields
from tidewheel.model.triggers.trigger import Trigger
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Windows
from tidewheel_transit.transit_pb2 import VehiclePosition

PACKAGES = (tidewheel, tidewheel_transit)
ROOMS = ("model", "patterns", "match_recognize", "engine", "jobs")
"""Where steps are: in the layers up to the engine, and in the application's jobs."""


def kinds(base: type) -> list[type]:
    """The classes of ours that are made from this one."""
    found = [kind for made in base.__subclasses__() for kind in (made, *kinds(made))]
    return [kind for kind in found if kind.__module__.partition(".")[0] in ("tidewheel", "tidewheel_transit")]


def dataclasses_of_steps() -> list[type]:
    """The dataclasses in all modules that may have steps."""
    found = []
    for package in PACKAGES:
        source = Path(package.__file__).parent
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            if parts[0] in ROOMS and "dataclass" in path.read_text(encoding="utf-8"):
                module = importlib.import_module(".".join((package.__name__, *parts)).removesuffix(".__init__"))
                found += [kind for kind in vars(module).values() if held(kind, module.__name__)]
    return found


def held(kind: object, module: str) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module


def called_with(kind: type) -> list[str]:
    """The parameters of its instances, if they can be called."""
    return list(inspect.signature(vars(kind)["__call__"]).parameters) if "__call__" in vars(kind) else []


def stable_name(kind: type) -> str | None:
    return vars(kind).get("stable_name")


def test_every_kind_has_a_stable_name_of_its_own():
    steps = dataclasses_of_steps()
    # A dataclass made anew for its slots leaves the first one behind; and some are only there to be made from.
    made = [kind for base in (Windows, Trigger, Aggregate, Operation) for kind in kinds(base) if kind in steps]
    process_functions = [kind for kind in steps if called_with(kind) == ["self", "events", "state", "clock"]]
    assert len(made) > 40
    assert {kind.__module__.partition(".")[0] for kind in process_functions} == {"tidewheel", "tidewheel_transit"}
    needed = [kind for kind in (*made, *process_functions) if not (inspect.isabstract(kind) or kind.__subclasses__())]
    assert [kind.__qualname__ for kind in needed if stable_name(kind) is None] == []
    names = [name for kind in steps if (name := stable_name(kind)) is not None]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert [name for name in names if not re.fullmatch(r"[a-z_]+(\.[a-z_]+)?/\d+", name)] == []


def test_every_kind_declares_which_of_its_fields_are_stored():
    """Checkpoints hold these names. A renamed field keeps its own: StoredFields(..., renamed={"stored": "now"})."""
    found = {}
    under_their_operations = {Process: "process/1", Windowing: "window/1", ExactDuplicates: "deduplicate.exact/1"}
    for kind in dataclasses_of_steps():
        name = under_their_operations.get(kind, stable_name(kind))
        if issubclass(kind, Operation) and name in under_their_operations.values():
            continue
        fields = [field.name for field in dataclasses.fields(kind) if field.repr]
        if name is None or not kind.__module__.startswith("tidewheel.") or not fields:
            continue
        stored = kind.stored
        assert sorted(stored.attributes.values()) == sorted(fields), kind.__qualname__
        assert stored.micros <= stored.attributes.keys(), kind.__qualname__
        found[name] = " ".join(f"{each}:us" if each in stored.micros else each for each in stored.attributes)
    assert found == STORED


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


def test_definitions_of_the_applications_jobs_name_no_class(log):
    assert len(tidewheel_transit.jobs.__all__) > 10
    for name in tidewheel_transit.jobs.__all__:
        job = getattr(tidewheel_transit.jobs, name)
        found = classes_in(json.loads(json.dumps(job.on(log).flow().definition())))
        assert found, name
        assert [each for each in found if "/" not in each] == [], name


@dataclasses.dataclass(frozen=True)
class Crossings:
    """A process function of a user."""

    names: tuple[str, ...]
    since: datetime
    hidden: int = dataclasses.field(default=0, repr=False)

    def __call__(self, events, state, clock):
        return events, state


class Renamed(Crossings):
    stable_name = "crossings/1"


class Versioned(Crossings):
    @property
    def stable_name(self) -> str:
        return f"crossings/{len(self.names)}"


class Color(enum.Enum):
    RED = "#f00"


class Plain:
    def __call__(self, events, state, clock):
        return events, state


SINCE = datetime(2026, 5, 1, 12)
FIELDS = {"names": ["a"], "since": "2026-05-01 12:00:00"}


def test_a_users_object_is_known_by_its_stable_name():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert described(Renamed(("a",), SINCE, 3)) == {"$is": "crossings/1", **FIELDS}
        assert described(Versioned(("a",), SINCE)) == {"$is": "crossings/1", **FIELDS}
        plain = Plain()
        plain.stable_name = "plain/1"
        assert described(plain) == {"$function": "plain/1"}
        assert described(len) == {"$function": "len"}
        assert described([b"\xff", Decimal("1.50")]) == ["ff", "1.50"]


def test_without_one_by_its_class_of_which_it_is_warned_once():
    definition._warn_of_name.cache_clear()
    with pytest.warns(UserWarning, match=r'know Crossings by the name of its class: .* stable_name = "crossings/1"'):
        assert described(Crossings(("a",), SINCE)) == {"$is": "Crossings", **FIELDS}
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        described(Crossings(("b",), SINCE))
        assert described([Plain(), Color.RED]) == [{"$function": "Plain"}, {"$is": "Color", "name": "RED"}]
    assert [str(each.message).split()[2] for each in reported] == ["Plain", "Color"]


def test_what_is_made_from_a_kind_of_ours_is_not_that_kind():
    class Other(Passthrough):
        pass

    with pytest.warns(UserWarning, match="Other by the name of its class"):
        assert described(Other())["$is"].endswith("Other")


def test_a_class_of_ours_that_declares_nothing_is_a_bug():
    @dataclasses.dataclass(frozen=True)
    class Nameless:
        x: int = 3

    Nameless.__module__ = "tidewheel.model.nameless"
    with pytest.raises(DefinitionError, match="Nameless has no stable_name"):
        described(Nameless())
    Nameless.stable_name = "nameless/1"
    with pytest.raises(DefinitionError, match="Nameless does not declare which of its fields are stored"):
        described(Nameless())
    Nameless.stored = StoredFields("size", micros=("size",), renamed={"size": "x"})
    assert described(Nameless(4)) == {"$is": "nameless/1", "size": {"$us": 4}}
    assert described(Nameless()) == {"$is": "nameless/1"}


STORED = {
    "agg.approx_count_distinct/1": "column lg_k",
    "agg.approx_percentile/1": "column percent compression",
    "agg.arg_max/1": "column by",
    "agg.arg_min/1": "column by",
    "agg.collect/1": "column",
    "agg.count/1": "column",
    "agg.count_distinct/1": "column",
    "agg.custom/1": "parts merging finishing name",
    "agg.first/1": "column by",
    "agg.retractable_rows/1": "aggregate",
    "agg.last/1": "column by",
    "agg.max/1": "column",
    "agg.mean/1": "column",
    "agg.min/1": "column",
    "agg.most_frequent/1": "column k size",
    "agg.percentile/1": "column percent",
    "agg.stddev/1": "column ddof",
    "agg.sum/1": "column",
    "agg.top_k/1": "column k by",
    "agg.totals/1": "aggregate",
    "agg.unmerged/1": "aggregate",
    "agg.variance/1": "column ddof",
    "deduplicate.exact/1": "columns horizon:us",
    "deduplicate/1": "columns horizon:us time",
    "lookup.definition/1": "name keys returns",
    "lookup/1": "lookup timeout:us keep:us",
    "match/1": "matcher",
    "match_from/1": "topic keys limit",
    "match_recognize.alternatives/1": "parts",
    "match_recognize.clause/1": "partition_by order_by measures rows skip pattern within:us subsets define "
    "variables initial",
    "match_recognize.column_name/1": "name",
    "match_recognize.excluded/1": "part",
    "match_recognize.measure/1": "name value",
    "match_recognize.order_by/1": "column descending nulls_last",
    "match_recognize.permute/1": "parts",
    "match_recognize.repeat/1": "part low high greedy",
    "match_recognize.scalar/1": "text",
    "match_recognize.sequence/1": "parts",
    "match_recognize.skip/1": "to variable",
    "match_recognize.variable/1": "name",
    "match_recognize/1": "clause select",
    "matcher/1": "pattern keys measures limit",
    "pattern.condition/1": "expression",
    "pattern.group/1": "kind sequences contiguity quantifier",
    "pattern.policy/1": "after_match stage missing select reuse",
    "pattern.quantifier/1": "least most inner greedy optional until within:us",
    "pattern.stage/1": "name condition contiguity quantifier forbids within:us differs_in",
    "pattern/1": "parts window:us gap:us policy",
    "previous.corrected/1": "columns keys prefix time ttl:us lateness:us",
    "previous/1": "columns keys prefix",
    "process/1": "function keys state ttl:us output streams time lateness:us",
    "row_op/1": "kind exprs reason",
    "timer/1": "after:us",
    "triggers.after_count/1": "count",
    "triggers.after_processing_time/1": "delay:us period:us offset:us unchanged",
    "triggers.after_watermark/1": "early late",
    "triggers.all_of/1": "triggers",
    "triggers.any_of/1": "triggers",
    "triggers.completeness/1": "percent expected",
    "triggers.in_order/1": "triggers",
    "triggers.or_finally/1": "main last",
    "triggers.repeatedly/1": "trigger",
    "window/1": "windows aggregates trigger mode lateness:us early_windows timestamp allow_loss weighted",
    "windows.calendar/1": "unit zone",
    "windows.count/1": "size every",
    "windows.custom/1": "assigner merger stamper name",
    "windows.session/1": "gap:us",
    "windows.sliding/1": "size:us every:us offset:us stagger",
}
"""The stored names of each kind's fields; `us`: a span of time in microseconds."""


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

    assert differences({"what": described(Passthrough())}, {"what": {"$is": "window/1"}}) == ["each_row() → window()"]


def test_another_version_of_what_a_step_keeps_is_reported_as_such():
    stages = [{"keys": ["a"], "what": {"$is": f"window/{version}", "size": version}} for version in (1, 2)]
    newer = "window: version 1 → version 2"
    assert differences(*({"stages": [stage]} for stage in stages)) == [newer]
    assert differences(*({"stages": [{"what": {"$is": "dedup/1"}}, stage]} for stage in stages)) == [f"stage 2 {newer}"]
    crossings = [{"function": {"$is": f"crossings/{version}"}} for version in (1, 2)]
    assert differences(*crossings) == ["function crossings: version 1 → version 2"]


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
