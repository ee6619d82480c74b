"""A kind of stage is known to its own file only: nothing else asks which one it is, and a new one is one class."""

from __future__ import annotations

import ast
import inspect
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from pyspark import cloudpickle

import tidewheel as tw
from tidewheel.engine.operators.operator import (
    RESULTS,
    BatchTime,
    Operation,
    Outputs,
    Reference,
    ReferenceRows,
    Schema,
    StageInput,
    StageOperator,
    Store,
)
from tidewheel.engine.runtime.exchange import Partitioner, Rows
from tidewheel.engine.runtime.row_op import RowOp
from tidewheel.engine.runtime.stage_runner import StatefulStage
from tidewheel.engine.runtime.state_store import KeyGroupState, MemoryEntries
from tidewheel.engine.streams.stages import append_stage
from tidewheel.engine.streams.windowed_stream import WindowedStream
from tidewheel.errors import DefinitionError
from tidewheel.model.panes import rejection
from tidewheel.model.process.exact_duplicates import ExactDuplicates
from tidewheel.model.process.process import Process
from tidewheel.model.windowing import Windowing
from tidewheel.model.windows import Count
from tidewheel.testing import Script, row

# Spark's workers cannot import a file of tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SOURCE = Path(tw.__file__).parent


def made_from(base: type) -> set[type]:
    found = {kind for made in base.__subclasses__() for kind in (made, *made_from(made))}
    return {kind for kind in found if kind.__module__.startswith("tidewheel.")}


