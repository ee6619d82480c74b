"""Chunks: what arrives from the fleet in a stretch of time, as columns, as records of the log, or as MQTT messages."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

import tidewheel as tw
from tidewheel.ingest import Message, Processed
from tidewheel_transit.simulator.columns import Names, times, to_columns
from tidewheel_transit.simulator.hfp_text import payloads, topics
from tidewheel_transit.topics import EVENTS, TOPICS

__all__ = ["Chunk"]

_FIELDS = {topic: list(message.DESCRIPTOR.fields_by_name) for topic, message in TOPICS.items()}
_TOPIC_OF_EVENT = np.array([list(TOPICS).index(home.topic) for home in EVENTS.values()])


class Chunk:
    """The messages that arrive from `start` on and before `end`, in the order of arrival; computed on demand."""

    def __init__(self, start: tw.time.Instant, end: tw.time.Instant, rows: npt.NDArray[np.void], names: Names) -> None:
        self.start = start
        self.end = end
        self._rows = rows
        self._names = names

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        start, end = tw.time.format_instant(self.start), tw.time.format_instant(self.end)
        return f"<Chunk of {len(self):,} events, {start} to {end}>"

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The columns of the transit messages, with `event_time` and `arrival_time` before them; `geohash_level`, the
        last column, belongs to the MQTT topic."""
        rows = self._rows
        columns = {"event_time": times(rows, "event_time"), "arrival_time": times(rows, "arrival")}
        columns |= to_columns(rows, self._names) | {"geohash_level": pa.array(rows["level"])}
        frame = pl.from_arrow(pa.RecordBatch.from_pydict(columns))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def records(self) -> Processed:
        """The records of the log: what `HfpProcessor` makes of the messages, without the way over text."""
        ongoing = self._rows[~self._rows["upcoming"]]
        filtered = {"upcoming": len(self) - len(ongoing)} if len(ongoing) < len(self) else {}
        batches = {}
        topic_of_row = _TOPIC_OF_EVENT[ongoing["event"]]
        for number, (topic, message) in enumerate(TOPICS.items()):
            rows = ongoing[topic_of_row == number]
            if len(rows):
                columns = to_columns(rows, self._names)
                batch = pa.RecordBatch.from_pydict({name: columns[name] for name in _FIELDS[topic]})
                event_time = times(rows, "event_time")
                values = tw.codec.encode_columns(
                    message, batch, event_time=event_time, ingestion_time=times(rows, "arrival")
                )
                keys = self._names.key.take(pa.array(rows["vehicle"]))
                batches[topic] = tw.records(
                    values, keys=keys, event_times=event_time, type=message.DESCRIPTOR.full_name
                )
        return Processed(topics=batches, filtered=filtered)

    def messages(self) -> list[Message]:
        """The messages as the vehicles publish them: HFP v2 topics and JSON payloads."""
        texts = zip(
            topics(self.frame).to_list(), payloads(self.frame).to_list(), self._rows["arrival"].tolist(), strict=True
        )
        return [Message(topic, payload.encode(), arrival) for topic, payload, arrival in texts]
