"""Clients of a Kafka cluster, made when they are needed and anew after a fork, and its errors in plain words."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tidewheel.errors import LogError, SetupError
from tidewheel.transport.kafka.address import KafkaAddress

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

__all__ = [
    "RECORD_BYTES",
    "REQUEST_SECONDS",
    "TIMEOUT_SECONDS",
    "TRANSACTION_SECONDS",
    "Clients",
    "UnsettledError",
    "errors_explained",
    "explain",
    "keep_from_parent",
    "patiently",
    "results_of",
]

T = TypeVar("T")

RECORD_BYTES = 64 << 20
"""The most bytes of one record of Kafka. A broker's own default is 1 MB, which a block exceeds."""
TIMEOUT_SECONDS = 30.0
"""How long the cluster may be away until that is an error."""
REQUEST_SECONDS = 5.0
"""How long a broker may take for an answer until it is asked again."""
_FIRST_SECONDS = 10.0
"""How long the cluster may be away when a log is opened: nobody knows yet whether there is one."""
_PAUSE_SECONDS = 0.05
TRANSACTION_SECONDS = 30
"""After how long a transaction whose writer died is aborted; readers wait for it, unless a successor comes first."""
_OF_PARENTS: list[Any] = []
# A forked child must not collect its parent's clients either, wherever they are.
os.register_at_fork(after_in_child=gc.freeze)
_logger = logging.getLogger(__name__)
_logger.setLevel(logging.CRITICAL)

_OVERHEAD_BYTES = 1 << 16
# A reader asks for what it knows to be there: a broker that waits for more to come only delays it.
_FETCH_WAIT_MILLIS = 5


class UnsettledError(LogError):
    """The cluster has not settled yet who leads a partition; it does so in a moment."""


