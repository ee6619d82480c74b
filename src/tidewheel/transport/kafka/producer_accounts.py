"""The topic of producers: for each name its epoch, the sequence number of its last append, and its state."""

from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import dataclass

from tidewheel.errors import LogError
from tidewheel.transport.kafka.client import Clients
from tidewheel.transport.kafka.extents import Extents
from tidewheel.transport.kafka.reader import messages

__all__ = ["PARTITIONS", "Account", "ProducerAccounts"]

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
        self._known: dict[str, Account] = {}
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
                    self._known[message.key().decode()] = Account.decode(message.value())
            self._reached[part[1]] = max(start, end)
            return self._known.get(name, Account())
