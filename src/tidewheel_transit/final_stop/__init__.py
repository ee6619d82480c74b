"""Where journeys end: the lookup and its providers."""

from tidewheel_transit.final_stop.definition import FINAL_STOP
from tidewheel_transit.final_stop.gtfs import GtfsFinalStops
from tidewheel_transit.final_stop.routing import RoutingService
from tidewheel_transit.final_stop.simulator_stops import SimulatedFinalStops

__all__ = ["FINAL_STOP", "GtfsFinalStops", "RoutingService", "SimulatedFinalStops"]
