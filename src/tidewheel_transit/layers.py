"""The layers of the transit jobs on the live map. Their colours are distinguishable with any colour vision."""

from __future__ import annotations

from typing import Final

from tidewheel.serve import Cell, Colouring, Edge, Figure, Layer, Nowhere, Point, Scale, Value

__all__ = ["LAYERS"]

_LATE_TO_EARLY = ["#b8382a", "#eca269", "#d9d2c3", "#8fb8cc", "#22608f"]
_HEAT = ["#fed976", "#fd8d3c", "#e31a1c", "#800026"]
_MODES = {
    "bus": "#0072b2",
    "tram": "#009e73",
    "train": "#cc79a7",
    "metro": "#d55e00",
    "ferry": "#56b4e9",
    "ubus": "#e69f00",
    "robot": "#999999",
}
_CHANGES = {"start": "#d55e00", "end": "#0072b2", "enter": "#d55e00", "leave": "#0072b2"}

_POSITION = 10_000
_JOURNEY = 300_000


def _figures(*rows: tuple[str, str, str]) -> list[Figure]:
    return [Figure(field=field, label=label, unit=unit) for field, label, unit in rows]


def _stops(topic: str, title: str, about: str, *, on: bool) -> Layer:
    return Layer(
        topic=topic,
        title=title,
        about=about,
        key=["operator", "vehicle"],
        geometry=Point(),
        show="alerts",
        value=Value(field="speed_difference", label="speed lost", unit="m/s"),
        scale=Scale(kind="sequential", domain=[8, 20], colours=_HEAT),
        figures=_figures(
            ("mode", "mode", ""),
            ("operator", "operator", ""),
            ("vehicle", "vehicle", ""),
            ("speed_difference", "speed lost", "m/s"),
            ("strongest_deceleration", "strongest braking", "m/s²"),
            ("match_start", "from", "time"),
            ("match_end", "to", "time"),
        ),
        filters=["mode", "operator"],
        on=on,
    )


def _pairs(
    topic: str, title: str, about: str, *, value: Value, scale: Scale | None = None, figures: list[tuple[str, str, str]]
) -> Layer:
    return Layer(
        topic=topic,
        title=title,
        about=about,
        key=["route", "direction", "operator", "vehicle", "other_operator", "other_vehicle"],
        geometry=Nowhere(),
        show="table",
        value=value,
        scale=scale,
        figures=_figures(
            ("route", "route", ""),
            ("direction", "direction", ""),
            ("vehicle", "vehicle", ""),
            ("other_vehicle", "other vehicle", ""),
            *figures,
        ),
        filters=["operator", "route"],
        filters_also={"operator": ["other_operator"]},
        on=False,
    )


def _vehicles(topic: str, *figures: tuple[str, str, str]) -> Layer:
    return Layer(
        topic=topic,
        name="vehicles",
        title="Vehicles",
        about="Every vehicle where it was last heard of.",
        key=["operator", "vehicle"],
        geometry=Point(heading="heading"),
        show="moving",
        value=Value(field="mode", label="mode"),
        scale=Scale(kind="categorical", categories=_MODES),
        alternatives=[
            Colouring(
                value=Value(field="delay", label="ahead of timetable", unit="s"),
                scale=Scale(kind="diverging", domain=[-180, 0, 180], colours=_LATE_TO_EARLY),
            ),
            Colouring(
                value=Value(field="speed", label="speed", unit="m/s"),
                scale=Scale(kind="sequential", domain=[0, 20]),
            ),
        ],
        figures=_figures(
            ("mode", "mode", ""),
            ("route", "route", ""),
            ("direction", "direction", ""),
            ("operator", "operator", ""),
            ("vehicle", "vehicle", ""),
            ("speed", "speed", "m/s"),
            ("heading", "heading", "°"),
            ("delay", "ahead of timetable", "s"),
            *figures,
        ),
        filters=["mode", "operator", "route"],
        all_fields=False,  # a position has thirty, and there are hundreds a second
        expiry=_POSITION,
    )


