"""Plan batches over the log: the records, watermark and clock of each. Does not depend on Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidewheel.engine.datasource.batch_limit import raw_size
from tidewheel.engine.datasource.log_history import check_history, known_fingerprints
from tidewheel.engine.datasource.offset import Offset
from tidewheel.errors import CheckpointError
from tidewheel.model.block_stats import BlockStats
from tidewheel.model.clock_jump import is_ahead
from tidewheel.model.time import Duration, Instant
from tidewheel.model.watermarks import Strategy, advance
from tidewheel.transport.log.damage import pass_over
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import Block, Partition, StartFrom, TopicInfo

__all__ = ["OffsetRange", "check_topics", "first_offset", "plan_batch", "split"]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records to read: a run of offsets of one partition."""

    topic: str
    partition: int
    start: int
    end: int


def first_offset(
    log: Log, topics: Sequence[str], start_from: StartFrom, *, clock: Instant, whole: Collection[str] = ()
) -> Offset:
    """The offset at which a new query begins: `start_from`, and the beginning for the topics in `whole`."""
    infos = [log.topic_info(topic) for topic in topics]
    positions = {
        part: log.position(part[0], part[1], "earliest" if part[0] in whole else start_from)
        for part in _partitions(infos)
    }
    return Offset(log.identity, positions, clock, topics=_ids(infos), fingerprints=known_fingerprints(log, positions))


def check_topics(log: Log, offset: Offset, topics: Collection[str] = (), *, history: bool = True) -> list[TopicInfo]:
    """Return these topics and those of the offset. Refuses positions in topics that were deleted (others of the same
    names begin at 0 again), and positions beyond this log's history, which is then older than the offset. Without
    `history` the latter is not checked, which saves a look at each partition's blocks."""
    infos = [log.topic_info(topic) for topic in dict.fromkeys([*topics, *(topic for topic, _ in offset.positions)])]
    ends = {(info.name, number): end for info in infos for number, end in enumerate(info.next_offsets)}
    beyond = {part[0] for part, at in offset.positions.items() if at > ends.get(part, 0)}
    for info in infos:
        known = offset.topics.get(info.name)
        if known not in (None, info.id) or (known is None and info.name in beyond):
            raise CheckpointError(
                f"topic {info.name!r} was deleted and created again since the checkpoint was made (its id was "
                f"{known or 'not known'}, now it is {info.id}; it ends at "
                f"{', '.join(map(str, info.next_offsets))}): the checkpoint's positions mean nothing in it. Start with "
                "a new checkpoint"
            )
    if not history:
        return infos
    check_history(
        log,
        offset.positions,
        offset.fingerprints,
        ends=ends,
        reader="the checkpoint",
        fix="Restore the checkpoint that was there when the log was like this, or the log that the checkpoint belongs "
        "to (tidewheel restore brings back both), or start with a new checkpoint and write beside the results that are "
        "there (--version)",
        clock=offset.clock,
    )
    return infos


def plan_batch(
    log: Log,
    strategies: Mapping[str, Strategy],
    before: Offset,
    *,
    limit: int | None,
    limit_bytes: int | None = None,
    clock: Instant,
    tick: Duration,
    until: Mapping[Partition, int] | None = None,
    by_log: bool = False,
    ticking: bool = False,
    skip_damaged: bool = False,
) -> Offset:
    """Plan the batch that begins at `before`: return its end, or the same offset if there is nothing to do.

    Whole blocks are taken in the order in which they were appended, whatever their topic, so that a backlog is worked
    off evenly and no topic runs ahead of the others, as many as have at most `limit` records and `limit_bytes` bytes,
    but at least one. A block of a control topic waits for all that was appended before it: what it says is for what
    comes after it. A read-ahead topic goes first, and the others wait until all of it is read. `until` stops at these
    positions. Without data a batch is planned only to move the watermark, or with `ticking` the clock alone, at most
    once every `tick`. With `by_log` the batch's clock is when the last of its blocks was appended, so that history can
    be run again as it happened. `skip_damaged` plans over blocks whose headers are damaged, as if they held records
    without a time.

    Times that are far ahead of `clock` were given by a clock that was wrong, and are taken for the present. Where the
    batches' own clock was set by one, it goes on from there as fast as the right one does: it never goes back, and what
    waits for it must not wait for years.
    """
    _check_identity(log, before)
    present = clock
    infos = check_topics(log, before, list(strategies))
    positions = dict.fromkeys(_partitions(infos), 0) | dict(before.positions)
    ahead = {topic for topic, strategy in strategies.items() if strategy.reads_ahead}
    control = {topic for topic, strategy in strategies.items() if not strategy.takes_part} - ahead
    waiting = _waiting_blocks(log, positions, ahead, limit=limit, until=until, skip_damaged=skip_damaged)
    taken, behind = _take(log, waiting, positions, ahead, control, limit=limit, limit_bytes=limit_bytes, until=until)
    count = sum(block.summary.count for some in taken.values() for block in some)
    summaries = {part: [_corrected(block.summary, present) for block in some] for part, some in taken.items()}
    positions |= {part: some[-1].next_offset for part, some in taken.items() if some}
    if by_log:
        appended = [found.append_time for part, some in summaries.items() if part[0] not in ahead for found in some]
        clock = max(appended, default=before.clock if before.wall is None else before.wall)
    clock, wall = _batch_clock(before, clock, present)
    if wall is not None and before.wall is None:
        tick = 0  # from here on it is known how much time passes
    if count == 0 and clock - before.clock < tick:
        return before
    memory, watermark = advance(strategies, before.memory, summaries, clock=clock, behind=frozenset(behind))
    if count == 0 and watermark == before.watermark and not ticking and (wall is None) is (before.wall is None):
        return before
    return Offset(
        log.identity,
        positions,
        clock,
        watermark,
        memory,
        topics=_ids(infos),
        wall=wall,
        fingerprints=known_fingerprints(log, positions),
    )


