"""What each transit job should give, from its specification, in plain Python over the whole input.

Nothing here is shared with the jobs. Input is a list of batches, each a list of rows (dictionaries, times in µs) and
the watermark that the batch moves to; a row is judged by the watermark before its batch. H3 itself is the library's.
Rows that are late, or repeat another, are told by vehicle and time, as often as they come.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import polars_h3

Row = dict[str, Any]
Batches = Sequence[tuple[Sequence[Row], int | None]]
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
Reported = Counter[tuple[int, int, int]]
"""Rows by operator, vehicle and time."""


def who(row: Row) -> tuple[int, int, int]:
    return row["operator"], row["vehicle"], row["event_time"]


def arrivals(batches: Batches) -> Iterator[tuple[int, int | None, Row]]:
    """Every row with its place in the order of arrival and the watermark when it came."""
    place, mark = 0, None
    for rows, watermark in batches:
        for row in rows:
            yield place, mark, row
            place += 1
        if watermark is not None:
            mark = watermark if mark is None else max(mark, watermark)


def cells(rows: Sequence[Row], resolution: int) -> list[int]:
    frame = pl.DataFrame({"lat": [row["lat"] for row in rows], "lon": [row["lon"] for row in rows]})
    return frame.select(polars_h3.latlng_to_cell("lat", "lon", resolution)).to_series().to_list() if rows else []


def neighbours(cell: int) -> set[int]:
    found = pl.DataFrame({"cell": [cell]}, schema={"cell": pl.UInt64}).select(polars_h3.grid_ring("cell", 1))
    return {int(other) for other in found.to_series()[0]}


def skipped(batches: Batches, *, place: bool, route: bool = False, journey: bool = False) -> Counter[str]:
    """How many rows a job of positions skips, by reason."""
    found: Counter[str] = Counter()
    for _, _, row in arrivals(batches):
        if row["journey"] == "deadrun":
            found["deadrun"] += 1
        elif place and (row["lat"] is None or row["lon"] is None):
            found["without_place"] += 1
        elif route and (row["route"] is None or row["direction"] is None):
            found["without_route"] += 1
        elif journey and None in (row["operating_day"], row["start"], row["route"], row["direction"]):
            found["without_journey"] += 1
    return found


def usable(row: Row, *, place: bool = True) -> bool:
    return row["journey"] != "deadrun" and not (place and (row["lat"] is None or row["lon"] is None))


def windows_of(time: int, size: int, every: int) -> list[tuple[int, int]]:
    last = time // every * every
    return [(start, start + size) for start in range(last, time - size, -every)]


def vehicle_distribution(batches: Batches, *, size=30 * SECOND, every=5 * SECOND, lateness=5 * SECOND, resolution=9):
    """(cell, window) → vehicles; and which rows are late."""
    taken = [(place, mark, row) for place, mark, row in arrivals(batches) if usable(row)]
    latest: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    late: Reported = Counter()
    for (place, mark, row), cell in zip(taken, cells([row for _, _, row in taken], resolution), strict=True):
        accepted = [
            (start, end)
            for start, end in windows_of(row["event_time"], size, every)
            if mark is None or end + lateness > mark
        ]
        late[who(row)] += not accepted
        for window in accepted:
            key = (row["operator"], row["vehicle"], window)
            candidate = (row["event_time"], place, cell)
            latest[key] = max(latest.get(key, candidate), candidate)
    table = Counter((cell, window) for (_, _, window), (_, _, cell) in latest.items())
    return dict(table), +late


def final_stop_distribution(
    batches: Batches, known: Mapping[Any, Row], *, size=5 * MINUTE, every=5 * SECOND, lateness=5 * SECOND, resolution=9
):
    """(cell of the final stop, or 0 if it is not known; window) → vehicles; and which rows are late."""
    places = [{"lat": stop["final_lat"], "lon": stop["final_lon"]} for stop in known.values()]
    cell_of = dict(zip(known, cells(places, resolution), strict=True))
    latest: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    late: Reported = Counter()
    for place, mark, row in arrivals(batches):
        if not usable(row, place=False):
            continue
        time, journey = row["event_time"], (row["route"], row["direction"], row["operating_day"], row["start"])
        accepted = [window for window in windows_of(time, size, every) if mark is None or window[1] + lateness > mark]
        late[who(row)] += not accepted
        for window in accepted:
            key = (row["operator"], row["vehicle"], window)
            candidate = (time, place, cell_of.get(journey, 0))
            latest[key] = max(latest.get(key, candidate), candidate)
    table = Counter((cell, window) for (_, _, window), (_, _, cell) in latest.items())
    return dict(table), +late


def delay_distribution(batches: Batches, *, size=5 * MINUTE, every=5 * SECOND, lateness=5 * SECOND, resolution=9):
    """(cell, window) → (arrivals, p50, p90, p99); which are late, which repeat another, how many have no schedule. What
    repeats another is reported as such as long as another of its time could be in a window."""
    unscheduled = 0
    late: Reported = Counter()
    repeats: Reported = Counter()
    seen: set[Any] = set()
    values: dict[Any, list[int]] = defaultdict(list)
    for _, mark, row in arrivals(batches):
        if row["event"] != "ars":
            continue
        if row["scheduled_arrival"] is None:
            unscheduled += 1
            continue
        if not usable(row):
            continue
        time = row["event_time"]
        if mark is not None and time + size + lateness < mark:
            late[who(row)] += 1
            continue
        delay = time // MINUTE - row["scheduled_arrival"] // MINUTE
        [cell] = cells([row], resolution)
        identity = (row["operator"], row["vehicle"], row["stop"], time, delay, cell)
        if identity in seen:
            repeats[who(row)] += 1
            continue
        seen.add(identity)
        accepted = [window for window in windows_of(time, size, every) if mark is None or window[1] + lateness > mark]
        late[who(row)] += not accepted
        for window in accepted:
            values[cell, window].append(delay)
    table = {}
    for key, found in values.items():
        found.sort()
        ranks = [found[math.ceil(percent * len(found) / 100) - 1] for percent in (50, 90, 99)]
        table[key] = (len(found), *ranks)
    return table, +late, repeats, unscheduled


def in_order(
    batches: Batches, columns: Sequence[str], *, place: bool, lateness: int = 0
) -> tuple[dict[tuple[int, int], list[Row]], Reported, Reported]:
    """Each vehicle's rows by event time, those of one time as they came, without exact repeats in these columns; which
    were further behind the watermark than the lateness, and which repeat another."""
    late: Reported = Counter()
    repeats: Reported = Counter()
    seen: set[Any] = set()
    found: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for _, mark, row in arrivals(batches):
        if not usable(row, place=place):
            continue
        if mark is not None and row["event_time"] < mark - lateness:
            late[who(row)] += 1
            continue
        identity = (row["operator"], row["vehicle"], row["event_time"], *(row[name] for name in columns))
        if identity in seen:
            repeats[who(row)] += 1
            continue
        seen.add(identity)
        found[row["operator"], row["vehicle"]].append(row)
    ordered = {vehicle: sorted(rows, key=lambda row: row["event_time"]) for vehicle, rows in found.items()}
    return ordered, late, repeats


def flow_direction(
    batches: Batches, *, size=5 * MINUTE, every=5 * SECOND, lateness=5 * SECOND, forget=HOUR, resolution=9
):
    """(cell, window) → (neighbour, crossings, total); which rows are late, and which repeat another."""
    marked = []
    for rows, watermark in batches:
        with_place = [row for row in rows if usable(row)]
        found = cells(with_place, resolution)
        marked.append(([{**row, "cell": cell} for row, cell in zip(with_place, found, strict=True)], watermark))
    vehicles, late, repeats = in_order(marked, ["cell"], place=True, lateness=lateness)
    crossings: dict[Any, Counter[int]] = defaultdict(Counter)
    near: dict[int, set[int]] = {}
    for rows in vehicles.values():
        for one, two in pairwise(rows):
            if one["cell"] == two["cell"] or two["event_time"] - one["event_time"] > forget:
                continue
            if two["cell"] in near.setdefault(one["cell"], neighbours(one["cell"])):
                for window in windows_of(two["event_time"], size, every):
                    crossings[one["cell"], window][two["cell"]] += 1
    table = {}
    for key, counts in crossings.items():
        most = max(counts.values())
        table[key] = (min(cell for cell, count in counts.items() if count == most), most, sum(counts.values()))
    return table, late, repeats


def emergency_stop(batches: Batches, *, fast=10.0, standing=1.0, within=10 * SECOND):
    """(operator, vehicle, first time, last time) → (mode, speed difference, deceleration, lat, lon); which rows are
    late, and which repeat another."""
    vehicles, late, repeats = in_order(batches, ["mode", "speed", "acc", "lat", "lon"], place=False)
    table = {}
    for (operator, vehicle), rows in vehicles.items():
        begin = 0
        while begin < len(rows):
            end = _hard_stop(rows, begin, fast, standing, within)
            if end is None:
                begin += 1
                continue
            first, last = rows[begin], rows[end]
            difference = first["speed"] - last["speed"]
            hardest = min(row["acc"] for row in rows[begin + 1 : end])
            key = (operator, vehicle, first["event_time"], last["event_time"])
            table[key] = (last["mode"], difference, hardest, last["lat"], last["lon"])
            begin = end + 1
    return table, late, repeats


def _hard_stop(rows: list[Row], begin: int, fast: float, standing: float, within: int) -> int | None:
    """Where a stop that begins here ends: with the first row that no longer brakes, which must stand."""
    if rows[begin]["speed"] is None or rows[begin]["speed"] < fast:
        return None
    braking = begin + 1
    while braking < len(rows) and rows[braking]["acc"] is not None and rows[braking]["acc"] < 0:
        braking += 1
    if braking == begin + 1 or braking == len(rows):
        return None
    last = rows[braking]
    stands = last["speed"] is not None and last["speed"] < standing
    return braking if stands and last["event_time"] - rows[begin]["event_time"] < within else None


def journeys(batches: Batches, *, gap=10 * MINUTE, lateness=MINUTE):
    """(journey, window) → figures; which rows are late, and which repeat another. Sessions that the watermark has left
    behind take no more rows."""
    late: Reported = Counter()
    repeats: Reported = Counter()
    seen: set[Any] = set()
    names = ("operator", "vehicle", "operating_day", "start", "route", "direction")
    # A session: the times of its first and of its last row, and its rows in any order.
    open_: dict[Any, list[tuple[int, int, list[Row]]]] = defaultdict(list)
    done: list[tuple[Any, list[Row]]] = []
    mark: int | None = None
    for rows, watermark in batches:
        for row in rows:
            key = tuple(row[name] for name in names)
            if not usable(row, place=False) or None in key:
                continue
            time = row["event_time"]
            if mark is not None and time + gap + lateness < mark:
                late[who(row)] += 1
                continue
            served = row["stop"] if row["doors"] == 1 else None
            identity = (*key, time, row["speed"], row["odometer"], served)
            if identity in seen:
                repeats[who(row)] += 1
                continue
            seen.add(identity)
            if mark is not None and time + gap + lateness == mark:  # still known as a repeat, but no longer taken
                late[who(row)] += 1
                continue
            first, last, joined = time, time, [row]
            others = []
            for low, high, session in open_[key]:
                if low < time + gap and time < high + gap:
                    session.extend(joined)
                    first, last, joined = min(first, low), max(last, high), session
                else:
                    others.append((low, high, session))
            open_[key] = [*others, (first, last, joined)]
        if watermark is not None:
            mark = watermark if mark is None else max(mark, watermark)
        for key, sessions in open_.items():
            over = [mark is not None and last + gap + lateness <= mark for _, last, _ in sessions]
            done += [(key, session) for (_, _, session), is_over in zip(sessions, over, strict=True) if is_over]
            open_[key] = [session for session, is_over in zip(sessions, over, strict=True) if not is_over]
    done += [(key, session) for key, sessions in open_.items() for _, _, session in sessions]
    table = {}
    for key, session in done:
        times = [row["event_time"] for row in session]
        speeds = [row["speed"] for row in session if row["speed"] is not None]
        metres = [row["odometer"] for row in session if row["odometer"] is not None]
        stops = {row["stop"] for row in session if row["doors"] == 1 and row["stop"] is not None}
        table[key, (min(times), max(times) + gap)] = (
            min(times),
            max(times),
            (max(times) - min(times)) / SECOND,
            max(metres) - min(metres) if metres else None,
            len(session),
            max(speeds, default=None),
            len(stops),
        )
    return table, late, repeats


def metres(a: Row, b: Row) -> float:
    """Between two places on a sphere of the earth's mean radius, by the angle between their vectors."""

    def vector(row: Row) -> tuple[float, float, float]:
        lat, lon = math.radians(row["lat"]), math.radians(row["lon"])
        return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)

    (x, y, z), (u, v, w) = vector(a), vector(b)
    cross = math.hypot(y * w - z * v, z * u - x * w, x * v - y * u)
    return 6_371_008.8 * math.atan2(cross, x * u + y * v + z * w)


