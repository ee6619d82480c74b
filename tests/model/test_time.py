"""Instants and durations as people write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import DefinitionError
from tidewheel.model.time import duration, format_duration, format_instant, instant


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("5 s", 5_000_000),
        ("5s", 5_000_000),
        ("1 min 30 s", 90_000_000),
        ("2 hours", 7_200_000_000),
        ("1 d", 86_400_000_000),
        ("1.5 ms", 1_500),
        ("-3 s", -3_000_000),
        ("10 µs", 10),
        (timedelta(seconds=1), 1_000_000),
        (17, 17),
    ],
)
def test_durations_are_read(text, micros):
    assert duration(text) == micros


@pytest.mark.parametrize("text", ["", "5", "s", "5 parsecs", "5 s and", "five s", None, 1.5, True, "-", "- -5 s"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(DefinitionError, match="size"):
        duration(text, what="size")


@given(st.integers(0, 10**13).map(lambda value: value * 1_000))
def test_a_duration_reads_as_it_is_written(micros):
    assert abs(duration(format_duration(micros)) - micros) <= micros * 1e-5


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(timezone.utc)))
def test_an_instant_reads_as_it_is_written(moment):
    assert format_instant(instant(moment)) == moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert instant(format_instant(instant(moment))) == instant(moment)


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01", 5.0, None, True])
def test_what_is_no_instant_is_refused(text):
    with pytest.raises(DefinitionError, match="start"):
        instant(text, what="start")


def test_instants_without_a_zone_are_utc_and_absurd_ones_are_shown():
    assert instant("1970-01-01T00:00:00.5") == 500_000
    assert format_instant(2**63 - 1) == "9223372036854775807 µs"
