"""The lookup worker: follows topics of events, asks about new keys, and writes the outcomes to the log.

It stands beside the jobs, not in them, with the wall clock and the network, which a job must not see. What it writes is
written before anybody uses it. When it is killed, the next one begins where all requests were done, and finds in
the topic what was answered since; when it stays away, jobs go on, and their rows fail when their time is over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
from google.protobuf.message import Message

from tidewheel.errors import DamagedBlockError, DefinitionError, MalformedError
from tidewheel.ingest.lookup.attempt import UNKNOWN, LookupAttempts, Outcome
from tidewheel.ingest.lookup.cache import Cache, Kind
from tidewheel.ingest.lookup.limits import Limits
from tidewheel.ingest.lookup.provider import Provider
from tidewheel.model.process.lookup import Key, Lookup
from tidewheel.model.time import Instant, now
from tidewheel.topic_names import lookup_group
from tidewheel.transport.events import codec
from tidewheel.transport.events.event_pb2 import LookupOutcome
from tidewheel.transport.events.registry import types
from tidewheel.transport.log.consumer import Consumer
from tidewheel.transport.log.damage import note_damage
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Batch, Partition, StartFrom, records
from tidewheel.transport.topics.message_topic import MessageTopic
from tidewheel.transport.topics.types import publish_types

__all__ = ["LookupWorker", "Report"]

_logger = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_READ_AT_ONCE = 20_000
_COMMIT_EVERY = 10_000_000
_ANSWERED, _WITHOUT = b"a/", b"f/"


@dataclass(frozen=True)
class Report:
    """The counts of a lookup worker since it was started: settled = answered + unknown + failed."""

    events: int = 0
    settled: int = 0
    answered: int = 0
    unknown: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    """By reason."""
    attempts: int = 0
    open: int = 0
    """Requests that wait or are under way."""
    lost: int = 0
    """Events that had left the log by retention before they were read."""
    damaged: int = 0
    """Events, and outcomes of earlier requests, whose blocks are damaged in the log's file."""


@dataclass(frozen=True, slots=True)
class _Raised:
    """A request, the event time of the event that raised it, and where the batches began that it was among."""

    key: Key
    seen: Instant
    before: Mapping[Partition, int]


