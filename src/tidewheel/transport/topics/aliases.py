"""Names for topics that can be changed: what readers of results ask for, while versions of a job come and go."""

from __future__ import annotations

from collections.abc import Mapping

from tidewheel.model.time import now
from tidewheel.topic_names import ALIASES_TOPIC
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import Alias
from tidewheel.transport.log.log import Log, check_topic_name
from tidewheel.transport.log.log_types import records
from tidewheel.transport.topics.message_topic import MessageTopic

__all__ = ["Aliases"]


class Aliases:
    """Names that stand for topics. A name that was never switched stands for the topic of that name.

    Writers know topics only; whoever reads results for people asks here first. A switch is one record in the log, so a
    reader sees the old topic or the new one, never half of each; and it is undone by switching back.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> from tidewheel.transport.log.log_types import records
    >>> log = open_log(tempfile.mkdtemp() + "/city.tw")
    >>> receipt = log.append("analytics.delays.v2", records([b"..."]))
    >>> aliases = Aliases(log)
    >>> aliases.topic("analytics.delays")
    'analytics.delays'
    >>> aliases.switch("analytics.delays", "analytics.delays.v2")
    'analytics.delays'
    >>> aliases.topic("analytics.delays")
    'analytics.delays.v2'
    >>> aliases.all()
    {'analytics.delays': 'analytics.delays.v2'}
    """

    def __init__(self, log: Log) -> None:
        self.log = log

    def topic(self, name: str) -> str:
        """Return the topic that the name stands for now."""
        return self.all().get(name, name)

    def switch(self, name: str, topic: str) -> str:
        """Switch the name to this topic, which must exist; returns the topic that it stood for."""
        check_topic_name(name)
        self.log.topic_info(topic)  # says so if there is none, and what there is
        before = self.topic(name)
        if before != topic:
            at = now()
            MessageTopic(self.log, ALIASES_TOPIC, Alias).make()
            event = codec.pack(Alias(name=name, topic=topic), event_time=at, ingestion_time=at)
            self.log.append(ALIASES_TOPIC, records([codec.encode(event)], keys=[name.encode()], event_times=[at]))
        return before

    def all(self) -> Mapping[str, str]:
        """List the names that stand for another topic, each with its topic."""
        found = {each.name: each.topic for each in MessageTopic(self.log, ALIASES_TOPIC, Alias).news()}
        return {name: topic for name, topic in sorted(found.items()) if topic != name}

    def __repr__(self) -> str:
        return f"Aliases({self.log!r})"
