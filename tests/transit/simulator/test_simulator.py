from __future__ import annotations

import math
from itertools import islice

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transit.simulator_support import MORNING, NOON, history, morning
from tidewheel.errors import DefinitionError
from tidewheel.ingest.pipeline import Pipeline
from tidewheel.model.time import instant
from tidewheel.transport.events import codec
from tidewheel.transport.events.registry import types
from tidewheel.transport.log.log import Log
from tidewheel_transit.hfp import HfpProcessor
from tidewheel_transit.simulator import Chunk, Simulator
from tidewheel_transit.simulator.city import LINES, PLACES
from tidewheel_transit.simulator.network import network
from tidewheel_transit.topics import EVENTS, TOPICS

SECOND = 1_000_000


def all_records(chunks: list[Chunk]) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for chunk in chunks:
        for topic, batch in chunk.records().topics.items():
            found.setdefault(topic, []).extend(batch.to_pylist())
    return found


def cut(ends: list[int], **options: float) -> list[Chunk]:
    simulator = Simulator(start=NOON, **options)  # type: ignore[arg-type]
    return [simulator.advance(NOON + end) for end in ends]


class TestSameSeed:
    @settings(max_examples=8, deadline=None)
    @given(st.lists(st.integers(1, 12 * SECOND), max_size=12, unique=True).map(sorted))
    def test_gives_the_same_bytes_however_they_are_cut(self, ends: list[int]) -> None:
        whole = cut([12 * SECOND], seed=3, rate=60)
        assert all_records(cut([*ends, 12 * SECOND], seed=3, rate=60)) == all_records(whole)

    def test_gives_the_same_messages(self) -> None:
        again = [message for chunk in cut([SECOND, 3 * SECOND], seed=3, rate=60) for message in chunk.messages()]
        assert again == cut([3 * SECOND], seed=3, rate=60)[0].messages()

    @pytest.mark.parametrize("other", [{"seed": 4}, {"rate": 70}, {"rush_hours": False}])
    def test_with_another_seed_rate_or_profile_is_another_day(self, other: dict[str, float]) -> None:
        given = {"seed": 3, "rate": 60}
        assert all_records(cut([SECOND], **given)) != all_records(cut([SECOND], **given | other))


class TestRate:
    @pytest.mark.parametrize("rate", [20, 700, 5_000])
    def test_is_what_was_asked_for_at_every_hour_without_rush_hours(self, rate: int) -> None:
        simulator = Simulator(start=NOON, rate=rate, rush_hours=False)
        seconds = 60 if rate < 1_000 else 10
        assert len(simulator.advance(NOON + seconds * SECOND)) / seconds == pytest.approx(rate, rel=0.1)

    def test_is_the_mean_of_a_day_with_rush_hours(self) -> None:
        hours = [self.rate_at(hour + 0.5) for hour in range(24)]
        assert sum(hours) / 24 == pytest.approx(700, rel=0.07)

    def test_has_its_peaks_in_the_morning_and_in_the_afternoon_and_little_at_night(self) -> None:
        night, morning_peak, noon, afternoon_peak, late = map(self.rate_at, (3.0, 8.1, 12.0, 16.15, 22.5))
        assert night < 150
        assert morning_peak == pytest.approx(1_081, rel=0.08)
        assert afternoon_peak == pytest.approx(1_123, rel=0.08)
        assert morning_peak > 1.1 * noon
        assert afternoon_peak > 1.1 * noon
        assert late < 0.7 * noon

    @staticmethod
    def rate_at(hour: float) -> float:
        start = instant("2025-10-09T00:00:00+03:00") + round(hour * 3_600) * SECOND
        return len(Simulator(start=start).advance(start + 5 * SECOND)) / 5

    def test_of_many_events_runs_copies_of_the_lines_with_routes_of_their_own(self) -> None:
        frame = Simulator(start=NOON, rate=3_000, rush_hours=False).advance(NOON + 2 * SECOND).frame
        journeys = frame.filter(pl.col("journey") == "journey")
        vehicles = journeys.group_by("route").agg(count=pl.struct("operator", "vehicle").n_unique())
        assert vehicles.height > len(LINES)
        assert vehicles["count"].max() < 60  # type: ignore[operator]


FAST, FAST_SECONDS = 50_000, 2


@pytest.fixture(scope="module")
def fast_chunks() -> list[Chunk]:
    simulator = Simulator(start=NOON, rate=FAST, rush_hours=False)
    return [simulator.advance(NOON + second * SECOND) for second in range(1, FAST_SECONDS + 1)]


@pytest.fixture(scope="module")
def fast(fast_chunks: list[Chunk]) -> pl.DataFrame:
    return pl.concat(chunk.frame for chunk in fast_chunks)


