"""Events to bytes and back."""

from __future__ import annotations

import json

import polars as pl
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.errors import DefinitionError, MalformedError, UnknownTypeError
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import DeadLetter, Event, Punctuation
from tidewheel.transport.events.registry import TypeRegistry, type_name, types
from tidewheel_transit.transit_pb2 import Arrival, VehiclePosition

INSTANTS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)  # the years 1 to 9999
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


def maybe(strategy):
    return st.none() | strategy


POSITIONS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["bus", "tram", ""]),
        "operator": st.integers(-(2**31), 2**31 - 1),
        "vehicle": st.integers(0, 99_999),
        "lat": maybe(st.floats(allow_nan=False)),
        "speed": maybe(st.floats(width=32, allow_nan=False)),
        "route": maybe(TEXT),
        "heading": maybe(st.integers(-(2**31), 2**31 - 1)),
    }
)
EVENTS = st.tuples(POSITIONS, maybe(INSTANTS), maybe(INSTANTS))


def packed(fields, event_time, ingestion_time):
    message = VehiclePosition(**{name: value for name, value in fields.items() if value is not None})
    return codec.pack(message, event_time=event_time, ingestion_time=ingestion_time)


KIND = type_name(VehiclePosition)
COLUMNS = [*codec.ENVELOPE_COLUMNS, *types.schema(VehiclePosition).names]


@given(st.lists(EVENTS, max_size=20))
@settings(max_examples=60)
def test_columns_are_encoded_as_single_messages_are(rows):
    columns = pl.DataFrame(
        [fields for fields, _, _ in rows],
        schema={
            "mode": pl.String,
            "operator": pl.Int32,
            "vehicle": pl.Int64,
            "lat": pl.Float64,
            "speed": pl.Float32,
            "route": pl.String,
            "heading": pl.Int32,
        },
    )
    values = codec.encode_columns(
        VehiclePosition,
        columns,
        event_time=pa.array([time for _, time, _ in rows], pa.int64()),
        ingestion_time=pa.array([time for _, _, time in rows], pa.int64()),
    )
    assert [Event.FromString(value) for value in values.to_pylist()] == [packed(*row) for row in rows]


@given(st.lists(st.tuples(EVENTS, st.sampled_from(["binary", "json"])), max_size=20))
@settings(max_examples=60)
def test_a_batch_of_both_encodings_decodes_to_columns(rows):
    values = pa.array([codec.encode(packed(*row), format=form) for row, form in rows], pa.binary())
    decoded = codec.decode_columns(VehiclePosition, values)
    assert not decoded.errors
    assert decoded.rows.to_pylist() == list(range(len(rows)))
    assert decoded.columns["event_time"].cast(pa.int64()).to_pylist() == [time for (_, time, _), _ in rows]
    for name in ("mode", "operator", "lat", "speed", "route", "heading"):
        assert decoded.columns[name].to_pylist() == [fields[name] for (fields, _, _), _ in rows]


@given(st.lists(EVENTS, min_size=1, max_size=20), st.booleans())
@settings(max_examples=60)
def test_decoding_in_one_pass_or_with_care_gives_the_same(rows, bare):
    values = [codec.encode(packed(*row)) for row in rows]
    if bare:
        values.append(codec.encode(codec.pack(VehiclePosition(), event_time=None)))  # a message that takes no bytes
    at_once = codec.decode_columns(VehiclePosition, pa.array(values, pa.binary())).columns
    # A record that is none makes it look at each of them.
    careful = codec.decode_columns(VehiclePosition, pa.array([*values, b"\xff"], pa.binary())).columns
    assert at_once.equals(careful, check_metadata=True)
    known = codec.decode_columns(VehiclePosition, pa.array(values, pa.binary()), carried=KIND)
    assert known.columns.equals(careful, check_metadata=True)
    assert not known.errors


def test_events_of_a_known_type_are_decoded_without_looking_at_its_name_and_others_with():
    named = codec.encode(codec.pack(VehiclePosition(vehicle=7), event_time=5))
    strange = named.replace(b"VehiclePosition", b"VehicleXosition")
    values = pa.array([named, strange], pa.binary())
    assert codec.decode_columns(KIND, values, carried=KIND).columns["vehicle"].to_pylist() == [7, 7]
    for carried in (None, "tidewheel.transit.v1.Other"):
        decoded = codec.decode_columns(KIND, values, carried=carried)
        assert decoded.columns["vehicle"].to_pylist() == [7]
        assert [place for place, _ in decoded.errors] == [1]


def test_a_malformed_event_is_found_among_those_of_a_known_type():
    good = codec.encode(codec.pack(VehiclePosition(vehicle=7), event_time=5))
    decoded = codec.decode_columns(KIND, pa.array([good, b"\xff", good], pa.binary()), carried=KIND)
    assert (decoded.rows.to_pylist(), [place for place, _ in decoded.errors]) == ([0, 2], [1])


