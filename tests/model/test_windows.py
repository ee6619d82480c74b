from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.errors import DefinitionError
from tidewheel.model import windows
from tidewheel.model.calendars import UNITS
from tidewheel.model.key_hash import hash_of
from tidewheel.model.panes import END_OF_TIME, START_OF_TIME, Window
from tidewheel.model.time import instant

HOUR = 3_600_000_000
times = st.integers(START_OF_TIME, END_OF_TIME - 1)
lengths = st.integers(1, 10_000)


def assigned(given, time, key=()):
    return [tuple(window) for window in given.assign(time, key)]


def test_tumbling_windows_stand_side_by_side_also_before_1970():
    assert assigned(windows.tumbling("10 us"), 0) == assigned(windows.tumbling("10 us"), 9) == [(0, 10)]
    assert assigned(windows.tumbling("10 us"), -1) == [(-10, 0)]
    assert assigned(windows.tumbling("10 us", offset="3 us"), 12) == [(3, 13)]


def test_sliding_windows_are_given_in_order():
    assert assigned(windows.sliding("10 us", every="4 us"), 12) == [(4, 14), (8, 18), (12, 22)]


def test_with_gaps_an_element_may_be_in_no_window():
    gaps = windows.sliding("5 us", every="10 us", allow_gaps=True)
    assert assigned(gaps, 4) == [(0, 5)]
    assert assigned(gaps, 5) == []


@given(size=lengths, every=lengths, offset=st.integers(-100, 100), time=st.integers(-(10**9), 10**9))
def test_sliding_windows_are_all_of_the_grid_that_hold_the_time(size, every, offset, time):
    given = windows.sliding(f"{size} us", every=f"{every} us", offset=f"{offset} us", allow_gaps=True)
    starts = range(time - size - every, time + every + 1)
    wanted = [start for start in starts if (start - offset) % every == 0 and start <= time < start + size]
    assert assigned(given, time) == [(start, start + size) for start in wanted]


def test_staggered_windows_are_shifted_by_the_hash_of_the_key():
    given = windows.tumbling("10 s").staggered()
    starts = {key: given.assign(0, (key,))[0].start % 10_000_000 for key in "abcdef"}
    assert starts == {key: hash_of((key,)) % 10_000_000 for key in "abcdef"}
    assert len(set(starts.values())) == 6


@given(time=times, key=st.text())
def test_every_kind_of_window_holds_the_time_and_ends_with_time_itself(time, key):
    kinds = [
        windows.tumbling("1 h"),
        windows.sliding("1 h", every="25 min").staggered(),
        windows.session(gap="1 h"),
        windows.global_(),
        *(
            windows.calendar(unit, zone=zone)
            for unit in UNITS
            for zone in ("UTC", "Pacific/Kiritimati", "America/Adak")
        ),
    ]
    for kind in kinds:
        for window in kind.assign(time, (key,)):
            assert window.start <= time < window.end <= END_OF_TIME


def test_sessions_merge_when_they_overlap_and_not_when_they_touch():
    a, b, c, d = Window(0, 10), Window(5, 15), Window(14, 24), Window(24, 34)
    assert windows.session(gap="10 us").merge([d, b, c, a]) == [(Window(0, 24), [a, b, c]), (d, [d])]


@given(st.lists(st.integers(0, 200), min_size=1))
def test_sessions_are_separated_by_silence_of_the_gap(moments):
    session = windows.session(gap="10 us")
    merged = session.merge([session.assign(moment, ())[0] for moment in moments])
    assert sorted(part for _, parts in merged for part in parts) == sorted({Window(m, m + 10) for m in moments})
    for whole, parts in merged:
        assert (whole.start, whole.end) == (parts[0].start, parts[-1].end)
        assert all(after.start - before.start < 10 for before, after in pairwise(parts))
    ends = [whole for whole, _ in merged]
    assert all(before.end <= after.start for before, after in pairwise(ends))


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-28", 24), ("2026-03-29", 23), ("2026-10-25", 25), ("2026-10-26", 24)]
)
def test_a_day_in_helsinki_may_have_23_or_25_hours(day, hours):
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Helsinki"))
    start = instant(midnight.astimezone(timezone.utc))
    given = windows.calendar("day", zone="Europe/Helsinki")
    assert assigned(given, start) == assigned(given, start + hours * HOUR - 1) == [(start, start + hours * HOUR)]


