"""Lanes: flows that failed are taken out of a shared query, and come back where they stopped.

A flow that comes back has missed what the others have read since. It gets a lane of its own: in each batch it is given
a share of what it missed, with the watermarks that go with that, until it has caught up. All of it is in the offsets,
like everything else that a batch must find again when it is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidewheel.engine.checkpoint_file import read_json, write_json
from tidewheel.engine.offset import Lane, Offset
from tidewheel.engine.planning import plan_batch
from tidewheel.model.time import Instant, now
from tidewheel.model.watermarks import Strategy
from tidewheel.transport.log import Log

__all__ = ["Roster", "plan_lanes", "where"]


@dataclass(frozen=True)
class Roster:
    """Which flows of a checkpoint were taken out and why, and which lanes wait to be begun: a file beside it."""

    suspended: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By flow: `reason`, and `since`, the offset at which it stopped."""
    lanes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By the name of the lane: `flows` and `since`."""

    @classmethod
    def read(cls, path: str | Path) -> Roster:
        """From its file; empty if there is none."""
        fields = read_json(Path(path), needs=("suspended", "lanes"))
        return cls() if fields is None else cls(fields["suspended"], fields["lanes"])

    def write(self, path: str | Path) -> None:
        """To its file, whole or not at all."""
        write_json(Path(path), {"suspended": dict(self.suspended), "lanes": dict(self.lanes)})

    def suspend(self, flow: str, reason: str, since: Offset) -> Roster:
        """Take a flow out, where `since` is how far it has come. One that is out stays where it was."""
        if flow in self.suspended:
            return self
        lanes = {name: lane for name, lane in self.lanes.items() if flow not in lane["flows"]}
        return Roster({**self.suspended, flow: {"reason": reason, "since": since.to_json()}}, lanes)

    def resume(self) -> Roster:
        """Bring all flows back, each in a lane from where it stopped."""
        begun = {
            f"{flow} {now()}": {"flows": [flow], "since": fields["since"]} for flow, fields in self.suspended.items()
        }
        return Roster({}, {**self.lanes, **begun})


def where(offset: Offset, flow: str, roster: Roster) -> Offset:
    """How far a flow has come when the last batch that was done ends at this offset."""
    for name, waiting in roster.lanes.items():
        if flow in waiting["flows"] and name not in offset.lanes and name not in offset.ended_lanes:
            return Offset.from_json(waiting["since"])  # no batch with its lane was done yet
    for lane in offset.lanes.values():
        if flow in lane.flows and not lane.done:
            return lane.end
    return replace(offset, lanes={}, ended_lanes=())


def plan_lanes(
    log: Log,
    strategies: Mapping[str, Strategy],
    before: Offset,
    after: Offset,
    roster: Roster,
    *,
    limit: int | None,
    limit_bytes: int | None = None,
    clock: Instant,
    skip_damaged: bool = False,
) -> Offset:
    """The batch's end with the lanes that go on, begin, or catch up in it; `before` itself if nothing happens."""
    open_lanes = {
        name: (lane.flows, lane.end)
        for name, lane in before.lanes.items()
        if not lane.done and name in roster.lanes  # else its flow was taken out again
    }
    for name, fields in roster.lanes.items():
        if name not in before.lanes and name not in before.ended_lanes:
            open_lanes[name] = (tuple(fields["flows"]), Offset.from_json(fields["since"]))
    gone = tuple(name for name in before.lanes if name not in open_lanes)
    if not open_lanes and not gone:
        known = before.ended_lanes
        return after if after is before or not known else replace(after, ended_lanes=known)
    clock = max(clock, after.clock)
    lanes: dict[str, Lane] = {}
    for name, (flows, start) in sorted(open_lanes.items()):
        end = plan_batch(
            log,
            strategies,
            start,
            limit=limit,
            limit_bytes=limit_bytes,
            clock=clock,
            tick=0,
            until=after.positions,
            skip_damaged=skip_damaged,
        )
        done = all(end.positions.get(part, 0) >= position for part, position in after.positions.items())
        if done:  # from here on the time of the others is its own
            end = replace(after, clock=clock, lanes={}, ended_lanes=())
        lanes[name] = Lane(flows, start, end, done)
    if after is before and not lanes:
        return before
    return replace(after, clock=clock, lanes=lanes, ended_lanes=(*before.ended_lanes, *gone))