def questions(path: Path, kinds: set[str]) -> list[str]:
    """Where a file asks which kind of stage it has."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked: ast.AST = node.args[1]
        elif isinstance(node, ast.MatchClass):
            asked = node.cls
        elif isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            asked = node
        else:
            continue
        names = {name.id for name in ast.walk(asked) if isinstance(name, ast.Name)}
        found += [f"{path.name}:{node.lineno} {name}" for name in sorted(names & kinds)]
    return found


def test_nobody_but_a_kind_s_own_file_asks_which_kind_a_stage_is():
    kinds = {Windowing, Process, ExactDuplicates, Count} | made_from(Operation) | made_from(StageOperator)
    assert len(kinds) > 15
    own = {Path(inspect.getfile(kind)) for kind in kinds | {WindowedStream}}
    # The model knows windows of so many rows from windows of time: what they mean is said there.
    files = [path for path in sorted(SOURCE.rglob("*.py")) if path not in own and SOURCE / "model" not in path.parents]
    assert len(files) > 250
    assert [place for path in files for place in questions(path, {kind.__name__ for kind in kinds})] == []


def test_the_search_finds_checks_of_kinds(tmp_path):
    file = tmp_path / "some.py"
    file.write_text("isinstance(x, (int, Process))\nmatch x:\n    case Process(): pass\nif type(x) is Process: pass\n")
    assert questions(file, {"Process"}) == ["some.py:1 Process", "some.py:4 Process", "some.py:3 Process"]


def kinds_of_row_ops(path: Path) -> list[str]:
    """Where a file compares the kind of a step with one of those that there are."""
    known = set(typing.get_args(typing.get_type_hints(RowOp)["kind"]))
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "kind":
            named = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
            found += [f"{path.name}:{node.lineno} {name}" for name in sorted(named & known)]
    return found


def test_nobody_but_its_own_file_asks_which_kind_a_row_op_is(tmp_path):
    own = SOURCE / "engine" / "runtime" / "row_op.py"
    assert [place for path in sorted(SOURCE.rglob("*.py")) if path != own for place in kinds_of_row_ops(path)] == []
    assert len(kinds_of_row_ops(own)) > 4
    file = tmp_path / "some.py"
    file.write_text('if op.kind == "skip" or op.kind in ("apart", "other"): pass\n')
    assert kinds_of_row_ops(file) == ["some.py:1 skip", "some.py:1 apart"]


# A kind of stage that only this file knows ---------------------------------------------------------------------------

_COUNTS = "counts/1"


@dataclass(frozen=True)
class Numbered(Operation):
    """Each row with its number among those of its key, as they come; those without a value are set apart."""

    column: str

    stable_name: ClassVar[str] = "numbered/1"
    noun: ClassVar[str] = "numbering"

    def needed(self, stage: StageInput) -> list[str]:
        return [self.column]

    def outputs(self, stage: StageInput) -> dict[str, Schema]:
        if self.column not in stage.schema:
            raise DefinitionError(f"numbered: there is no column {self.column!r}")
        columns = {name: stage.schema[name] for name in (*stage.keys, self.column, "event_time")}
        return {RESULTS: {**columns, "number": pl.Int64()}, "missing": columns}

    @property
    def others(self) -> tuple[str, ...]:
        return ("missing",)

    @property
    def label(self) -> str:
        return "number rows"

    def about(self, outputs: Mapping[str, str]) -> dict[str, str]:
        return {
            "What": f"rows with a number; those without {self.column} go to the output {outputs['missing']}.",
            "Kept": "how many rows each key had.",
        }

    def operator(self, stage: StageInput) -> StageOperator:
        return NumberingOperator(self.column, list(stage.by), [*stage.keys, self.column, "event_time"])

    def reference(self, stage: StageInput) -> Reference:
        counts: dict[tuple[Any, ...], int] = {}
        marks: list[int | None] = [None]

        def step(rows: pl.DataFrame, watermark: int | None, clock: int) -> ReferenceRows:
            results, late, missing = [], [], []
            for values in rows.to_dicts():
                reason, by = rejection(values["__time"], marks[-1])
                key = tuple(values[name] for name in stage.keys)
                if reason is not None:
                    late.append((values, reason, by))
                elif values[self.column] is None:
                    missing.append(values)
                else:
                    counts[key] = counts.get(key, 0) + 1
                    results.append({**values, "number": counts[key]})
            marks.append(watermark)
            return ReferenceRows(results, late, {"missing": missing})

        return step


class NumberingOperator(StageOperator):
    """Counts the rows of each key of a key group."""

    def __init__(self, column: str, keys: list[str], columns: list[str]) -> None:
        self.column, self.keys, self.columns = column, keys, columns

    def step(self, store: Store, rows: pl.DataFrame | None, batch_time: BatchTime) -> Outputs:
        if rows is None or not rows.height:
            return {}
        there = rows.filter(pl.col(self.column).is_not_null())
        numbered = there.with_columns(number=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(self.keys))
        before = store.get(_COUNTS)
        if before is not None:
            known = numbered.join(before, on=self.keys, how="left", nulls_equal=True, maintain_order="left")
            numbered = known.with_columns(pl.col("number") + pl.col("count").fill_null(0)).drop("count")
        counts = numbered.group_by(self.keys, maintain_order=True).agg(pl.col("number").max().alias("count"))
        if before is not None:
            counts = pl.concat([counts, before.join(counts, on=self.keys, how="anti", nulls_equal=True)])
        store.put(_COUNTS, counts)
        missing = rows.filter(pl.col(self.column).is_null())
        return {RESULTS: numbered.select([*self.columns, "number"]), "missing": missing.select(self.columns)}


def numbered(rows: tw.Stream) -> tw.Result:
    return append_stage(rows, ["key"], Numbered("v"))


SCRIPT = (
    Script(columns={"key": pl.String, "v": pl.Int64})
    .add(at="12:00:01", key="a", v=3)
    .add(at="12:00:03", key="b", v=None)
    .add(at="12:00:02", key="a", v=4)
    .watermark("12:00:02")
    .add(at="12:00:04", key="a", v=5)
    .add(at="12:00:00", key="b", v=6)
    .add(at="12:00:05", key="b", v=7)
    .end()
)


def test_the_test_kit_runs_it_on_its_reference():
    found = SCRIPT.run(numbered)
    assert [(each["key"], each["v"], each["number"]) for each in found] == [
        ("a", 3, 1),
        ("a", 4, 2),
        ("a", 5, 3),
        ("b", 7, 1),
    ]
    assert [(each["v"], each["late_reason"]) for each in found.late] == [(6, "too late")]
    assert found.outputs["missing"] == [row(at="12:00:03", key="b", v=None)]


def frame(spark):
    return spark.createDataFrame(
        [("a", 1, 3), ("b", 2, None), ("a", 3, 4), ("b", 4, 9)], "key STRING, second INT, v INT"
    ).selectExpr("key", "timestamp_seconds(second) AS at", "v")


def test_it_is_explained_drawn_and_run_over_a_dataframe(spark):
    result = numbered(tw.stream(frame(spark).coalesce(1), time="at"))
    assert list(result.schemas()) == ["results", "late", "missing", "metrics"]
    assert list(result.schema) == ["key", "v", "event_time", "number"]
    assert "  What: rows with a number; those without v go to the output missing." in result.explain().splitlines()
    assert "number rows" in result.explain("mermaid")
    assert "number rows" in result._repr_html_()
    found = sorted((each.key, each.v, each.number) for each in result.df("results").collect())
    assert found == [("a", 3, 1), ("a", 4, 2), ("b", 9, 1)]
    assert [(each.key, each.v) for each in result.df("missing").collect()] == [("b", None)]


def test_what_it_says_of_itself_is_used(spark):
    rows = tw.stream(frame(spark), time="at")
    [stage] = numbered(rows).stages
    assert stage.operation.definition() == {"$is": "numbered/1", "column": "v"}
    twice = numbered(numbered(rows))
    assert "missing_2" in twice.schemas()
    with pytest.raises(DefinitionError, match="there is no column 'v'"):
        numbered(rows.select("key"))
    late = rows.key_by("key").previous("v", lateness="5 s")
    with pytest.raises(
        DefinitionError, match=r"which numbering cannot follow; in the stage before it, leave out the lat"
    ):
        numbered(late)
    with pytest.raises(NotImplementedError, match="NumberingOperator has no side input"):
        stage.operator().on_control(None, pl.DataFrame(), BatchTime(None, None, 0))


def test_the_stage_runner_runs_it_and_its_state_goes_on(spark):
    flow = numbered(tw.stream(frame(spark), time="at")).flow()
    entries = MemoryEntries()
    partitioner, stateful_stage = Partitioner([flow], 1), StatefulStage([flow], 0, 1)
    times = pl.Series("at", [1_000_000, 2_000_000]).cast(pl.Datetime("us", "UTC"))
    rows = pl.DataFrame([pl.Series("key", ["a", "a"]), times, pl.Series("v", [1, 2], pl.Int32)])
    numbers = []
    for _ in range(2):
        exchange_batches = {}
        partitioner.partition(exchange_batches, flow.name, [Rows(rows)], None)
        state = KeyGroupState(entries)
        out, _ = stateful_stage.step(state, 0, [exchange_batches[0].to_bytes()], BatchTime(None, None, 0))
        state.save()
        numbers += [frame["number"].to_list() for _, output, frame in out if output == RESULTS]
    assert numbers == [[1, 2], [3, 4]]
    assert KeyGroupState(entries).names(f"{flow.name}/0/") == [_COUNTS]


def test_spark_gives_what_the_reference_gives(spark):
    expected, found = SCRIPT.run(numbered), SCRIPT.run(numbered, on="spark", spark=spark)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert (found.late, found.outputs) == (expected.late, expected.outputs)