@given(st.lists(EVENTS, min_size=1, max_size=10), st.frozensets(st.sampled_from(COLUMNS), min_size=1))
@settings(max_examples=60)
def test_columns_can_be_decoded_without_the_others(rows, only):
    values = pa.array([codec.encode(packed(*row)) for row in rows], pa.binary())
    some = codec.decode_columns(VehiclePosition, values, only=only).columns
    assert only <= set(some.schema.names)
    assert some.equals(codec.decode_columns(VehiclePosition, values).columns.select(some.schema.names))


@given(EVENTS)
def test_json_and_binary_hold_the_same(row):
    event = packed(*row)
    assert codec.decode(codec.encode(event)) == event
    text = codec.encode(event, format="json")
    assert text[:1] == b"{"
    assert codec.decode(text) == event


def test_json_reads_like_the_columns():
    event = codec.pack(VehiclePosition(mode="tram", lat=60.5, next_stop="EOL"), event_time=1_500_000)
    assert json.loads(codec.encode(event, format="json")) == {
        "event_time": "1970-01-01T00:00:01.500Z",
        "details": {
            "@type": "/tidewheel.transit.v1.VehiclePosition",
            "mode": "tram",
            "lat": 60.5,
            "next_stop": "EOL",
        },
    }


@given(st.lists(POSITIONS, min_size=1, max_size=5), INSTANTS, INSTANTS)
@settings(max_examples=30)
def test_results_have_the_clock_of_their_batch_and_later_when_they_were_written(rows, batch_time, written):
    columns = pl.DataFrame({"vehicle": [fields["vehicle"] for fields in rows]}, schema={"vehicle": pl.Int64})
    times = pa.array([7] * len(rows), pa.int64())
    encoded = codec.encode_columns(VehiclePosition, columns, event_time=times, batch_time=batch_time)
    values = codec.with_ingestion_time(encoded, written)
    expected = [packed({"vehicle": fields["vehicle"]}, 7, written) for fields in rows]
    for event in expected:
        event.batch_time.CopyFrom(codec.timestamp(batch_time))
    assert [codec.decode(value) for value in values.to_pylist()] == expected
    assert [codec.decode(codec.encode(event, format="json")) for event in expected] == expected
    decoded = codec.decode_columns(VehiclePosition, values, carried=KIND)
    assert decoded.columns["ingestion_time"].cast(pa.int64()).to_pylist() == [written] * len(rows)
    assert decoded.columns["vehicle"].to_pylist() == [fields["vehicle"] for fields in rows]


def test_an_unknown_type_survives_both_encodings():
    event = Event()
    event.event_time.seconds = 5
    event.details.type_url = "type.googleapis.com/of.tomorrow.Thing"
    event.details.value = b"\x08\x2a\xff"
    for form in ("binary", "json"):
        assert codec.decode(codec.encode(event, format=form)) == event
    with pytest.raises(UnknownTypeError, match=r"of\.tomorrow\.Thing.*register"):
        codec.unpack(event)
    envelopes = codec.decode_envelopes(pa.array([codec.encode(event)]))
    assert envelopes.columns["type"].to_pylist() == ["of.tomorrow.Thing"]
    assert envelopes.columns["details"].to_pylist() == [b"\x08\x2a\xff"]


@pytest.mark.parametrize("form", ["binary", "json"])
def test_fields_of_a_newer_version_survive_in_envelope_and_details(form):
    tomorrow = b"\xa2\x06\x03new"  # field 100, three bytes
    inner = VehiclePosition(mode="bus").SerializeToString() + tomorrow
    event = Event()
    event.details.type_url = "type.googleapis.com/tidewheel.transit.v1.VehiclePosition"
    event.details.value = inner
    again = codec.decode(codec.encode(event, format=form))
    assert again.details.value == inner
    whole = Event.FromString(event.SerializeToString() + tomorrow)
    assert codec.decode(codec.encode(whole, format=form)).SerializeToString() == whole.SerializeToString()


def test_absurd_instants_survive_json_and_become_the_ends_of_time_in_columns():
    event = codec.pack(VehiclePosition(mode="bus"), event_time=None)
    event.event_time.seconds = 2**62
    assert codec.decode(codec.encode(event, format="json")) == event
    decoded = codec.decode_columns(VehiclePosition, pa.array([codec.encode(event)]))
    assert decoded.columns["event_time"].cast(pa.int64()).to_pylist() == [2**63 - 1]


@given(st.lists(st.binary(max_size=30) | st.just(None), min_size=1, max_size=40), st.integers(0, 2**32))
@settings(max_examples=100)
def test_malformed_records_are_found_and_the_others_kept(junk, seed):
    good = codec.encode(codec.pack(VehiclePosition(mode="bus", vehicle=7), event_time=1))
    values = [good if raw is None else raw for raw in junk]
    decoded = codec.decode_columns(VehiclePosition, pa.array(values, pa.binary()))
    bad = {row for row, _ in decoded.errors}
    assert set(decoded.rows.to_pylist()) | bad == set(range(len(values)))
    assert not bad & set(decoded.rows.to_pylist())
    assert bad.isdisjoint(row for row, value in enumerate(values) if value == good)
    assert all(reason for _, reason in decoded.errors)


