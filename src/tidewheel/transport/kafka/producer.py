"""Appending to a log on Kafka: one transaction takes records, index and the producer's account.

Kafka knows a producer by its transactional id: whoever opens it anew locks out whoever had it. The sequence number, the
state and an epoch of our own are in the topic of accounts, written in the same transaction. So after every opening it
is known what was appended last, whatever became of the one before; and a producer that was locked out only by one that
joined (`fence=False`) finds its own epoch there, and opens its id again.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from tidewheel.errors import FencedError, LogError
from tidewheel.model.time import Duration, Instant
from tidewheel.transport.kafka.client import Clients, errors_explained, keep_from_parent
from tidewheel.transport.kafka.extents import Extents
from tidewheel.transport.kafka.producer_accounts import Account, ProducerAccounts
from tidewheel.transport.kafka.records import encode_messages, kafka_offset
from tidewheel.transport.kafka.topics import Topics
from tidewheel.transport.kafka.transaction import Record, TransactionalClient, TransactionLostError, Writes
from tidewheel.transport.log.log import Producer
from tidewheel.transport.log.log_types import Partition, Receipt
from tidewheel.transport.log.partitioner import partitioned
from tidewheel.transport.log.validation import check_batches, check_producer_name, chosen_sequence

__all__ = ["Appender", "KafkaProducer"]

_VISIBLE_SECONDS = 1.0
_PAUSE_SECONDS = 0.002
_SESSIONS = 16
"""How many names one log keeps open; each has threads of its own."""
_OPENINGS = 50
"""How often a producer opens its id again, because others that joined take it away, until it gives up."""


class Session:
    """An open client of a producer's name, with what the log knows of the name as long as nobody else opens it."""

    def __init__(self, client: TransactionalClient, account: Account) -> None:
        self.client = client
        self.account = account
        self.lock = threading.RLock()