class Clients:
    """The clients of one log in this process."""

    def __init__(self, address: KafkaAddress) -> None:
        try:
            import confluent_kafka  # noqa: F401
        except ImportError:
            raise SetupError(
                "a log on Kafka needs the package confluent-kafka: pip install 'tidewheel[kafka]'"
            ) from None
        self.address = address
        self._options = address.client_options()
        self.patience = _FIRST_SECONDS
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._admin: AdminClient | None = None
        self._retired: list[tuple[float, AdminClient]] = []
        self._idle: list[tuple[Consumer, set[str]]] = []
        self._complaint: str | None = None

    @property
    def admin(self) -> AdminClient:
        """The client that asks about topics and changes them."""
        from confluent_kafka.admin import AdminClient

        with self._lock:
            self._of_this_process()
            if self._admin is None:
                self._admin = AdminClient(self._configured())
            self._admin.poll(0)  # so that it says what it complains of
            return self._admin

    def renew_admin(self) -> None:
        """Begin anew with a client that knows nothing yet: one that has lost a broker goes on for long asking it, or
        others about what it led."""
        with self._lock:
            at = time.monotonic()
            self._retired = [(since, client) for since, client in self._retired if at - since < 2 * TIMEOUT_SECONDS]
            if self._admin is not None and (not self._retired or at - self._retired[-1][0] > 1):
                # It is not destroyed yet: other threads may wait for its answers.
                self._retired.append((at, self._admin))
                self._admin = None

    @contextmanager
    def reader(self, places: Mapping[tuple[str, int], int]) -> Iterator[Consumer]:
        """A consumer without a group, which reads what is committed and reports the ends of partitions. `places`: where
        it begins, by full name and partition."""
        from confluent_kafka import Consumer, TopicPartition

        with self._lock:
            self._of_this_process()
            consumer, topics = self._idle.pop() if self._idle else (None, set())
        if consumer is None:
            consumer = Consumer(
                self._configured(
                    {
                        "group.id": f"{self.address.prefix}tidewheel",  # needed, though nothing is committed for it
                        "enable.auto.commit": False,
                        "enable.partition.eof": True,
                        "isolation.level": "read_committed",
                        "auto.offset.reset": "error",
                        "allow.auto.create.topics": False,
                        "fetch.wait.max.ms": _FETCH_WAIT_MILLIS,
                        "fetch.error.backoff.ms": 50,
                        "fetch.queue.backoff.ms": 10,
                        "fetch.message.max.bytes": 8 << 20,
                        "fetch.max.bytes": RECORD_BYTES + _OVERHEAD_BYTES,
                        "receive.message.max.bytes": RECORD_BYTES + (1 << 20),
                        "queued.max.messages.kbytes": 32 << 10,
                    }
                )
            )
        try:
            consumer.assign([TopicPartition(*part, offset) for part, offset in places.items()])
            for topic in {topic for topic, _ in places} - topics:
                # By itself a consumer asks for the leaders of new topics after a second.
                consumer.list_topics(topic, timeout=TIMEOUT_SECONDS)
                topics.add(topic)
            yield consumer
        except GeneratorExit:  # its reader has had enough
            self._put_back(consumer, topics)
            raise
        except BaseException:
            consumer.close()
            raise
        self._put_back(consumer, topics)

    def _put_back(self, consumer: Consumer, topics: set[str]) -> None:
        consumer.unassign()
        with self._lock:
            if self._process == os.getpid():
                self._idle.append((consumer, topics))

    def group(self, name: str) -> Consumer:
        """A consumer that commits for a group; the caller closes it."""
        from confluent_kafka import Consumer

        return Consumer(self._configured({"group.id": name, "enable.auto.commit": False}))

    def producer(self, transactional_id: str) -> Producer:
        """A transactional producer; the caller keeps it."""
        from confluent_kafka import Producer

        return Producer(
            self._configured(
                {
                    "transactional.id": transactional_id,
                    "transaction.timeout.ms": TRANSACTION_SECONDS * 1_000,
                    "message.timeout.ms": TRANSACTION_SECONDS * 1_000,
                    "message.max.bytes": RECORD_BYTES + _OVERHEAD_BYTES,
                    "queue.buffering.max.kbytes": 512 << 10,
                    "queue.buffering.max.messages": 1_000_000,
                    "linger.ms": 1,
                    "compression.type": "lz4",
                }
            )
        )

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            if self._process == os.getpid():
                for consumer, _ in self._idle:
                    consumer.close()
            self._begin()

    def _of_this_process(self) -> None:
        # The threads of a client do not survive a fork; what the parent opened is left to it.
        if self._process != os.getpid():
            keep_from_parent(self._admin, self._retired, self._idle)
            self._begin()

    def _configured(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {
            **self._options,
            "client.id": "tidewheel",
            "error_cb": self._complain,
            "logger": _logger,  # what matters comes as an error; by itself it would write to the terminal
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "socket.keepalive.enable": True,
            **(more or {}),
        }

    def _complain(self, error: Any) -> None:
        self._complaint = str(error.str())

    def forget_complaint(self) -> None:
        """What went wrong before the cluster answered is not why something goes wrong later."""
        self._complaint = None

    def why(self) -> str | None:
        """The last that a client complained of: why a cluster is not reached, most often."""
        return self._complaint


def keep_from_parent(*clients: Any) -> None:
    """Keep clients that a forked child has from its parent: to destroy them would wait for threads that only the parent
    has."""
    _OF_PARENTS.extend(clients)


def patiently(clients: Clients, doing: str, attempt: Callable[[], T], *, settled: bool = False) -> T:
    """Ask a cluster, again for a while if its brokers do not answer: they may be about to come back.

    Args:
        clients: The clients of the log.
        doing: What is asked for, for errors.
        attempt: Asks, and gives the answer. It may be called several times.
        settled: Whether to wait as well until the cluster has settled who leads a partition; otherwise that is an
            `UnsettledError`.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + clients.patience
    while True:
        try:
            answer = attempt()
        except KafkaException as problem:
            error = problem.args[0]
            passes = _is_away(error) or (settled and _is_unsettled(error))
            clients.renew_admin()
            if not passes or time.monotonic() > deadline:
                kind = UnsettledError if _is_unsettled(error) else LogError
                raise kind(explain(clients, doing, error)) from problem
        else:
            clients.patience = TIMEOUT_SECONDS
            clients.forget_complaint()
            return answer
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def errors_explained(clients: Clients, doing: str) -> Iterator[None]:
    """Turn errors of Kafka into a `LogError` that says what could not be done and why."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as problem:
        raise LogError(explain(clients, doing, problem.args[0])) from problem


def results_of(futures: Mapping[Any, Any] | Sequence[Any]) -> list[Any]:
    """The results of an admin client's futures, in their order."""
    return [future.result() for future in (futures.values() if isinstance(futures, Mapping) else futures)]


def _is_away(error: Any) -> bool:
    """Whether brokers do not answer, or have just begun to."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.BROKER_NOT_AVAILABLE,
    )


def _is_unsettled(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError._NOENT,  # no leader is known
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    )


def explain(clients: Clients, doing: str, error: Any) -> str:
    """What could not be done, why, and what can be done about it."""
    from confluent_kafka import KafkaError

    servers = clients.address.servers
    unreachable = (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
    )
    refused = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
    said = clients.why()
    if error.code() in refused or (said and "uthentication" in said):
        return (
            f"cannot {doing}: the Kafka at {servers} refused the user, password or certificate ({said or error.str()})"
        )
    if error.code() in unreachable:
        return (
            f"cannot {doing}: no answer from the Kafka at {servers} ({said or error.str()}). Is it running? "
            "One for this machine is started by: tidewheel kafka up"
        )
    denied = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    if error.code() in (*denied, KafkaError.GROUP_AUTHORIZATION_FAILED):
        return f"cannot {doing}: the Kafka at {servers} does not allow it to {clients.address.user!r} ({error.str()})"
    return f"cannot {doing}: the Kafka at {servers} says: {error.str()}"
