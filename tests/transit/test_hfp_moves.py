"""HFP messages at another time and of another vehicle, as a replay needs them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.hfp_messages import ARRIVED, AT, STOP_TIMES, hfp, row, topic
from tidewheel.ingest.message import Message
from tidewheel.model.time import duration, instant
from tidewheel_transit.hfp import HfpProcessor

PROCESSOR = HfpProcessor()
YEARS = 40 * 366 * duration("1 d")
UNREADABLE = [
    Message("elsewhere", b"{}", 5),
    Message(topic(), b"\xff", 5),
    Message(topic(), b"[" * 10_000, 5),
    Message(topic(), b'{"ARS":{}}', 5),
    hfp(tst="soon"),
    hfp(tst="2026-03-02T06:15:30"),
    hfp(veh="x"),
    hfp(tsi=1.5),
]


def _set(message: Message) -> dict[str, object]:
    """What the message gives, without its times and its vehicle."""
    found = row(PROCESSOR.process([message]))
    moving = ("event_time", "ingestion_time", "scheduled_arrival", "scheduled_departure", "operating_day")
    return {name: value for name, value in found.items() if name not in (*moving, "vehicle", "key", "reported_vehicle")}


@given(by=st.integers(-YEARS, YEARS), copy=st.integers(0, 1_000))
@settings(deadline=None)
def test_all_times_move_by_the_same_and_the_rest_stays(by, copy):
    before = hfp("ars", **STOP_TIMES, note=[1.50])
    after = PROCESSOR.moved(before, by=by, copy=copy)
    was, became = row(PROCESSOR.process([before])), row(PROCESSOR.process([after]))
    for name in ("event_time", "ingestion_time", "scheduled_arrival", "scheduled_departure"):
        assert instant(became[name]) - instant(was[name]) == by
    assert after.received_at - PROCESSOR.event_time(after) == before.received_at - PROCESSOR.event_time(before)
    assert _set(before) == _set(after)
    assert became["vehicle"] == was["vehicle"] + 100_000 * copy
    assert "reported_vehicle" not in became


def test_a_message_that_is_moved_by_nothing_says_the_same():
    assert row(PROCESSOR.process([PROCESSOR.moved(hfp(), by=0, copy=0)])) == row(PROCESSOR.process([hfp()]))


def test_seconds_that_are_not_those_of_tst_keep_their_distance():
    odd = hfp(tsi=instant(AT) // 1_000_000 + 7)
    moved = json.loads(PROCESSOR.moved(odd, by=900_000, copy=0).payload)["VP"]
    assert moved["tsi"] == instant(moved["tst"]) // 1_000_000 + 7


def test_without_tst_the_seconds_move():
    assert PROCESSOR.event_time(PROCESSOR.moved(hfp(tst=None), by=duration("1 h"), copy=0)) == (
        instant(AT) // 1_000_000 * 1_000_000 + duration("1 h")
    )


@pytest.mark.parametrize(
    ("by", "day"),
    [
        ("0 s", "2026-03-02"),
        ("11 h", "2026-03-02"),
        ("13 h", "2026-03-03"),
        ("-1 d", "2026-03-01"),
        ("365 d", "2027-03-02"),
    ],
)
def test_the_operating_day_moves_by_whole_days(by, day):
    moved = PROCESSOR.moved(hfp(), by=duration(by), copy=0)
    assert row(PROCESSOR.process([moved]))["operating_day"] == day


def test_a_journey_over_midnight_stays_one_journey():
    times = [f"2026-03-02T{hour:02d}:59:59.000Z" for hour in range(24)]
    days = {
        row(PROCESSOR.process([PROCESSOR.moved(hfp(tst=tst), by=duration("5 h"), copy=0)]))["operating_day"]
        for tst in times
    }
    assert len(days) == 1


def test_an_operating_day_that_is_no_date_stays():
    moved = PROCESSOR.moved(hfp(oday="someday"), by=duration("2 d"), copy=0)
    assert row(PROCESSOR.process([moved]))["operating_day"] == "someday"


def test_no_vehicle_of_a_replica_is_one_of_another():
    fleet = [
        hfp(topic=topic(operator=operator, vehicle=vehicle), veh=int(vehicle), oper=None)
        for operator in ("0000", "0022", "9999")
        for vehicle in ("00000", "00001", "50000", "99999")
    ]
    copies = [*range(12), 500, 999, 1_000]
    moved = [PROCESSOR.moved(message, by=0, copy=copy) for copy in copies for message in fleet]
    (batch,) = PROCESSOR.process(moved).topics.values()
    assert len(set(batch.column("key").to_pylist())) == len(fleet) * len(copies)


def test_a_dead_run_belongs_to_its_replica_too():
    moved = PROCESSOR.moved(hfp(topic=topic(journey="deadrun", end=""), oper=None), by=0, copy=2)
    assert moved.topic == "/hfp/v2/deadrun/ongoing/vp/bus/0022/200817"
    assert row(PROCESSOR.process([moved]))["key"] == b"0022/200817"


def test_repeats_stay_repeats():
    assert PROCESSOR.moved(hfp(), by=12_345, copy=3) == PROCESSOR.moved(hfp(), by=12_345, copy=3)


@pytest.mark.parametrize("message", UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_cannot_be_read_is_returned_as_it_is(message):
    assert PROCESSOR.moved(message, by=1_000_000, copy=1) is message


@pytest.mark.parametrize("message", UNREADABLE[:3], ids=range(3))
def test_what_cannot_be_read_has_no_event_time(message):
    assert PROCESSOR.event_time(message) is None


@pytest.mark.parametrize("seconds", [10**400, 10**12, -1])
def test_seconds_that_no_clock_shows_are_no_event_time(seconds):
    payload = b'{"VP":{"tsi":%d}}' % seconds
    assert PROCESSOR.event_time(hfp().__class__(hfp().topic, payload, 0)) is None


def test_times_that_would_leave_the_calendar_are_left():
    message = hfp(received_at=ARRIVED)
    assert PROCESSOR.moved(message, by=10**18, copy=0) is message
