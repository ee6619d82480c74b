"""The HFP processor: every message of a vehicle to its topic, with all that it says."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.hfp_messages import ARRIVED, AT, BODY, STOP_TIMES, hfp, row, rows, topic
from tidewheel.errors import DefinitionError
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Processor, Replayable
from tidewheel.model.time import instant
from tidewheel_transit.hfp import HfpProcessor
from tidewheel_transit.topics import EVENTS, MODES

PROCESSOR = HfpProcessor()
EVENT_TIME = datetime(2026, 3, 2, 6, 15, 30, 250_000, tzinfo=timezone.utc)


def test_it_is_a_processor_whose_messages_can_be_replayed():
    assert isinstance(PROCESSOR, Processor)
    assert isinstance(PROCESSOR, Replayable)


def test_a_position_has_all_that_topic_and_payload_say():
    found = row(PROCESSOR.process([hfp("vp")]))
    assert found.pop("speed") == 8.25
    assert found == {
        "topic": "input.vehicle-position",
        "key": b"0022/00817",
        "event_time": EVENT_TIME,
        "ingestion_time": datetime(2026, 3, 2, 6, 15, 30, 900_000, tzinfo=timezone.utc),
        "journey": "journey",
        "temporal": "ongoing",
        "event": "vp",
        "mode": "bus",
        "operator": 22,
        "vehicle": 817,
        "lat": 60.205117,
        "lon": 24.968243,
        "acc": -0.5,
        "heading": 193,
        "route": "1071",
        "direction": 2,
        "headsign": "Rautatientori",
        "start": "08:04",
        "next_stop": "1220120",
        "operating_day": "2026-03-02",
        "delay": -65,
        "odometer": 4120,
        "designation": "71",
        "journey_number": 205,
        "line": 61,
        "doors": 0,
        "location_source": "GPS",
        "occupancy": 0,
    }


def test_a_record_carries_its_event_time_for_the_header_of_its_block():
    (batch,) = PROCESSOR.process([hfp("vp")]).topics.values()
    assert batch.column("event_time").to_pylist() == [EVENT_TIME]
    assert batch.column("punctuation").null_count == 1


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_type_has_one_home(event):
    found = row(PROCESSOR.process([hfp(event)]))
    assert (found["topic"], found["event"]) == (EVENTS[event].topic, event)


@pytest.mark.parametrize("event", ["due", "arr", "ars", "wait", "pde", "dep", "pas", "doo", "doc"])
def test_events_at_a_stop_have_scheduled_times_that_may_be_missing(event):
    with_times, without, null = rows(PROCESSOR.process([hfp(event, **STOP_TIMES), hfp(event), hfp(event, ttarr=None)]))
    scheduled = datetime(2026, 3, 2, 6, 14, tzinfo=timezone.utc)
    assert with_times["scheduled_arrival"] == with_times["scheduled_departure"] == scheduled
    assert "scheduled_arrival" not in without
    assert "scheduled_arrival" not in null


def test_a_field_that_its_message_type_lacks_is_kept_as_extra():
    found = row(PROCESSOR.process([hfp("vp", ttarr=STOP_TIMES["ttarr"])]))
    assert json.loads(found["extra"]) == {"ttarr": STOP_TIMES["ttarr"]}


def test_nulls_and_missing_fields_are_unset_and_the_message_is_kept():
    nulls = dict.fromkeys(BODY) | {"tst": AT}
    found = row(PROCESSOR.process([hfp("vp", topic=topic(journey="deadrun", end=""), **nulls)]))
    assert found.keys() == {
        *("topic", "key", "event_time", "ingestion_time", "journey", "temporal", "event", "mode", "operator", "vehicle")
    }
    missing = Message(topic(journey="deadrun", end=""), json.dumps({"VP": {"tst": AT}}).encode(), ARRIVED)
    assert row(PROCESSOR.process([missing])) == found


def test_zero_is_not_null():
    found = row(PROCESSOR.process([hfp("vp", spd=0, acc=0.0, lat=0, long=0, dl=0, hdg=0)]))
    assert [found[name] for name in ("speed", "acc", "lat", "lon", "delay", "heading")] == [0] * 6


@pytest.mark.parametrize(("stop", "expected"), [(1220121, "1220121"), ("1220121", "1220121"), ("H 12", "H 12")])
def test_a_stop_may_be_a_number_or_text(stop, expected):
    assert row(PROCESSOR.process([hfp("vp", stop=stop)]))["stop"] == expected


def test_the_identity_of_a_vehicle_is_the_topics_and_what_the_payload_says_else_is_kept():
    found = row(PROCESSOR.process([hfp("vp", oper=6, veh=12)]))
    assert (found["operator"], found["vehicle"], found["key"]) == (22, 817, b"0022/00817")
    assert (found["reported_operator"], found["reported_vehicle"]) == (6, 12)


def test_a_dead_run_is_marked_and_takes_its_route_from_the_payload():
    found = row(PROCESSOR.process([hfp("vp", topic=topic(journey="deadrun", end=""))]))
    assert (found["journey"], found["route"], found["direction"], found["start"]) == ("deadrun", "1071", 2, "08:04")
    assert "headsign" not in found
    assert "next_stop" not in found


@pytest.mark.parametrize(("stop", "expected"), [("EOL", "EOL"), ("", None), ("1220120", "1220120")])
def test_the_next_stop_may_be_the_end_of_the_line_or_empty(stop, expected):
    name = topic(end=f"1071/2/Rautatientori/08:04/{stop}/5/60;24/29/06/58")
    assert row(PROCESSOR.process([hfp("vp", topic=name)])).get("next_stop") == expected


@pytest.mark.parametrize("geohash", ["0////", "5/60;24/29/06/58", "0/60;24/29/06/58"])
@pytest.mark.parametrize("headsign", ["Itäkeskus(M)", "Pasila / Böle", "a/b/c", "/", "", "08:04", "🚌#+"])
def test_any_headsign_with_any_geohash_is_read_from_both_ends(headsign, geohash):
    found = row(PROCESSOR.process([hfp("vp", topic=topic(end=f"1071/2/{headsign}/08:04/1220120/{geohash}"))]))
    assert (found.get("headsign", ""), found["start"], found["next_stop"]) == (headsign, "08:04", "1220120")


@pytest.mark.parametrize("end", ["4/60;24/29/06/58/3321", "0/////3321", "4/60;24/29/06/58"])
def test_the_topic_of_a_traffic_light_may_end_in_its_junction(end):
    name = topic("tlr", end=f"1071/2/Pasila / Böle/08:04/1220120/{end}")
    found = row(PROCESSOR.process([hfp("tlr", topic=name, sid=3321)]))
    assert (found["headsign"], found["start"], found["next_stop"]) == ("Pasila / Böle", "08:04", "1220120")
    assert found["extra"] == '{"sid":3321}'


def test_unknown_fields_survive_as_they_were_sent():
    unknown = '{"block": 12, "dr-type": null, "x": {"deep": [1.50, 123456789012345678901234567890, "ä"]}}'
    payload = json.dumps({"VP": BODY})[:-2] + "," + unknown[1:-1] + "}}"
    found = row(PROCESSOR.process([Message(topic(), payload.encode(), ARRIVED)]))
    assert json.loads(found["extra"]) == json.loads(unknown)
    assert "1.50" in found["extra"]
    assert found["route"] == "1071"


@pytest.mark.parametrize(
    ("field", "value"), [("route", "9999"), ("start", "09:09"), ("dir", "1"), ("tsi", BODY["tsi"] + 7)]
)
def test_what_the_payload_says_otherwise_than_what_was_taken_is_kept_as_extra(field, value):
    found = row(PROCESSOR.process([hfp("vp", **{field: value})]))
    assert json.loads(found["extra"]) == {field: value}
    assert (found["route"], found["start"], found["direction"], found["event_time"]) == ("1071", "08:04", 2, EVENT_TIME)


def test_without_tst_the_event_time_is_tsi():
    found = row(PROCESSOR.process([hfp("vp", tst=None)]))
    assert found["event_time"] == EVENT_TIME.replace(microsecond=0)
    assert PROCESSOR.event_time(hfp("vp", tst=None)) == instant(AT) // 1_000_000 * 1_000_000


def test_times_may_have_any_zone():
    found = row(PROCESSOR.process([hfp("vp", tst="2026-03-02T08:15:30.25+02:00")]))
    assert found["event_time"] == EVENT_TIME
    assert "extra" not in found


def test_exact_repeats_and_the_order_of_a_topic_are_kept():
    messages = [hfp("vp", odo=odo) for odo in (3, 3, 1, 2, 3)]
    assert [found["odometer"] for found in rows(PROCESSOR.process(messages))] == [3, 3, 1, 2, 3]


def test_upcoming_journeys_are_filtered_unless_asked_for():
    message = hfp("vp", topic=topic(temporal="upcoming"))
    assert PROCESSOR.process([message]).filtered == {"upcoming": 1}
    asked = HfpProcessor(upcoming=True, deadruns=False)
    assert row(asked.process([message]))["temporal"] == "upcoming"
    assert asked.subscriptions == ("/hfp/v2/journey/ongoing/+/+/#", "/hfp/v2/journey/upcoming/+/+/#")


def test_dead_runs_are_subscribed_to_unless_they_are_not_wanted():
    assert HfpProcessor().subscriptions == ("/hfp/v2/journey/ongoing/+/+/#", "/hfp/v2/deadrun/ongoing/+/+/#")
    assert HfpProcessor(deadruns=False).subscriptions == ("/hfp/v2/journey/ongoing/+/+/#",)


def test_subscriptions_can_be_given():
    assert HfpProcessor(subscriptions=["/hfp/v2/journey/ongoing/vp/+/+/+/2550/#"]).subscriptions == (
        "/hfp/v2/journey/ongoing/vp/+/+/+/2550/#",
    )


def test_processes_with_disjoint_parts_take_each_message_once():
    others = [mode for mode in MODES if mode not in ("bus", "tram")]
    parts = [
        HfpProcessor(modes=["bus"], operators=[22]),
        HfpProcessor(modes=["bus"], operators=[6, 40]),
        HfpProcessor(modes=["tram"], events=["vp"]),
        HfpProcessor(modes=["tram"], events=[event for event in EVENTS if event != "vp"]),
        HfpProcessor(modes=others),
    ]
    messages = [
        hfp(event, topic=topic(event, mode=mode, operator=operator, **kind))
        for kind in ({}, {"journey": "deadrun", "end": ""})
        for event in EVENTS
        for mode in MODES
        for operator in ("0006", "0022", "0040")
    ]
    done = [part.process(messages) for part in parts]
    assert all(each.count == len(messages) for each in done)
    assert sum(len(rows(each)) for each in done) == len(messages)
    assert {rule for each in done for rule in each.filtered} == {"other-mode", "other-operator", "other-event"}
    for message in messages:
        matches = [part for part in parts if any(_matches(pattern, message.topic) for pattern in part.subscriptions)]
        assert [len(rows(part.process([message]))) for part in matches] == [1]


def _matches(pattern: str, name: str) -> bool:
    levels = (r"[^/]*" if level == "+" else re.escape(level) for level in pattern.removesuffix("/#").split("/"))
    return re.fullmatch("/".join(levels) + r"(/.*)?", name) is not None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"modes": ["buss"]}, "unknown mode 'buss'; give some of: bus tram"),
        ({"modes": "bus"}, "modes must be a list"),
        ({"modes": []}, "at least one mode"),
        ({"events": ["VP"]}, "unknown event 'VP'"),
        ({"operators": [10_000]}, "four-digit numbers"),
        ({"operators": [22, 22]}, "each once"),
    ],
)
def test_a_part_that_makes_no_sense_is_refused_when_it_is_defined(options, reason):
    with pytest.raises(DefinitionError, match=re.escape(reason)):
        HfpProcessor(**options)


def _payload(text: str | bytes) -> Message:
    return Message(topic(), text if isinstance(text, bytes) else text.encode(), ARRIVED)


DEAD = [
    (hfp(topic=""), "bad-topic", "does not begin with /hfp/v2/"),
    (hfp(topic="/hfp/v1/journey/ongoing/vp/bus/0022/00817/1/1/a/08:04/1/0////"), "bad-topic", "does not begin"),
    (hfp(topic=topic(end="")), "bad-topic", "too few levels"),
    (hfp(topic=topic(end="1071/2/Rautatientori/08:04")), "bad-topic", "too few levels"),
    (hfp(topic=topic(end="1071/2/Rautatientori/08:04/1220120/4/60;24/29/06")), "bad-topic", "levels"),
    (hfp(topic=topic(journey="jorney")), "bad-topic", "journey type 'jorney'"),
    (hfp(topic=topic(temporal="past")), "bad-topic", "temporal type 'past'"),
    (hfp(topic=topic("vpx")), "unknown-event", "event type 'vpx' is not one of vp due"),
    (hfp(topic=topic(mode="rocket")), "unknown-mode", "mode 'rocket' is not one of bus"),
    (hfp(topic=topic(operator="22")), "bad-topic", "operator '22' is not four digits"),
    (hfp(topic=topic(operator="٠٠٢٢")), "bad-topic", "is not four digits"),
    (hfp(topic=topic(vehicle="0081x")), "bad-topic", "vehicle '0081x' is not five digits"),
    (hfp(topic=topic(vehicle="9" * 10)), "bad-topic", "is not five digits"),
    (hfp(topic=topic(end="1071/3/R/08:04/1220120/4/60;24/29/06/58")), "bad-topic", "direction '3'"),
    (hfp(topic=topic(end="1071/2/R/8:04/1220120/4/60;24/29/06/58")), "bad-topic", "start '8:04' is not HH:MM"),
    (hfp(topic=topic(end="1071/2/\ud800/08:04/1220120/4/60;24/29/06/58")), "bad-topic", "not UTF-8"),
    (_payload(""), "bad-json", "truncated"),
    (_payload("not JSON"), "bad-json", "malformed"),
    (_payload(json.dumps({"VP": BODY})[:-1]), "bad-json", "truncated"),
    (_payload(b'{"VP":{"tst":"2026-03-02T06:15:30Z","desi":"\xff"}}'), "bad-json", "utf-8"),
    (_payload(b'{"VP":{"tst":"2026-03-02T06:15:30Z","strange":"\xff"}}'), "bad-json", "utf-8"),
    (_payload("[" * 100_000), "bad-value", "object"),
    (_payload('{"VP":{"tst":"2026-03-02T06:15:30Z","strange":' + "[" * 100_000), "bad-json", "recursion"),
    (_payload("[1]"), "bad-value", "Expected `object`, got `array`"),
    (_payload("{}"), "event-mismatch", "the topic says VP and the payload has nothing"),
    (_payload(json.dumps({"ARS": BODY})), "event-mismatch", "the topic says VP and the payload has 'ARS'"),
    (_payload(json.dumps({"VP": BODY, "ARS": BODY})), "event-mismatch", "has 'VP', 'ARS'"),
    (_payload('{"VP":null}'), "bad-value", "Expected `object`, got `null`"),
    (hfp(tst=None, tsi=None), "no-time", "neither tst nor tsi"),
    (hfp(tst="yesterday"), "bad-value", "Invalid RFC3339 encoded datetime"),
    (hfp(tst="2026-03-02T06:15:30"), "bad-value", "with a timezone"),
    (hfp(tst="0001-01-01T00:00:00+14:00"), "bad-value", "not between 1970 and 2200"),
    (hfp(tst="9999-12-31T23:59:59-14:00"), "bad-value", "not between 1970 and 2200"),
    (hfp(tst=1772432130), "bad-value", "$[...].tst"),
    (hfp(tsi=-1), "bad-value", "$[...].tsi"),
    (hfp("ars", topic=topic("ars"), ttarr="0001-01-01T00:00:00+14:00"), "bad-value", "not between 1970 and 2200"),
    (hfp(lat=90.1), "bad-value", "Expected `float` <= 90.0 - at `$[...].lat`"),
    (hfp(long=-180.1), "bad-value", "$[...].long"),
    (hfp(lat=float("nan")), "bad-json", "malformed"),
    (hfp(lat=float("inf")), "bad-json", "malformed"),
    (_payload('{"VP":{"tst":"2026-03-02T06:15:30Z","lat":1e999}}'), "bad-value", "out of range"),
    (hfp(spd=1e39), "bad-value", "$[...].spd"),
    (hfp(acc="fast"), "bad-value", "got `str` - at `$[...].acc`"),
    (hfp(odo=2**31), "bad-value", "$[...].odo"),
    (hfp(dl=-(2**31) - 1), "bad-value", "$[...].dl"),
    (hfp(hdg=1.5), "bad-value", "$[...].hdg"),
    (hfp(drst=True), "bad-value", "got `bool`"),
    (hfp(stop=-1), "bad-value", "$[...].stop"),
    (hfp(stop=10**400), "bad-value", "$[...].stop"),
    (hfp(stop=1.5), "bad-value", "$[...].stop"),
    (hfp(dir="3"), "bad-value", "$[...].dir"),
    (hfp(route=[]), "bad-value", "got `array` - at `$[...].route`"),
]


@pytest.mark.parametrize(("message", "kind", "reason"), DEAD, ids=range(len(DEAD)))
def test_what_is_malformed_is_dead_with_a_kind_and_a_reason_and_harms_no_other(message, kind, reason):
    processed = PROCESSOR.process([hfp(odo=1), message, hfp(odo=2)])
    (dead,) = processed.dead
    assert (dead.message, dead.kind) == (message, kind)
    assert reason in dead.reason
    assert [each["odometer"] for each in rows(processed)] == [1, 2]


def test_the_reason_for_a_dead_topic_shows_no_more_of_it_than_a_person_reads():
    (dead,) = PROCESSOR.process([hfp(topic="x" * 100_000)]).dead
    assert len(dead.reason) < 300


def test_no_messages_are_nothing():
    assert PROCESSOR.process([]).count == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(BODY | STOP_TIMES)) | st.text(max_size=5), json_values, max_size=4))
def test_whatever_the_fields_hold_the_message_is_a_record_or_dead(fields):
    for event in ("vp", "ars"):
        payload = json.dumps({event.upper(): BODY | fields}).encode()
        processed = PROCESSOR.process([Message(topic(event), payload, ARRIVED)])
        assert processed.count == 1
        assert not processed.filtered
        for found in rows(processed):
            unknown = {name: value for name, value in fields.items() if name not in BODY | STOP_TIMES}
            kept = json.loads(found.get("extra", "{}"))
            assert unknown.items() <= kept.items() if unknown else True