def test_the_hour_that_clocks_repeat_is_two_windows():
    given = windows.calendar("hour", zone="Europe/Helsinki")
    first = instant("2026-10-25T00:30:00Z")
    assert given.assign(first, ()) != given.assign(first + HOUR, ())
    assert assigned(windows.calendar("hour", zone="Asia/Kolkata"), instant("2026-01-01T00:45:00Z")) == [
        (instant("2026-01-01T00:30:00Z"), instant("2026-01-01T01:30:00Z"))
    ]


@pytest.mark.parametrize(
    ("unit", "start", "end"),
    [
        ("week", "2024-02-26", "2024-03-04"),
        ("month", "2024-02-01", "2024-03-01"),
        ("year", "2024-01-01", "2025-01-01"),
    ],
)
def test_weeks_begin_on_monday_and_months_and_years_on_their_first_day(unit, start, end):
    given = windows.calendar(unit)
    assert assigned(given, instant("2024-02-29T12:00:00Z")) == [(instant(start), instant(end))]


@pytest.mark.parametrize("zone", ["America/St_Johns", "America/Sao_Paulo", "America/Havana", "Pacific/Apia"])
def test_days_follow_each_other_without_gap_or_overlap_where_clocks_change_at_midnight(zone):
    given = windows.calendar("day", zone=zone)
    time = instant("2006-01-01")
    while time < instant("2012-02-01"):
        [window] = given.assign(time, ())
        assert window.start <= time < window.end
        assert given.assign(window.end - 1, ()) == [window]
        assert given.assign(window.end, ())[0].start == window.end
        time = window.end + HOUR // 2


def test_custom_windows_come_from_functions_and_are_sorted():
    given = windows.custom(lambda time: [(time, time + 5), (time - 5, time)], timestamp=lambda window, time: time + 1)
    assert assigned(given, 10) == [(5, 10), (10, 15)]
    assert given.stamp(Window(5, 10), 7) == 8
    assert not given.merging


def test_custom_windows_are_checked():
    with pytest.raises(DefinitionError, match="a window must end after its start"):
        windows.custom(lambda time: [(time, time)]).assign(1, ())
    forgetful = windows.custom(lambda time: [(time, time + 5)], merge=lambda given: [(given[0], given[:1])])
    assert forgetful.merging
    with pytest.raises(DefinitionError, match="every window that it gets back in exactly one group"):
        forgetful.merge([Window(0, 5), Window(7, 12)])
    double = windows.custom(lambda time: [], merge=lambda given: [(Window(0, 9), [one]) for one in given])
    with pytest.raises(DefinitionError, match="each result once"):
        double.merge([Window(0, 5), Window(7, 12)])
    with pytest.raises(DefinitionError, match="merge must be a function, got 3"):
        windows.custom(lambda time: [], merge=3)


def test_what_makes_no_sense_is_refused_when_it_is_defined():
    with pytest.raises(
        DefinitionError,
        match=r"^sliding window every 10 s is longer than its size 5 s, so events between windows would be lost\. "
        r"Use every <= size, or windows.tumbling\('10 s'\), or pass allow_gaps=True\.$",
    ):
        windows.sliding("5 s", every="10 s")
    for wrong, message in [
        (lambda: windows.tumbling("0 s"), 'window size must be longer than nothing, like "10 s", got 0 s'),
        (lambda: windows.tumbling("-1 s"), 'window size must be longer than nothing, like "10 s", got -1 s'),
        (lambda: windows.sliding("5 s", every=0), "sliding window every must be longer than nothing"),
        (lambda: windows.session(gap=timedelta()), "session gap must be longer than nothing"),
        (lambda: windows.tumbling("soon"), "window size must be text like"),
        (lambda: windows.count(0), "size must be a whole number of elements from 1, got 0"),
        (lambda: windows.count(2, every=3), "elements between windows would be lost"),
        (lambda: windows.calendar("decade"), "unit must be one of hour, day, week, month, year, got 'decade'"),
        (lambda: windows.calendar("day", zone="Mars/Olympus"), "time zone 'Mars/Olympus' is not known here"),
    ]:
        with pytest.raises(DefinitionError, match=message):
            wrong()


@pytest.mark.parametrize(
    "given",
    [
        windows.tumbling("1 min 30 s"),
        windows.tumbling("10 s", offset="1 s").staggered(),
        windows.sliding("5 min", every="5 s", offset="250 ms"),
        windows.sliding("1234567891 us", every="1 h", allow_gaps=True),
        windows.session(gap="30 min"),
        windows.global_(),
        windows.count(10, every=2),
        windows.calendar("day", zone="Europe/Helsinki"),
    ],
    ids=repr,
)
def test_the_repr_can_be_typed_back(given):
    assert eval(repr(given), vars(windows)) == given
