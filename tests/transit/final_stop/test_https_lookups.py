"""Lookups over HTTPS: certificates are loaded once per process, and a cancelled request leaves nothing open."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.certificates import make_server_certificate
from tidewheel.ingest.lookup import ProviderError, http_client
from tidewheel_transit.final_stop import SimulatedFinalStops
from tidewheel_transit.final_stop.routing_service import RoutingService
from tidewheel_transit.final_stop.service import RoutingServer

JOURNEYS = [("1019", direction, "2025-10-09", f"07:{minute}") for direction in (1, 2) for minute in range(20, 30)]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A server's, signed by itself."""
    folder = tmp_path_factory.mktemp("certificate")
    make_server_certificate(folder, "server")
    return folder


@pytest.fixture(scope="module")
def secure(certificate):
    """Where a service answers over TLS."""
    server = RoutingServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "server.crt", certificate / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.url.replace("http:", "https:")
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def made(monkeypatch):
    """The contexts that were made since the test began."""
    found = []
    make = ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda: found.append(make()) or found[-1])
    http_client._tls_context.cache_clear()
    yield found
    http_client._tls_context.cache_clear()


@pytest.fixture
def scripted_answer():
    """A server without TLS that gives the same answer to every request."""

    class Handler(BaseHTTPRequestHandler):
        answer = b""

        def do_POST(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.answer)))
            self.end_headers()
            self.wfile.write(self.answer)

        def log_message(self, *_):
            """Nothing."""

    def start(answer):
        Handler.answer = answer
        return f"http://127.0.0.1:{server.server_address[1]}/"

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield start
        server.shutdown()
        thread.join()


def ask_all(url):
    provider = RoutingService(url)

    async def all_at_once():
        return await asyncio.gather(*(provider.ask(journey) for journey in JOURNEYS))

    return asyncio.run(all_at_once())


def test_all_requests_of_a_process_share_its_trusted_certificates(secure, certificate, made, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "server.crt"))
    expected = [asyncio.run(SimulatedFinalStops().ask(journey)) for journey in JOURNEYS]
    assert ask_all(secure) == expected
    assert ask_all(secure) == expected, "in another event loop"
    assert len(made) == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert ask_all(secure) == expected
    assert len(made) == 2, "a process that was forked finds out for itself"


def test_a_service_that_is_not_trusted_is_not_asked(secure, made):
    with pytest.raises(ProviderError, match="cannot be reached: SSLCertVerificationError"):
        ask_all(secure)
    assert len(made) == 1


def test_a_request_that_is_cancelled_in_the_handshake_leaves_no_connection_open():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)

        async def give_up():
            asking = asyncio.create_task(
                http_client.post(f"https://127.0.0.1:{silent.getsockname()[1]}", b"", headers={})
            )
            connection, _ = await asyncio.to_thread(silent.accept)
            connection.settimeout(20)
            assert await asyncio.to_thread(connection.recv, 5), "the handshake has begun"
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            rest = b"."
            while rest:
                rest = await asyncio.to_thread(connection.recv, 65_536)
            connection.close()

        asyncio.run(give_up())


def test_an_answer_that_is_too_long_is_refused(scripted_answer):
    url = scripted_answer(b"x" * 5_000)
    assert asyncio.run(http_client.post(url, b"", headers={}, max_bytes=5_000)).body == b"x" * 5_000
    with pytest.raises(ProviderError, match="longer than 4,999 bytes"):
        asyncio.run(http_client.post(url, b"", headers={}, max_bytes=4_999))