class LookupWorker:
    """Asks for the keys of a lookup that come up in topics of events of one type.

    One that is started again goes on where the last one left off, or after what has left the log since then, which is
    counted. Of several lookup workers of one lookup and log only the newest goes on; the others stop with
    `FencedError`.

    Args:
        log: The log that has the events, and keeps the answers.
        lookup: What is looked up.
        provider: Who is asked.
        topics: The topics of the events whose keys are looked up.
        type: The message type of the events.
        columns: Expressions that make key columns that the events do not have by that name.
        limits: How much is asked, how long it may take, and what is remembered.
        start_from: Where a new worker begins.
        skip_damaged: Go on without records whose blocks are damaged in the log's file: `dead.lookup.<name>` tells of
            them.
        clock: The time, in microseconds.

    >>> import tempfile
    >>> import tidewheel as tw
    >>> from tidewheel.transport.events.event_pb2 import DeadLetter
    >>> class Owners:
    ...     async def ask(self, key):
    ...         return {"owner": "anna"}
    >>> log = tw.open_log(tempfile.mkdtemp() + "/shop.tw")
    >>> owner = tw.Lookup("owner", keys={"source": pl.String}, returns={"owner": pl.String})
    >>> worker = LookupWorker(log, owner, Owners(), topics="dead.orders", type=DeadLetter)
    >>> worker.run(until_idle=True)
    Report(events=0, settled=0, answered=0, unknown=0, failed={}, attempts=0, open=0, lost=0, damaged=0)
    """

    def __init__(
        self,
        log: Log,
        lookup: Lookup,
        provider: Provider,
        *,
        topics: str | Sequence[str],
        type: type[Message],
        columns: Mapping[str, pl.Expr] | None = None,
        limits: Limits | None = None,
        start_from: StartFrom = "earliest",
        skip_damaged: bool = False,
        clock: Callable[[], Instant] = now,
    ) -> None:
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if lookup.topic in names:
            raise DefinitionError(f"lookup {lookup.name}: {lookup.topic!r} is where outcomes go; name topics of events")
        self._log = log
        self._lookup = lookup
        self._topics = names
        self._type = type
        self._columns = dict(columns or {})
        self._limits = limits or Limits()
        self._start_from = start_from
        self._group = lookup_group(lookup.name)
        self._on_damage = self._pass_over if skip_damaged else None
        self._clock = clock
        self._needed = _needed(lookup, type, self._columns)
        self._outcomes = MessageTopic(log, lookup.topic, LookupOutcome)
        self._attempts = LookupAttempts(lookup, provider, self._limits)
        self._cache = Cache(self._limits)
        self._open: dict[Key, _Raised] = {}
        self._counts: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._stop = threading.Event()

    @property
    def report(self) -> Report:
        """The counts of what was done so far."""
        counts = self._counts
        return Report(
            counts["events"],
            counts["settled"],
            counts["answer"],
            counts["unknown"],
            dict(self._failed),
            counts["attempts"],
            len(self._open),
            counts["lost"],
            counts["damaged"],
        )

    def stop(self) -> None:
        """Let `run` return soon: requests that are open are left to the next worker. Any thread may call it."""
        self._stop.set()

    def run(self, *, until_idle: bool = False) -> Report:
        """Ask until `stop` is called; with `until_idle`, until all that is in the topics is settled."""
        return asyncio.run(self._run(until_idle))

    async def _run(self, until_idle: bool) -> Report:
        self._outcomes.make()
        publish_types(self._log, types, [LookupOutcome.DESCRIPTOR.full_name])
        producer = self._log.producer(f"lookup:{self._lookup.name}")
        await asyncio.to_thread(self._recall)
        consumer = Consumer(
            self._log,
            list(self._topics),
            group=self._group,
            start_from=self._start_from,
            skip_lost=True,
            on_damage=self._on_damage,
        )
        requests: asyncio.Queue[_Raised] = asyncio.Queue()
        settled: asyncio.Queue[tuple[_Raised, Outcome]] = asyncio.Queue()
        committed_at = self._clock()

        async def ask() -> None:
            while True:
                raised = await requests.get()
                settled.put_nowait((raised, await self._attempts.ask(raised.key)))

        async def write() -> None:
            while True:
                some = [await settled.get()]
                while not settled.empty():
                    some.append(settled.get_nowait())
                batch, known_at = self._records(some)
                await asyncio.to_thread(producer.append, {self._lookup.topic: batch})
                for raised, outcome in some:
                    self._note(raised, outcome, known_at)

        workers = [asyncio.create_task(ask()) for _ in range(self._limits.concurrency)]
        writer = asyncio.create_task(write())
        try:
            while not self._stop.is_set():
                for task in (*workers, writer):
                    if task.done():
                        task.result()  # what ended it; a request that nobody makes would stay open for ever
                if len(self._open) >= self._limits.waiting:
                    await asyncio.sleep(_POLL_SECONDS / 10)
                    continue
                batches = await asyncio.to_thread(consumer.poll, _POLL_SECONDS, limit=_READ_AT_ONCE)
                self._counts["lost"] = consumer.lost
                for raised in self._raised(batches):
                    self._open[raised.key] = raised
                    requests.put_nowait(raised)
                if self._clock() - committed_at >= _COMMIT_EVERY:
                    committed_at = self._clock()
                    self._log.commit(self._group, self._settled_until(consumer.positions))
                if until_idle and not batches and not self._open:
                    break
            self._log.commit(self._group, self._settled_until(consumer.positions))
        finally:
            for task in (*workers, writer):
                task.cancel()
            await asyncio.gather(*workers, writer, return_exceptions=True)
        return self.report

    def _recall(self) -> None:
        """Load the recorded outcomes: their keys are not asked again too early."""
        for event, message in self._outcomes.events(on_damage=self._on_damage):
            with suppress(MalformedError):  # jobs make a dead letter of it
                known_at, seen = (
                    time.seconds * 1_000_000 + time.nanos // 1_000 for time in (event.ingestion_time, event.event_time)
                )
                self._cache.put(self._lookup.read_key(message.key), _kind(message), now=known_at, seen=seen)

    def _pass_over(self, damaged: DamagedBlockError) -> None:
        note_damage(self._log, self._group, damaged, clock=self._clock())
        self._counts["damaged"] += damaged.next_offset - damaged.first_offset

    def _raised(self, batches: Sequence[Batch]) -> list[_Raised]:
        """The requests that events raise, each once."""
        keys = list(self._lookup.keys)
        found: dict[Key, Instant] = {}
        before: dict[Partition, int] = {}
        for batch in batches:
            before.setdefault((batch.topic, batch.partition), batch.records.column("offset")[0].as_py())
            values = batch.records.column("value")
            decoded = codec.decode_columns(self._type, values, only=self._needed)
            frame = pl.DataFrame(pl.from_arrow(decoded.columns)).with_columns(**self._columns)
            self._counts["events"] += frame.height
            times = pl.col("event_time").cast(pl.Datetime("us", "UTC")).cast(pl.Int64)
            kinds = [pl.col(name).cast(kind) for name, kind in self._lookup.keys.items()]
            newest = frame.select(*kinds, times.alias("event_time")).drop_nulls().group_by(keys, maintain_order=True)
            for *key, seen in newest.agg(pl.col("event_time").max()).iter_rows():
                found[tuple(key)] = max(seen, found.get(tuple(key), seen))
        clock = self._clock()
        return [
            _Raised(key, seen, before)
            for key, seen in found.items()
            if key not in self._open and not self._cache.is_known(key, now=clock, seen=seen)
        ]

    def _records(self, settled: Sequence[tuple[_Raised, Outcome]]) -> tuple[pa.RecordBatch, Instant]:
        """Outcomes as records. Answers and failures have keys of their own: compaction keeps the last of both."""
        known_at = self._clock()
        values, keys, times = [], [], []
        for raised, outcome in settled:
            text = self._lookup.key_text(outcome.key)
            message = LookupOutcome(key=text, answer=outcome.answer, reason=outcome.reason, attempts=outcome.attempts)
            values.append(codec.encode(codec.pack(message, event_time=raised.seen, ingestion_time=known_at)))
            keys.append((_ANSWERED if outcome.answer else _WITHOUT) + text.encode())
            times.append(raised.seen)
        return records(values, keys=keys, event_times=times), known_at

    def _note(self, raised: _Raised, outcome: Outcome, known_at: Instant) -> None:
        self._cache.put(outcome.key, outcome.kind, now=known_at, seen=raised.seen)
        self._counts.update({"settled": 1, outcome.kind: 1, "attempts": outcome.attempts})
        if outcome.kind == "failed":
            self._failed[outcome.reason] += 1
            _logger.info("lookup %s: %s: %s", self._lookup.name, outcome.key, outcome.reason)
        del self._open[raised.key]

    def _settled_until(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """The positions before which everything is settled."""
        found = dict(positions)
        for raised in self._open.values():
            for part, first in raised.before.items():
                found[part] = min(found[part], first)
        return found


def _kind(message: LookupOutcome) -> Kind:
    if message.answer:
        return "answer"
    return "unknown" if message.reason == UNKNOWN else "failed"


def _needed(lookup: Lookup, type: type[Message], columns: Mapping[str, pl.Expr]) -> frozenset[str]:
    """The fields of the events that keys are made of."""
    fields = {*types.schema(types.message_class(type)).names, "event_time", "ingestion_time"}
    roots = {root for expr in columns.values() for root in expr.meta.root_names()}
    wanted = roots | {name for name in lookup.keys if name not in columns}
    missing = sorted(wanted - fields)
    if missing:
        raise DefinitionError(
            f"lookup {lookup.name}: {type.__name__} has no field {missing[0]!r}; make the key with columns={{...}}"
        )
    return frozenset({*wanted, "event_time"})
