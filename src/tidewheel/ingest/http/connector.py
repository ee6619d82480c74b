"""HTTP: messages are posted, and answered for when the log has them.

`POST /v1/messages` takes `application/x-ndjson` (the lines of recordings) or `application/x-protobuf` (`RawMessage`s of
ingest.proto, each after its length as a varint). `POST /v1/lines`, or `/v1/lines/TOPIC` to say where they come from,
takes messages as they are: each line of `application/x-ndjson`, each element of an array of `application/json`. Both
also with `Content-Encoding: gzip`. One request is one append, all or nothing; its answer counts what became of the
messages: how many were accepted, filtered by a rule, and made dead letters (with the first reasons).

    200  the log has them, and accepted or filtered some
    422  the log has them, and all are dead letters: to send them again would only make more of these
    400  cannot be taken apart; the answer says where, nothing was appended
    401  without the token           403  asked by a page of another site
    408  the request took too long   409  this sequence number was used for something else (see below)
    413  body or message too large, or too many messages
    415  neither of the two content types, or an unknown encoding
    421  another name for this machine than it knows
    429  too many requests wait, or too many producers are remembered
    503  the log cannot be written: as 429 with Retry-After

A client that must not write twice names itself (`Tidewheel-Producer: any-name`) and numbers its requests, rising, one
at a time (`Tidewheel-Sequence: 7`). It repeats a request whose answer it did not get, unchanged; if the log had it, the
answer is the same, status and counts, and says `"duplicate": true`. What it sent last, and what became of it, is kept
in the log, with the messages (see `producers`).

`GET /v1/report` gives the totals, `GET /healthz` whether the last delivery succeeded and how old the one at hand is.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from tidewheel.errors import DefinitionError, FencedError, LogError, MalformedError, SetupError
from tidewheel.ingest.connector import Deliver
from tidewheel.ingest.http.framing import (
    TooLargeError,
    parse_document,
    parse_json_lines,
    parse_lines,
    parse_protobuf,
)
from tidewheel.ingest.http.limits import HttpLimits
from tidewheel.ingest.http.producers import Producers, RefusedError, Turn, parse_turn
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Processed
from tidewheel.model.time import now
from tidewheel.threads import ServiceThread

try:
    from starlette.applications import Starlette
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from tidewheel.ingest.http.bodies import Bodies, Body, decompress
    from tidewheel.ingest.http.connections import Connections
    from tidewheel.ingest.http.guard import Guard, GuardedApp, is_loopback
    from tidewheel.ingest.http.responses import delivery_response, outcome_of, refusal_response
    from tidewheel.ingest.http.server import HttpServer, listen
except ImportError as error:
    raise SetupError(
        "HTTP needs the packages starlette, uvicorn and websockets; get them with: pip install 'tidewheel[serve]'"
    ) from error

__all__ = ["HttpConnector"]

_logger = logging.getLogger(__name__)
_PARSERS: dict[str, dict[str, Callable[..., list[Message]]]] = {
    "messages": {"application/x-ndjson": parse_json_lines, "application/x-protobuf": parse_protobuf},
    "lines": {"application/x-ndjson": parse_lines, "application/json": parse_document},
}
_LINES_TOPIC = "http"
"""Where lines come from if their sender does not say."""
_HEALTH = "/healthz"
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _PostedRequest:
    """A request whose body is here."""

    content_type: str
    topic: str | None
    """Of lines."""
    body: bytes
    packed: bool
    producer: tuple[str, int] | None
    answer: Future[JSONResponse]


class HttpConnector:
    """Takes messages that are posted to a port. See the module for what clients send and are answered.

    With a token only those are answered who bring it (`Authorization: Bearer TOKEN`); `/healthz` needs none. Whoever
    can reach the port can write, so without a token it listens on this machine only. Pages of other sites are refused,
    and other names for this machine.

    Args:
        host: Where to listen.
        port: 0 takes any free one; `port` tells it once `ready` is set.
        limits: What clients may take.
        token: What clients must bring.
        without_token: Whether all who can reach the port may write, also from other machines.
        allow_origins: Pages of these sites may post, and their names may stand for this machine.
    """

    resumes = True

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8090,
        limits: HttpLimits | None = None,
        token: str | None = None,
        without_token: bool = False,
        allow_origins: Iterable[str] = (),
    ) -> None:
        if not 0 <= port <= 65_535:
            raise DefinitionError(f"port must be from 0 to 65535, got {port}")
        self.guard = Guard(guarded=["/"], health=_HEALTH, token=token, origins=allow_origins, host=host, query=False)
        if token is None and not without_token and not is_loopback(host):
            raise DefinitionError(
                f"whoever can reach {host or 'this machine'} could write to the log: give a token (--token, or "
                "TIDEWHEEL_INGEST_TOKEN), listen on 127.0.0.1, or say that all may write (--without-token)"
            )
        self.host = host
        self.port = port
        self.ready = threading.Event()
        self.limits = limits or HttpLimits()

    @property
    def name(self) -> str:
        """The address that it listens on."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def run(self, deliver: Deliver, stop: threading.Event) -> None:
        """Serve until `stop` is set, then answer what is under way."""
        with listen(self.host, self.port, fix="choose another port") as listener:
            self.port = int(listener.getsockname()[1])
            _DeliveryServer(self, deliver, listener).run(stop)