class Appender:
    """Appends to the topics of a log through transactional clients."""

    def __init__(
        self,
        clients: Clients,
        topics: Topics,
        extents: Extents,
        accounts: ProducerAccounts,
        *,
        clock: Callable[[], Instant],
        future_tolerance: Duration,
    ) -> None:
        self.clients = clients
        self.accounts = accounts
        self._topics = topics
        self._extents = extents
        self._clock = clock
        self._future_tolerance = future_tolerance
        self._lock = threading.RLock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._process = os.getpid()
        self._anonymous = ""
        self._rotation = itertools.count()

    def session(self, name: str) -> Session:
        """The session of a name in this process, opened if there is none: that locks out those of others."""
        with self._lock:
            self._begin_in_fork()
            if name not in self._sessions or self._sessions[name].client.closed:
                with errors_explained(self.clients, f"open the producer {name!r}"):
                    client = TransactionalClient(self.clients, f"{self.clients.address.prefix}{name}")
                named = name != self._anonymous
                account = self.accounts.read(name, complete=True) if named else Account()
                self._sessions[name] = Session(client, account)
                if len(self._sessions) > _SESSIONS:
                    self._sessions.popitem(last=False)[1].client.close()
            self._sessions.move_to_end(name)
            return self._sessions[name]

    def open_session(self, name: str) -> Session:
        """A new session of a name, which locks out all others."""
        with self._lock:
            self._sessions.pop(name, None)
            return self.session(name)

    def is_ahead(self, name: str, sequence: int) -> bool:
        """Whether a session of this name is open, and has not appended under this number yet."""
        with self._lock:
            session = self._sessions.get(name)
        return session is not None and sequence > session.account.sequence

    def drop(self, name: str, session: Session) -> None:
        """Forget a session that was locked out."""
        with self._lock:
            if self._sessions.get(name) is session:
                del self._sessions[name]
            session.client.close()

    def _begin_in_fork(self) -> None:
        """After a fork, let the parent have its clients and its name."""
        if self._process != os.getpid():
            self._process, self._anonymous = os.getpid(), ""
            keep_from_parent(self._sessions)
            self._sessions = OrderedDict()

    def close(self) -> None:
        """Let go of what is open."""
        with self._lock:
            for session in self._sessions.values():
                session.client.close()
            self._sessions.clear()

    def append(self, topic: str, batch: pa.RecordBatch) -> Receipt:
        """Append without a name."""
        check_batches({topic: batch})
        with self._lock:
            self._begin_in_fork()
            self._anonymous = self._anonymous or f"anonymous.{uuid.uuid4()}"
            session = self.session(self._anonymous)
            try:
                ends = self.write(session.client, {topic: batch}, rotation=next(self._rotation))
            except TransactionLostError as error:
                self.drop(self._anonymous, session)
                raise LogError(
                    f"it is not known whether the append to {topic!r} was done, since the connection to Kafka broke. "
                    "Append as a producer with a name to be able to repeat it"
                ) from error
        self.wait_until_visible(ends)
        return Receipt(sequence=-1, next_offsets=ends)

    def write(
        self,
        client: TransactionalClient,
        batches: Mapping[str, pa.RecordBatch],
        *,
        rotation: int,
        record: Record | None = None,
    ) -> dict[Partition, int]:
        """Write records, and the record of an account, in one transaction; missing topics are made."""
        known = self._topics.find(batches)
        for topic in batches.keys() - known.keys():
            known[topic] = self._topics.create(topic)
        # Kafka's times are whole milliseconds. Rounded up they are not before the call.
        append_time = -(-self._clock() // 1_000) * 1_000
        writes: Writes = [
            (
                known[name],
                partition,
                list(
                    encode_messages(
                        known[name].format,
                        part,
                        partition=partition,
                        append_time=append_time,
                        future_tolerance=self._future_tolerance,
                    )
                ),
            )
            for name, batch in batches.items()
            for partition, part in partitioned(batch, known[name].partitions, unkeyed=rotation % known[name].partitions)
        ]
        writes = [(topic, partition, messages) for topic, partition, messages in writes if messages]
        if not writes and record is None:
            return {}
        return client.write(writes, record)

    def wait_until_visible(self, ends: Mapping[Partition, int], record: Record | None = None) -> None:
        """Wait until readers see what was committed, unless somebody else's transaction keeps it from them for long. It
        is committed whatever happens here: not to see it is no error."""
        with suppress(LogError):
            known = self._topics.find(name for name, _ in ends)
            wanted = {
                (known[name].full_name, partition): kafka_offset(known[name].format, end - 1) + 1
                for (name, partition), end in ends.items()
                if name in known
            }
            if record is not None:
                wanted |= self._extents.written_ends([record[:2]])
            deadline = time.monotonic() + _VISIBLE_SECONDS
            while time.monotonic() < deadline:
                reached = self._extents.committed_ends(list(wanted))
                if all(reached[place] >= end for place, end in wanted.items()):
                    return
                time.sleep(_PAUSE_SECONDS)


class KafkaProducer(Producer):
    """A producer of a log on Kafka. May be used by several threads."""

    def __init__(self, appender: Appender, name: str, *, fence: bool) -> None:
        check_producer_name(name)
        self.name = name
        self._appender = appender
        self._lock = threading.Lock()
        self._epoch: int | None = None
        # Complete: what a predecessor has begun must be decided before its number is believed.
        account = self._begin_epoch() if fence else appender.accounts.read(name, complete=True)
        self.sequence, self.state = account.sequence, account.state

    def append(
        self,
        batches: Mapping[str, pa.RecordBatch],
        *,
        sequence: int | None = None,
        state: bytes | None = None,
    ) -> Receipt:
        """Append records to topics, all or nothing, durable on return (see `Producer.append`)."""
        with self._lock:
            sequence = chosen_sequence(
                sequence, producer=self.name, last=None if self._epoch is None else self.sequence
            )
            check_batches(batches)
            receipt = self._append(batches, sequence, state)
            self.sequence = max(self.sequence, sequence)
            if state is not None and not receipt.duplicate:
                self.state = state
            return receipt

    def __repr__(self) -> str:
        return f"<producer {self.name!r} at sequence {self.sequence}>"

    def _append(self, batches: Mapping[str, pa.RecordBatch], sequence: int, state: bytes | None) -> Receipt:
        for _ in range(_OPENINGS):
            if self._epoch is not None and not self._appender.is_ahead(self.name, sequence):
                # Whoever was locked out must not lock out its successor, nor take a number for repeated that is not.
                self._check_epoch(self._appender.accounts.read(self.name))
            session = self._appender.session(self.name)
            with session.lock:
                known = session.account
                if self._epoch is not None:
                    self._check_epoch(known)
                if sequence <= known.sequence:
                    return Receipt(sequence=sequence, duplicate=True)
                account = replace(known, sequence=sequence, state=known.state if state is None else state)
                try:
                    return Receipt(sequence=sequence, next_offsets=self._write(session, batches, account))
                except TransactionLostError:
                    self._appender.drop(self.name, session)
        raise LogError(
            f"producer {self.name!r} cannot append: others open the same name again and again. Give each writer a name "
            "of its own"
        )

    def _check_epoch(self, account: Account) -> None:
        if account.epoch != self._epoch:
            raise FencedError(
                f"producer {self.name!r} has been opened again elsewhere (epoch {account.epoch}, this one has "
                f"{self._epoch}): only the newest may append. Stop this one, or give each writer a name of its own."
            )

    def _write(self, session: Session, batches: Mapping[str, pa.RecordBatch], account: Account) -> dict[Partition, int]:
        record = (*self._appender.accounts.place(self.name), self.name.encode(), account.encode())
        with errors_explained(self._appender.clients, f"append as {self.name!r}"):
            ends = self._appender.write(session.client, batches, rotation=max(account.sequence, 0), record=record)
        session.account = account  # first of all: it is committed, whatever happens from here on
        self._appender.wait_until_visible(ends, record)
        return ends

    def _begin_epoch(self) -> Account:
        """Lock out whoever had the name."""
        for _ in range(_OPENINGS):
            session = self._appender.open_session(self.name)
            with session.lock:
                account = replace(session.account, epoch=session.account.epoch + 1)
                try:
                    self._write(session, {}, account)
                except TransactionLostError:
                    self._appender.drop(self.name, session)
                    continue
            self._epoch = account.epoch
            return account
        raise LogError(f"producer {self.name!r} cannot be opened: others open it at the same time, again and again")
