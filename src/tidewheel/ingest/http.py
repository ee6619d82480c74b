"""HTTP: messages are posted, and answered for when the log has them.

`POST /v1/messages` takes `application/x-ndjson` (the lines of recordings) or `application/x-protobuf` (`RawMessage`s of
ingest.proto, each after its length as a varint), also with `Content-Encoding: gzip`. One request is one append, all or
nothing; its answer counts what became of the messages, and those a processor refused are dead letters, not errors:

    200  the log has them            400  cannot be taken apart; the place is told, nothing was appended
    401  without the token           408  the body took too long
    409  this sequence number was used for something else (see below)
    413  body or message too large   415  neither of the two content types, or an unknown encoding
    429  too many requests wait      503  the log cannot be written: both with Retry-After

A client that must not write twice names itself (`Tidewheel-Producer: any-name`) and numbers its requests, rising, one
at a time (`Tidewheel-Sequence: 7`). It repeats a request whose answer it did not get, unchanged; if the log had it, the
answer says `"duplicate": true`. What it sent last is kept in the log, with the messages, for the producers that wrote
last (`max_producers` of them) under each source.

`GET /v1/report` gives the totals, `GET /healthz` whether the last delivery succeeded.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import queue
import re
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidewheel.errors import DefinitionError, FencedError, LogError, MalformedError, SetupError
from tidewheel.ingest.connector import Deliver
from tidewheel.ingest.framing import Gunzip, TooLargeError, parse_json_lines, parse_protobuf
from tidewheel.ingest.ingest_pb2 import HttpState
from tidewheel.model.time import Duration, duration, now

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route
except ImportError as error:
    raise SetupError(
        "HTTP needs the packages starlette and uvicorn; get them with: pip install 'tidewheel[serve]'"
    ) from error

__all__ = ["HttpConnector"]

_logger = logging.getLogger(__name__)
_PARSERS = {"application/x-ndjson": parse_json_lines, "application/x-protobuf": parse_protobuf}
_PRODUCER = re.compile(r"[\x21-\x7e]{1,100}")
_HIGHEST_SEQUENCE = 2**63 - 1
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    content: Mapping[str, Any]
    retry_after: int | None = None

    def response(self) -> JSONResponse:
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return JSONResponse(dict(self.content), self.status, headers=headers)


class _RefusedError(Exception):
    """A request that is answered without being delivered."""

    def __init__(self, status: int, reason: str, *, retry_after: int | None = None, **more: Any) -> None:
        super().__init__(reason)
        self.answer = _Answer(status, {"error": reason, **more}, retry_after)


@dataclass(frozen=True, slots=True)
class _Job:
    """A request whose body is here."""

    content_type: str
    body: bytes
    producer: tuple[str, int] | None
    answer: Future[_Answer]


class HttpConnector:
    """Takes messages that are posted to a port. See the module for what clients send and are answered.

    Port 0 takes any free port; `port` tells it once `ready` is set. At most `max_waiting` requests are read or wait
    for the log at a time, each with at most `max_body` bytes (also when decompressed) and messages of at most
    `max_message` bytes; a body must have come within `body_timeout`. With a `token` only those are answered who bring
    it (`Authorization: Bearer TOKEN`); `/healthz` needs none.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8090,
        max_body: int = 16 << 20,
        max_message: int = 1 << 20,
        max_waiting: int = 32,
        max_producers: int = 256,
        body_timeout: str | timedelta | Duration = "30 s",
        token: str | None = None,
    ) -> None:
        if token == "":
            raise DefinitionError("the token must not be empty; leave it out, or give one that nobody guesses")
        if not 0 <= port <= 65_535:
            raise DefinitionError(f"port must be from 0 to 65535, got {port}")
        limits = {"max_body": max_body, "max_message": max_message, "max_waiting": max_waiting}
        for name, limit in {**limits, "max_producers": max_producers}.items():
            if limit < 1:
                raise DefinitionError(f"{name} must be at least 1, got {limit}")
        self.host = host
        self.port = port
        self.ready = threading.Event()
        self.max_body = max_body
        self.max_message = max_message
        self.max_waiting = max_waiting
        self.max_producers = max_producers
        self.body_timeout = duration(body_timeout, what="body_timeout")
        self.token = token

    @property
    def name(self) -> str:
        """Where it listens."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def run(self, deliver: Deliver, stop: threading.Event) -> None:
        """Serve until `stop` is set, then answer what is under way."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            listener = socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            raise SetupError(f"cannot listen at {self.name}: {error.strerror or error}; choose another port") from None
        with listener:
            # asyncio sets it only on sockets that name their protocol; without it every answer takes 40 ms.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.port = int(listener.getsockname()[1])
            _Run(self, deliver, listener).run(stop)


