"""Instants and durations as people write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import DefinitionError
from tidewheel.model.time import approximate_duration, duration, format_duration, format_instant, instant, short_instant


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
        ("17 us", 17),
    ],
)
def test_durations_are_read(text, micros):
    assert duration(text) == micros


@pytest.mark.parametrize(
    "text", ["", "5", 5, -5, "s", "5 parsecs", "5 s and", "five s", None, 1.5, True, "-", "- -5 s"]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(DefinitionError, match="size"):
        duration(text, what="size")


def test_a_number_without_a_unit_is_taken_where_nobody_but_our_own_code_writes_it():
    assert duration(17, bare=True) == 17
    assert duration(0) == 0


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


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (32_198_400_000_000, "372 d"),
        (32_198_400_000_000.0, "372 d"),
        (9 * 86_400_000_000 + 5 * 3_600_000_000, "9 d 5 h"),
        (86_400_000_000 + 59_000_000, "1 d"),
        (3_660_000_000, "1 h 1 min"),
        (65_400_000, "1 min 5 s"),
        (12_600_000, "12 s"),
        (1_540_000, "1.5 s"),
        (250_700, "250 ms"),
        (7, "7 µs"),
        (0, "0 s"),
        (-90_000_000, "-1 min 30 s"),
    ],
)
def test_people_are_shown_about_how_long(micros, text):
    assert approximate_duration(micros) == text


@given(st.integers(0, 10**15))
def test_about_how_long_is_never_more_and_little_less(micros):
    reported = duration(approximate_duration(micros))
    assert reported <= micros
    assert micros - reported <= micros * 0.1


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(timezone.utc)))
def test_an_instant_for_people_is_that_to_the_millisecond(moment):
    shown = short_instant(instant(moment))
    assert instant(shown) == instant(moment) // 1_000 * 1_000
    assert not shown.endswith(("0Z", ".Z")) or "." not in shown
