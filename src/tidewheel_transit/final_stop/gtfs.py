"""Final stops from timetables in GTFS, the format in which transit agencies publish them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import tidewheel as tw
from tidewheel.ingest import Key, ProviderError
from tidewheel_transit.final_stop.definition import DAY_BEGINS, minute_of

__all__ = ["GtfsFinalStops"]

_NEEDED = {
    "routes.txt": ("route_id",),
    "trips.txt": ("route_id", "service_id", "trip_id", "direction_id"),
    "stop_times.txt": ("trip_id", "departure_time", "stop_id", "stop_sequence"),
    "stops.txt": ("stop_id", "stop_lat", "stop_lon"),
}
_CALENDAR = ("service_id", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
             "start_date", "end_date")  # fmt: skip
_A_DAY = timedelta(days=1)
_MINUTES = 24 * 60
_DATES = ("service_id", "date", "exception_type")


class GtfsFinalStops:
    """Answers from a GTFS feed: a folder or zip with routes, trips, stop_times and stops, read once.

    Route ids are those of the events, directions 0 and 1 are the events' 1 and 2. If the feed has a calendar, only
    trips that run on the operating day count; if trips of the same departure still end at different stops, there is no
    answer.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        frames = {name: _read(self._path, name, columns) for name, columns in _NEEDED.items()}
        self._ends = _ends(frames)
        self._calendar = _read(self._path, "calendar.txt", _CALENDAR, optional=True)
        self._dates = _read(self._path, "calendar_dates.txt", _DATES, optional=True)
        self._services: dict[date, frozenset[str]] = {}

    async def ask(self, key: Key) -> Mapping[str, Any] | None:
        """Return the final stop of the journey (route, direction, operating day, start)."""
        route, direction, day, start = key
        try:
            operating, trips = date.fromisoformat(day), self._ends.get((route, direction, minute_of(start)), ())
            ends = {stop for later, service, stop in trips if self._runs(service, operating - later * _A_DAY)}
        except (tw.errors.MalformedError, ValueError, OverflowError) as error:  # the last, at the end of all days
            raise ProviderError(str(error), again=False, healthy=True) from None
        if len(ends) != 1:
            return None
        stop, lat, lon = ends.pop()
        return {"final_stop": stop, "final_lat": lat, "final_lon": lon}

    def _runs(self, service: str, day: date) -> bool:
        """Whether a service runs on this day; without calendars every one does."""
        if self._calendar is None and self._dates is None:
            return True
        if day not in self._services:
            text = f"{day:%Y%m%d}"
            found: set[str] = set()
            if self._calendar is not None:
                weekday = pl.col(_CALENDAR[1 + day.weekday()]) == "1"
                runs = weekday & pl.lit(text).is_between(pl.col("start_date"), pl.col("end_date"))
                found.update(self._calendar.filter(runs)["service_id"].to_list())
            if self._dates is not None:
                for each, kind in self._dates.filter(pl.col("date") == text).select(_DATES[0], _DATES[2]).rows():
                    (found.add if kind == "1" else found.discard)(each)
            self._services[day] = frozenset(found)
        return service in self._services[day]

    def __repr__(self) -> str:
        return f"GtfsFinalStops({str(self._path)!r})"


Ends = Mapping[tuple[str, int, int], tuple[tuple[int, str, tuple[str, float, float]], ...]]
"""By route, direction and minute of departure in the operating day: how many days after the service's own that is, the
service, and the stop at which its trip ends."""


def _ends(frames: Mapping[str, pl.DataFrame]) -> Ends:
    """First departure and last stop of every trip."""
    clock = pl.col("departure_time").str.strip_chars().str.split(":").list
    minute = clock.get(0, null_on_oob=True).cast(pl.Int32, strict=False) * 60 + clock.get(1, null_on_oob=True).cast(
        pl.Int32, strict=False
    )
    runs = (
        frames["stop_times.txt"]
        .with_columns(pl.col("stop_sequence").cast(pl.Int32, strict=False), minute.alias("minute"))
        .sort("trip_id", "stop_sequence")
        .group_by("trip_id", maintain_order=True)
        .agg(pl.col("minute").first(), pl.col("stop_id").last())
    )
    stops = frames["stops.txt"].with_columns(pl.col("stop_lat", "stop_lon").cast(pl.Float64, strict=False))
    trips = (
        frames["trips.txt"]
        .with_columns(pl.col("direction_id").cast(pl.Int32, strict=False) + 1)
        .join(frames["routes.txt"].select("route_id").unique(), on="route_id", how="semi")
        .join(runs, on="trip_id")
        .join(stops, on="stop_id")
        .drop_nulls(["route_id", "direction_id", "minute", "service_id", "stop_lat", "stop_lon"])
    )
    found: dict[tuple[str, int, int], tuple[tuple[int, str, tuple[str, float, float]], ...]] = {}
    columns = ["route_id", "direction_id", "minute", "service_id", "stop_id", "stop_lat", "stop_lon"]
    for route, direction, at, service, *stop in trips.select(columns).unique(maintain_order=True).iter_rows():
        # Feeds write the small hours either way: as 25:10 of the day, or as 01:10 of the next. Events know the first.
        later, since = divmod(at - DAY_BEGINS, _MINUTES)
        key = (route, direction, since + DAY_BEGINS)
        found[key] = (*found.get(key, ()), (later, service, (stop[0], stop[1], stop[2])))
    return found


def _read(path: Path, name: str, columns: tuple[str, ...], *, optional: bool = False) -> Any:
    """Read a file of the feed as text columns."""
    data = _bytes(path, name)
    if data is None:
        if optional:
            return None
        raise tw.errors.DefinitionError(f"{path} is no GTFS feed: there is no {name} in it")
    if not data.strip():
        fix = "give it a line with the names of its columns" + (", or take it out of the feed" if optional else "")
        raise tw.errors.DefinitionError(f"{path}: {name} is empty; {fix}")
    try:
        frame = pl.read_csv(io.BytesIO(data), infer_schema=False, encoding="utf8-lossy")
    except pl.exceptions.PolarsError as error:
        what = str(error).partition("\n")[0]
        raise tw.errors.DefinitionError(
            f"{path}: {name} is no table of comma-separated values ({what}); fix its lines"
        ) from None
    frame = frame.rename({column: column.strip().lstrip("\ufeff") for column in frame.columns})
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise tw.errors.DefinitionError(
            f"{path}: {name} has no column {missing[0]!r}; it has {', '.join(frame.columns)}"
        )
    return frame.select(columns)


def _bytes(path: Path, name: str) -> bytes | None:
    if path.is_dir():
        file = path / name
        return file.read_bytes() if file.exists() else None
    try:
        with zipfile.ZipFile(path) as archive:
            inside = [entry for entry in archive.namelist() if entry.rpartition("/")[2] == name]
            return archive.read(inside[0]) if inside else None
    except FileNotFoundError:
        raise tw.errors.DefinitionError(f"there is no GTFS feed at {path}; give a folder or a zip file") from None
    except zipfile.BadZipFile:
        raise tw.errors.DefinitionError(
            f"{path} is neither a folder nor a zip file; a GTFS feed is one of them"
        ) from None
