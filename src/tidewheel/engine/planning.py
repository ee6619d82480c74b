"""Planning batches over the log: what each reads, and what time it is in it. Knows no Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tidewheel.engine.offset import Offset
from tidewheel.errors import CheckpointError
from tidewheel.model.summary import Summary
from tidewheel.model.time import Duration, Instant
from tidewheel.model.watermarks import Ahead, Strategy, advance
from tidewheel.transport.log import Block, Log, Partition, Start, TopicInfo

__all__ = ["Piece", "check_topics", "first_offset", "plan_batch", "split"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Records to read: a run of offsets of one partition."""

    topic: str
    partition: int
    start: int
    end: int


def first_offset(
    log: Log, topics: Sequence[str], start: Start, *, clock: Instant, whole: Collection[str] = ()
) -> Offset:
    """Where a new query begins: at `start`, and the topics in `whole` at their beginning."""
    infos = [log.topic_info(topic) for topic in topics]
    positions = {
        part: log.position(part[0], part[1], "earliest" if part[0] in whole else start) for part in _partitions(infos)
    }
    return Offset(log.identity, positions, clock, topics=_ids(infos))


def check_topics(log: Log, offset: Offset, topics: Collection[str] = ()) -> list[TopicInfo]:
    """These topics and those of the offset; refused if its positions are of topics that are no more, since others of
    the same names begin at 0 again."""
    infos = [log.topic_info(topic) for topic in dict.fromkeys([*topics, *(topic for topic, _ in offset.positions)])]
    for info in infos:
        known = offset.topics.get(info.name, info.id)
        ends = dict(enumerate(info.next_offsets))
        beyond = [at for (topic, part), at in offset.positions.items() if topic == info.name and at > ends.get(part, 0)]
        if known != info.id or beyond:
            raise CheckpointError(
                f"topic {info.name!r} was deleted and made anew since the checkpoint was made (its id was "
                f"{offset.topics.get(info.name, 'not known')}, now it is {info.id}; it ends at "
                f"{', '.join(map(str, info.next_offsets))}): the checkpoint's positions mean nothing in it. Start with "
                "a new checkpoint"
            )
    return infos


def plan_batch(
    log: Log,
    strategies: Mapping[str, Strategy],
    before: Offset,
    *,
    limit: int | None,
    clock: Instant,
    tick: Duration,
    until: Mapping[Partition, int] | None = None,
    by_log: bool = False,
    ticking: bool = False,
) -> Offset:
    """The end of the batch that begins at `before`; the same offset if there is nothing to do.

    Whole blocks are taken in the order in which they were appended, whatever their topic, so that a backlog is worked
    off evenly and no topic runs ahead of the others. A block of a topic that is aside waits for all that was appended
    before it: what it says is for what comes after it. A topic that is ahead goes first, and the others wait until all
    of it is read. `until` stops at these positions. Without data a batch is planned only to move the watermark, or with
    `ticking` the clock alone, at most once every `tick`. With `by_log` the batch's clock is when the last of its blocks
    was appended, so that history can be run again as it happened.
    """
    if before.log != log.identity:
        raise CheckpointError(
            f"the checkpoint was made on another log than {log.address!r} (that one's identity was {before.log}, this "
            f"one's is {log.identity}): its positions mean nothing here. Start with a new checkpoint"
        )
    clock = max(clock, before.clock)
    infos = check_topics(log, before, list(strategies))
    positions = dict.fromkeys(_partitions(infos), 0) | dict(before.positions)
    ahead = {topic for topic, strategy in strategies.items() if isinstance(strategy, Ahead)}
    aside = {topic for topic, strategy in strategies.items() if not strategy.takes_part} - ahead
    waiting: list[Block] = []
    for (topic, partition), position in positions.items():
        end = None if until is None else until.get((topic, partition), position)
        if end is None or end > position:
            waiting += log.blocks(topic, partition, position, end=end, limit=limit)
    waiting.sort(
        key=lambda block: (
            block.topic not in ahead,
            block.summary.append_time,
            block.topic,
            block.partition,
            block.first_offset,
        )
    )
    horizon = _horizon(log, waiting, until) if aside.intersection(block.topic for block in waiting) else None
    taken: dict[Partition, list[Summary]] = {part: [] for part in positions}
    behind: set[Partition] = set()
    more = bool(_cut(log, [block for block in waiting if block.topic in ahead], until))
    count = 0
    for block in waiting:
        part = (block.topic, block.partition)
        size = block.summary.count
        if more and block.topic not in ahead:
            behind.add(part)
            continue
        early = bool(behind) or (horizon is not None and block.summary.append_time > horizon)
        if (
            part in behind
            or (early and block.topic in aside)
            or (limit is not None and count > 0 and count + size > limit)
        ):
            behind.add(part)
            more = more or block.topic in ahead
            continue
        count += size
        taken[part].append(block.summary)
        positions[part] = block.next_offset
    if by_log:
        appended = [found.append_time for part, some in taken.items() if part[0] not in ahead for found in some]
        clock = max([before.clock, *appended])
    if count == 0 and clock - before.clock < tick:
        return before
    memory, watermark = advance(strategies, before.memory, taken, clock=clock, behind=frozenset(behind))
    if count == 0 and watermark == before.watermark and not ticking:
        return before
    return Offset(log.identity, positions, clock, watermark, memory, topics=_ids(infos))


def split(log: Log, before: Offset, after: Offset, *, tasks: int, worth: int) -> list[list[Piece]]:
    """The batch in at most `tasks` even shares, each of at least `worth` records (but for the last)."""
    check_topics(log, after)  # it may have been planned long ago, before a restart
    blocks: list[tuple[Piece, int]] = []
    for (topic, partition), end in sorted(after.positions.items()):
        start = before.positions.get((topic, partition), 0)
        if end > start:
            for block in log.blocks(topic, partition, start, end=end):
                piece = Piece(topic, partition, max(start, block.first_offset), min(end, block.next_offset))
                blocks.append((piece, block.summary.count))
    total = sum(count for _, count in blocks)
    share = max(worth, -(-total // max(tasks, 1)))
    shares: list[list[Piece]] = []
    held = share
    for piece, count in blocks:
        if held >= share and len(shares) < tasks:
            shares.append([])
            held = 0
        mine = shares[-1]
        if mine and (mine[-1].topic, mine[-1].partition, mine[-1].end) == (piece.topic, piece.partition, piece.start):
            mine[-1] = Piece(piece.topic, piece.partition, mine[-1].start, piece.end)
        else:
            mine.append(piece)
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