class _Run:
    """One run of a connector: a server in a thread of its own reads requests, this one delivers them in turn."""

    def __init__(self, connector: HttpConnector, deliver: Deliver, listener: socket.socket) -> None:
        self._connector = connector
        self._deliver = deliver
        self._listener = listener
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._waiting = 0  # touched by the server's thread only
        self._healthy = True
        self._clients: dict[str, HttpState.Client] | None = None
        routes = [
            Route("/v1/messages", self._messages, methods=["POST"]),
            Route("/v1/report", self._report),
            Route("/healthz", self._health),
        ]
        self._server = uvicorn.Server(
            uvicorn.Config(
                Starlette(routes=routes),
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=60,
            )
        )

    def run(self, stop: threading.Event) -> None:
        thread = threading.Thread(target=self._server.run, args=([self._listener],), name=self._connector.name)
        thread.start()
        self._connector.ready.set()
        _logger.info("%s: listening", self._connector.name)
        try:
            while thread.is_alive():
                if stop.is_set():
                    self._server.should_exit = True
                try:
                    job = self._jobs.get(timeout=_POLL_SECONDS)
                except queue.Empty:
                    continue
                self._do(job)
        finally:
            self._server.should_exit = True
            self._refuse_until_end(thread)

    def _do(self, job: _Job) -> None:
        if not job.answer.set_running_or_notify_cancel():
            return
        try:
            job.answer.set_result(self._answer(job))
        except _RefusedError as refused:
            job.answer.set_result(refused.answer)
        except BaseException as error:
            job.answer.set_result(_Answer(503, {"error": f"this server stops: {error}"}, retry_after=5))
            raise

    def _refuse_until_end(self, thread: threading.Thread) -> None:
        """Nobody shall wait for an answer that does not come."""
        while thread.is_alive():
            try:
                job = self._jobs.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_result(_Answer(503, {"error": "this server stops"}, retry_after=5))

    def _answer(self, job: _Job) -> _Answer:
        try:
            messages = _PARSERS[job.content_type](job.body, max_message=self._connector.max_message, received_at=now())
        except TooLargeError as error:
            raise _RefusedError(413, str(error)) from None
        except MalformedError as error:
            raise _RefusedError(400, str(error)) from None
        try:
            if self._clients is None:
                kept = HttpState.FromString(self._deliver.state)
                self._clients = {client.name: client for client in kept.clients}
            repeated = self._is_repeated(job, self._clients)
            delivered = self._deliver(
                [] if repeated else messages,
                repeated=len(messages) if repeated else 0,
                state=None if repeated or job.producer is None else self._noted(job, self._clients),
            )
        except FencedError:
            raise
        except (LogError, OSError) as error:
            self._healthy = False
            self._clients = None  # whether the log has it is not known: the log is asked the next time
            _logger.error("%s: a request could not be delivered: %s", self._connector.name, error)
            raise _RefusedError(503, f"the log cannot be written: {error}", retry_after=5) from None
        self._healthy = True
        return _Answer(
            200,
            {
                "received": 0 if repeated else len(messages),
                "topics": delivered.topics,
                "filtered": delivered.filtered,
                "dead": delivered.dead,
                "duplicate": repeated,
            },
        )

    @staticmethod
    def _is_repeated(job: _Job, clients: Mapping[str, HttpState.Client]) -> bool:
        if job.producer is None or job.producer[0] not in clients:
            return False
        name, sequence = job.producer
        last = clients[name]
        if sequence > last.sequence:
            return False
        if sequence == last.sequence and _digest(job) == last.digest:
            return True
        raise _RefusedError(
            409,
            f"producer {name} has used sequence number {last.sequence} already, and this is not that request again; "
            "send one request at a time, with rising numbers",
            last_sequence=last.sequence,
        )

    def _noted(self, job: _Job, clients: dict[str, HttpState.Client]) -> bytes:
        assert job.producer is not None
        name, sequence = job.producer
        clients.pop(name, None)
        clients[name] = HttpState.Client(name=name, sequence=sequence, digest=_digest(job))
        while len(clients) > self._connector.max_producers:
            del clients[next(iter(clients))]
        return HttpState(clients=clients.values()).SerializeToString()

    def _stranger(self, request: Request) -> JSONResponse | None:
        """The answer to a request that does not bring the token."""
        token = self._connector.token
        given = request.headers.get("authorization", "").encode(errors="replace")
        if token is None or hmac.compare_digest(given, f"Bearer {token}".encode()):
            return None
        told = {"error": "this server wants a token: Authorization: Bearer TOKEN"}
        return JSONResponse(told, 401, headers={"WWW-Authenticate": "Bearer"})

    async def _messages(self, request: Request) -> JSONResponse:
        stranger = self._stranger(request)
        if stranger is not None:
            return stranger
        if self._waiting >= self._connector.max_waiting:
            return _Answer(429, {"error": f"{self._waiting} requests wait already"}, retry_after=1).response()
        self._waiting += 1
        try:
            job = await self._job(request)
            self._jobs.put(job)
            return (await asyncio.wrap_future(job.answer)).response()
        except _RefusedError as refused:
            return refused.answer.response()
        finally:
            self._waiting -= 1

    async def _job(self, request: Request) -> _Job:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type not in _PARSERS:
            raise _RefusedError(415, f"Content-Type must be {' or '.join(_PARSERS)}, got {content_type or 'none'}")
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip"):
            raise _RefusedError(415, f"Content-Encoding must be gzip or none, got {encoding}")
        producer = _producer(request.headers)
        seconds = self._connector.body_timeout / 1_000_000
        try:
            body = await asyncio.wait_for(self._body(request, gunzip=encoding == "gzip"), seconds)
        except (asyncio.TimeoutError, ClientDisconnect):
            raise _RefusedError(408, f"the body has not come within {seconds:g} s") from None
        except TooLargeError as error:
            raise _RefusedError(413, str(error)) from None
        except MalformedError as error:
            raise _RefusedError(400, str(error)) from None
        return _Job(content_type, body, producer, Future())

    async def _body(self, request: Request, *, gunzip: bool) -> bytes:
        limit = self._connector.max_body
        announced = request.headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > limit:
            raise TooLargeError(f"the body has {announced} bytes, at most {limit} are taken")
        opener = Gunzip(limit=limit)
        parts = []
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise TooLargeError(f"the body has more than {limit} bytes")
            parts.append(opener.feed(chunk) if gunzip else chunk)
        if gunzip:
            opener.end()
        return b"".join(parts)

    async def _report(self, request: Request) -> JSONResponse:
        stranger = self._stranger(request)
        if stranger is not None:
            return stranger
        report = self._deliver.report()
        return JSONResponse(
            {
                "source": report.source,
                "received": report.received,
                "topics": dict(report.topics),
                "filtered": dict(report.filtered),
                "dead": dict(report.dead),
                "repeated": report.repeated,
            }
        )

    async def _health(self, _: Request) -> JSONResponse:
        return JSONResponse({"healthy": self._healthy}, 200 if self._healthy else 503)


def _digest(job: _Job) -> bytes:
    return hashlib.blake2b(job.body, digest_size=16, key=job.content_type.encode()).digest()


def _producer(headers: Mapping[str, str]) -> tuple[str, int] | None:
    name, sequence = headers.get("tidewheel-producer"), headers.get("tidewheel-sequence")
    if name is None and sequence is None:
        return None
    if name is None or sequence is None:
        raise _RefusedError(400, "Tidewheel-Producer and Tidewheel-Sequence belong together; send both or none")
    if not _PRODUCER.fullmatch(name):
        raise _RefusedError(400, "Tidewheel-Producer must be 1 to 100 visible ASCII characters without spaces")
    if not re.fullmatch(r"[0-9]{1,19}", sequence) or int(sequence) > _HIGHEST_SEQUENCE:
        raise _RefusedError(400, f"Tidewheel-Sequence must be a number from 0 to {_HIGHEST_SEQUENCE}, got {sequence!r}")
    return name, int(sequence)
