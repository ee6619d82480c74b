"""Results to people: the live view of result topics over WebSocket, server-sent events and HTTP.

>>> import tempfile
>>> from tidewheel.transport.log import open_log
>>> with open_log(tempfile.mkdtemp() + "/city.tw") as log, serve(log, port=0) as server:
...     server.url.startswith("http://127.0.0.1:")
True
"""

from tidewheel.serve.layer import Layer
from tidewheel.serve.server import Server, serve

__all__ = ["Layer", "Server", "serve"]
