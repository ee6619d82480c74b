"""Streams and results as people see them: in a line of text, and in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import polars as pl
import pyarrow as pa

from tidewheel.engine.execution.input import DataFrameInput, LogInput
from tidewheel.engine.operators.operator import RESULTS
from tidewheel.engine.runtime.flow import Flow
from tidewheel.engine.spark.arrow_schema import spark_schema
from tidewheel.engine.streams.explain.explain import explain, source_text
from tidewheel.engine.streams.explain.graph import graph_of
from tidewheel.engine.streams.explain.svg import svg
from tidewheel.html import counted, details, fragment, heading, table

__all__ = ["listed", "result_html", "stream_html", "summary"]

_MOST = 6
"""Columns that are named in a line of text."""


def listed(names: Iterable[str], most: int = _MOST) -> str:
    """Names, the first of many.

    >>> listed("abcde", 3), listed("abc", 3)
    ('a, b, c and 2 more', 'a, b, c')
    """
    held = list(names)
    more = f" and {len(held) - most} more" if len(held) > most else ""
    return ", ".join(held[:most]) + more


def summary(kind: str, source: LogInput | DataFrameInput, columns: Iterable[str], *said: str) -> str:
    """A line about a stream or a result."""
    over = ", ".join(source.topics) or repr(source)
    steps = "".join(f", {each}" for each in said if each)
    return f"<{kind} over {over}{steps}: {listed(columns)}>"


def stream_html(
    kind: str,
    source: LogInput | DataFrameInput,
    flow: Flow,
    schema: Mapping[str, pl.DataType],
    more: Sequence[str] = (),
) -> str:
    """A stream in a notebook: its steps so far and its columns. more: what was added since the last step, such as keys
    and windows."""
    return fragment(
        heading(kind, f"over {source_text(source)}; nothing runs yet"),
        svg(graph_of(source, flow, more=more)),
        details(counted(len(schema), "column"), _columns(_arrow(schema))),
    )


def result_html(
    name: str | None, source: LogInput | DataFrameInput, flow: Flow, outputs: Mapping[str, pa.Schema]
) -> str:
    """A result in a notebook: its graph, what comes out of it, and when."""
    results = outputs[RESULTS]
    others = [(output, listed(columns.names, 20)) for output, columns in outputs.items() if output != RESULTS]
    return fragment(
        heading("Result", f"{name or ''} over {source_text(source)}; nothing runs until it is started"),
        svg(graph_of(source, flow, outputs=list(outputs))),
        details(
            f"{counted(len(results), 'column')} of the results, {counted(len(others), 'other output')}",
            _columns(results) + table(["output", "columns"], others),
        ),
        details("What comes out when", f"<pre>{escape(explain(source, flow, list(outputs)))}</pre>"),
    )


def _arrow(schema: Mapping[str, pl.DataType]) -> pa.Schema:
    return pl.DataFrame(schema=dict(schema)).to_arrow(compat_level=pl.CompatLevel.oldest()).schema


def _columns(schema: pa.Schema) -> str:
    """Columns by name, with the types that they have in a DataFrame."""
    return table(["column", "type"], [(field.name, _type(field)) for field in schema])


def _type(field: pa.Field) -> str:
    from pyspark.errors import PySparkException

    try:
        return spark_schema(pa.schema([field])).fields[0].dataType.simpleString()
    except PySparkException:  # Spark has none like it: it never gets there as it is
        return str(field.type)
