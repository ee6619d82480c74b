"""Message types that only the log knows: whoever reads it finds them, whatever program registered them."""

from __future__ import annotations

import textwrap

import pytest

import tidewheel as tw
from tests.engine.topic_frames import order_type
from tidewheel.engine.execution.targets import Target, prepared_targets
from tidewheel.engine.jobs.run import default_targets
from tidewheel.errors import DefinitionError
from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import TypeRegistry, types
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.materialize import materialize
from tidewheel.transport.topics.types import carried_type, definitions

KIND = "shop_elsewhere.Order"


@tw.job("by-article", reads="input.order")
def by_article(orders: tw.Stream) -> tw.Result:
    """Orders of each article."""
    return orders.key_by("article").window(tw.windows.tumbling("10 s")).aggregate(n=tw.agg.count())


@tw.job("copies", reads={"input.order": KIND}, writes=KIND)
def copies(orders: tw.Stream) -> tw.Result:
    """Orders as they are."""
    return orders.key_by("article").each_row()


@pytest.fixture
def shop(log):
    """A log that another program has written to."""
    order = order_type("shop_elsewhere")
    elsewhere = TypeRegistry()
    elsewhere.register(order, log=log)
    values = [
        codec.encode(codec.pack(order(article=article, shelf="3"), event_time=place * 1_000_000))
        for place, article in enumerate(["tea", "rum", "tea"])
    ]
    log.append("input.order", records(values, event_times=[0, 1_000_000, 2_000_000]))
    return log


def test_a_run_finds_them_for_what_it_reads_and_for_what_it_writes(spark, shop, tmp_path):
    assert KIND not in types
    before = definitions(shop)[KIND]
    tw.run(by_article, copies, log=shop, checkpoint=tmp_path / "c", available_now=True).wait()
    assert KIND not in types
    assert definitions(shop)[KIND] == before
    assert sorted(materialize(shop, "analytics.copies").rows["article"]) == ["rum", "tea", "tea"]
    assert carried_type(shop, "analytics.copies") == KIND
    rows = tw.stream(shop, "input.order").key_by("article").each_row()
    rows.start(
        results=shop.topic("analytics.again"), type=KIND, checkpoint=tmp_path / "d", spark=spark, available_now=True
    ).wait()
    assert KIND not in types
    assert sorted(materialize(shop, "analytics.again").rows["article"]) == ["rum", "tea", "tea"]


@pytest.mark.long
def test_the_command_finds_them_for_jobs_that_only_name_them(spark, shop, tmp_path, inside):
    file = tmp_path / "my_jobs.py"
    file.write_text(
        textwrap.dedent("""
        import tidewheel as tw

        @tw.job("copies", reads={"input.order": "shop_elsewhere.Order"}, writes="shop_elsewhere.Order")
        def copies(orders: tw.Stream) -> tw.Result:
            return orders.key_by("article").each_row()

        @tw.job("by-article", reads="input.order")
        def by_article(orders: tw.Stream) -> tw.Result:
            return orders.key_by("article").window(tw.windows.tumbling("1 s")).aggregate(n=tw.agg.count())
        """)
    )
    checkpoint = ("--checkpoint", tmp_path / "c")
    inside("run", file, "--log", shop.address, *checkpoint, "--available-now", "--no-fsync")
    assert KIND not in types
    assert carried_type(shop, "analytics.copies") == KIND
    assert sorted(materialize(shop, "analytics.copies").rows["article"]) == ["rum", "tea", "tea"]
    # The watermark is a second behind the last one.
    assert materialize(shop, "analytics.by-article").rows.select("article", "n").rows() == [("tea", 1)]


def test_what_does_not_fit_them_is_refused(shop):
    result = tw.stream(shop, "input.order").select("article", "event_time").key_by("article").each_row()
    targets = {result.named("a"): {"results": Target(shop.topic("analytics.a"), KIND)}}
    with pytest.raises(DefinitionError, match=r"shop_elsewhere\.Order has a field 'shelf' that the results lack"):
        prepared_targets(targets, shop, ["input.order"])
    found = prepared_targets(default_targets([copies], shop), shop, ["input.order"])
    assert found["copies", "results"].type == KIND