class TestFiftyThousandASecond:
    """The most that is promised, down to the bytes in the log."""

    def test_come(self, fast: pl.DataFrame) -> None:
        assert fast.height == pytest.approx(FAST * FAST_SECONDS, rel=0.05)
        assert fast["arrival_time"].is_sorted()

    def test_are_of_many_vehicles_each_with_a_position_a_second(self, fast: pl.DataFrame) -> None:
        vehicle = ["operator", "vehicle"]
        positions = fast.filter(pl.col("event") == "vp").drop("arrival_time").unique()
        assert positions.select(vehicle).unique().height > 0.9 * FAST / 1.077
        gaps = positions.sort("event_time").select(pl.col("event_time").diff().over(vehicle))["event_time"].drop_nulls()
        assert gaps.dt.total_milliseconds().min() >= 1_000  # type: ignore[operator]
        assert positions["vehicle"].is_between(1, 99_999).all()

    def test_are_all_in_the_log(self, fast_chunks: list[Chunk], fast: pl.DataFrame, log: Log) -> None:
        pipeline = Pipeline(log, HfpProcessor(), source="simulator")
        for chunk in fast_chunks:
            pipeline.deliver_processed(chunk.records(), received=len(chunk))
        expected = fast.filter((pl.col("event") == "vp") & (pl.col("temporal") == "ongoing"))
        topic = "input.vehicle-position"
        values = pa.chunked_array(batch.records["value"] for batch in log.read(topic, 0, 0))
        found = pl.DataFrame(codec.decode_columns(TOPICS[topic], values).columns)
        assert found.equals(expected.rename({"arrival_time": "ingestion_time"}).select(found.columns))
        report = pipeline.report()
        assert report.received == fast.height == sum(report.topics.values()) + sum(report.filtered.values())
        assert {name: log.topic_info(name).count for name in report.topics} == dict(report.topics)


class TestChunks:
    def test_hold_what_arrives_in_their_time_in_order(self) -> None:
        simulator = Simulator(start=NOON, rate=100)
        for number, chunk in enumerate(islice(simulator.chunks(seconds=0.7), 20)):
            arrivals = chunk.frame["arrival_time"].to_physical()
            assert chunk.start == NOON + number * 700_000
            assert chunk.end == chunk.start + 700_000
            assert arrivals.is_sorted()
            assert ((arrivals >= chunk.start) & (arrivals < chunk.end)).all()
            assert len(chunk) == chunk.frame.height > 0

    def test_go_on_where_the_last_one_ended(self) -> None:
        simulator = Simulator(start=NOON, rate=30)
        first = next(simulator.chunks(seconds=1.0))
        second = next(simulator.chunks(seconds=2.0))
        assert second.start == first.end == NOON + SECOND
        assert simulator.position == second.end

    def test_may_be_empty(self) -> None:
        chunk = Simulator(start=NOON, rate=1).advance(NOON)
        assert len(chunk) == chunk.frame.height == chunk.records().count == len(chunk.messages()) == 0

    def test_have_the_columns_of_the_messages(self) -> None:
        frame = morning()
        for message in TOPICS.values():
            assert set(types.schema(message).names) <= set(frame.columns)
        known = {name for message in TOPICS.values() for name in types.schema(message).names}
        assert set(frame.columns) - known == {"event_time", "arrival_time", "geohash_level", "lag"}

    def test_begin_in_the_midst_of_a_day(self) -> None:
        first = Simulator(start=NOON, rate=300).advance(NOON + 5 * SECOND).frame
        driving = first.filter((pl.col("event") == "vp") & (pl.col("speed") > 3))
        assert driving.height > 0.3 * first.height


