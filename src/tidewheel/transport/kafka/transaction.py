"""One transaction of Kafka after another: records, then the index entries that say where they are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidewheel.errors import DefinitionError, LogError, TidewheelError
from tidewheel.transport.kafka.client import TIMEOUT_SECONDS, TRANSACTION_SECONDS, Clients, explain
from tidewheel.transport.kafka.records import Message, log_offset
from tidewheel.transport.kafka.topic_index import IndexEntry, encode_entry
from tidewheel.transport.kafka.topics import KafkaTopic
from tidewheel.transport.log.log_types import Partition

if TYPE_CHECKING:
    from confluent_kafka import Producer

__all__ = ["Record", "TransactionLostError", "TransactionalClient", "Writes"]

Writes = Sequence[tuple[KafkaTopic, int, Sequence[Message]]]
"""What is written: to which partition of which topic, in which order."""
Record = tuple[str, int, bytes, bytes]
"""A record besides: full name of its topic, partition, key, value."""

_PAUSE_SECONDS = 0.01
_FLUSH_SECONDS = 0.5
_SETTLED_SECONDS = 10.0
"""How long a topic or partition that is not known may take to appear."""


class TransactionLostError(Exception):
    """The client was locked out, or does not know what became of its transaction: it has to be opened anew, and what is
    committed looked up."""


class TransactionalClient:
    """A producer of Kafka with a transactional id. Opening it ends what another one of that id had begun, and locks
    that one out."""

    def __init__(self, clients: Clients, transactional_id: str) -> None:
        self._clients = clients
        self._id = transactional_id
        self._producer: Producer | None = clients.producer(transactional_id)
        self._retry("open a producer", lambda: self._open.init_transactions(TIMEOUT_SECONDS))

    @property
    def closed(self) -> bool:
        """Whether it was let go, or locked out."""
        return self._producer is None

    @property
    def _open(self) -> Producer:
        if self._producer is None:
            raise TransactionLostError(self._id)
        return self._producer

    def write(self, writes: Writes, record: Record | None) -> dict[Partition, int]:
        """Write all of it, or nothing; gives where the written partitions end, as offsets of the log."""
        from confluent_kafka import KafkaException

        began = time.monotonic()
        deadline = began + TIMEOUT_SECONDS + TRANSACTION_SECONDS
        while True:
            try:
                self._open.begin_transaction()
                return self._write(writes, record)
            except KafkaException as problem:
                error = problem.args[0]
                if _is_lost(error):
                    self.close()
                    raise TransactionLostError(self._id) from problem
                self._abort()
                if not error.retriable() and not error.txn_requires_abort() and not _is_outdated(error):
                    raise self._failed(error) from problem
                if time.monotonic() > deadline or _is_hopeless(error):
                    raise self._failed(error) from problem
                if _is_outdated(error):
                    # By itself a client asks for the partitions of topics every five minutes.
                    deadline = min(deadline, began + _SETTLED_SECONDS)
                    self._open.list_topics(timeout=TIMEOUT_SECONDS)
            except BaseException:
                self._abort()
                raise
            time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """Let the client go; what it had begun is aborted by the next of its id, or after a while."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _write(self, writes: Writes, record: Record | None) -> dict[Partition, int]:
        producer = self._open
        places: list[list[int]] = []
        failed: list[Any] = []
        for topic, partition, messages in writes:
            for message in messages:
                place = [-1, -1]
                places.append(place)
                _send(producer, topic.full_name, partition, message, place, failed)
        self._delivered(producer, failed)
        if any(offset < 0 for place in places for offset in place):
            raise LogError(f"cannot append as {self._id!r}: Kafka did not say at which offsets the records are")
        found = iter(places)
        ends: dict[Partition, int] = {}
        for topic, partition, messages in writes:
            for message in messages:
                entry = _entry(topic, message, *next(found))
                ends[topic.name, partition] = entry.next_offset
                if topic.index is not None:
                    _produce(
                        producer,
                        topic.index,
                        encode_entry(entry, partition=partition),
                        partition=partition,
                        timestamp=entry.append_time // 1_000,
                        on_delivery=_noting(failed),
                    )
        if record is not None:
            full, partition, key, value = record
            _produce(producer, full, value, key=key, partition=partition, on_delivery=_noting(failed))
        self._delivered(producer, failed)
        self._retry("commit a transaction", lambda: producer.commit_transaction(TIMEOUT_SECONDS))
        return ends

    def _delivered(self, producer: Producer, failed: list[Any]) -> None:
        """Wait until all that was sent has arrived."""
        from confluent_kafka import KafkaException

        while producer.flush(_FLUSH_SECONDS) > 0:
            pass
        if failed:
            # A transaction with records that did not arrive cannot be committed; the error of that says why, whereas
            # records are often only thrown away because others did not arrive.
            producer.commit_transaction(TIMEOUT_SECONDS)
            raise KafkaException(failed[0])

    def _abort(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._retry("abort a transaction", lambda: self._open.abort_transaction(TIMEOUT_SECONDS))
        except (KafkaException, LogError, TransactionLostError):
            self.close()  # the next of this id aborts it

    def _retry(self, doing: str, attempt: Any) -> None:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + TIMEOUT_SECONDS + TRANSACTION_SECONDS
        while True:
            try:
                attempt()
                return
            except KafkaException as problem:
                error = problem.args[0]
                if not error.retriable() or error.txn_requires_abort():
                    raise
                if time.monotonic() > deadline:
                    self.close()
                    raise LogError(explain(self._clients, doing, error)) from problem
            time.sleep(_PAUSE_SECONDS)

    def _failed(self, error: Any) -> TidewheelError:
        from confluent_kafka import KafkaError

        doing = f"append as {self._id!r}"
        if error.code() in (KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG):
            return DefinitionError(
                f"cannot {doing}: Kafka refuses a record ({error.str()}). Records of a compacted topic need keys"
            )
        if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
            return DefinitionError(
                f"cannot {doing}: a record is larger than the topic takes (max.message.bytes). Keep large things in "
                "files and append where they are"
            )
        return LogError(explain(self._clients, doing, error))


def _send(producer: Producer, full: str, partition: int, message: Message, place: list[int], failed: list[Any]) -> None:
    """Send the records of a message; `place` gets the offsets of the first and the last."""
    last = len(message.records) - 1
    milliseconds = message.header.summary.append_time // 1_000
    for number, (key, value, headers) in enumerate(message.records):
        # The first and the last tell all: what one producer sends to a partition stays in order.
        edges = [edge for edge, at in enumerate((0, last)) if at == number]
        _produce(
            producer,
            full,
            value,
            key=key,
            partition=partition,
            timestamp=milliseconds,
            on_delivery=_noting(failed, place, edges),
            **({} if headers is None else {"headers": headers}),
        )


def _produce(producer: Producer, full: str, value: bytes, **options: Any) -> None:
    while True:
        try:
            producer.produce(full, value, **options)
            return
        except BufferError:  # so much is on its way that some has to arrive first
            producer.poll(_FLUSH_SECONDS)


def _noting(failed: list[Any], place: list[int] | None = None, edges: Sequence[int] = ()) -> Any:
    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)
        elif place is not None:
            for edge in edges:
                place[edge] = message.offset()

    return delivered


def _entry(topic: KafkaTopic, message: Message, first: int, last: int) -> IndexEntry:
    begin = log_offset(topic.format, first)
    after = begin + message.count if topic.format == "blocks" else last + 1
    return IndexEntry(begin, after, message.size, message.header)


def _is_lost(error: Any) -> bool:
    from confluent_kafka import KafkaError

    locked_out = (
        KafkaError._FENCED,
        KafkaError._FATAL,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
        KafkaError._STATE,
    )
    return bool(error.fatal()) or error.code() in locked_out


def _is_outdated(error: Any) -> bool:
    """Whether the client does not know a topic or a partition, which may have been made since it asked."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    )


def _is_hopeless(error: Any) -> bool:
    """Whether the same transaction will fail again."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_MSG,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
