"""The topic of producers: for each name its epoch, the sequence number of its last append, and its state."""

from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import dataclass
from typing import Any

from tidewheel.errors import LogError, MalformedError
from tidewheel.transport.kafka.client import Clients
from tidewheel.transport.kafka.extents import Extents
from tidewheel.transport.kafka.reader import messages

__all__ = ["PARTITIONS", "Account", "ProducerAccounts"]

# Never another number: a name would be looked for where its account is not, and its appends written twice.
PARTITIONS = 4
"""A writer that was killed keeps those waiting who open a name of the same partition, until its work is aborted."""
_BEGINNING = struct.Struct("<Bqq")
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Account:
    """What the log knows of a producer's name.

    Args:
        epoch: How often it was opened with `fence=True`.
        sequence: The number of its last append; -1 if there was none.
        state: What that left for the next.
    """

    epoch: int = 0
    sequence: int = -1
    state: bytes = b""

    def encode(self) -> bytes:
        """The value of the record that keeps it."""
        return _BEGINNING.pack(_VERSION, self.epoch, self.sequence) + self.state

    @staticmethod
    def decode(data: bytes) -> Account:
        """What `encode` gave."""
        if len(data) < _BEGINNING.size:
            raise MalformedError(f"the account of a producer has at least {_BEGINNING.size} bytes, not {len(data)}")
        version, epoch, sequence = _BEGINNING.unpack_from(data)
        if version != _VERSION:
            raise LogError(f"the account of a producer has version {version}, this Tidewheel reads {_VERSION}")
        return Account(epoch, sequence, data[_BEGINNING.size :])


class ProducerAccounts:
    """Reads accounts, and says where they are written."""

    def __init__(self, clients: Clients, extents: Extents, topic: str) -> None:
        self._clients = clients
        self._extents = extents
        self._topic = topic
        self._lock = threading.Lock()
        self._known: dict[str, Account | LogError] = {}
        self._reached: dict[int, int] = {}

    def place(self, name: str) -> tuple[str, int]:
        """The topic, with its full name, and the partition with the account of a name."""
        return self._topic, zlib.crc32(name.encode()) % PARTITIONS

    def read(self, name: str, *, complete: bool = False) -> Account:
        """The account of a name. `complete`: wait for what others began to write there before, since it may be ahead of
        what is asked for."""
        part = self.place(name)
        with self._lock:
            end = (self._extents.written_ends if complete else self._extents.committed_ends)([part])[part]
            start = max(self._reached.get(part[1], 0), self._extents.begins([part])[part])
            for found in messages(self._clients, part, start, end):
                for message in found:
                    if message.key() is not None:  # all accounts have one: this is no record of ours
                        self._known[message.key().decode(errors="replace")] = self._account(message)
            self._reached[part[1]] = max(start, end)
            account = self._known.get(name, Account())
        if isinstance(account, LogError):
            raise account
        return account

    def _account(self, message: Any) -> Account | LogError:
        """The account in a record; of a damaged one the error, which is for those alone who ask for that name."""
        try:
            return Account.decode(message.value() or b"")
        except MalformedError as error:
            return LogError(
                f"{self._topic!r} partition {message.partition()} is damaged at offset {message.offset()}: {error}. "
                "What its producer appended last is not known, and going on could append it twice"
            )
