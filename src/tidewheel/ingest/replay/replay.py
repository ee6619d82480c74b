"""Replay: recordings as if they happened now, or at any speed, again and again, and many times over."""

from __future__ import annotations

import heapq
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice, tee
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tidewheel.errors import DefinitionError
from tidewheel.ingest.connector import Deliver
from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Processor, Replayable
from tidewheel.ingest.replay.clock_outliers import plausible_times
from tidewheel.ingest.replay.pacer import Pacer
from tidewheel.ingest.replay.recording import BadLine, RecordedMessage, read_recording
from tidewheel.model.time import Duration, Instant, duration
from tidewheel.model.time import now as wall_clock

__all__ = ["Replay"]

_SECOND: Final[Duration] = 1_000_000
_LINGER: Final[Duration] = 50_000
_BATCH: Final = 1_000
_Due: TypeAlias = tuple[Instant, Duration, Message | BadLine]


class Replay:
    """Brings the messages of recordings, in the order of their arrival and at the time of it.

    The recordings are merged. A message whose arrival was not recorded arrives at its event time, or with the one
    before it if its clock is plainly wrong (see `plausible_times`). What cannot be read is brought too, once, as a
    message whose topic says what is wrong with it: so it becomes a dead letter.

    - `speed`: 1 is the original timing, 10 is ten times as fast, "max" as fast as the log takes them.
    - `loop`: endlessly, each round later than the one before by the recording's length (in whole seconds).
    - `now`: all times are moved so that the first event happens when the replay starts; not faster than they pass.
    - `volume`: so many replays side by side, each a fleet of its own, each begun `stagger` after the one before and
      moved by that, so that every event keeps its own lateness.
    - `limit`: no more than so many messages.

    The same recordings and options give the same messages (those of `now` differ by the time they are moved to).
    """

    name = "replay"

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        processor: Processor,
        speed: float | Literal["max"] = 1.0,
        loop: bool = False,
        now: bool = False,
        volume: int = 1,
        stagger: str | timedelta = "1 s",
        limit: int | None = None,
        clock: Callable[[], Instant] = wall_clock,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._paths = [Path(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
        if not self._paths:
            raise DefinitionError("there is nothing to replay: give at least one recording")
        for path in self._paths:
            if not path.is_file():
                raise DefinitionError(f"there is no recording {path}")
        if speed != "max" and not (isinstance(speed, (int, float)) and speed > 0):
            raise DefinitionError(f'speed must be a number above 0, or "max", got {speed!r}')
        if now and (speed == "max" or speed > 1):
            raise DefinitionError(
                f"a replay that is moved to now and runs at speed {speed} overtakes the clock: its events would be "
                "refused as from the future; leave out one of the two, the speed or the moving (--now)"
            )
        if volume < 1:
            raise DefinitionError(f"volume must be at least 1, got {volume!r}")
        if limit is not None and limit < 0:
            raise DefinitionError(f"limit must not be negative, got {limit!r}")
        self._replayable = processor if isinstance(processor, Replayable) else None
        if self._replayable is None and (loop or now or volume > 1):
            raise DefinitionError(
                f"processor {processor.name} cannot move messages in time, so it can neither loop nor be moved to now "
                "nor be multiplied; give it the methods of Replayable"
            )
        self._speed = None if speed == "max" else float(speed)
        self._loop = loop
        self._now = now
        self._volume = volume
        self._stagger = duration(stagger, what="stagger")
        if self._stagger < 0:
            raise DefinitionError(f"stagger must not be negative, got {stagger!r}")
        self._limit = limit
        self._clock = clock
        self._wait = wait

    def run(self, deliver: Deliver, stop: threading.Event) -> None:
        """Deliver the messages at their time until there are no more or `stop` is set."""
        pacer: Pacer | None = None
        batch: list[Message] = []
        last = until = 0
        for arrival, message in self._timeline():
            if pacer is None:
                pacer = Pacer(arrival, speed=self._speed, stop=stop, clock=self._clock, wait=self._wait)
            if batch and (len(batch) >= _BATCH or pacer.due(arrival) > until):
                if not pacer.wait_for(last):
                    return
                deliver(batch)
                batch = []
            if not batch:
                # Whatever is due by then goes together: late is a little, early never.
                until = pacer.due(arrival) + pacer.behind(arrival) + _LINGER
            batch.append(message)
            last = arrival
        if batch and pacer is not None and pacer.wait_for(last):
            deliver(batch)

    def messages(self) -> Iterator[Message]:
        """The messages of the whole replay, without waiting."""
        return (message for _, message in self._timeline())

    def _timeline(self) -> Iterator[tuple[Instant, Message]]:
        """All messages to deliver, each with its time."""
        start, first_event = self._beginning()
        shift = self._clock() - first_event if self._now and first_event is not None else 0
        # The copies read the recordings once, together: what is between the first and the last of them is kept.
        copies = (
            self._copy(rounds, copy=copy, shift=shift + copy * self._stagger)
            for copy, rounds in enumerate(tee(self._rounds(start), self._volume))
        )
        return islice(heapq.merge(*copies, key=itemgetter(0)), self._limit)

    def _copy(self, rounds: Iterable[_Due], *, copy: int, shift: Duration) -> Iterator[tuple[Instant, Message]]:
        for arrival, round_shift, item in rounds:
            by = shift + round_shift
            if isinstance(item, BadLine):
                if copy == 0:
                    yield arrival + by, Message(f"{item.place} {item.reason}", item.raw, arrival + by)
            elif self._replayable is None or (by == 0 and copy == 0):
                yield arrival + by, item
            else:
                moved = self._replayable.moved(item, by=by, copy=copy)
                if moved is item:  # not readable, so only its arrival can be moved
                    moved = replace(item, received_at=item.received_at + by)
                yield arrival + by, moved

    def _rounds(self, start: Instant) -> Iterator[_Due]:
        """The messages of all rounds: arrival, by how much the round is later than the first, message."""
        shift = 0
        while True:
            last = None
            for arrival, item in heapq.merge(*(self._read(path, start) for path in self._paths), key=itemgetter(0)):
                if isinstance(item, Message):
                    last = arrival
                if shift == 0 or isinstance(item, Message):
                    yield arrival, shift, item
            if not self._loop or last is None:
                return
            # More than the length, or the last message of a round and the first of the next would come as one.
            shift += (last - start) // _SECOND * _SECOND + _SECOND

    def _read(self, path: Path, start: Instant) -> Iterator[tuple[Instant, Message | BadLine]]:
        """Read the messages of a recording with their arrival, which never goes back."""
        arrival = start
        for item, known in self._arrivals(path):
            arrival = arrival if known is None else max(arrival, known)
            if isinstance(item, BadLine):
                yield arrival, item
            else:
                yield arrival, Message(item.topic, item.payload, arrival if known is None else known)

    def _beginning(self) -> tuple[Instant, Instant | None]:
        """The first arrival of all recordings, and (if it is needed) the first event time of the recording with it."""
        found = []
        for path in self._paths:
            arrival = _first(self._arrivals(path))
            event = _first(plausible_times(read_recording(path), self._event_time)) if self._now else None
            if arrival is not None:
                found.append((arrival, event))
        return min(found, key=itemgetter(0), default=(0, None))

    def _arrivals(self, path: Path) -> Iterator[tuple[RecordedMessage | BadLine, Instant | None]]:
        """The contents of a recording, each with its arrival: as recorded, else its event time, if that is
        plausible."""
        for item, time in plausible_times(read_recording(path), self._arrival):
            recorded = None if isinstance(item, BadLine) else item.received_at
            yield item, time if recorded is None else recorded

    def _arrival(self, item: RecordedMessage | BadLine) -> Instant | None:
        recorded = None if isinstance(item, BadLine) else item.received_at
        return self._event_time(item) if recorded is None else recorded

    def _event_time(self, item: RecordedMessage | BadLine) -> Instant | None:
        if self._replayable is None or isinstance(item, BadLine):
            return None
        return self._replayable.event_time(Message(item.topic, item.payload, 0))


def _first(timed: Iterable[tuple[RecordedMessage | BadLine, Instant | None]]) -> Instant | None:
    return next((time for _, time in timed if time is not None), None)
