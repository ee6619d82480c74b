"""HTTP for both servers: with deadlines and limits, and strict where proxies might read a request otherwise.

It is uvicorn's, with h11 beneath it. What is added: a request whose framing is ambiguous (Content-Length together with
Transfer-Encoding, or twice; a header over several lines; lines that do not end in CR LF) is refused and the connection
ended, since a proxy in front might see another request in it; headers and bodies must have come in time; and
`Connections` says who may stay.
"""

from __future__ import annotations

import asyncio
import json
import re
from http import HTTPStatus
from typing import Any

import h11
from h11._receivebuffer import ReceiveBuffer
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tidewheel.ingest.http.connections import ConnectionLimits, Connections, Ticket

__all__ = ["HttpProtocol", "LiveSocket", "http_protocol"]

_LINGER_SECONDS = 2.0
"""A connection that is refused is read from for so long: to end it at once would take the answer away with it."""
_LINE = 8_000
"""Bytes of a handshake's line: the WebSocket library reads up to 8,192, and says nothing of longer ones."""
_NUMBER = re.compile(rb"[0-9]{1,18}")


class _StrictBuffer(ReceiveBuffer):
    """A receive buffer that checks what h11 reads from it, and refuses what h11 would tolerate."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__()
        self._limits = limits

    def maybe_extract_lines(self) -> list[bytearray] | None:
        before = bytes(self)
        lines = super().maybe_extract_lines()
        if lines is not None:
            self._check(before[: len(before) - len(self)])
        return lines

    def maybe_extract_next_line(self) -> bytearray | None:
        line = super().maybe_extract_next_line()
        if line is not None and (b"\r" in line[:-2] or b"\n" in line[:-2]):
            raise h11.LocalProtocolError("a chunk's line has a line break within it")
        return line

    def _check(self, head: bytes) -> None:
        if len(head) > self._limits.header_bytes:
            raise h11.LocalProtocolError(f"the headers have more than {self._limits.header_bytes} bytes", 431)
        ends = head.count(b"\r\n")
        if head.count(b"\r") != ends or head.count(b"\n") != ends:
            raise h11.LocalProtocolError("every line of a request must end in CR LF")
        lines = head.split(b"\r\n")[:-2]
        if len(lines) - 1 > self._limits.headers:
            raise h11.LocalProtocolError(f"there are more than {self._limits.headers} headers", 431)
        if any(line[:1] in (b" ", b"\t") for line in lines):
            raise h11.LocalProtocolError("a header must not go on in the next line")
        fields = [line.partition(b":") for line in lines[1:]]
        lengths = [value.strip(b" \t") for name, _, value in fields if name.lower() == b"content-length"]
        chunked = any(name.lower() == b"transfer-encoding" for name, _, _ in fields)
        if len(lengths) > 1 or not all(_NUMBER.fullmatch(length) for length in lengths):
            raise h11.LocalProtocolError("Content-Length must be there once, as a number")
        if lengths and chunked:
            raise h11.LocalProtocolError("Content-Length and Transfer-Encoding must not be sent together; send one")
        if chunked and lines and lines[0].endswith(b" HTTP/1.0"):
            raise h11.LocalProtocolError("HTTP/1.0 has no Transfer-Encoding")


class _StrictConnection(h11.Connection):
    """Remembers why a request was refused."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__(h11.SERVER, limits.header_bytes)
        if not isinstance(self._receive_buffer, ReceiveBuffer):  # as h11 0.16 has it
            raise TypeError("this h11 keeps elsewhere what it receives: requests cannot be checked; install h11 0.16")
        self._receive_buffer = _StrictBuffer(limits)
        self.error: h11.RemoteProtocolError | None = None

    def next_event(self) -> Any:
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.error = error
            raise
        if isinstance(event, h11.Request) and event.http_version not in (b"1.1", b"1.0"):
            self.error = h11.RemoteProtocolError("this server speaks HTTP/1.1", 505)
            raise self.error
        return event


