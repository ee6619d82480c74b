"""Tidewheel: correct event-stream analytics for PySpark, from the sensor to the browser."""

__version__ = "0.1.0"