def distances(batches: Batches, *, every=10 * SECOND) -> dict[Any, dict[int, float]]:
    """Of each pair: window end → metres between its samples."""
    samples: dict[Any, dict[Any, tuple[int, int, Row]]] = defaultdict(dict)
    for place, mark, row in arrivals(batches):
        if not usable(row) or row["route"] is None or row["direction"] is None:
            continue
        end = (row["event_time"] // every + 1) * every
        if mark is not None and end <= mark:
            continue  # its window has given its sample
        mine = samples[row["route"], row["direction"], end]
        vehicle = (row["operator"], row["vehicle"])
        candidate = (row["event_time"], place, row)
        mine[vehicle] = max(mine.get(vehicle, candidate), candidate, key=lambda found: found[:2])
    pairs: dict[Any, dict[int, float]] = defaultdict(dict)
    for (route, direction, end), mine in samples.items():
        ordered = sorted(mine)
        for number, one in enumerate(ordered):
            for two in ordered[number + 1 :]:
                pairs[(route, direction, *one, *two)][end] = metres(mine[one][2], mine[two][2])
    return pairs


def late_samples(batches: Batches, *, every=10 * SECOND) -> Reported:
    """Which rows come when the watermark has reached the end of their window."""
    late: Reported = Counter()
    for _, mark, row in arrivals(batches):
        if not usable(row) or row["route"] is None or row["direction"] is None or mark is None:
            continue
        late[who(row)] += (row["event_time"] // every + 1) * every <= mark
    return +late


def bunching(batches: Batches, *, every=10 * SECOND, nearer=200.0):
    """A list of (pair, change, time, since, metres, seconds)."""
    found = []
    for pair, apart in distances(batches, every=every).items():
        near = {end for end, far in apart.items() if far < nearer}
        for end in near:
            if end - every in near:
                continue
            last = end
            while last + every in near:
                last += every
            over = last + every
            found.append((pair, "start", end - 1, end - 1, apart[end], None))
            found.append((pair, "end", over - 1, end - 1, None, (over - end) / SECOND))
    return found


def closing_in(batches: Batches, *, every=10 * SECOND, by=100.0, nearer=1_000.0):
    """A list of (pair, time, metres, metres a second)."""
    found = []
    for pair, apart in distances(batches, every=every).items():
        reported, last, seen = False, None, None
        for end in sorted(apart):
            now, before, first = apart[end], apart.get(end - every), apart.get(end - 2 * every)
            if last is None or now > last or end - seen > HOUR:
                reported = False
            last, seen = now, end
            if before is None or first is None or not first > before > now:
                continue
            if first - now < by or now >= nearer or reported:
                continue
            reported = True
            found.append((pair, end - 1, now, (first - now) / (2 * every / SECOND)))
    return found


def in_ring(lat: float, lon: float, ring: Sequence[tuple[float, float]]) -> bool:
    """By the sum of the angles under which the sides are seen: a whole turn, or none."""
    total = 0.0
    for (a_lon, a_lat), (b_lon, b_lat) in zip(ring, [*ring[1:], ring[0]], strict=True):
        a, b = math.atan2(a_lat - lat, a_lon - lon), math.atan2(b_lat - lat, b_lon - lon)
        total += (b - a + math.pi) % (2 * math.pi) - math.pi
    return abs(total) > math.pi


def geofences(batches: Batches, fences: dict[str, Sequence[tuple[float, float]]], *, forget=6 * HOUR):
    """A list of (operator, vehicle, mode, latitude, longitude, fence, change, time, since, seconds inside); which rows
    are late, and which repeat another. Fences are rings of (longitude, latitude)."""
    vehicles, late, repeats = in_order(batches, ["mode", "lat", "lon"], place=True)
    found = []
    for vehicle, rows in vehicles.items():
        for name, ring in fences.items():
            was, since, last = None, None, None
            for row in rows:
                time = row["event_time"]
                if last is not None and time - last > forget:
                    was = since = None
                last = time
                inside = in_ring(row["lat"], row["lon"], ring)
                if inside and not was:
                    since = time
                if was is not None and inside != was:
                    change = "enter" if inside else "leave"
                    spent = None if inside else (time - since) / SECOND
                    place = (row["mode"], row["lat"], row["lon"])
                    found.append((*vehicle, *place, name, change, time, since, spent))
                was = inside
                if not inside:
                    since = None
    return found, late, repeats