def _check_identity(log: Log, before: Offset) -> None:
    if before.log != log.identity:
        raise CheckpointError(
            f"the checkpoint was made on another log than {log.address!r} (that one's identity was {before.log}, this "
            f"one's is {log.identity}): its positions mean nothing here. Start with a new checkpoint"
        )


def _waiting_blocks(
    log: Log,
    positions: Mapping[Partition, int],
    ahead: set[str],
    *,
    limit: int | None,
    until: Mapping[Partition, int] | None,
    skip_damaged: bool,
) -> list[Block]:
    """The blocks after these positions, in the order in which they are taken."""
    waiting: list[Block] = []
    on_damage = pass_over if skip_damaged else None
    for (topic, partition), position in positions.items():
        end = None if until is None else until.get((topic, partition), position)
        if end is None or end > position:
            waiting += log.blocks(topic, partition, position, end=end, limit=limit, on_damage=on_damage)
    waiting.sort(
        key=lambda block: (
            block.topic not in ahead,
            block.summary.append_time,
            block.topic,
            block.partition,
            block.first_offset,
        )
    )
    return waiting


def _batch_clock(before: Offset, clock: Instant, present: Instant) -> tuple[Instant, Instant | None]:
    """The clock of the batch after an offset, and the right time, if a wrong clock has set that of the offset."""
    if not is_ahead(before.clock, present):
        return max(clock, before.clock), None
    if before.wall is None:
        return before.clock, clock
    wall = max(clock, before.wall)
    return before.clock + wall - before.wall, wall


def _take(
    log: Log,
    waiting: Sequence[Block],
    partitions: Iterable[Partition],
    ahead: set[str],
    control: set[str],
    *,
    limit: int | None,
    limit_bytes: int | None,
    until: Mapping[Partition, int] | None,
) -> tuple[dict[Partition, list[Block]], set[Partition]]:
    """Choose the blocks of a batch from those that wait, in their order, and name the partitions that must wait on."""
    horizon = _horizon(log, waiting, until) if control.intersection(block.topic for block in waiting) else None
    taken: dict[Partition, list[Block]] = {part: [] for part in partitions}
    behind: set[Partition] = set()
    more = bool(_cut(log, [block for block in waiting if block.topic in ahead], until))
    count = held = 0
    for block in waiting:
        part = (block.topic, block.partition)
        size, more_bytes = block.summary.count, raw_size(block)
        if more and block.topic not in ahead:
            behind.add(part)
            continue
        early = bool(behind) or (horizon is not None and block.summary.append_time > horizon)
        if (
            part in behind
            or (early and block.topic in control)
            or (limit is not None and count > 0 and count + size > limit)
            or (limit_bytes is not None and count > 0 and held + more_bytes > limit_bytes)
        ):
            behind.add(part)
            more = more or block.topic in ahead
            continue
        count += size
        held += more_bytes
        taken[part].append(block)
    return taken, behind


def _corrected(summary: BlockStats, present: Instant) -> BlockStats:
    """Replace an append time in the future; the skew of its event times is then meaningless."""
    return replace(summary, append_time=present, skew={}) if is_ahead(summary.append_time, present) else summary


def split(
    log: Log, before: Offset, after: Offset, *, tasks: int, worth: int, skip_damaged: bool = False
) -> list[list[OffsetRange]]:
    """Split the batch into at most `tasks` even shares, each of at least `worth` records (but for the last)."""
    check_topics(log, after)  # it may have been planned long ago, before a restart
    blocks: list[tuple[OffsetRange, int]] = []
    for (topic, partition), end in sorted(after.positions.items()):
        start = before.positions.get((topic, partition), 0)
        if end > start:
            on_damage = pass_over if skip_damaged else None
            for block in log.blocks(topic, partition, start, end=end, on_damage=on_damage):
                span = OffsetRange(topic, partition, max(start, block.first_offset), min(end, block.next_offset))
                blocks.append((span, block.summary.count))
    total = sum(count for _, count in blocks)
    share = max(worth, -(-total // max(tasks, 1)))
    shares: list[list[OffsetRange]] = []
    held = share
    for span, count in blocks:
        if held >= share and len(shares) < tasks:
            shares.append([])
            held = 0
        mine = shares[-1]
        if mine and (mine[-1].topic, mine[-1].partition, mine[-1].end) == (span.topic, span.partition, span.start):
            mine[-1] = OffsetRange(span.topic, span.partition, mine[-1].start, span.end)
        else:
            mine.append(span)
        held += count
    return shares


def _horizon(log: Log, waiting: Sequence[Block], until: Mapping[Partition, int] | None) -> Instant | None:
    """Up to when it is known what was appended; None if these blocks are all there are."""
    return min((block.summary.append_time for block in _cut(log, waiting, until)), default=None)


def _cut(log: Log, waiting: Sequence[Block], until: Mapping[Partition, int] | None) -> list[Block]:
    """The last block of each partition that has more than these."""
    last = {(block.topic, block.partition): block for block in waiting}
    ends = {part: log.topic_info(part[0]).next_offsets[part[1]] for part in last} if until is None else until
    return [block for part, block in last.items() if block.next_offset < ends[part]]


def _partitions(infos: Sequence[TopicInfo]) -> list[Partition]:
    return [(info.name, number) for info in infos for number in range(info.partitions)]


def _ids(infos: Sequence[TopicInfo]) -> dict[str, str]:
    return {info.name: info.id for info in infos}
