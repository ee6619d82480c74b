from __future__ import annotations

import polars as pl
import pytest

from tests.transit.simulator_support import history, morning

VEHICLE = ["operator", "vehicle"]
UNDERGROUND = ["metro", "train"]


class TestLag:
    def test_is_as_it_was_measured(self) -> None:
        lag = morning()["lag"]
        assert lag.quantile(0.5) == pytest.approx(-0.47, abs=0.05)
        assert lag.quantile(0.9) == pytest.approx(-0.12, abs=0.08)
        assert lag.quantile(0.99) == pytest.approx(9.3, abs=2.5)

    def test_is_bounded_apart_from_tunnels_and_repeats(self) -> None:
        lag = morning().filter(~pl.col("mode").is_in(UNDERGROUND))["lag"]
        assert 30 < lag.max() <= 34.7 + 1.5  # type: ignore[operator]
        assert lag.min() >= -1.2  # type: ignore[operator]

    def test_a_modem_that_stalled_sends_what_it_kept_in_a_bunch(self) -> None:
        late = morning().filter((pl.col("lag") > 10) & (pl.col("mode") == "bus") & (pl.col("event") == "vp"))
        gaps = late.select(
            pl.col("arrival_time").diff().over(VEHICLE).dt.total_milliseconds().alias("arrived"),
            pl.col("event_time").diff().over(VEHICLE).dt.total_milliseconds().alias("happened"),
        ).filter(pl.col("happened") == 1_000)
        assert gaps.height > 100
        assert gaps["arrived"].quantile(0.99) < 100  # type: ignore[operator]

    def test_messages_of_a_vehicle_overtake_each_other_now_and_then(self) -> None:
        once = (
            morning()
            .filter(pl.col("event") == "vp")
            .unique([*VEHICLE, "event_time"], keep="first", maintain_order=True)
        )
        order = once.select(pl.col("event_time").diff().over(VEHICLE))
        backwards = (order["event_time"].dt.total_milliseconds() < 0).mean()
        assert 0.0005 < backwards < 0.02  # type: ignore[operator]


class TestRepeats:
    def test_are_exact_but_for_their_arrival(self) -> None:
        repeats = morning().height - history().height
        assert 0.002 < repeats / morning().height < 0.008


class TestTunnels:
    def test_hold_messages_back_that_come_late_in_a_bunch(self) -> None:
        held = morning().filter(pl.col("lag") > 40)
        assert set(held["mode"]) <= set(UNDERGROUND)
        assert set(held["location_source"]) <= {"ODO", "N/A"}
        assert held.height > 100
        assert held["lat"].null_count() < 0.1 * held.height
        bunches = held.group_by(VEHICLE).agg(
            arrived=(pl.col("arrival_time").max() - pl.col("arrival_time").min()).dt.total_seconds(fractional=True),
            happened=(pl.col("event_time").max() - pl.col("event_time").min()).dt.total_seconds(fractional=True),
        )
        assert (bunches["arrived"] < bunches["happened"] / 10).any()

    def test_or_let_messages_through_without_a_place(self) -> None:
        blind = morning().filter((pl.col("location_source") == "ODO") & (pl.col("lag") < 1))
        assert blind.height > 1_000
        assert blind["lat"].null_count() == blind["lon"].null_count() == blind.height
        assert set(blind["mode"]) == set(UNDERGROUND)


class TestNulls:
    def test_a_place_is_missing_now_and_then(self) -> None:
        outside = morning().filter(pl.col("mode").is_in(["bus", "tram"]))
        share = outside["lat"].null_count() / outside.height
        assert 0.0005 < share < 0.005
        assert outside.filter(pl.col("lat").is_null())["location_source"].unique().to_list() == ["N/A"]
        assert (outside["lat"].is_null() == outside["lon"].is_null()).all()

    def test_speed_is_missing_only_where_the_place_is(self) -> None:
        blind = morning().filter(pl.col("speed").is_null())
        assert 0 < blind.height < morning()["lat"].null_count()
        assert blind["lat"].null_count() == blind["acc"].null_count() == blind["heading"].null_count() == blind.height
