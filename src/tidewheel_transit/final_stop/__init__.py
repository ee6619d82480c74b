"""The final stops of journeys: the lookup and its providers. `routing_service` needs an HTTP client, so it is imported
only where it is used."""

from tidewheel_transit.final_stop.definition import FINAL_STOP
from tidewheel_transit.final_stop.gtfs import GtfsFinalStops
from tidewheel_transit.final_stop.simulator_stops import SimulatedFinalStops

__all__ = ["FINAL_STOP", "GtfsFinalStops", "SimulatedFinalStops"]