def test_each_reason_names_what_is_wrong():
    wrong_type = codec.encode(codec.pack(Arrival(mode="bus"), event_time=1))
    bad_text = Event()
    bad_text.details.type_url = "x/tidewheel.transit.v1.VehiclePosition"
    bad_text.details.value = b"\x0a\x02\xff\xfe"
    values = [b"\x0a\xff", wrong_type, b"", b'{"event_time": 7}', b"{", bad_text.SerializeToString()]
    decoded = codec.decode_columns(VehiclePosition, pa.array(values))
    reasons = dict(decoded.errors)
    assert set(reasons) == set(range(len(values)))
    assert reasons[1] == "carries tidewheel.transit.v1.Arrival, expected tidewheel.transit.v1.VehiclePosition"
    assert reasons[2].startswith("carries nothing")
    assert reasons[3].startswith("not an event as JSON")
    assert "UTF-8" in reasons[5]


@pytest.mark.parametrize(
    "text",
    [
        b"{}x",
        b'{"details": {}}',
        b'{"details": 5}',
        b'{"details": {"@type": 5}}',
        b'{"surprise": 1}',
        b'{"@bytes": "?"}',
        b'{"details": {"@type": "x/tidewheel.transit.v1.Arrival", "lat": "north"}}',
        b'{"details": {"@type": "x/no.such.Type"}}',
        b'{"event_time": "yesterday"}',
        b"{" * 100_000,
        b'{"a":' * 50_000,
        b"\xff{",
    ],
)
def test_malformed_json_is_refused_with_a_reason(text):
    with pytest.raises(MalformedError, match=r"\w"):
        codec.decode(text)


def test_markers_are_counted_and_not_taken_for_errors():
    values = pa.concat_arrays(
        [
            codec.punctuation(5_000_000, epoch="one").column("value"),
            pa.array([codec.encode(codec.pack(VehiclePosition(mode="bus"), event_time=1))], pa.binary()),
        ]
    )
    decoded = codec.decode_columns(VehiclePosition, values)
    assert (decoded.markers, decoded.rows.to_pylist(), decoded.errors) == (1, [1], [])


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(DefinitionError, match=r"DeadLetter has no field 'resaon'.*reason"):
        codec.encode_columns(DeadLetter, pl.DataFrame({"resaon": ["x"]}), event_time=pa.array([0]))
    with pytest.raises(DefinitionError, match=r"column 'operator'.*int32"):
        codec.encode_columns(VehiclePosition, pl.DataFrame({"operator": ["x"]}), event_time=pa.array([0]))
    with pytest.raises(DefinitionError, match=r"column 'operator'.*int32"):
        codec.encode_columns(VehiclePosition, pl.DataFrame({"operator": [2**40]}), event_time=pa.array([0]))


def test_a_type_known_only_by_its_definition_is_decoded():
    file = descriptor_pb2.FileDescriptorProto(name="mine.proto", package="mine", syntax="proto3")
    message = file.message_type.add(name="Reading")
    message.field.add(name="celsius", number=1, type=1, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    reading = message_factory.GetMessageClass(pool.FindMessageTypeByName("mine.Reading"))

    here, there = TypeRegistry(), TypeRegistry()
    here.register(reading)
    event = codec.pack(reading(celsius=21.5), event_time=1)
    assert "mine.Reading" not in there
    there.register_definition("mine.Reading", here.definition("mine.Reading"))
    decoded = codec.decode_columns("mine.Reading", pa.array([codec.encode(event)]), registry=_with_envelope(there))
    assert decoded.columns["celsius"].to_pylist() == [21.5]


def _with_envelope(registry):
    registry.register(Event)
    return registry


def test_a_message_with_a_field_of_the_envelope_is_refused():
    file = descriptor_pb2.FileDescriptorProto(name="bad.proto", package="bad", syntax="proto3")
    file.message_type.add(name="Taken").field.add(name="event_time", number=1, type=1, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    registry = _with_envelope(TypeRegistry())
    registry.register(message_factory.GetMessageClass(pool.FindMessageTypeByName("bad.Taken")))
    with pytest.raises(DefinitionError, match="event_time"):
        codec.decode_columns("bad.Taken", pa.array([b""]), registry=registry)


def test_installed_types_are_known_without_being_registered():
    assert "tidewheel.transit.v1.VehiclePosition" in types
    assert types.schema(Punctuation).names == ["epoch"]
    with pytest.raises(UnknownTypeError, match="VehiclePosition"):
        types.message_class("no.such.Type")
    with pytest.raises(DefinitionError, match="cannot register 5"):
        types.register(5)
