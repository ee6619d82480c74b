"""Events as JSON, for people; parts without a JSON form are included as base64."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from tidewheel.errors import MalformedError
from tidewheel.transport.events.event_pb2 import Event
from tidewheel.transport.events.registry import TypeRegistry

__all__ = ["from_json", "parse_message", "to_json"]

_TIMES = ("event_time", "ingestion_time", "batch_time")
_M = TypeVar("_M", bound=Message)


def to_json(event: Event, registry: TypeRegistry) -> dict[str, Any]:
    """The fields of an event in JSON, named as its columns are."""
    fields: dict[str, Any] = {}
    try:
        for name in _TIMES:
            if event.HasField(name):
                fields[name] = getattr(event, name).ToJsonString()
        hidden = _hidden(event)
    except ValueError:  # an instant beyond the year 9999
        hidden = event.SerializeToString(deterministic=True)
    if event.HasField("details"):
        url, value = event.details.type_url, event.details.value
        details: dict[str, Any] = {"@type": url}
        name = url.rpartition("/")[2]
        exact = False
        if name in registry:
            cls = registry.message_class(name)
            try:
                details |= json_format.MessageToDict(cls.FromString(value), preserving_proto_field_name=True)
                # What JSON cannot show: unknown fields, and numbers at the edge that it rounds beyond it.
                again = json_format.ParseDict({key: shown for key, shown in details.items() if key != "@type"}, cls())
                exact = again.SerializeToString(deterministic=True) == value
            except (DecodeError, ValueError, json_format.ParseError):
                pass
        if not exact:
            details["@bytes"] = base64.b64encode(value).decode()
        fields["details"] = details
    if hidden is not None:
        fields["@bytes"] = base64.b64encode(hidden).decode()
    return fields


def from_json(value: bytes, registry: TypeRegistry) -> Event:
    """Parse an event from text that `to_json` made, or that was written by hand; `MalformedError` has the reason."""
    try:
        fields = json.loads(value)
        # Half a surrogate pair is no text: protobuf breaks down on it instead of refusing it.
        json.dumps(fields, ensure_ascii=False).encode()
        if "@bytes" in fields:
            return parse_message(Event, base64.b64decode(fields["@bytes"], validate=True))
        strange = fields.keys() - {*_TIMES, "details"}
        if strange:
            raise MalformedError(f"an event has no field {', '.join(map(repr, sorted(strange)))}")
        event = Event()
        for name in _TIMES:
            if fields.get(name) is not None:
                getattr(event, name).FromJsonString(fields[name])
        details = fields.get("details")
        if details is not None:
            url = details.pop("@type")
            if "@bytes" in details:
                payload = base64.b64decode(details["@bytes"], validate=True)
            else:
                cls = registry.message_class(url.rpartition("/")[2])
                payload = json_format.ParseDict(details, cls()).SerializeToString(deterministic=True)
            event.details.type_url, event.details.value = url, payload
        return event
    except MalformedError:
        raise
    except KeyError as error:
        reason = "details without @type" if error.args == ("@type",) else str(error)
        raise MalformedError(f"not an event as JSON: {reason}") from None
    except (
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        binascii.Error,
        json_format.ParseError,
    ) as error:
        raise MalformedError(f"not an event as JSON: {error}") from None


def _hidden(message: Message) -> bytes | None:
    """All of the message's bytes if it has fields that its definition here lacks."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return None if known.ByteSize() == message.ByteSize() else message.SerializeToString(deterministic=True)


def parse_message(cls: type[_M], value: bytes) -> _M:
    """Parse a message from its bytes; `MalformedError` if they are none."""
    try:
        return cls.FromString(value)
    except DecodeError as error:
        raise MalformedError(f"not a {cls.DESCRIPTOR.full_name}: {error}") from None