LAYERS: Final = (
    # Vehicles move as their positions come in: that needs no job. Where only results are kept, it takes those.
    _vehicles("input.vehicle-position"),
    _vehicles("analytics.vehicle-cell", ("cell", "cell", "")),
    Layer(
        topic="analytics.vehicle-distribution",
        title="Vehicles per cell",
        about="How many vehicles each cell held in the last 30 s, each counted once.",
        key=["cell"],
        geometry=Cell(),
        show="cells",
        value=Value(field="vehicles", label="vehicles"),
        scale=Scale(kind="sequential", domain=[0, 12]),
        figures=_figures(("vehicles", "vehicles", ""), ("window_start", "from", "time"), ("window_end", "to", "time")),
    ),
    Layer(
        topic="analytics.delay-distribution",
        title="Delays",
        about="How late vehicles arrived at the stops of a cell in the last 5 min.",
        key=["cell"],
        geometry=Cell(),
        show="cells",
        value=Value(field="p50", label="median delay", unit="min"),
        scale=Scale(kind="diverging", domain=[-3, 0, 8]),
        figures=_figures(
            ("p50", "median delay", "min"),
            ("p90", "90th percentile", "min"),
            ("p99", "99th percentile", "min"),
            ("arrivals", "arrivals", ""),
        ),
        on=False,
    ),
    Layer(
        topic="analytics.final-stop-distribution",
        title="Final stops",
        about="Vehicles per cell of the final stop that they are under way to, in the last 5 min.",
        key=["cell"],
        geometry=Cell(),
        show="cells",
        value=Value(field="vehicles", label="vehicles"),
        scale=Scale(kind="sequential", domain=[0, 30]),
        figures=_figures(("vehicles", "vehicles under way there", "")),
        on=False,
    ),
    Layer(
        topic="analytics.flow-direction",
        title="Flows",
        about="Where most of the vehicles went that left a cell in the last 5 min.",
        key=["cell"],
        geometry=Edge(),
        show="arrows",
        value=Value(field="crossings", label="crossings"),
        scale=Scale(kind="sequential", domain=[1, 40]),
        figures=_figures(("crossings", "crossings there", ""), ("total", "crossings to any neighbour", "")),
        on=False,
    ),
    _stops(
        "analytics.emergency-stop",
        "Emergency stops",
        "Vehicles that braked from 10 m/s to a standstill within 10 s.",
        on=True,
    ),
    _stops(
        "analytics.emergency-stop-sql",
        "Emergency stops (SQL)",
        "The same stops, found by MATCH_RECOGNIZE.",
        on=False,
    ),
    Layer(
        topic="analytics.journeys",
        title="Journeys",
        about="Journeys that have ended: how long, how far, how fast.",
        key=["operator", "vehicle", "operating_day", "start", "route", "direction"],
        geometry=Nowhere(),
        show="table",
        value=Value(field="duration", label="duration", unit="s"),
        figures=_figures(
            ("route", "route", ""),
            ("direction", "direction", ""),
            ("start", "departure", ""),
            ("duration", "duration", "s"),
            ("distance", "distance", "m"),
            ("highest_speed", "highest speed", "m/s"),
            ("stops_served", "stops served", ""),
            ("events", "positions", ""),
        ),
        filters=["operator", "route"],
        expiry=_JOURNEY,
        on=False,
    ),
    _pairs(
        "analytics.bunching",
        "Bunching",
        "Two vehicles of a route less than 200 m apart: when it starts and when it ends.",
        value=Value(field="change", label="change"),
        scale=Scale(kind="categorical", categories={name: _CHANGES[name] for name in ("start", "end")}),
        figures=[("change", "change", ""), ("distance", "distance", "m"), ("duration", "duration", "s")],
    ),
    _pairs(
        "analytics.closing-in",
        "Closing in",
        "Vehicles that catch up with another of their route.",
        value=Value(field="distance", label="distance", unit="m"),
        figures=[("distance", "distance", "m"), ("closing_speed", "closing speed", "m/s")],
    ),
    Layer(
        topic="analytics.geofences",
        title="Geofences",
        about="Vehicles that came into a region or left it.",
        key=["operator", "vehicle", "fence"],
        geometry=Point(),
        show="points",
        value=Value(field="change", label="change"),
        scale=Scale(kind="categorical", categories={name: _CHANGES[name] for name in ("enter", "leave")}),
        figures=_figures(
            ("fence", "region", ""),
            ("change", "change", ""),
            ("mode", "mode", ""),
            ("vehicle", "vehicle", ""),
            ("inside", "time inside", "s"),
        ),
        filters=["mode", "operator"],
        on=False,
    ),
)
"""One for each job; `vehicles` shows the positions themselves, or without them the job vehicle-cell."""
