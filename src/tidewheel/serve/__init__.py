"""Results to people: the live view of result topics over WebSocket, server-sent events and HTTP.

>>> import tempfile
>>> from tidewheel.transport.open_log import open_log
>>> with open_log(tempfile.mkdtemp() + "/city.tw") as log, serve(log, port=0) as server:
...     server.url.startswith("http://127.0.0.1:")
True
"""

from tidewheel.serve.http.background import Background
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.http.server import Server, serve
from tidewheel.serve.layers.catalogue import layers_of_file
from tidewheel.serve.layers.layer import Cell, Colouring, Edge, Figure, Layer, Nowhere, Point, Scale, Value

__all__ = [
    "Background",
    "Cell",
    "Colouring",
    "Edge",
    "Figure",
    "Layer",
    "Nowhere",
    "Point",
    "Scale",
    "ServeLimits",
    "Server",
    "Value",
    "layers_of_file",
    "serve",
]


def __dir__() -> list[str]:
    return sorted(__all__)  # completion shows public names, not imports
