"""A topic of messages of one type: what a program notes in the log for itself and for others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from google.protobuf.message import Message

from tidewheel.errors import MalformedError, TopicNotFoundError, UnknownTypeError
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import Event
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import OnDamage

__all__ = ["MessageTopic"]

_M = TypeVar("_M", bound=Message)


class MessageTopic(Generic[_M]):
    """The messages of one type in a topic, there or not, read from the beginning and then on.

    What else is in the topic, or cannot be decoded, says nothing. A damaged block is a `DamagedBlockError`, unless
    `on_damage` takes it.

    >>> import tempfile
    >>> from tidewheel.transport.events.event_pb2 import Alias
    >>> from tidewheel.transport.open_log import open_log
    >>> from tidewheel.transport.log.log_types import records
    >>> log = open_log(tempfile.mkdtemp() + "/city.tw")
    >>> topic = MessageTopic(log, "names", Alias)
    >>> topic.make()
    >>> receipt = log.append("names", records([codec.encode(codec.pack(Alias(name="a"), event_time=1)), b"?"]))
    >>> [message.name for message in topic.news()], list(topic.news())
    (['a'], [])
    """

    def __init__(self, log: Log, name: str, kind: type[_M]) -> None:
        self._log = log
        self._name = name
        self._kind = kind
        self._id = ""
        self._at: dict[int, int] = {}

    def make(self) -> None:
        """Make the topic if it is missing, as one that keeps the latest record of each key."""
        self._log.ensure_topic(self._name, compact=True)

    def news(self) -> Iterator[_M]:
        """The messages that came since the last time, in the order of each partition; at first all there are."""
        return (message for _, message in self.events())

    def events(self, *, on_damage: OnDamage | None = None) -> Iterator[tuple[Event, _M]]:
        """The same, each with the event that carries it."""
        try:
            info = self._log.topic_info(self._name)
        except TopicNotFoundError:
            return
        if info.id != self._id:  # positions of one that was deleted mean nothing here
            self._id, self._at = info.id, {}
        for partition, (first, end) in enumerate(zip(info.first_offsets, info.next_offsets, strict=True)):
            start = max(first, self._at.get(partition, first))  # records may have left
            for batch in self._log.read(self._name, partition, start, end=end, on_damage=on_damage):
                for value in batch.records.column("value").to_pylist():
                    try:
                        event = codec.decode(value)
                        message = codec.unpack(event)
                    except (MalformedError, UnknownTypeError):
                        continue
                    if isinstance(message, self._kind):
                        yield event, message
            self._at[partition] = end