class HttpProtocol(H11Protocol):
    """One connection. `http_protocol` makes the class for a server."""

    admission: Connections
    health: str
    """The path of the server's health."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = self.admission.limits
        self.conn = _StrictConnection(self._limits)
        self._ticket: Ticket | None = None
        self._phase = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._began = False
        """Whether anything has come at all."""
        self._done = False
        """Whether nothing more is read here: refused, or a WebSocket from now on."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a new connection."""
        super().connection_made(transport)
        self._ticket = self.admission.admit(self.client[0] if self.client else "", transport.abort)
        if self._ticket.refusal is not None:
            self.app = _OnlyHealth(self.app, self.health, *self._ticket.refusal)
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a connection that has ended."""
        self._enter("")
        self._unset_keepalive_if_required()
        if self._stall is not None:
            self._stall.cancel()
        if self._ticket is not None:
            self.admission.release(self._ticket)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take the bytes that have come."""
        self._began = True
        if self._done:
            return
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """Continue with the next request when one was answered."""
        super().on_response_complete()
        self._watch_writing()
        self._follow()

    def pause_writing(self) -> None:
        """Note that the client takes less than it is sent."""
        super().pause_writing()
        self._watch_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing came for too long."""
        if self.conn.our_state in (h11.IDLE, h11.DONE, h11.MUST_CLOSE):
            super().timeout_keep_alive_handler()
        else:
            self.transport.close()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to a WebSocket."""
        # Nobody here looks at cookies, and those of a whole domain are more than the WebSocket library reads.
        self.headers = [(name, value) for name, value in self.headers if name != b"cookie"]
        sizes = [len(event.target), *(len(name) + len(value) for name, value in self.headers)]
        if self._ticket is not None and self._ticket.refusal is not None:
            self._refuse(*self._ticket.refusal, retry_after=10)
        elif sizes[0] > _LINE:
            self._refuse(414, f"the address of a WebSocket has at most {_LINE} bytes, this one has {sizes[0]}")
        elif max(sizes) > _LINE:
            self._refuse(431, f"a header of a WebSocket's handshake has at most {_LINE} bytes, one has {max(sizes)}")
        else:
            self._done = True
            self._enter("")
            super().handle_websocket_upgrade(event)
            socket, ticket = self.transport.get_protocol(), self._ticket
            assert isinstance(socket, LiveSocket)
            if ticket is not None:
                self.admission.asked(ticket)
                socket.on_lost = lambda: self.admission.release(ticket)
            socket.watch_writing(max(self._limits.stall_seconds, self.config.ws_ping_timeout or 0))

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be understood."""
        error = getattr(self.conn, "error", None)
        status = 400 if error is None else error.error_status_hint
        self._refuse(status, msg if error is None else f"{msg.rstrip('.')}: {error}")

    def _follow(self) -> None:
        """Set the deadline of the next event."""
        if self._done or self.transport.is_closing() or self._ticket is None:
            return
        state = self.conn.their_state
        if state is h11.IDLE:
            first = self.cycle is None
            self._enter("head" if first or self.conn.trailing_data[0] else "")
            self.admission.waits(self._ticket)
        elif state is h11.SEND_BODY:
            self._enter("body")
            self.admission.waits(self._ticket)
        else:
            self._enter("")
            self.admission.asked(self._ticket)

    def _enter(self, phase: str) -> None:
        """The deadline of a phase begins when it is entered: a byte now and then does not put it off."""
        if phase == self._phase:
            return
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if phase:
            seconds = self._limits.header_seconds if phase == "head" else self._limits.body_seconds
            self._deadline = self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        if self.transport.is_closing():
            return
        if self._phase == "head" and not self._began:
            self.transport.abort()  # browsers open connections that they may never use: there is nothing to answer
        elif self._phase == "head":
            self._refuse(408, f"the headers have not come within {self._limits.header_seconds:g} s")
        elif self.cycle is not None and self.cycle.response_started:
            self.transport.abort()
        else:
            self._refuse(408, f"the body has not come within {self._limits.body_seconds:g} s")

    def _refuse(self, status: int, reason: str, *, retry_after: int | None = None) -> None:
        """Answer, and end the connection."""
        self._done = True
        self._enter("")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = json.dumps({"error": reason}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            (b"connection", b"close"),
        ]
        if retry_after is not None:
            headers.append((b"retry-after", b"%d" % retry_after))
        try:
            phrase = HTTPStatus(status).phrase.encode()
            answer = self.conn.send(h11.Response(status_code=status, headers=headers, reason=phrase)) or b""
            answer += (self.conn.send(h11.Data(data=body)) or b"") + (self.conn.send(h11.EndOfMessage()) or b"")
        except h11.LocalProtocolError:  # half an answer is on its way
            self.transport.abort()
            return
        self.transport.write(answer)
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(_LINGER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client accepts data again."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _watch_writing(self) -> None:
        """Close a connection whose client no longer accepts data; also one that is being closed, which waits until the
        client has taken the rest."""
        if self._stall is None:
            left = self.transport.get_write_buffer_size()
            if left:
                self._stall = self.loop.call_later(self._limits.stall_seconds, self._look_at_writing, left)

    def _look_at_writing(self, before: int) -> None:
        self._stall = None
        if self.transport.get_write_buffer_size() >= before:
            self.transport.abort()
        else:
            self._watch_writing()


class LiveSocket(WebSocketsSansIOProtocol):
    """A WebSocket of such a connection."""

    on_lost: Any = None
    _stall: asyncio.TimerHandle | None = None

    def watch_writing(self, seconds: float, before: int | None = None) -> None:
        """Close the connection if its client accepts nothing for so long: an unsent frame holds up the next one, and
        also the end of a connection that is being closed."""
        left = self.transport.get_write_buffer_size()
        waits = self.transport.is_closing() or not self.writable.is_set()
        if waits and before is not None and 0 < before <= left:
            self.transport.abort()
        else:
            self._stall = self.loop.call_later(seconds, self.watch_writing, seconds, left if waits else None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a WebSocket that has ended."""
        super().connection_lost(exc)
        if self._stall is not None:
            self._stall.cancel()
        if self.on_lost is not None:
            self.on_lost()

    def handle_parser_exception(self) -> None:
        """Refuse what cannot be understood: a handshake is answered as HTTP."""
        if self.handshake_initiated:
            super().handle_parser_exception()
            return
        body = json.dumps({"error": f"not a WebSocket's handshake: {self.conn.parser_exc}"}).encode()
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(b"%scontent-length: %d\r\n\r\n%s" % (head, len(body), body))
        self.transport.close()


class _OnlyHealth:
    """Answers only requests for the server's health, and ends the connection."""

    def __init__(self, app: ASGIApp, health: str, status: int, reason: str) -> None:
        self._app = app
        self._health = health
        self._status = status
        self._reason = reason

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def last(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            await send(message)

        if scope["path"] == self._health:
            await self._app(scope, receive, last)
            return
        body = json.dumps({"error": self._reason}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"retry-after", b"10"),
        ]
        await last({"type": "http.response.start", "status": self._status, "headers": headers})
        await last({"type": "http.response.body", "body": body})


def http_protocol(connections: Connections, *, health: str) -> type[HttpProtocol]:
    """The protocol class of a server with these connections and this health path."""
    return type("HttpProtocol", (HttpProtocol,), {"admission": connections, "health": health})