class TestFields:
    def test_every_event_type_is_there(self) -> None:
        assert set(history()["event"]) == set(EVENTS)

    def test_are_valid(self) -> None:
        frame = history()
        assert frame["lat"].drop_nulls().is_between(60.1, 60.35).all()
        assert frame["lon"].drop_nulls().is_between(24.6, 25.2).all()
        assert frame["speed"].drop_nulls().is_between(0, 35).all()
        assert frame["acc"].drop_nulls().is_between(-6, 2).all()
        assert frame["heading"].drop_nulls().is_between(0, 359).all()
        assert frame["operator"].is_between(1, 9_999).all()
        assert frame["vehicle"].is_between(1, 99_999).all()
        assert set(frame["mode"]) == {"bus", "tram", "train", "metro", "ferry"}
        assert set(frame["location_source"]) == {"GPS", "ODO", "N/A"}
        assert frame["geohash_level"].is_between(0, 5).all()
        assert (frame["event_time"].to_physical() % 1_000 == 0).all()

    def test_of_a_journey_are_all_there(self) -> None:
        journeys = history().filter(pl.col("journey") == "journey")
        for name in ("route", "direction", "start", "operating_day", "headsign", "designation", "line", "delay"):
            assert journeys[name].null_count() == 0, name
        assert set(journeys["direction"]) == {1, 2}
        assert journeys["start"].str.contains(r"^[0-2]\d:[0-5]\d$").all()
        assert set(journeys["operating_day"]) == {"2025-10-09"}
        assert journeys["next_stop"].str.contains(r"^(\d{7}|EOL)$").all()

    def test_a_journey_is_run_by_one_vehicle(self) -> None:
        frame = Simulator(start=MORNING).advance(MORNING + 5 * SECOND).frame.drop_nulls("start")
        journeys = frame.group_by("route", "direction", "operating_day", "start")
        assert journeys.agg(count=pl.struct("operator", "vehicle").n_unique())["count"].max() == 1
        vehicles = frame.group_by("operator", "vehicle").agg(pl.col("route").n_unique(), pl.col("mode").n_unique())
        assert vehicles["route"].max() == vehicles["mode"].max() == 1

    def test_of_a_deadrun_say_nothing_of_a_journey(self) -> None:
        deadruns = history().filter(pl.col("journey") == "deadrun")
        assert deadruns.height > 0.02 * history().height
        for name in ("route", "direction", "start", "operating_day", "headsign", "next_stop", "stop", "delay"):
            assert deadruns[name].null_count() == deadruns.height, name

    def test_of_a_stop_are_where_the_stop_is(self) -> None:
        stops = pl.DataFrame(
            {"stop": [str(stop.number) for stop in network().stops], "stop_lat": [stop.lat for stop in network().stops]}
        )
        arrived = history().filter((pl.col("event") == "ars") & pl.col("lat").is_not_null()).join(stops, on="stop")
        assert arrived.height > 1_000
        assert ((arrived["lat"] - arrived["stop_lat"]).abs() * 111_320).max() < 40

    def test_timetable_times_are_whole_minutes_and_some_vehicles_do_not_send_them(self) -> None:
        arrived = history().filter(pl.col("event") == "ars")
        assert (arrived["scheduled_arrival"].drop_nulls().to_physical() % (60 * SECOND) == 0).all()
        assert 0 < arrived["scheduled_arrival"].null_count() < 0.3 * arrived.height
        reported = arrived.drop_nulls("scheduled_arrival")
        late = (reported["event_time"] - reported["scheduled_arrival"]).dt.total_seconds()
        assert (late + reported["delay"]).abs().max() <= 1

    def test_some_vehicles_report_another_operator_than_their_topic(self) -> None:
        other = history().drop_nulls("reported_operator")
        assert set(other["operator"]) == {18}
        assert set(other["reported_operator"]) == {6}

    def test_after_midnight_belong_to_the_operating_day_before(self) -> None:
        start = instant("2025-10-10T01:00:00+03:00")
        frame = Simulator(start=start, rate=300).advance(start + 5 * SECOND).frame.drop_nulls("start")
        assert set(frame["operating_day"]) == {"2025-10-09"}
        assert frame["start"].str.contains("^(23|00|01)").all()


def test_every_place_is_on_a_line_and_every_line_on_known_places() -> None:
    assert {place for line in LINES for place in line.places} == set(PLACES)
    assert len({line.route for line in LINES}) == len(LINES)


@pytest.mark.parametrize(
    ("place", "lat", "lon"),
    [
        ("Rautatientori", 60.1719, 24.9414),
        ("Senaatintori", 60.1694, 24.9525),
        ("Pasila", 60.1986, 24.9336),
        ("Itäkeskus", 60.2100, 25.0778),
        ("Tikkurila", 60.2922, 25.0439),
        ("Lentoasema", 60.3158, 24.9686),
    ],
)
def test_well_known_places_are_where_they_are_in_helsinki(place: str, lat: float, lon: float) -> None:
    def metres(there: tuple[float, float]) -> float:
        return math.hypot((there[0] - lat) * 111_320, (there[1] - lon) * 55_300)

    assert metres(PLACES[place]) < 300
    assert min(metres((stop.lat, stop.lon)) for stop in network().stops) < 300


@pytest.mark.parametrize(
    ("options", "text"),
    [({"rate": 0}, "rate must be between 1"), ({"rate": 1e9}, "100,000 events a second"), ({"seed": -1}, "seed must")],
)
def test_what_makes_no_sense_is_refused(options: dict[str, float], text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        Simulator(start=MORNING, **options)  # type: ignore[arg-type]


def test_time_does_not_go_back() -> None:
    simulator = Simulator(start=MORNING, rate=5)
    simulator.advance(MORNING + SECOND)
    with pytest.raises(DefinitionError, match="cannot go back"):
        simulator.advance(MORNING)
    with pytest.raises(DefinitionError, match="seconds must be above 0"):
        next(simulator.chunks(seconds=0.0))
