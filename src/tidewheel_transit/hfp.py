"""The HFP processor: messages of Helsinki's vehicles (HFP v2) to events of the input topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message as ProtobufMessage

import tidewheel as tw
from tidewheel.ingest import Dead, Message, Processed
from tidewheel_transit.hfp_columns import Row, to_records
from tidewheel_transit.hfp_moves import event_time, moved
from tidewheel_transit.hfp_payload import read_payload
from tidewheel_transit.hfp_topic import BadMessageError, TopicInfo, parse_topic, topic_filters
from tidewheel_transit.topics import EVENTS, MODES, TOPICS

__all__ = ["HfpProcessor"]


class HfpProcessor:
    """Reads HFP v2 messages, including odd stops and missing places, and drops nothing that a vehicle sends.

    Vehicle, operator and all that the topic says are taken from the topic. Where the payload says otherwise, that is
    kept too: in `reported_operator` and `reported_vehicle`, and the rest in `extra` together with the fields that are
    not known. The event time is `tst`, or `tsi` where there is no `tst`. Exact repeats are kept: jobs deduplicate.

    Several processes can share the fleet, each with its own part by `modes`, `operators` (numbers) and `events` (event
    types, in small letters); messages that come all the same are filtered (`other-mode`, `other-operator`,
    `other-event`). Messages of journeys that have not begun are filtered (`upcoming`) unless asked for. Dead runs are
    always processed; without `deadruns` they are not subscribed to. `subscriptions` are MQTT filters to use instead of
    those of the part.

    >>> HfpProcessor(modes=["tram"], events=["vp"]).subscriptions
    ('/hfp/v2/journey/ongoing/vp/tram/#', '/hfp/v2/deadrun/ongoing/vp/tram/#')
    """

    name = "hfp"
    types: Sequence[type[ProtobufMessage]] = tuple(TOPICS.values())

    def __init__(
        self,
        *,
        modes: Sequence[str] | None = None,
        operators: Sequence[int] | None = None,
        events: Sequence[str] | None = None,
        deadruns: bool = True,
        upcoming: bool = False,
        subscriptions: Sequence[str] | None = None,
    ) -> None:
        _check_part("mode", modes, MODES)
        _check_part("event", events, tuple(EVENTS))
        _check_part("operator", operators, range(10_000))
        self._modes = frozenset(MODES if modes is None else modes)
        self._events = frozenset(EVENTS if events is None else events)
        self._operators = None if operators is None else frozenset(operators)
        self._upcoming = upcoming
        self.subscriptions: Sequence[str] = (
            tuple(subscriptions)
            if subscriptions is not None
            else topic_filters(
                journeys=("journey", "deadrun") if deadruns else ("journey",),
                temporals=("ongoing", "upcoming") if upcoming else ("ongoing",),
                events=events,
                modes=modes,
                operators=operators,
            )
        )

    def process(self, messages: Sequence[Message]) -> Processed:
        """Send each message to its topic; kinds of dead letters: `bad-topic`, `unknown-event`, `unknown-mode` (topic),
        `bad-json`, `bad-value`, `no-time` (payload), `event-mismatch` (the two name different event types)."""
        rows: dict[str, list[Row]] = {}
        filtered: Counter[str] = Counter()
        dead: list[Dead] = []
        for message in messages:
            try:
                info = parse_topic(message.topic)
                rule = self._rule(info)
                if rule is not None:
                    filtered[rule] += 1
                    continue
                body, extra = read_payload(message.payload, info.payload_name)
            except BadMessageError as error:
                dead.append(Dead(message, error.kind, str(error)))
                continue
            rows.setdefault(EVENTS[info.event].topic, []).append(Row(info, body, extra, message.received_at))
        topics = {topic: to_records(TOPICS[topic], some) for topic, some in rows.items()}
        return Processed(topics=topics, filtered=dict(filtered), dead=dead)

    def event_time(self, message: Message) -> tw.time.Instant | None:
        """The event time of a message, by its payload alone."""
        return event_time(message.payload)

    def moved(self, message: Message, *, by: tw.time.Duration, copy: int) -> Message:
        """The message as if it had been sent later, by the vehicle of the copy-th replica of the fleet, whose number is
        higher by 100,000 x copy. Vehicle numbers have five digits, so no two replicas share one."""
        return moved(message, by=by, copy=copy)

    def _rule(self, info: TopicInfo) -> str | None:
        if info.temporal == "upcoming" and not self._upcoming:
            return "upcoming"
        if info.mode not in self._modes:
            return "other-mode"
        if info.event not in self._events:
            return "other-event"
        if self._operators is not None and info.operator not in self._operators:
            return "other-operator"
        return None


def _check_part(what: str, given: Sequence[Any] | None, known: Sequence[Any]) -> None:
    if given is None:
        return
    if isinstance(given, str) or not given or len(set(given)) != len(given):
        raise tw.errors.DefinitionError(f"{what}s must be a list of at least one {what}, each once, got {given!r}")
    strange = [value for value in given if value not in known]
    if strange:
        some = "four-digit numbers" if isinstance(known, range) else " ".join(known)
        raise tw.errors.DefinitionError(f"unknown {what} {strange[0]!r}; give some of: {some}")
