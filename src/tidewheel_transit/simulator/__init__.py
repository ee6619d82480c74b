"""A simulator of a city's fleet in HFP v2: real places of Helsinki, made-up traffic, the same from the same seed."""

from tidewheel_transit.simulator.chunk import Chunk
from tidewheel_transit.simulator.drive import drive
from tidewheel_transit.simulator.simulator import Simulator

__all__ = ["Chunk", "Simulator", "drive"]
