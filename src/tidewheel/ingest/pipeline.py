"""The pipeline: messages through a processor to the log, and in the same transaction the account of every one."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pyarrow as pa

from tidewheel.errors import DefinitionError, FencedError, LogError, panics_as_errors
from tidewheel.ingest.connector import Delivered, State
from tidewheel.ingest.ingest_pb2 import PipelineState
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Dead, LogProcessor, Processed, Processor, joined
from tidewheel.model.time import EARLIEST, LATEST, Duration, Instant, duration, now
from tidewheel.topic_names import INGESTED, TYPES_TOPIC, dead, ingested, kind_of
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import DeadLetter, IngestReport
from tidewheel.transport.events.registry import TypeRegistry, type_name, types
from tidewheel.transport.log.log import Log, Producer, check_topic_name
from tidewheel.transport.log.log_types import RECORDS, Receipt, records
from tidewheel.transport.topics.message_topic import MessageTopic
from tidewheel.transport.topics.types import publish_types

__all__ = ["Pipeline", "Reports", "adds_up", "read_reports"]

_logger = logging.getLogger(__name__)
"""What the names of the topics begin with that hold the totals."""
_REASONS = 5
"""How many of a delivery's dead letters are reported."""


class Pipeline:
    """Takes messages through a processor to the log. It is what a connector delivers to (see `Deliver`).

    Every delivery is one append, all or nothing: the processor's records, the dead letters (`dead.<processor>`, with
    the reason and the raw bytes) and the running totals (`ingested.<processor>`, key: the source). So
    received = topics + filtered + dead holds in the log at every moment, also after a crash.

    One connector per pipeline. When a delivery fails, MQTT leaves the messages with the broker and fetches them later;
    HTTP answers that they may be sent again.

    Args:
        log: The log that is written to.
        processor: Makes records of messages.
        source: The name of this instance: processes that ingest side by side need different ones, and one that starts
            under the name of another takes over from it, totals included.
        patience: How long an append is tried again when the log cannot be written (locked, disk full); then the
            delivery fails.
        registry: Where the processor's message types become known.
    """

    _report: IngestReport
    _connector_state: bytes
    _sequence: int

    def __init__(
        self,
        log: Log,
        processor: Processor,
        *,
        source: str = "main",
        patience: str | timedelta | Duration = "30 s",
        registry: TypeRegistry = types,
    ) -> None:
        self.name = f"{processor.name}:{source}"
        self.dead_topic = dead(processor.name)
        self.account_topic = ingested(processor.name)
        self._log = log
        self._processor = processor
        self._key = source.encode()
        self._patience = duration(patience, what="patience") / 1_000_000
        self._lock = threading.Lock()
        self._certain = True
        if isinstance(processor, LogProcessor):
            processor.attach(log)
        registry.register(*processor.types)
        publish_types(log, registry, [type_name(each) for each in processor.types])
        MessageTopic(log, self.account_topic, IngestReport).make()
        self._producer = log.producer(f"ingest:{self.name}")
        self._load(self._producer)

    @property
    def state(self) -> bytes:
        """The state of the connector's last delivery, even if that delivery raised an error but was committed."""
        with self._lock:
            self._make_certain()
            return self._connector_state

    def report(self) -> IngestReport:
        """Return the totals of this source, those of its earlier processes included."""
        copy = IngestReport()
        copy.CopyFrom(self._report)
        return copy

    def __call__(self, messages: Sequence[Message], *, repeated: int = 0, state: State = None) -> Delivered:
        """Process the messages and append the outcome; returns when the log has it (see `Deliver`)."""
        return self._deliver(self._process(messages), repeated=repeated, state=state)

    def deliver_processed(self, processed: Processed, *, received: int, state: State = None) -> Delivered:
        """Append processed messages, of which there were `received`: for sources that make events themselves."""
        problem = self._problem(processed, received)
        if problem:
            raise DefinitionError(f"{self.name} was given what cannot be appended: {problem}")
        return self._deliver(processed, repeated=0, state=state)

    def _deliver(self, processed: Processed, *, repeated: int, state: State) -> Delivered:
        topics = {topic: batch.num_rows for topic, batch in processed.topics.items() if batch.num_rows}
        filtered = {rule: count for rule, count in processed.filtered.items() if count}
        dead = Counter(_text(each.kind) for each in processed.dead)
        with self._lock:
            self._make_certain()
            if not (processed.count or repeated or state is not None):
                return Delivered(Receipt(self._sequence))
            report = self.report()
            report.received += processed.count
            report.repeated += repeated
            for totals, added in ((report.topics, topics), (report.filtered, filtered), (report.dead, dead)):
                for name, count in added.items():
                    totals[name] += count
            if callable(state):
                state = state(processed)
            kept = PipelineState(report=report, connector=self._connector_state if state is None else state)
            batches = {topic: processed.topics[topic] for topic in topics}
            if processed.dead:
                batches[self.dead_topic] = self._dead_letters(processed.dead)
            batches[self.account_topic] = self._account(report)
            receipt = self._append(batches, kept.SerializeToString(deterministic=True))
            self._report, self._connector_state, self._sequence = report, kept.connector, receipt.sequence
        return Delivered(
            receipt, topics, filtered, dict(dead), tuple(each.reason for each in processed.dead[:_REASONS])
        )

    def _append(self, batches: Mapping[str, pa.RecordBatch], state: bytes) -> Receipt:
        """Append with one sequence number for all attempts, so that it is done once however often it is tried."""
        sequence = self._sequence + 1
        deadline = time.monotonic() + self._patience
        wait = 0.05
        self._certain = False
        while True:
            try:
                receipt = self._producer.append(batches, sequence=sequence, state=state)
            except FencedError:
                raise
            except (LogError, OSError) as error:
                if time.monotonic() + wait > deadline:
                    if isinstance(error, LogError):
                        raise
                    raise LogError(f"{self.name}: the log cannot be written: {error}") from error
                _logger.warning("%s: the log did not take an append, trying again: %s", self.name, error)
                time.sleep(wait)
                wait = min(2 * wait, 5.0)
            else:
                self._certain = True
                return receipt

    def _make_certain(self) -> None:
        """Find out from the log whether an append that failed was done."""
        if not self._certain:
            self._load(self._log.producer(self._producer.name, fence=False))

    def _load(self, producer: Producer) -> None:
        kept = PipelineState.FromString(producer.state)
        self._report = IngestReport(source=self.name)
        self._report.MergeFrom(kept.report)
        self._connector_state = kept.connector
        self._sequence = producer.sequence
        self._certain = True

    def _process(self, messages: Sequence[Message]) -> Processed:
        """Process messages; one by one if the processor fails, so that only the culprits become dead letters."""
        if not messages:
            return Processed()
        try:
            with panics_as_errors():
                processed = self._processor.process(messages)
            problem = self._problem(processed, len(messages))
        except Exception as error:  # a processor is the user's code, and one bad message must not stop the others
            problem = f"it raised {type(error).__name__}: {error}"
        if problem is None:
            return processed
        if len(messages) > 1:
            return joined([self._process([message]) for message in messages])
        reason = f"processor {self._processor.name} failed: {problem}"
        _logger.error("%s: a message goes to %s: %s", self.name, self.dead_topic, reason)
        return Processed(dead=[Dead(messages[0], "processor-failed", reason)])

    def _problem(self, processed: Processed, expected: int) -> str | None:
        """The reason why it is invalid, if it is."""
        if processed.count != expected:
            return f"it accounts for {processed.count} of {expected} messages"
        if any(count < 0 for count in processed.filtered.values()):
            return f"it filtered less than nothing: {dict(processed.filtered)}"
        for topic, batch in processed.topics.items():
            if topic in (self.dead_topic, self.account_topic, TYPES_TOPIC):
                return f"it writes to {topic}, which is the pipeline's"
            if batch.schema.names != RECORDS.names or batch.schema.types != RECORDS.types:
                return f"its records for {topic} do not have the columns of RECORDS; make them with records(...)"
            if batch.column("value").null_count:
                return f"its records for {topic} have no value"
            try:
                check_topic_name(topic)
            except DefinitionError as error:
                return str(error)
        return None

    def _dead_letters(self, dead: Sequence[Dead]) -> pa.RecordBatch:
        ingested_at = now()
        values, times = [], []
        for each in dead:
            received_at = min(max(each.message.received_at, EARLIEST), LATEST)
            letter = DeadLetter(
                source=_text(self._processor.name),
                reason=_text(each.reason),
                topic=_text(each.message.topic),
                raw=each.message.payload,
                received_at=codec.timestamp(received_at),
            )
            values.append(codec.encode(codec.pack(letter, event_time=received_at, ingestion_time=ingested_at)))
            times.append(received_at)
        return records(values, event_times=times)

    def _account(self, report: IngestReport) -> pa.RecordBatch:
        at: Instant = now()
        return records(
            [codec.encode(codec.pack(report, event_time=at, ingestion_time=at))], keys=[self._key], event_times=[at]
        )


