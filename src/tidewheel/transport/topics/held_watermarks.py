"""The held watermarks of running jobs, and what holds them, as jobs report it in the log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidewheel.errors import DataLossError, TopicNotFoundError
from tidewheel.model.time import Duration, Instant, duration
from tidewheel.model.watermark_hold import Holder
from tidewheel.topic_names import HOLDS_TOPIC
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import records

__all__ = ["HeldWatermarks"]

_AGAIN: Duration = duration("30 s")
"""How often a job repeats its record, so that readers know that it is still there."""
_STALE: Duration = 3 * _AGAIN


class HeldWatermarks:
    """The inputs that hold back the watermarks of running jobs. Keeps its position: each call reads only what is new.

    >>> import tempfile
    >>> from tidewheel.transport.open_log import open_log
    >>> held = HeldWatermarks(open_log(tempfile.mkdtemp() + "/city.tw"))
    >>> held.report("cells", [Holder("input.door", 2, since=0, mark=None, fed=0)], now=60_000_000)
    >>> {job: [holder.place for holder in some] for job, some in held.all(now=60_000_000).items()}
    {'cells': ['input.door/2']}
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._recorded: tuple[Holder, ...] = ()
        self._recorded_at: Instant = 0
        self._topic = ""
        self._position = 0
        self._found: dict[str, tuple[Instant, tuple[Holder, ...]]] = {}

    def report(self, job: str, held: Sequence[Holder], *, now: Instant) -> None:
        """Record what holds a job's watermark, if that is new or was recorded long ago; nothing: it moves."""
        same = [(each.place, each.since) for each in held] == [(each.place, each.since) for each in self._recorded]
        if same and (not held or abs(now - self._recorded_at) < _AGAIN):
            return
        record = {"at": now, "held": [_record(each) for each in held]}
        self._log.ensure_topic(HOLDS_TOPIC, compact=True)
        self._log.append(HOLDS_TOPIC, records([json.dumps(record).encode()], keys=[job.encode()]))
        self._recorded, self._recorded_at = tuple(held), now

    def all(self, *, now: Instant) -> Mapping[str, Sequence[Holder]]:
        """By job, what holds its watermark; only for jobs that were running recently."""
        with suppress(TopicNotFoundError, DataLossError):
            info = self._log.topic_info(HOLDS_TOPIC)
            if info.id != self._topic:
                self._topic, self._position, self._found = info.id, 0, {}
            start = max(self._position, info.first_offsets[0])
            for batch in self._log.read(HOLDS_TOPIC, 0, start, on_damage=lambda _: None):  # it is recorded again soon
                for key, value in zip(
                    *(batch.records.column(name).to_pylist() for name in ("key", "value")), strict=True
                ):
                    with suppress(ValueError, TypeError, KeyError, AttributeError):  # of others, or of a later version
                        fields = json.loads(value)
                        self._found[key.decode()] = (int(fields["at"]), tuple(map(_holder, fields["held"])))
                self._position = batch.records.column("offset")[-1].as_py() + 1
        return {job: held for job, (at, held) in sorted(self._found.items()) if held and abs(now - at) < _STALE}


def _record(held: Holder) -> dict[str, Any]:
    return {
        "topic": held.topic,
        "partition": held.partition,
        "since": held.since,
        "mark": held.mark,
        "fed": held.fed,
    }


def _holder(record: Mapping[str, Any]) -> Holder:
    return Holder(record["topic"], record["partition"], since=record["since"], mark=record["mark"], fed=record["fed"])
