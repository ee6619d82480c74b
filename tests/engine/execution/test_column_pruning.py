"""Only the columns that a flow asks for are decoded, and late rows have all of them all the same."""

from __future__ import annotations

import polars as pl
import pytest

import tidewheel as tw
from tests.engine.orders import INPUT, put
from tidewheel.engine.datasource.batch_planner import OffsetRange
from tidewheel.engine.datasource.batch_reader import read_ranges
from tidewheel.engine.datasource.options import ReadOptions
from tidewheel.engine.datasource.reader_function import ReadInfo, reader_function
from tidewheel.engine.execution.map_side_reader import MapSideReader
from tidewheel.engine.runtime import exchange_rows
from tidewheel.engine.runtime.exchange import ExchangeBatch, Partitioner, Rows
from tidewheel.engine.runtime.exchange_parts import LateRows, StageRows
from tidewheel.engine.runtime.exchange_rows import EXCHANGE
from tidewheel.engine.runtime.flow import needed


@pytest.fixture
def orders(log):
    put(log, (1, "fi", 5), (2, "se", 7), (3, "fi", 1))
    return tw.stream(log, INPUT)


def counted(orders):
    return orders.key_by("country").window(tw.windows.tumbling("1 s")).aggregate(n=tw.agg.count())


def test_what_nobody_asks_for_is_not_needed(orders):
    second = tw.windows.tumbling("1 s")
    assert needed(counted(orders).stages[0]) == {"country", "event_time"}
    doubled = orders.with_columns(twice=pl.col("amount") * 2).filter(pl.col("ingestion_time").is_null())
    sums = doubled.window(second).aggregate(total=tw.agg.sum("twice"))
    assert needed(sums.stages[0]) >= {"amount", "ingestion_time", "event_time"}
    chosen = orders.select("country", x=pl.col("amount") + 1).key_by("country").window(second)
    assert needed(chosen.aggregate(n=tw.agg.count()).stages[0]) == {"event_time", "country", "amount"}
    everything = orders.with_columns(pl.all().name.suffix("_too")).window(second)
    assert needed(everything.aggregate(n=tw.agg.count()).stages[0]) is None
    assert needed(orders.key_by("country").previous("amount").stages[0]) is None


def partitioned(log, orders, before):
    """All that the reader hands on, by the kind of the part."""
    reader = MapSideReader([counted(orders).flow()], 1)
    options = ReadOptions.of(
        {
            **orders.input.options(),
            "topics": INPUT,
            "type": orders.input.message,
            "transform": reader_function(reader),
            "transformSchema": EXCHANGE,
        }
    )
    piece = OffsetRange(INPUT, 0, 0, log.topic_info(INPUT).next_offsets[0])
    info = ReadInfo(before, before, 0, 0, 1)
    found = {}
    for batch in read_ranges(log, options, [piece], info, exchange_rows.EXCHANGE_ARROW):
        for data in batch.column("batch_bytes").to_pylist():
            found |= {type(part): frame for part, frame in ExchangeBatch.read(data)}
    return found


def test_late_rows_have_all_columns(log, orders):
    found = partitioned(log, orders, 3_000_000)
    assert found[StageRows]["__n"].to_list() == [1]
    late = found[LateRows].sort("event_time")
    assert late.select("country", "amount", "late_reason").rows() == [("fi", 5, "too late"), ("se", 7, "too late")]
    assert {"ingestion_time", "_append_time", "_key"} <= set(late.columns)


def test_rows_in_time_are_counted_without_the_columns_that_nobody_asked_for(log, orders):
    found = partitioned(log, orders, None)
    assert found.keys() == {StageRows}
    assert found[StageRows]["__n"].sum() == 3


def test_rows_from_the_future_are_found_behind_a_select(log, orders):
    ahead = tw.stream(log, INPUT, watermark=tw.watermarks.bounded("1 s", future="1 min")).select("country")
    flow = ahead.key_by("country").window(tw.windows.tumbling("1 s")).aggregate(n=tw.agg.count()).flow()
    frame = pl.DataFrame({"country": ["fi", "se"], "event_time": [0, 90_000_000], "_arrival": [0, 0]}).with_columns(
        pl.col("event_time").cast(pl.Datetime("us", "UTC"))
    )
    exchange_batches = {}
    Partitioner([flow], 1).partition(exchange_batches, flow.name, [Rows(frame)], None, arrival="_arrival")
    [late] = [frame for part, frame in ExchangeBatch.read(exchange_batches[0].to_bytes()) if isinstance(part, LateRows)]
    assert late.select("country", "late_reason").rows() == [("se", "from the future")]