class Reports:
    """The latest totals of every source that ever ingested into the log, by name (`<processor>:<source>`). Each call
    reads only what is new."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._topics: dict[str, MessageTopic[IngestReport]] = {}
        self._latest: dict[str, dict[str, IngestReport]] = {}

    def __call__(self) -> list[IngestReport]:
        """Read the totals of all pipelines now."""
        names = [topic.name for topic in self._log.topics() if kind_of(topic.name) == INGESTED]
        for name in names:
            topic = self._topics.setdefault(name, MessageTopic(self._log, name, IngestReport))
            self._latest.setdefault(name, {}).update((report.source, report) for report in topic.news())
        found = [report for name in names for report in self._latest[name].values()]
        return sorted(found, key=lambda report: report.source)


def read_reports(log: Log) -> list[IngestReport]:
    """Read the latest totals, once (see `Reports`)."""
    return Reports(log)()


def adds_up(report: IngestReport) -> bool:
    """Whether every message that was received is in a topic, filtered, or a dead letter."""
    parts = (report.topics, report.filtered, report.dead)
    return report.received == sum(sum(part.values()) for part in parts)


def _text(value: str) -> str:
    """Replace what protobuf cannot hold: JSON may contain unpaired surrogates."""
    return value.encode(errors="replace").decode()
