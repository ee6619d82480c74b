"""`tidewheel topics`: what is in the log, how fast it grows, and who is how far behind."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel.cli.attending import print_json, stoppable
from tidewheel.cli.common import DEFAULT_LOG, ExistingLogOption, JsonOption, existing_log, local_time, out
from tidewheel.model.time import Duration, Instant, format_instant, moment, now

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from tidewheel.transport.event_pb2 import IngestReport
    from tidewheel.transport.log import Log, TopicInfo

__all__ = ["adds_up", "size", "topics"]

_RATE_OVER = 60.0


@dataclass(frozen=True, slots=True)
class _Topic:
    topic: str
    partitions: int
    records: int
    bytes: int
    rate: float
    """Records appended a second, over the last minute or since the first if that is less ago."""
    first: Instant | None
    last: Instant | None
    compact: bool


@dataclass(frozen=True, slots=True)
class _Lag:
    group: str
    topic: str
    lag: int
    behind: Duration
    """How long the oldest record that the group has not read has been there."""


def topics(
    log: ExistingLogOption = DEFAULT_LOG,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Keep the tables up to date, until Ctrl-C.")] = False,
    everything: Annotated[bool, typer.Option("-a", "--all", help="Also the log's own topics (__types).")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the topics of the log: how much is in them, how fast they grow, who is behind.

    Three tables: the topics, with the rate of the last minute; the consumer groups (every job is one), each with its
    lag, the records that it has not finished; and the ingestion's account: what came in is in a topic, was filtered
    by a named rule, or is a dead letter. Times are when a record was appended, as the clock here shows it.

        tidewheel topics
        tidewheel topics --watch
        tidewheel topics --json | jq '.groups[] | select(.lag > 10000)'
    """
    with existing_log(log) as opened, stoppable() as stop:
        if as_json:
            while True:
                print_json(_as_json(opened, everything))
                if not watch or stop.wait(1.0):
                    return
        if not watch:
            out().print(_tables(opened, everything))
            return
        from rich.live import Live

        with Live(console=out(), refresh_per_second=2, screen=False) as live:
            while not stop.is_set():
                live.update(_tables(opened, everything))
                stop.wait(1.0)


def _topics(log: Log, everything: bool) -> list[_Topic]:
    return [_topic(log, info, now()) for info in log.topics() if everything or not info.name.startswith("__")]


def _topic(log: Log, info: TopicInfo, at: Instant) -> _Topic:
    firsts, appended = [], 0
    since = moment(at - int(_RATE_OVER * 1e6))
    for partition, (first, end) in enumerate(zip(info.first_offsets, info.next_offsets, strict=True)):
        if end > first:
            firsts += [block.summary.append_time for block in log.blocks(info.name, partition, first, limit=1)]
            appended += end - min(end, log.position(info.name, partition, since))
    first_append = min(firsts, default=None)
    # A topic of a few seconds has not had a minute to fill.
    seconds = _RATE_OVER if first_append is None else min(_RATE_OVER, max(1.0, (at - first_append) / 1e6))
    return _Topic(
        topic=info.name,
        partitions=info.partitions,
        records=info.count,
        bytes=info.size,
        rate=round(appended / seconds, 1),
        first=first_append,
        last=info.last_append,
        compact=info.compact,
    )


def _lags(log: Log) -> list[_Lag]:
    ends = {info.name: info.next_offsets for info in log.topics()}
    found = []
    for group in log.groups():
        lag: dict[str, int] = {}
        oldest: dict[str, Instant] = {}
        for (topic, partition), position in log.committed(group).items():
            missing = max(0, ends[topic][partition] - position)
            lag[topic] = lag.get(topic, 0) + missing
            if missing:
                # What has left by retention was not read either, but nobody can wait for it any more.
                start = max(position, log.position(topic, partition, "earliest"))
                for block in log.blocks(topic, partition, start, limit=1):
                    oldest[topic] = min(oldest.get(topic, block.summary.append_time), block.summary.append_time)
        found += [
            _Lag(group, topic, count, max(0, now() - oldest[topic]) if topic in oldest else 0)
            for topic, count in lag.items()
        ]
    return found


