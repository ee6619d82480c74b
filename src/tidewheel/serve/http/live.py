"""The live stream: over a WebSocket, and as server-sent events where those are blocked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tidewheel.errors import DefinitionError
from tidewheel.model.time import Instant
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.http.requests import Ping, parse_message, parse_names, parse_query
from tidewheel.serve.view import frame as frames
from tidewheel.serve.view.feed import Feed
from tidewheel.serve.view.frame import Frame
from tidewheel.serve.view.hub import Client, CrowdedError, Hub
from tidewheel.serve.view.subscription import Subscription

__all__ = ["Live"]

_TOO_MANY = "this server has as many clients as it takes; try again later"
_POLICY, _TOO_BIG = 1008, 1009
_KEEPALIVE_SECONDS = 15.0


class Live:
    """The handlers of both streams."""

    def __init__(self, feed: Feed, hub: Hub, *, limits: ServeLimits, clock: Callable[[], Instant]) -> None:
        self._feed = feed
        self._hub = hub
        self._limits = limits
        self._clock = clock

    def routes(self) -> list[BaseRoute]:
        """The paths, and what answers each."""
        return [
            WebSocketRoute("/api/live", self.socket),
            Route("/api/live", self.no_socket),
            Route("/api/live/events", self.events),
        ]

    async def no_socket(self, _: Request) -> Response:
        """Refuse a plain request: a WebSocket is wanted there."""
        raise HTTPException(426, "this is a WebSocket; without one use /api/live/events", {"upgrade": "websocket"})

    async def socket(self, socket: WebSocket) -> None:
        """Serve a client's WebSocket from its beginning to its end."""
        if self._hub.full:
            await socket.send_denial_response(Response(_TOO_MANY, 503, {"retry-after": "10"}))
            return
        await socket.accept()

        async def send(frame: Frame) -> None:
            await socket.send({"type": "websocket.send", "text": frame.text})

        client = Client(send)
        sending = asyncio.create_task(client.run())
        # Once the last frame cannot be sent the client is gone; what it was is of no interest.
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            version = self._feed.version  # before the hello: what appears meanwhile is in the next
            await send(self._hub.hello())
            self._hub.add(client, version)
            await self._listen(socket, client, send)
        except (WebSocketDisconnect, RuntimeError, OSError):
            pass  # gone while it was spoken to
        finally:
            self._hub.remove(client)
            sending.cancel()

    async def _listen(self, socket: WebSocket, client: Client, send: Callable[[Frame], object]) -> None:
        wrong = 0
        while not client.closed:
            message = await socket.receive()
            if message["type"] != "websocket.receive":
                return
            content = message.get("text")
            try:
                if content is None:
                    raise DefinitionError("messages are text, this one was binary")
                if len(content) > self._limits.message or len(content.encode()) > self._limits.message:
                    await _say(socket, f"a message has at most {self._limits.message} bytes")
                    await socket.close(_TOO_BIG)
                    return
                await self._answer(socket, client, content)
            except DefinitionError as error:
                wrong += 1
                await _say(socket, str(error))
                if wrong >= self._limits.errors:
                    await _say(socket, f"that were {wrong} messages that make no sense")
                    await socket.close(_POLICY)
                    return

    async def _answer(self, socket: WebSocket, client: Client, content: str) -> None:
        asked = parse_message(content)
        if isinstance(asked, Ping):
            await socket.send_text(frames.pong(asked.id, now=self._clock()).text)
            return
        subscription = Subscription.of(asked.layers, asked.region, asked.filters, limits=self._limits)
        try:
            missing = self._hub.subscribe(client, subscription, asked.id)
        except CrowdedError as error:
            await _say(socket, str(error))
            return
        if missing:
            await _say(socket, self._missing(missing))
        # The next message is read when this one is answered: so each is, and none can ask faster than that.
        await client.answered.wait()

    def _missing(self, names: list[str]) -> str:
        shown = ", ".join(name[:100] for name in names[:10])
        return f"there is no layer {shown} yet; there are: {', '.join(self._feed.layers) or 'none'}"

    async def events(self, request: Request) -> Response:
        """Serve the stream as server-sent events; the query is the subscription."""
        query = request.query_params
        names = parse_names(query.get("layers")) or [name for name, layer in self._feed.layers.items() if layer.on]
        subscription = parse_query(query, query.getlist("filter"), layers=names, limits=self._limits)
        if self._hub.full:
            raise HTTPException(503, _TOO_MANY, headers={"retry-after": "10"})
        try:
            self._hub.check_room(subscription)
        except CrowdedError as error:
            raise HTTPException(503, str(error), headers={"retry-after": "10"}) from None
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._stream(subscription), headers=headers, media_type="text/event-stream")

    async def _stream(self, subscription: Subscription) -> AsyncIterator[bytes]:
        """The events of a client. One frame waits at most: a client that is slower is behind, as on a WebSocket."""
        waiting: asyncio.Queue[Frame | None] = asyncio.Queue()

        async def send(frame: Frame) -> None:
            await waiting.put(frame)
            await waiting.join()

        client = Client(send)
        client.on_close = lambda: waiting.put_nowait(None)
        sending = asyncio.create_task(client.run())
        try:
            version = self._feed.version
            yield self._hub.hello().event
            self._hub.add(client, version)
            try:
                missing = self._hub.subscribe(client, subscription)
            except CrowdedError as error:  # others were faster
                yield frames.error(str(error)).event
                return
            if missing:
                yield frames.error(self._missing(missing)).event
            while not client.closed:
                with suppress(asyncio.TimeoutError):
                    frame = await asyncio.wait_for(waiting.get(), _KEEPALIVE_SECONDS)
                    if frame is None:
                        return
                    yield frame.event
                    waiting.task_done()
                    continue
                yield b": still here\n\n"
        finally:
            self._hub.remove(client)
            sending.cancel()


async def _say(socket: WebSocket, message: str) -> None:
    await socket.send_text(frames.error(message).text)
