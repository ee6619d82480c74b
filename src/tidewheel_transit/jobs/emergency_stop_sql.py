"""emergency-stop-sql: vehicles that brake hard, by a statement."""

from __future__ import annotations

import tidewheel as tw
from tidewheel_transit.jobs.emergency_stop import USED
from tidewheel_transit.jobs.steps import on_journey, once
from tidewheel_transit.transit_pb2 import EmergencyStop, VehiclePosition

__all__ = ["emergency_stop_sql"]


@tw.job(
    "emergency-stop-sql",
    reads={"input.vehicle-position": VehiclePosition},
    writes=EmergencyStop,
    key=("operator", "vehicle"),
)
def emergency_stop_sql(
    positions: tw.Stream, *, fast: float = 10.0, standing: float = 1.0, within: str = "10 s"
) -> tw.Result:
    """Emergency stops from MATCH_RECOGNIZE, the same as those of emergency-stop."""
    # B+ would give back to S a row that brakes and is slow; the pattern of emergency-stop takes all that brakes. So S
    # is what no longer brakes.
    statement = f"""
        SELECT * FROM positions MATCH_RECOGNIZE (
            PARTITION BY operator, vehicle ORDER BY event_time
            MEASURES
                LAST(S.mode) AS mode,
                FIRST(F.event_time) AS match_start,
                LAST(S.event_time) AS match_end,
                FIRST(F.speed) - LAST(S.speed) AS speed_difference,
                MIN(B.acc) AS strongest_deceleration,
                LAST(S.lat) AS lat,
                LAST(S.lon) AS lon
            AFTER MATCH SKIP PAST LAST ROW
            PATTERN (F B+ S) WITHIN INTERVAL '{within}'
            DEFINE
                F AS speed >= {fast},
                B AS acc < 0,
                S AS speed < {standing} AND (acc >= 0 OR acc IS NULL))
    """
    return tw.sql(statement, positions=once(on_journey(positions).select(*USED)))
