"""Messages of one type to Arrow columns and back: the one place that calls ptars.

Events are bytes that anybody may have written, and ptars does not bear all of them: lengths near 2^64 make it panic,
and groups within groups, a hundred thousand deep, overflow its stack, which ends the process. What leaves here is
columns or a `MalformedError`.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import numpy as np
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from tidewheel.errors import DefinitionError, MalformedError, PanicError, panics_as_errors

__all__ = ["Converter"]

_logger = logging.getLogger(__name__)
# Microseconds are what the system keeps; nanoseconds would also end in the year 2262.
_COLUMNS = ptars.PtarsConfig(timestamp_unit="us", duration_unit="us", time_unit="us")
_LONG = 8_192
"""Bytes of a message that may be too deep: a level takes one byte at least, and some 80 bytes of a stack that may be as
small as a megabyte."""
_NAMED, _SHOWN = 3, 40


class Converter:
    """Converts messages of the type that a descriptor describes.

    >>> from tidewheel.transport.events.event_pb2 import Punctuation
    >>> converter = Converter(Punctuation.DESCRIPTOR)
    >>> values = pa.array([Punctuation(epoch="monday").SerializeToString(), bytes.fromhex("0affffffffffffffffff01")])
    >>> batch, rows, errors = converter.decode_each(values)
    >>> batch.column("epoch").to_pylist(), rows.to_pylist(), sorted(errors)
    (['monday'], [0], [1])
    >>> converter.encode(batch).to_pylist() == values[:1].to_pylist()
    True
    """

    def __init__(self, descriptor: Any) -> None:
        self._name = str(descriptor.full_name)
        self._message = message_factory.GetMessageClass(descriptor)
        try:
            with panics_as_errors():
                pool = ptars.HandlerPool([descriptor.file], config=_COLUMNS)
                self._handler: Any = pool.get_for_message(descriptor)
                self.schema: pa.Schema = self._handler.schema()
                """The type's fields as Arrow columns."""
        except (PanicError, ValueError) as error:
            raise DefinitionError(f"messages of type {self._name!r} cannot be made columns of: {error}") from error

    def decode(self, values: pa.Array) -> pa.RecordBatch:
        """Decode all messages to columns; `MalformedError` if there is one among them that cannot be decoded."""
        for reason in self._too_deep(values).values():
            raise MalformedError(reason)
        try:
            return self._convert(values)
        except PanicError as error:
            raise MalformedError(f"failed to decode Protobuf message: {error}") from error

    def decode_each(self, values: pa.Array) -> tuple[pa.RecordBatch, pa.Array, dict[int, str]]:
        """Decode what can be decoded: the columns, their places in `values`, and the reason for each of the others.

        One malformed message fails its whole array, so it is found by halving: only its neighbours are decoded again.
        """
        bad = self._too_deep(values)
        alone: list[int] = []
        try:
            if not bad:
                return self._convert(values), pa.array(np.arange(len(values))), bad
        except PanicError as panic:
            # Each panic prints a report, and each halving would be another. Protobuf's own decoder is slower, but does
            # not panic: whom it refuses is tried alone.
            alone = [place for place, value in enumerate(values.to_pylist()) if value and self._fault(value)]
            shown = ", ".join(_shown(values[place].as_py()) for place in alone[:_NAMED])
            _logger.warning("%s, decoding %d of %s; suspects: %s", panic, len(values), self._name, shown)
        except MalformedError:
            pass
        parts: list[pa.RecordBatch] = []
        places: list[np.ndarray[Any, np.dtype[np.int64]]] = []

        def attempt(start: int, end: int) -> None:
            try:
                parts.append(self._convert(values.slice(start, end - start)))
                places.append(np.arange(start, end))
            except (MalformedError, PanicError) as error:
                if end - start > 1:
                    middle = (start + end) // 2
                    attempt(start, middle)
                    attempt(middle, end)
                elif isinstance(error, PanicError):
                    bad[start] = f"failed to decode Protobuf message: {error}"
                else:
                    bad[start] = str(error)

        cuts = {0, len(values), *(edge for place in (*bad, *alone) for edge in (place, place + 1))}
        for start, end in pairwise(sorted(cuts)):
            if start not in bad:
                attempt(start, end)
        if not parts:
            return self._convert(values.slice(0, 0)), pa.array([], pa.int64()), bad
        return pa.concat_batches(parts), pa.array(np.concatenate(places)), bad

    def _convert(self, values: pa.Array) -> pa.RecordBatch:
        try:
            with panics_as_errors():
                return self._handler.array_to_record_batch(values)
        except ValueError as error:
            raise MalformedError(str(error)) from None

    def _too_deep(self, values: pa.Array) -> dict[int, str]:
        """The places of messages that are long enough to overflow the stack and malformed, and why: protobuf's own
        decoder gives up after a hundred levels."""
        sizes = pc.binary_length(values)
        if (pc.max(sizes).as_py() or 0) <= _LONG:
            return {}
        places = pc.indices_nonzero(pc.fill_null(pc.greater(sizes, _LONG), False)).to_pylist()
        found = ((place, self._fault(values[place].as_py())) for place in places)
        return {place: reason for place, reason in found if reason}

    def _fault(self, value: bytes) -> str:
        """The error of a message, from protobuf's own decoder; empty if there is none."""
        try:
            self._message.FromString(value)
        except DecodeError as error:
            return f"failed to decode Protobuf message: {error}"
        return ""

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Encode rows, whose columns are those of `schema` or some of them, as messages."""
        with panics_as_errors():
            return self._handler.record_batch_to_array(batch)


def _shown(value: bytes) -> str:
    return value[:_SHOWN].hex() + ("..." if len(value) > _SHOWN else "")
