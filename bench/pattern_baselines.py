"""What patterns are measured beside: a function by hand on Spark's state, and Spark's own windowed aggregation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import Row

from bench.streams import DELAY

__all__ = ["by_hand", "windows_of"]

_STATE = "times ARRAY<BIGINT>, speeds ARRAY<FLOAT>, accs ARRAY<FLOAT>"
_MATCHES = "operator INT, vehicle INT, started BIGINT, ended BIGINT, fall FLOAT, hardest FLOAT"
_LIMIT = 10_000_000


class _EmergencyStops(StatefulProcessor):
    """The obvious way: one value for each vehicle (a fast event and those that brake after it), its rows of the batch
    sorted, one after the other.

    It does not wait for rows that are behind, as a correct one would have to: that is in its favour.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("chain", _STATE)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        held = self._state.get()
        chain = [] if held is None else list(zip(*held, strict=True))
        for row in sorted(rows, key=lambda row: row.at):
            chain = [one for one in chain if row.at - one[0] < _LIMIT]
            if chain and row.acc < 0:
                chain.append((row.at, row.speed, row.acc))
                continue
            if row.speed < 1:
                fast = next((number for number, one in enumerate(chain[:-1]) if one[1] >= 10), None)
                if fast is not None:
                    yield Row(
                        operator=key[0],
                        vehicle=key[1],
                        started=chain[fast][0],
                        ended=row.at,
                        fall=chain[fast][1] - row.speed,
                        hardest=min(one[2] for one in chain[fast + 1 :]),
                    )
            chain = [(row.at, row.speed, row.acc)] if row.speed >= 10 else []
        times, speeds, accs = zip(*chain, strict=True) if chain else ([], [], [])
        self._state.update((list(times), list(speeds), list(accs)))

    def close(self) -> None:
        """Nothing is open."""


def by_hand(frame: DataFrame) -> DataFrame:
    """Emergency stops by a function on Spark's state, row by row."""
    needed = frame.select(F.unix_micros("event_time").alias("at"), "operator", "vehicle", "speed", "acc")
    return needed.groupBy("operator", "vehicle").transformWithState(
        _EmergencyStops(), outputStructType=_MATCHES, outputMode="append", timeMode="None"
    )


def windows_of(frame: DataFrame) -> DataFrame:
    """Spark's own count and sum for each vehicle and 10 s."""
    grouped = frame.withWatermark("event_time", DELAY).groupBy(
        F.window("event_time", "10 seconds"), "operator", "vehicle"
    )
    return grouped.agg(F.count("*").alias("events"), F.sum("speed").alias("total"))
