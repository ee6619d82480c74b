"""The event processor: messages that are events already, in the envelope of the log."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from google.protobuf.message import Message as ProtobufMessage
from msgspec import Raw
from msgspec.json import Decoder

from tidewheel.errors import DefinitionError, MalformedError
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Dead, Processed
from tidewheel.model.time import Instant
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import Event, Punctuation
from tidewheel.transport.events.registry import TypeRegistry, type_name, types
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.types import load_types, type_version

__all__ = ["EventProcessor"]

_INPUT: Final = re.compile(r"input\.[a-z0-9][a-z0-9.-]{0,190}")
_MARKER: Final = type_name(Punctuation)
_STRICT: Final = Decoder(Raw)


class EventProcessor:
    """Accepts events in their envelope, binary or JSON, and appends them in binary.

    An event goes to the topic that `topics` names for its message type; otherwise to the one that its message was
    published to, or whose name is the last level of that: `input.order` and `shop/input.order` are the same. Only
    topics that begin with `input.` can be reached so: the others are written by jobs and pipelines. And only the first
    `max_topics` of them: whoever may send events must not be able to fill the log with topics.

    Types are those of this program and those that the log keeps. Events of known types must be whole; those of unknown
    types, and fields of a newer version, are kept as they are. An event without an ingestion time gets the time of its
    arrival. Records have no key.

    >>> EventProcessor(topics={Punctuation: "input.marks"})
    EventProcessor(topics={'tidewheel.v1.Punctuation': 'input.marks'}, subscriptions=('tidewheel/+',), max_topics=100)
    """

    name = "events"

    def __init__(
        self,
        *,
        topics: Mapping[type[ProtobufMessage], str] | None = None,
        subscriptions: Sequence[str] = ("tidewheel/+",),
        max_topics: int = 100,
        registry: TypeRegistry = types,
    ) -> None:
        if isinstance(subscriptions, str):
            raise DefinitionError(f"subscriptions must be a list of MQTT topic filters, got {subscriptions!r}")
        if max_topics < 0:
            raise DefinitionError(f"max_topics must not be negative, got {max_topics!r}")
        self.max_topics = max_topics
        self._reached: set[str] = set()
        self.subscriptions: Sequence[str] = tuple(subscriptions)
        self.types: Sequence[type[ProtobufMessage]] = tuple(topics or ())
        self._topics = {type_name(of): topic for of, topic in (topics or {}).items()}
        self._registry = registry
        self._log: Log | None = None
        self._loaded: object = None
        registry.register(*self.types)

    def attach(self, log: Log) -> None:
        """Load the types that the log defines, besides those of this program."""
        if self._log is None or self._log.identity != log.identity:
            known = TypeRegistry()
            known.register(*(self._registry.message_class(name) for name in self._registry.names()))
            self._registry, self._log, self._loaded = known, log, None
            self._load()

    def _load(self) -> None:
        """Load definitions that others have written meanwhile."""
        if self._log is not None and self._loaded != (version := type_version(self._log)):
            load_types(self._log, self._registry)
            self._loaded = version

    def process(self, messages: Sequence[Message]) -> Processed:
        """Send each event to its topic; kinds of dead letters: `bad-event` (no envelope, or one without time or
        details), `bad-details` (not of their type), `bad-topic` (no topic for it)."""
        self._load()
        refused: dict[int, tuple[str, str]] = {}
        values = pa.array([self._binary(place, each, refused) for place, each in enumerate(messages)], pa.binary())
        envelopes = codec.decode_envelopes(values, registry=self._registry)
        refused |= {place: ("bad-event", reason) for place, reason in envelopes.errors if place not in refused}

        places: list[int] = envelopes.rows.to_pylist()
        names: list[str] = envelopes.columns.column("type").to_pylist()
        times: list[Instant | None] = envelopes.columns.column("event_time").cast(pa.int64()).to_pylist()
        arrived: list[Instant | None] = envelopes.columns.column("ingestion_time").cast(pa.int64()).to_pylist()
        of_type: dict[str, list[int]] = {}
        of_topic: dict[str, list[int]] = {}
        for row, (place, name, time) in enumerate(zip(places, names, times, strict=True)):
            if place in refused:
                continue
            topic = self._topics.get(name) or messages[place].topic.rpartition("/")[2]
            if not name:
                refused[place] = ("bad-event", "the event has no details")
            elif time is None:
                refused[place] = ("bad-event", "the event has no event_time")
            elif name not in self._topics and not _INPUT.fullmatch(topic):
                refused[place] = ("bad-topic", f"no topic for {name}: {topic!r:.200} does not look like input.name")
            elif name not in self._topics and not self._reach(topic):
                reason = f"no topic for {name}: {self.max_topics} topics were reached by name already"
                refused[place] = ("bad-topic", f"{reason}, and no more are; {topic!r:.200} is another")
            else:
                of_type.setdefault(name, []).append(place)
                of_topic.setdefault(topic, []).append(row)
        self._check_details(values, of_type, refused)

        appended = {}
        for topic, rows in of_topic.items():
            good = [row for row in rows if places[row] not in refused]
            if good:
                appended[topic] = records(
                    [_stamped(values[places[row]].as_py(), arrived[row], messages[places[row]]) for row in good],
                    event_times=[times[row] for row in good],
                    punctuations=[times[row] if names[row] == _MARKER else None for row in good],
                )
        dead = [Dead(messages[place], *why) for place, why in sorted(refused.items())]
        return Processed(topics=appended, dead=dead)

    def _reach(self, topic: str) -> bool:
        if topic not in self._reached and len(self._reached) < self.max_topics:
            self._reached.add(topic)
        return topic in self._reached

    def _binary(self, place: int, message: Message, refused: dict[int, tuple[str, str]]) -> bytes:
        """The event in binary; JSON that is not an event is refused."""
        if message.payload[:1] != b"{":
            return message.payload
        try:
            # Half a character, escaped or not, in the name of a field is more than protobuf's JSON reader can bear.
            _STRICT.decode(message.payload.decode())
            return codec.encode(codec.decode(message.payload, registry=self._registry))
        except MalformedError as error:
            refused[place] = ("bad-event", str(error))
        except (ValueError, RecursionError) as error:
            refused[place] = ("bad-event", f"not an event as JSON: {error}")
        return b""

    def _check_details(
        self, values: pa.Array, of_type: Mapping[str, Sequence[int]], refused: dict[int, tuple[str, str]]
    ) -> None:
        for name, places in of_type.items():
            if name not in self._registry:
                continue
            try:
                errors = codec.decode_columns(name, values.take(pa.array(places)), registry=self._registry).errors
            except DefinitionError as error:  # a message that cannot be an event, such as the envelope itself
                errors = [(row, str(error)) for row in range(len(places))]
            refused |= {places[row]: ("bad-details", reason) for row, reason in errors}

    def __repr__(self) -> str:
        return (
            f"EventProcessor(topics={self._topics!r}, subscriptions={self.subscriptions!r}, "
            f"max_topics={self.max_topics})"
        )


def _stamped(value: bytes, ingestion_time: Instant | None, message: Message) -> bytes:
    """Give an event the time of arrival as its ingestion time if it has none: a field appended to a message is a field
    of it."""
    if ingestion_time is not None:
        return value
    return value + Event(ingestion_time=codec.timestamp(message.received_at)).SerializeToString()
