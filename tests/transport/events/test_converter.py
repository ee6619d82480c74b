"""What the decoder does not bear is malformed, and nothing else is."""

from __future__ import annotations

import logging
import subprocess
import sys

import pyarrow as pa
import pytest

from tests import ROOT
from tidewheel.errors import MalformedError, PanicError, panics_as_errors
from tidewheel.threads import ServiceThread
from tidewheel.transport.events import codec
from tidewheel.transport.events.converter import Converter
from tidewheel.transport.events.event_pb2 import Event
from tidewheel_transit.transit_pb2 import Arrival, VehiclePosition

PANICKING = bytes.fromhex("1affffffffffffffffff01")  # details of 2^64 - 1 bytes
DEEP = b"\x0b" * 200_000  # groups within groups


def event(vehicle: int) -> bytes:
    return codec.encode(codec.pack(VehiclePosition(vehicle=vehicle), event_time=1, ingestion_time=1))


def carrying(details: bytes) -> bytes:
    """A position whose details are these bytes."""
    whole = codec.pack(VehiclePosition(), event_time=1)
    whole.details.value = details
    return codec.encode(whole)


@pytest.mark.parametrize("only", [None, frozenset({"event_time", "vehicle"})])
def test_what_makes_the_decoder_panic_is_malformed_and_the_others_are_not(only, caplog):
    values = [event(number) for number in range(1_000)]
    bad = {
        0: PANICKING,
        7: PANICKING[:-1],
        500: carrying(bytes.fromhex("0affffffffffffffffff01")),
        501: b"\xff",
        999: bytes.fromhex("0afdffffffffffffffff01"),
    }
    for place, value in bad.items():
        values[place] = value
    with caplog.at_level(logging.WARNING):
        decoded = codec.decode_columns(VehiclePosition, pa.array(values), only=only)
    good = [number for number in range(1_000) if number not in bad]
    assert decoded.rows.to_pylist() == decoded.columns["vehicle"].to_pylist() == good
    assert [place for place, _ in decoded.errors] == sorted(bad)
    assert all("failed to decode Protobuf message: " in reason for _, reason in decoded.errors)
    assert any(PANICKING.hex() in record.getMessage() for record in caplog.records), "the log names the event"
    assert not codec.decode_columns(VehiclePosition, pa.array([event(1)]), only=only).errors, "it still works"


def test_a_message_fares_in_a_batch_with_a_panic_as_it_does_alone():
    # A length beyond the end in a field that nobody knows: protobuf's own decoder is stricter.
    lenient = event(1) + bytes.fromhex("a206f8ffffffffffffffff01")
    converter = Converter(Event.DESCRIPTOR)
    for value in (lenient, event(2), b"\xff", event(3)[:-1], PANICKING):
        _, alone, reason_alone = converter.decode_each(pa.array([value]))
        _, rows, reasons = converter.decode_each(pa.array([event(0), value, PANICKING, event(4)]))
        assert (1 in rows.to_pylist()) == bool(len(alone))
        assert reasons.get(1) == reason_alone.get(0)


@pytest.mark.parametrize("where", ["the event", "its details"])
def test_what_would_overflow_the_decoder_s_stack_is_malformed(where):
    """In a process of its own: it would not survive."""
    code = f"""
import pyarrow as pa
from tests.transport.events.test_converter import DEEP, VehiclePosition, carrying, codec, event
value = {"DEEP" if where == "the event" else "carrying(DEEP)"}
decoded = codec.decode_columns(VehiclePosition, pa.array([event(1), value, event(3)]))
assert decoded.columns["vehicle"].to_pylist() == [1, 3], decoded
assert [place for place, _ in decoded.errors] == [1]
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_long_message_is_decoded_as_a_short_one():
    values = pa.array([codec.encode(codec.pack(Arrival(stop="x" * size), event_time=1)) for size in (1, 10_000, 10**6)])
    decoded = codec.decode_columns(Arrival, values)
    assert [len(stop) for stop in decoded.columns["stop"].to_pylist()] == [1, 10_000, 10**6]
    assert not decoded.errors


def test_all_of_a_batch_may_be_malformed():
    batch, rows, errors = Converter(Event.DESCRIPTOR).decode_each(pa.array([PANICKING, b"\xff", PANICKING]))
    assert (batch.num_rows, len(rows), sorted(errors)) == (0, 0, [0, 1, 2])
    with pytest.raises(MalformedError):
        Converter(Event.DESCRIPTOR).decode(pa.array([PANICKING]))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_panic_stays_what_it_is(kind):
    with pytest.raises(kind), panics_as_errors():
        raise kind
    with pytest.raises(PanicError), panics_as_errors():
        Converter(Event.DESCRIPTOR)._handler.array_to_record_batch(pa.array([PANICKING]))


def test_whatever_ends_a_thread_is_reported(caplog):
    for error in (SystemExit(0), KeyboardInterrupt(), ValueError("no number")):

        def work(error=error):
            raise error

        thread = ServiceThread(work, name="the reader")
        thread.start()
        thread.join(60)
        assert isinstance(thread.failure, Exception)
        assert type(error).__name__ in caplog.text
