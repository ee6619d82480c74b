"""`tail` shows every record: decoded, of unknown type, or malformed."""

from __future__ import annotations

import json
import signal
from datetime import datetime, timedelta, timezone

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.support.command import Running, lines
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import Event
from tidewheel.transport.events.registry import TypeRegistry
from tidewheel.transport.log.log_types import records
from tidewheel.transport.open_log import open_log
from tidewheel.transport.topics.types import publish_types
from tidewheel_transit.transit_pb2 import Arrival


def custom_type():
    """A message type that no installed package knows."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    field = file.message_type.add(name="Order").field.add(name="article", number=1)
    field.type, field.label = field.TYPE_STRING, field.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def stops(done):
    return [record["details"]["stop"] for record in lines(done)]


def test_json_lines_are_the_records(small_log, inside):
    shown = lines(inside("tail", "input.arrival", "--json", "--log", small_log))
    with open_log(small_log) as log:
        (batch,) = log.read("input.arrival", 0, 0)
    stored = batch.records.to_pylist()
    assert len(shown) == len(stored) == 5
    for record, there in zip(shown, stored, strict=True):
        assert (record.pop("partition"), record.pop("offset")) == (0, there["offset"])
        assert record.pop("key").encode() == there["key"]
        assert datetime.fromisoformat(record.pop("append_time").replace("Z", "+00:00")) == there["append_time"]
        assert codec.encode(codec.decode(json.dumps(record).encode())) == there["value"]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["-n", "2"], "34"),
        (["-n", "0"], ""),
        (["--from", "earliest"], "01234"),
        (["--from", "earliest", "-n", "2"], "01"),
        (["--from", "latest"], ""),
        (["--from", "3"], "34"),
        (["--from", "2020-01-01T00:00:00Z"], "01234"),
        (["--from", "2100-01-01T00:00:00Z"], ""),
    ],
    ids=" ".join,
)
def test_which_records_are_shown(small_log, options, shown, inside):
    assert stops(inside("tail", "input.arrival", "--json", "--log", small_log, *options)) == list(shown)


def test_ten_records_by_default(tmp_path, inside):
    with open_log(tmp_path / "log.tw") as log:
        for first in range(0, 24, 4):
            log.append("news", records([codec.encode(Event()) for _ in range(first, first + 4)]))
    shown = lines(inside("tail", "news", "--json", "--log", tmp_path / "log.tw"))
    assert [record["offset"] for record in shown] == list(range(14, 24))


def test_partitions_are_merged_in_the_order_of_appending(tmp_path, inside):
    clock = iter(range(1_000_000, 100_000_000, 1_000_000))
    with open_log(tmp_path / "log.tw", clock=lambda: next(clock)) as log:
        log.create_topic("news", partitions=3)
        for n in range(12):
            value = codec.encode(codec.pack(Arrival(stop=str(n)), event_time=n))
            log.append("news", records([value], keys=[bytes([n])]))
        used = {number for number in range(3) if log.position("news", number, "latest")}
    assert len(used) == 3
    everything = ["tail", "news", "--json", "--log", tmp_path / "log.tw"]
    assert stops(inside(*everything, "--from", "earliest")) == [str(n) for n in range(12)]
    assert stops(inside(*everything, "-n", "5")) == [str(n) for n in range(7, 12)]
    some = lines(inside(*everything, "--from", "earliest", "--partition", "1"))
    assert {record["partition"] for record in some} == {1}


def test_after_compaction_the_last_records_are_found_behind_gaps(tmp_path, inside):
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    with open_log(tmp_path / "log.tw", clock=lambda: int(start.timestamp() * 1e6)) as log:
        log.create_topic("state", compact=True)
        for n in range(40):
            key = b"often" if n > 2 else b"once %d" % n
            log.append("state", records([codec.encode(codec.pack(Arrival(stop=str(n)), event_time=n))], keys=[key]))
        log.maintain(now=int((start + timedelta(days=1)).timestamp() * 1e6))
        kept = log.topic_info("state").count
    assert kept < 10
    assert stops(inside("tail", "state", "--json", "-n", "3", "--log", tmp_path / "log.tw"))[-3:][-1] == "39"
    assert len(lines(inside("tail", "state", "--json", "--log", tmp_path / "log.tw"))) == kept


def test_an_event_time_that_no_calendar_has_is_not_taken_for_none(tmp_path, inside):
    with open_log(tmp_path / "log.tw") as log:
        times = (None, 10**18, 0)
        log.append("odd", records([codec.encode(codec.pack(Arrival(stop="x"), event_time=time)) for time in times]))
    none, absurd, fine = inside("tail", "odd", "--log", tmp_path / "log.tw").stdout.splitlines()
    assert "no event time" in none
    assert "event time out of range" in absurd
    assert "event time" not in fine


def test_what_cannot_be_decoded_is_shown_with_the_reason(tmp_path, inside):
    order = custom_type()(article="tea")
    with open_log(tmp_path / "log.tw") as log:
        log.append("mixed", records([b"\xff\xff\xff", b'{"no": "event"}'], keys=[b"\xfe", None]))
        log.append("mixed", records([codec.encode(codec.pack(order, event_time=0))]))
    broken, wrong, unknown = lines(inside("tail", "mixed", "--json", "--log", tmp_path / "log.tw"))
    assert "not a tidewheel.v1.Event" in broken["malformed"]
    assert broken["raw"] == "////"
    assert broken["key_base64"] == "/g=="
    assert "no field 'no'" in wrong["malformed"]
    assert unknown["details"]["@type"].endswith("/shop.Order")
    assert codec.decode(json.dumps({"details": unknown["details"]}).encode()).details.value == order.SerializeToString()
    shown = inside("tail", "mixed", "--log", tmp_path / "log.tw").stdout.splitlines()
    assert "malformed: not a tidewheel.v1.Event" in shown[0]
    assert "unknown type shop.Order, 5 bytes" in shown[2]


def test_types_that_only_the_log_knows_are_decoded(tmp_path, inside):
    order, registry = custom_type(), TypeRegistry()
    registry.register(order)
    with open_log(tmp_path / "log.tw") as log:
        publish_types(log, registry, ["shop.Order"])
        log.append("orders", records([codec.encode(codec.pack(order(article="tea"), event_time=0))]))
    assert "Order  article=tea" in inside("tail", "orders", "--log", tmp_path / "log.tw").stdout
    (record,) = lines(inside("tail", "orders", "--json", "--log", tmp_path / "log.tw"))
    assert record["details"]["article"] == "tea"


def test_types_that_come_later_are_decoded(small_log):
    order, registry = custom_type(), TypeRegistry()
    registry.register(order)
    with Running("tail", "input.arrival", "--json", "--follow", "-n", "1", "--log", small_log) as running:
        shown = running.objects()
        assert next(shown)["offset"] == 4
        with open_log(small_log) as log:
            publish_types(log, registry, ["shop.Order"])
            log.append("input.arrival", records([codec.encode(codec.pack(order(article="tea"), event_time=0))]))
        assert next(shown)["details"]["article"] == "tea"
        running.end(signal.SIGINT)


def test_follow_goes_on_with_what_comes_until_ctrl_c(small_log):
    with Running("tail", "input.arrival", "--json", "--follow", "-n", "1", "--log", small_log) as running:
        shown = running.objects()
        assert next(shown)["offset"] == 4
        with open_log(small_log) as log:
            for offset in (5, 6):
                log.append("input.arrival", records([codec.encode(codec.pack(Arrival(stop="x"), event_time=0))]))
                assert next(shown)["offset"] == offset
        assert running.end(signal.SIGINT).stdout == ""


def test_follow_goes_on_with_a_topic_that_is_made_anew(small_log):
    with Running("tail", "input.arrival", "--json", "--follow", "-n", "1", "--log", small_log) as running:
        shown = running.objects()
        assert next(shown)["offset"] == 4
        with open_log(small_log) as log:
            log.create_topic("other")
            log.delete_topic("input.arrival")
            log.append("input.arrival", records([codec.encode(codec.pack(Arrival(stop="x"), event_time=0))]))
        assert next(shown)["offset"] == 0
        assert "created again" in running.end(signal.SIGINT).stderr
