"""The interface, described for programs (OpenAPI 3.1)."""

from __future__ import annotations

from typing import Any

from tidewheel import __version__

__all__ = ["openapi"]

_MILLIS = "milliseconds since 1970, UTC"


def openapi() -> dict[str, Any]:
    """The description of every path."""
    region = _query("region", "west,south,east,north in degrees")
    filters = _query("filter", r"field:value,value; as often as wanted; a comma in a value is \,") | {"explode": True}
    filters["schema"] = {"type": "array", "items": {"type": "string"}}
    layers = _query("layers", "names with commas between them; without it all of them")
    at = _query("at", f"the view as it was then by the server's clock; {_MILLIS}, of the last hour", kind="integer")
    since, until = (_query(name, f"event time, included; {_MILLIS}", kind="integer") for name in ("since", "until"))
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    key = _query("key", "the k of an item") | {"required": True}
    paths = {
        "/api/layers": _get("The layers: which topic, which geometry, which colours"),
        "/api/view": _get(
            "What layers show, now or then; `partial` has those that do not show all keys", layers, region, filters, at
        ),
        "/api/layers/{name}/view": _get("What one layer shows", name, region, filters, at),
        "/api/layers/{name}/view.geojson": _get(
            "The same as GeoJSON", name, region, filters, at, media="application/geo+json"
        ),
        "/api/layers/{name}/history": _get("The results of a key in the last hour", name, key, since, until),
        "/api/alerts": _get("The alerts of the last hour, newest first", since),
        "/api/topics": _get("The topics of the log"),
        "/api/background": _get("What lies under the layers"),
        "/api/health": _get("200 if all is well, 503 with the reasons if not"),
        "/api/live": _get("A WebSocket: hello, snapshot, update, status; subscribe and ping", media="application/json"),
        "/api/live/events": _get("The same as server-sent events", layers, region, filters, media="text/event-stream"),
        "/api/openapi.json": _get("This description"),
        "/metrics": _get("Metrics for Prometheus", media="text/plain"),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidewheel live view", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "query": {"type": "apiKey", "in": "query", "name": "token"},
            },
            "schemas": {
                "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
                "Item": _ITEM,
            },
        },
        "security": [{}, {"bearer": []}, {"query": []}],
    }


_ITEM = {
    "type": "object",
    "required": ["k", "t", "x", "v", "f"],
    "properties": {
        "k": {"type": "string", "description": "identity within its layer"},
        "t": {"type": "integer", "description": f"event time, {_MILLIS}"},
        "x": {"type": "integer", "description": f"when it expires by the server's clock, {_MILLIS}"},
        "c": {"type": "string", "description": "its H3 cell"},
        "p": {"type": "array", "items": {"type": "number"}, "description": "longitude and latitude"},
        "h": {"type": "number", "description": "heading in degrees"},
        "e": {"type": "array", "items": {"type": "string"}, "description": "two H3 cells, from and to"},
        "v": {"description": "the value that the colour shows"},
        "timing": {"enum": ["EARLY", "ON_TIME", "LATE"]},
        "f": {"type": "object", "description": "all fields of the result"},
    },
}


def _query(name: str, about: str, *, kind: str = "string") -> dict[str, Any]:
    return {"name": name, "in": "query", "description": about, "schema": {"type": kind}}


def _get(summary: str, *parameters: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    wrong = {
        "description": "refused",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    answers = {"200": {"description": summary, "content": {media: {}}}, "4XX": wrong}
    return {"get": {"summary": summary, "parameters": list(parameters), "responses": answers}}
