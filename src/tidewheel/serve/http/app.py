"""The application: all routes behind the guard, the page for everything else, and no error without an answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from tidewheel.errors import DefinitionError, LogError
from tidewheel.ingest.http.guard import Guard, GuardedApp
from tidewheel.serve.http.api import json_response
from tidewheel.serve.http.page import NOT_BUILT, Page
from tidewheel.serve.http.security import security_headers
from tidewheel.serve.view.hub import Hub

__all__ = ["make_app"]

_logger = logging.getLogger(__name__)


def make_app(routes: list[BaseRoute], *, hub: Hub, guard: Guard, page: Page, tiles: str | None) -> ASGIApp:
    """Make the ASGI application."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        ticking = asyncio.create_task(hub.run())
        yield
        hub.close()
        await ticking

    async def file(request: Request) -> Response:
        found = page.find(request.scope["path"])
        if found is None:
            if request.scope["path"] == "/" and not page.built:
                return PlainTextResponse(NOT_BUILT)
            raise HTTPException(404, "there is nothing of that name here")
        if request.headers.get("if-none-match") == found.headers["etag"]:
            return Response(None, 304, found.headers)
        if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(found.packed, 200, {**found.headers, "content-encoding": "gzip"})
        return Response(found.content, 200, found.headers)

    application = Starlette(
        routes=[*routes, Route("/{path:path}", file)],
        exception_handlers={
            HTTPException: _refused,
            DefinitionError: _wrong,
            LogError: _unreadable,
            Exception: _broken,
        },
        lifespan=lifespan,
    )
    guarded = GuardedApp(application, guard, security_headers(tiles=tiles))
    # Around the guard: a browser asks whether a page may bring the token before it brings it.
    return CORSMiddleware(
        guarded, allow_origins=[*guard.origins], allow_methods=["GET"], allow_headers=["Authorization"]
    )


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return json_response({"error": error.detail}, error.status_code, error.headers)


def _wrong(_: Request, error: Exception) -> Response:
    return json_response({"error": str(error)}, 400)


def _unreadable(request: Request, error: Exception) -> Response:
    _logger.warning("%s: %s", request.scope["path"], error)
    return json_response({"error": "the log cannot be read now; /api/health and this server's own log tell why"}, 503)


def _broken(request: Request, error: Exception) -> Response:
    _logger.error("%s failed", request.scope["path"], exc_info=error)
    return json_response({"error": "this server made a mistake; its log tells which"}, 500)
