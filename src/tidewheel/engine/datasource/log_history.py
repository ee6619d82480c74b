"""Checks that a log still holds what was read from it, and is no older copy that has gone on without that."""

from __future__ import annotations

from collections.abc import Mapping

from tidewheel.errors import CheckpointError
from tidewheel.model.time import Instant, moment
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Partition, Positions

__all__ = ["check_history", "known_fingerprints"]


def known_fingerprints(log: Log, positions: Positions) -> dict[Partition, str]:
    """The fingerprints of what lies before these positions, as far as the log knows them."""
    return {part: found for part, found in log.fingerprints(positions).items() if found is not None}


def check_history(
    log: Log,
    positions: Positions,
    fingerprints: Mapping[Partition, str],
    *,
    ends: Positions,
    reader: str,
    fix: str,
    clock: Instant | None = None,
) -> None:
    """Refuse positions that are not of this log's history, though it is the same log: a backup that was restored, or a
    copy, which lacks what was appended later and may have gone on with something else.

    `fingerprints` are of what lay before the positions when they were noted, where that is known. `ends`: where the
    partitions end. `reader` noted the positions and `fix` is what can be done, both for people to read. `clock`: when
    the positions were noted, if that is known.
    """
    older = f"the log {log.address!r} is older than {reader} (restored from a backup, or copied without its journal)"
    for part, position in sorted(positions.items()):
        if position > ends.get(part, 0):
            raise CheckpointError(
                f"{older}: {part[0]!r} partition {part[1]} was read up to offset {position} and ends at "
                f"{ends.get(part, 0)}, so that {position - ends.get(part, 0):,} events that were read are not in it, "
                f"and as many new ones would be passed over. {fix}"
            )
    found = log.fingerprints({part: positions[part] for part in fingerprints if part in positions})
    for part, known in sorted(fingerprints.items()):
        if found.get(part) in (None, known):
            continue
        new = 0 if clock is None else positions[part] - log.position(*part, moment(clock + 1))
        passed = f"; at least {new:,} of them came later, and would be passed over" if new > 0 else ""
        raise CheckpointError(
            f"{older}, and has gone on since: {part[0]!r} partition {part[1]} was read up to offset {positions[part]}, "
            f"and now holds other events before that than those that were read{passed}. {fix}"
        )
