"""The jobs of the transit application, one file each."""

from tidewheel.apps.transit.jobs.vehicle_cell import vehicle_cell

__all__ = ["vehicle_cell"]
