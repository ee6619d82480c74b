"""Backfill: failed flows are taken out of a shared query, and catch up from where they stopped.

A flow that comes back has missed what the others have read since. It catches up beside them: in each batch it is given
a share of what it missed, with the watermarks that go with that, until it has caught up. All of it is in the offsets,
like everything else that a batch must find again when it is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidewheel.engine.checkpoint.checkpoint_file import read_json, write_json
from tidewheel.engine.datasource.batch_planner import plan_batch
from tidewheel.engine.datasource.offset import CatchUp, Offset
from tidewheel.model.time import Instant, now
from tidewheel.model.watermarks import Strategy
from tidewheel.transport.log.log import Log

__all__ = ["SuspendedFlows", "plan_catch_up", "where"]


@dataclass(frozen=True)
class SuspendedFlows:
    """The flows of a checkpoint that were taken out, with the reasons, and the catch-ups that have not begun: a file
    beside it."""

    suspended: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By flow: `reason`, and `since`, the offset at which it stopped."""
    catch_ups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By the name of the catch-up: `flows` and `since`."""

    @classmethod
    def read(cls, path: str | Path) -> SuspendedFlows:
        """Read it from its file; empty if there is none."""
        fields = read_json(Path(path), needs=("suspended", "catch_ups"))
        return cls() if fields is None else cls(fields["suspended"], fields["catch_ups"])

    def write(self, path: str | Path) -> None:
        """Write it to its file atomically."""
        write_json(Path(path), {"suspended": dict(self.suspended), "catch_ups": dict(self.catch_ups)})

    def suspend(self, flow: str, reason: str, since: Offset) -> SuspendedFlows:
        """Take a flow out, where `since` is how far it has come. One that is out stays where it was."""
        if flow in self.suspended:
            return self
        catch_ups = {name: catch_up for name, catch_up in self.catch_ups.items() if flow not in catch_up["flows"]}
        return SuspendedFlows({**self.suspended, flow: {"reason": reason, "since": since.to_json()}}, catch_ups)

    def resume(self) -> SuspendedFlows:
        """Bring all flows back, each in a catch-up from where it stopped."""
        begun = {
            f"{flow} {now()}": {"flows": [flow], "since": fields["since"]} for flow, fields in self.suspended.items()
        }
        return SuspendedFlows({}, {**self.catch_ups, **begun})


def where(offset: Offset, flow: str, suspended_flows: SuspendedFlows) -> Offset:
    """How far a flow has come if the last finished batch ends at this offset."""
    for name, waiting in suspended_flows.catch_ups.items():
        if flow in waiting["flows"] and name not in offset.catch_ups and name not in offset.ended_catch_ups:
            return Offset.from_json(waiting["since"])  # no batch of its catch-up was done yet
    for catch_up in offset.catch_ups.values():
        if flow in catch_up.flows and not catch_up.done:
            return catch_up.end
    return replace(offset, catch_ups={}, ended_catch_ups=())


def plan_catch_up(
    log: Log,
    strategies: Mapping[str, Strategy],
    before: Offset,
    after: Offset,
    suspended_flows: SuspendedFlows,
    *,
    limit: int | None,
    limit_bytes: int | None = None,
    clock: Instant,
    skip_damaged: bool = False,
) -> Offset:
    """Add the catch-ups that continue, begin or end in a batch to its end; return `before` itself if nothing
    happens."""
    open_catch_ups = {
        name: (catch_up.flows, catch_up.end)
        for name, catch_up in before.catch_ups.items()
        if not catch_up.done and name in suspended_flows.catch_ups  # else its flow was taken out again
    }
    for name, fields in suspended_flows.catch_ups.items():
        if name not in before.catch_ups and name not in before.ended_catch_ups:
            open_catch_ups[name] = (tuple(fields["flows"]), Offset.from_json(fields["since"]))
    gone = tuple(name for name in before.catch_ups if name not in open_catch_ups)
    if not open_catch_ups and not gone:
        known = before.ended_catch_ups
        return after if after is before or not known else replace(after, ended_catch_ups=known)
    clock = max(clock, after.clock)
    catch_ups: dict[str, CatchUp] = {}
    for name, (flows, start) in sorted(open_catch_ups.items()):
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
            end = replace(after, clock=clock, catch_ups={}, ended_catch_ups=())
        catch_ups[name] = CatchUp(flows, start, end, done)
    if after is before and not catch_ups:
        return before
    return replace(after, clock=clock, catch_ups=catch_ups, ended_catch_ups=(*before.ended_catch_ups, *gone))
