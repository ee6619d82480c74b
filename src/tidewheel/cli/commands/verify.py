"""`tidewheel topics --verify`: whether the log's file is as it was written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from tidewheel.cli.options import ExitCode, out, say
from tidewheel.cli.progress import Stop, print_json

if TYPE_CHECKING:
    from tidewheel.errors import DamagedBlockError
    from tidewheel.transport.log.log import Log
    from tidewheel.transport.log.log_types import TopicInfo

__all__ = ["verify"]


def verify(log: Log, topics: Sequence[TopicInfo], *, stop: Stop, as_json: bool) -> None:
    """Read all that these topics hold and compare it with its checksums; exit code 1 if something is damaged."""
    found: list[DamagedBlockError] = []
    counts: dict[str, int] = {}
    for info in topics:
        counts[info.name] = 0
        for partition in range(info.partitions):
            first = log.position(info.name, partition, "earliest")
            for batch in log.read(info.name, partition, first, on_damage=found.append):
                counts[info.name] += batch.records.num_rows
                if stop.is_set():
                    stop.unfinished()
    faults = log.faults()
    if as_json:
        print_json(_as_json(log, counts, found, faults))
    else:
        for damaged in found:
            lost = damaged.next_offset - damaged.first_offset
            out().print(
                f"{damaged.topic} partition {damaged.partition}: offsets {damaged.first_offset} to "
                f"{damaged.next_offset - 1} ({lost:,} records) are damaged: {damaged.reason}",
                markup=False,
            )
        for fault in faults:
            out().print(f"{log.address}: {fault}", markup=False)
        if not found and not faults:
            out().print(f"{sum(counts.values()):,} records of {len(counts)} topics are as they were written")
    if found or faults:
        without = "" if faults else "; or let jobs and readers go on without that: --skip-damaged"
        say(f"The log is damaged. Restore a backup{without}", style="red")
        raise typer.Exit(ExitCode.FAILED)


def _as_json(
    log: Log, counts: dict[str, int], found: Sequence[DamagedBlockError], faults: Sequence[str]
) -> dict[str, Any]:
    return {
        "log": log.address,
        "topics": [{"topic": topic, "records": count} for topic, count in counts.items()],
        "damaged": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "first_offset": each.first_offset,
                "next_offset": each.next_offset,
                "reason": each.reason,
            }
            for each in found
        ],
        "faults": list(faults),
    }
