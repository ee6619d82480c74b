"""The watermark of a streaming DataFrame: whether it has one already, and how its results carry one on.

A Spark query has one watermark, the least of all that are defined in it, and Spark hands it from each stateful operator
to those above. It may be defined only once on the way from a source to the sink: a second definition fails in the first
batch or, where the operator below waits for the watermark before it gives a row, holds up everything for ever. So a
stream over a DataFrame that has a watermark goes on with it, and results carry the watermark for what Spark does with
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidewheel.engine.runtime.flow import Flow
from tidewheel.engine.runtime.row_op import RowOp
from tidewheel.model.time import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["INHERITED_HOLD", "behind", "carrying", "has_watermark", "hold", "marked_columns"]

_DELAY_KEY = "spark.watermarkDelayMs"
"""The key in a column's metadata by which Spark knows that its watermark is of this column."""

_TIME = "event_time"
_MILLISECOND: Duration = 1_000
_LINE = re.compile(r"(?P<lead>(?:[:| ]  )*(?:[+:]- )?)~?(?P<name>[A-Z]\w*)(?P<rest>.*)")
_DEFINES = {"EventTimeWatermark"}
_ENDS = {"FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState"}
"""Operators after which Spark knows of no watermark; so is transformWithState in processing time."""


def has_watermark(frame: DataFrame) -> bool:
    """Whether Spark has a watermark for the rows of this DataFrame, even if its column is gone."""
    return _knows(_plan(frame).splitlines())


def marked_columns(frame: DataFrame) -> list[str]:
    """The columns of times that Spark's watermark is of."""
    from pyspark.sql.types import TimestampNTZType, TimestampType

    return [
        field.name
        for field in frame.schema
        if _DELAY_KEY in (field.metadata or {}) and isinstance(field.dataType, TimestampType | TimestampNTZType)
    ]


def _plan(frame: DataFrame) -> str:
    """The logical plan as Spark prints it, which is all that a client of Spark Connect gets of it."""
    classic: Any = getattr(frame, "_jdf", None) if not _is_connect(frame) else None
    if classic is not None:
        return str(classic.queryExecution().analyzed().toString())
    text: str = frame._explain_string(extended=True)  # type: ignore[operator]
    analyzed = text.partition("== Analyzed Logical Plan ==\n")[2].partition("\n== ")[0]
    return analyzed.partition("\n")[2]  # the first line tells the columns


def _is_connect(frame: DataFrame) -> bool:
    return type(frame).__module__.startswith("pyspark.sql.connect")


def _knows(lines: Iterable[str]) -> bool:
    """Whether a plan has a watermark at its root: from any branch, but not through operators that end it."""
    known: dict[int, bool] = {}  # by depth: is what lies below the node that is open there cut off from the root?
    for number, line in enumerate(lines):
        found = _LINE.fullmatch(line)
        if found is None or (number and not found["lead"]):  # a text with line breaks in an expression
            continue
        depth = len(found["lead"]) // 3
        cut = known.get(depth - 1, False)
        name, rest = found["name"], found["rest"]
        if name in _DEFINES and not cut:
            return True
        timeless = name.startswith("TransformWithState") and ", ProcessingTime," in rest
        known[depth] = cut or name in _ENDS or timeless
    return False


def behind(flow: Flow) -> Duration | None:
    """How far results may be behind the watermark; None if there is no bound."""
    if not _keeps_time(flow.after):
        return None
    return flow.stages[-1].operation.results_behind


def hold(behind: Duration) -> Duration:
    """How far Spark's watermark stays behind ours so that no result is late for Spark's operators: a millisecond more
    than needed, since Spark counts whole milliseconds and treats rows at the watermark as late."""
    return (-(-behind // _MILLISECOND) + 1) * _MILLISECOND


INHERITED_HOLD: Duration = 1
"""How far the watermark that a DataFrame has stays behind ours: what is just as old is late for it, not for us."""


def _keeps_time(ops: Iterable[RowOp]) -> bool:
    """Whether results have the time that their stage gave them."""
    for op in ops:
        for expr in op.exprs if op.makes_columns else ():
            made = not (isinstance(expr, str) or expr.meta.is_column())
            if made and expr.meta.output_name(raise_if_undetermined=False) in (None, _TIME):
                return False
    return True


def carrying(results: DataFrame, delay: Duration) -> DataFrame:
    """Mark the results' time as the column that Spark's watermark is of."""
    if _TIME not in results.columns:
        return results
    return results.withMetadata(_TIME, {_DELAY_KEY: delay // _MILLISECOND})