def _reports(log: Log) -> list[IngestReport]:
    from tidewheel.ingest.pipeline import read_reports

    return read_reports(log)


def _as_json(log: Log, everything: bool) -> dict[str, Any]:
    listed = []
    for topic in _topics(log, everything):
        fields = asdict(topic)
        for name in ("first", "last"):
            fields[name] = None if fields[name] is None else format_instant(fields[name])
        listed.append(fields)
    return {
        "log": log.address,
        "topics": listed,
        "groups": [
            {"group": lag.group, "topic": lag.topic, "lag": lag.lag, "behind_seconds": round(lag.behind / 1e6, 3)}
            for lag in _lags(log)
        ],
        "ingest": [
            {
                "source": report.source,
                "received": report.received,
                "topics": dict(sorted(report.topics.items())),
                "filtered": dict(sorted(report.filtered.items())),
                "dead": dict(sorted(report.dead.items())),
                "repeated": report.repeated,
                "adds_up": adds_up(report),
            }
            for report in _reports(log)
        ],
    }


def adds_up(report: IngestReport) -> bool:
    """Is every message that was received in a topic, filtered, or a dead letter?"""
    parts = (report.topics, report.filtered, report.dead)
    return report.received == sum(sum(part.values()) for part in parts)


def _tables(log: Log, everything: bool) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    listed = _topics(log, everything)
    if not listed:
        return Text(f"{log.address} has no topics yet; fill it with: tidewheel simulate --log {log.address}")
    parts: list[RenderableType] = [_topic_table(listed)]
    lags = _lags(log)
    if lags:
        parts.append(_lag_table(lags))
    reports = _reports(log)
    if reports:
        parts.append(_account_table(reports))
    return Group(*parts)


def _topic_table(listed: list[_Topic]) -> RenderableType:
    table = _table("Topics")
    if any(topic.compact for topic in listed):
        table.caption = "* keeps only the latest record of each key"
        table.caption_justify = "left"
    table.add_column("topic", style="bold", no_wrap=True)
    for name in ("parts", "records", "size", "per second", "first", "last"):
        table.add_column(name, justify="right")
    for topic in listed:
        table.add_row(
            topic.topic + (" *" if topic.compact else ""),
            str(topic.partitions),
            f"{topic.records:,}",
            size(topic.bytes),
            f"{topic.rate:,.1f}",
            *("" if when is None else local_time(when).rpartition(".")[0] for when in (topic.first, topic.last)),
        )
    return table


def _lag_table(lags: list[_Lag]) -> RenderableType:
    table = _table("Consumer groups")
    table.add_column("group", style="bold")
    table.add_column("topic")
    table.add_column("lag", justify="right")
    table.add_column("oldest unread", justify="right")
    for lag in lags:
        behind = f"{lag.behind / 1e6:,.1f} s ago" if lag.lag else ""
        table.add_row(lag.group, lag.topic, f"{lag.lag:,}", behind)
    return table


def _account_table(reports: list[IngestReport]) -> RenderableType:
    """What became of all that came in, by source."""
    table = _table("Ingested")
    table.add_column("source", style="bold")
    for name in ("received", "= topics", "+ filtered", "+ dead", "", "repeated"):
        table.add_column(name, justify="right")
    for report in reports:
        sums = (sum(part.values()) for part in (report.topics, report.filtered, report.dead))
        table.add_row(
            report.source,
            f"{report.received:,}",
            *(f"{count:,}" for count in sums),
            "[green]✓[/green]" if adds_up(report) else "[red]does not add up[/red]",
            f"{report.repeated:,}",
        )
    return table


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(title=title, title_justify="left", title_style="bold cyan", box=box.SIMPLE_HEAD, pad_edge=False)


def size(count: int) -> str:
    """Bytes for people.

    >>> size(512), size(1_536), size(5 << 30)
    ('512 B', '1.5 KiB', '5.0 GiB')
    """
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{count} B" if units[0] == "B" else f"{value:.1f} {units[0]}"
