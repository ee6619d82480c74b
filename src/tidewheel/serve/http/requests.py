"""The requests of clients: messages of a WebSocket, and queries. Malformed ones are refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from tidewheel.errors import DefinitionError
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.view.subscription import Subscription

__all__ = ["Ping", "Subscribe", "parse_message", "parse_millis", "parse_names", "parse_query"]

_PARTS = re.compile(r"\\[\\,]|,|[^\\,]+|\\")
_LATEST = 253_402_300_800_000
_SHOWN = 80


class Subscribe(msgspec.Struct, frozen=True, tag_field="type", tag="subscribe"):
    """A client's subscription, in place of the one before."""

    layers: list[str]
    id: int | str | None = None
    region: list[float] | None = None
    filters: dict[str, list[str]] = {}


class Ping(msgspec.Struct, frozen=True, tag_field="type", tag="ping"):
    """A client asks whether the server is there."""

    id: int | str | None = None


Message: TypeAlias = Subscribe | Ping
_decoder = msgspec.json.Decoder(Message)


def parse_message(text: str | bytes) -> Message:
    """Parse a client's message.

    >>> parse_message('{"type":"ping","id":1}')
    Ping(id=1)
    """
    try:
        message: Message = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DefinitionError(f"not a message that this server knows: {error}") from None
    return message


def parse_names(text: str | None) -> list[str]:
    """Parse names with commas between them."""
    return [name for name in (text or "").split(",") if name]


def _values(text: str) -> list[str]:
    r"""Values with commas between them; one that has a comma itself has it as `\,`, and a backslash as `\\`.

    >>> _values(r"bus,Espoo\, Leppävaara,,a\b\\")
    ['bus', 'Espoo, Leppävaara', '', 'a\\b\\']
    """
    values = [""]
    for part in _PARTS.findall(text):
        if part == ",":
            values.append("")
        else:
            values[-1] += part.removeprefix("\\") or part
    return values


def parse_millis(text: str | None, *, what: str) -> int | None:
    """Parse a time in milliseconds since 1970, as microseconds."""
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 15 or int(text) >= _LATEST:
        raise DefinitionError(f"{what} is a time in milliseconds since 1970, got {text[:_SHOWN]!r}")
    return int(text) * 1_000


def parse_query(
    query: Mapping[str, str], filters: Iterable[str], *, layers: Iterable[str], limits: ServeLimits
) -> Subscription:
    """Parse a subscription from a query: region=w,s,e,n and filter=field:value,value as often as wanted."""
    region: list[float] | None = None
    if query.get("region"):
        try:
            region = [float(part) for part in query["region"].split(",")]
        except ValueError:
            raise DefinitionError(
                f"region is west,south,east,north in degrees, got {query['region'][:_SHOWN]!r}"
            ) from None
    chosen: dict[str, list[str]] = {}
    for text in filters:
        name, colon, values = text.partition(":")
        if not colon or not name:
            raise DefinitionError(f"a filter looks like mode:bus,tram, got {text[:_SHOWN]!r}")
        chosen.setdefault(name, []).extend(_values(values))
    return Subscription.of(layers, region, chosen, limits=limits)
