"""The routing service over TLS: who is trusted is found out once, not for every question."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading

import pytest

from tests.support.certificates import make_server_certificate
from tidewheel.ingest.http import request
from tidewheel.ingest.lookup import ProviderError
from tidewheel_transit.final_stop import RoutingService, SimulatedFinalStops
from tidewheel_transit.final_stop.service import RoutingServer

QUESTIONS = [("1019", direction, "2025-10-09", f"07:{minute}") for direction in (1, 2) for minute in range(20, 30)]


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
    request._trust.cache_clear()
    yield found
    request._trust.cache_clear()


def ask_all(url):
    provider = RoutingService(url)

    async def all_at_once():
        return await asyncio.gather(*(provider.ask(question) for question in QUESTIONS))

    return asyncio.run(all_at_once())


def test_all_questions_of_a_process_share_whom_it_trusts(secure, certificate, made, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "server.crt"))
    expected = [asyncio.run(SimulatedFinalStops().ask(question)) for question in QUESTIONS]
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