class _DeliveryServer:
    """One run of a connector: a server in a thread of its own reads requests, this one delivers them in turn."""

    def __init__(self, connector: HttpConnector, deliver: Deliver, listener: socket.socket) -> None:
        self._connector = connector
        self._deliver = deliver
        self._listener = listener
        self._posted: queue.SimpleQueue[_PostedRequest] = queue.SimpleQueue()
        self._waiting = 0  # touched by the server's thread only, as the bodies
        self._bodies = Bodies(connector.limits.body)
        self._healthy = True
        self._began: float | None = None
        limits = connector.limits
        self._producers = Producers(most=limits.producers, expiry=limits.micros("producer_expiry"))
        routes = [
            Route("/v1/messages", self._messages, methods=["POST"]),
            Route("/v1/lines", self._messages, methods=["POST"]),
            Route("/v1/lines/{topic:path}", self._messages, methods=["POST"]),
            Route("/v1/report", self._report),
            Route(_HEALTH, self._health),
        ]
        guarded = GuardedApp(Starlette(routes=routes), connector.guard)
        # Around the guard: a browser asks whether a page may bring the token before it brings it.
        app = CORSMiddleware(
            guarded,
            allow_origins=[*connector.guard.origins],
            allow_methods=["GET", "POST"],
            allow_headers=[
                "Authorization",
                "Content-Type",
                "Content-Encoding",
                "Tidewheel-Producer",
                "Tidewheel-Sequence",
            ],
        )
        self._connections = Connections(connector.limits.of_connections())
        self._server = HttpServer(
            app, connections=self._connections, health=_HEALTH, lifespan="off", timeout_graceful_shutdown=60
        )

    def run(self, stop: threading.Event) -> None:
        thread = ServiceThread(
            lambda: self._server.run([self._listener]), name=f"the server at {self._connector.name}", daemon=False
        )
        thread.start()
        self._connector.ready.set()
        _logger.info("%s: listening", self._connector.name)
        try:
            while thread.is_alive():
                if stop.is_set():
                    self._server.should_exit = True
                try:
                    posted = self._posted.get(timeout=_POLL_SECONDS)
                except queue.Empty:
                    continue
                self._deliver_and_answer(posted)
        finally:
            self._server.should_exit = True
            self._refuse_until_end(thread)
        if thread.failure is not None:
            raise thread.failure
        if not stop.is_set():
            raise RuntimeError("the server ended by itself")

    def _deliver_and_answer(self, posted: _PostedRequest) -> None:
        if not posted.answer.set_running_or_notify_cancel():
            return
        self._began = time.monotonic()
        try:
            answer = self._answer(posted)
        except RefusedError as refused:
            answer = refusal_response(refused)
        except BaseException as error:
            posted.answer.set_result(refusal_response(RefusedError(503, f"this server stops: {error}", retry_after=5)))
            raise
        finally:
            self._began = None
        posted.answer.set_result(answer)

    def _refuse_until_end(self, thread: threading.Thread) -> None:
        """Refuse what comes until the thread ends, so that no client waits for an answer that does not come."""
        while thread.is_alive():
            try:
                posted = self._posted.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if posted.answer.set_running_or_notify_cancel():
                posted.answer.set_result(refusal_response(RefusedError(503, "this server stops", retry_after=5)))

    def _answer(self, posted: _PostedRequest) -> JSONResponse:
        """All that takes long is done here, in a thread of its own: the server goes on answering."""
        connector = self._connector
        limits = {"max_message": connector.limits.message, "max_messages": connector.limits.messages}
        try:
            body = decompress(posted.body, limit=connector.limits.body) if posted.packed else posted.body
            if posted.topic is None:
                messages = _PARSERS["messages"][posted.content_type](body, received_at=now(), **limits)
            else:
                messages = _PARSERS["lines"][posted.content_type](body, topic=posted.topic, received_at=now(), **limits)
        except TooLargeError as error:
            raise RefusedError(413, str(error)) from None
        except MalformedError as error:
            raise RefusedError(400, str(error)) from None
        turn = None if posted.producer is None else Turn.of(*posted.producer, *_identity(posted, body))
        try:
            if not self._producers.known:
                self._producers.load(self._deliver.state)
            repeated = turn is not None and self._producers.is_repeated(turn)
            delivered = self._deliver(
                [] if repeated else messages,
                repeated=len(messages) if repeated else 0,
                state=None if repeated or turn is None else partial(self._note, turn),
            )
        except FencedError:
            raise
        except (LogError, OSError) as error:
            self._healthy = False
            self._producers.forget()  # whether the log has it is not known: the log is asked the next time
            _logger.error("%s: a request could not be delivered: %s", connector.name, error)
            raise RefusedError(503, f"the log cannot be written: {error}", retry_after=5) from None
        self._healthy = True
        if repeated and turn is not None:
            outcome = self._producers.outcome(turn.name)
        else:
            outcome = outcome_of(delivered.topics, delivered.filtered, delivered.dead)
        return delivery_response(len(messages), outcome, delivered, duplicate=repeated)

    def _note(self, turn: Turn, processed: Processed) -> bytes:
        topics = {topic: batch.num_rows for topic, batch in processed.topics.items()}
        return self._producers.note(turn, outcome_of(topics, processed.filtered, {"": len(processed.dead)}))

    async def _messages(self, request: Request) -> JSONResponse:
        try:
            with self._bodies.room() as body:
                posted = await self._read(request, body)
                if self._waiting >= self._connector.limits.waiting:
                    raise RefusedError(429, f"{self._waiting} requests wait already", retry_after=1)
                self._waiting += 1
                try:
                    self._posted.put(posted)
                    return await asyncio.wrap_future(posted.answer)
                finally:
                    self._waiting -= 1
        except RefusedError as refused:
            return refusal_response(refused)

    async def _read(self, request: Request, body: Body) -> _PostedRequest:
        topic = None
        if request.url.path.startswith("/v1/lines"):
            topic = request.path_params.get("topic") or _LINES_TOPIC
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        parsers = _PARSERS["messages" if topic is None else "lines"]
        if content_type not in parsers:
            raise RefusedError(415, f"Content-Type must be {' or '.join(parsers)}, got {content_type or 'none'}")
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip"):
            raise RefusedError(415, f"Content-Encoding must be gzip or none, got {encoding}")
        producer = parse_turn(request.headers)
        content = await self._bodies.read(request, body)
        return _PostedRequest(content_type, topic, content, encoding == "gzip", producer, Future())

    async def _report(self, _: Request) -> JSONResponse:
        report = self._deliver.report()
        return JSONResponse(
            {
                "source": report.source,
                "received": report.received,
                "topics": dict(report.topics),
                "filtered": dict(report.filtered),
                "dead": dict(report.dead),
                "repeated": report.repeated,
                "producers": self._producers.counts(),
            }
        )

    async def _health(self, _: Request) -> JSONResponse:
        began = self._began
        age = 0.0 if began is None else time.monotonic() - began
        reasons = [] if self._healthy else ["the last request could not be written to the log"]
        most = self._connector.limits.seconds("unhealthy_after")
        if age > most:
            reasons.append(f"the delivery at hand has taken longer than {most:g} s")
        content = {
            "healthy": not reasons,
            "reasons": reasons,
            "delivering_seconds": round(age, 3),
            "waiting": self._waiting,
            "connections": len(self._connections),
        }
        return JSONResponse(content, 503 if reasons else 200)


def _identity(posted: _PostedRequest, body: bytes) -> tuple[bytes, str]:
    """What tells a request from others, and of what kind it is."""
    if posted.topic is None:
        return body, posted.content_type
    return posted.topic.encode(errors="replace") + b"\0" + body, f"lines {posted.content_type}"
