"""The jobs of the transit application, one file each."""

from tidewheel_transit.jobs.bunching import bunching
from tidewheel_transit.jobs.closing_in import closing_in
from tidewheel_transit.jobs.delay_distribution import delay_distribution
from tidewheel_transit.jobs.emergency_stop import emergency_stop
from tidewheel_transit.jobs.emergency_stop_sql import emergency_stop_sql
from tidewheel_transit.jobs.final_stop_distribution import final_stop_distribution
from tidewheel_transit.jobs.flow_direction import flow_direction
from tidewheel_transit.jobs.geofences import geofences
from tidewheel_transit.jobs.journeys import journeys
from tidewheel_transit.jobs.vehicle_cell import vehicle_cell
from tidewheel_transit.jobs.vehicle_distribution import vehicle_distribution

__all__ = [
    "bunching",
    "closing_in",
    "delay_distribution",
    "emergency_stop",
    "emergency_stop_sql",
    "final_stop_distribution",
    "flow_direction",
    "geofences",
    "journeys",
    "vehicle_cell",
    "vehicle_distribution",
]
