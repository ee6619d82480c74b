"""`tidewheel topics`: what is in the log, how fast it grows, and how far behind its readers are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tidewheel.cli.commands.verify import verify
from tidewheel.cli.log_health import disk_fields, log_findings
from tidewheel.cli.options import DEFAULT_LOG, ExistingLogOption, JsonOption, existing_log, local_time, out, size
from tidewheel.cli.progress import print_json, stoppable
from tidewheel.cli.topic_admin import as_fields, chosen, delete, forget, keep, limits_text, parse_limits
from tidewheel.errors import DataLossError
from tidewheel.model.time import Duration, Instant, format_instant, moment, now

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from tidewheel.errors import DamagedBlockError
    from tidewheel.transport.events.event_pb2 import IngestReport
    from tidewheel.transport.log.log import Log
    from tidewheel.transport.log.log_types import Retention, TopicInfo

__all__ = ["topics"]

_T = TypeVar("_T")
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
    retention: Retention


@dataclass(frozen=True, slots=True)
class _Lag:
    group: str
    topic: str
    lag: int
    behind: Duration
    """How long the oldest record that the group has not read has been there."""


def topics(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="Only these; * is a wildcard: 'input.*'.", show_default=False),
    ] = None,
    log: ExistingLogOption = DEFAULT_LOG,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Keep the tables up to date, until Ctrl-C.")] = False,
    everything: Annotated[bool, typer.Option("-a", "--all", help="Include internal topics (__types).")] = False,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="LIMIT",
            help="Keep records up to this age (1h, 7d) or size of a partition (500MB), or all; may be given for both.",
            show_default=False,
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--delete", help="Delete the topics with all their records.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--forget", metavar="GROUP", help="Remove this group's positions.", show_default=False),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--verify", help="Read everything and check the checksums; exit code 1 if something is damaged."),
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Delete or forget without asking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the topics of the log: how much is in them, how fast they grow, who is behind. Limit and delete them.

    Three tables: the topics, with the rate of the last minute; the consumer groups (every job is one), each with its
    lag, the records that it has not finished; and the ingestion's account: what came in is in a topic, was filtered
    by a named rule, or is a dead letter. Times are when a record was appended, as the clock here shows it.

    A log grows until it is limited: --keep lets the oldest records of the topics go, now and from now on. A job that
    has not read them by then fails, so keep more than it may ever be behind. --delete takes whole topics away; one that
    a group reads is refused (stop the job, then forget the group), and so is one that a name stands for.

    --verify reads every record, and tells what in the log's file is not as it was written: topic, partition, offsets.

        tidewheel topics
        tidewheel topics --watch
        tidewheel topics --json | jq '.groups[] | select(.lag > 10000)'
        tidewheel topics 'input.*' 'analytics.*' --keep 7d --keep 2GB
        tidewheel topics analytics.delays.v1 --delete
        tidewheel topics --verify
    """
    if (limits is not None) + remove + (group is not None) + check > 1:
        raise typer.BadParameter("give one of --keep, --delete, --forget and --verify at a time")
    if (limits or remove) and not names:
        raise typer.BadParameter("name the topics, such as input.arrival or 'input.*'")
    with existing_log(log) as opened:
        if limits:
            keep(opened, chosen(opened, names or (), everything=False), parse_limits(limits), as_json=as_json)
        elif remove:
            delete(opened, chosen(opened, names or (), everything=False), yes=yes, as_json=as_json)
        elif check:
            with stoppable() as stop:
                verify(opened, chosen(opened, names or (), everything=True), stop=stop, as_json=as_json)
        elif group is not None:
            forget(opened, group, yes=yes, as_json=as_json)
        else:
            _list(opened, names or (), everything=everything, watch=watch, as_json=as_json)


def _list(log: Log, names: Sequence[str], *, everything: bool, watch: bool, as_json: bool) -> None:
    from tidewheel.ingest.pipeline import Reports

    reports = Reports(log)

    def listed(form: Callable[[Log, list[TopicInfo], list[IngestReport]], _T]) -> _T:
        return form(log, chosen(log, names, everything=everything), reports())

    with stoppable() as stop:
        if as_json:
            while True:
                print_json(listed(_as_json))
                if not watch or stop.wait(1.0):
                    return
        if not watch:
            out().print(listed(_tables))
            return
        from rich.live import Live

        with Live(console=out(), refresh_per_second=2, screen=False) as live:
            while not stop.is_set():
                live.update(listed(_tables))
                stop.wait(1.0)


def _ignore(damaged: DamagedBlockError) -> None:
    """Ignore damage in the list of topics: reading the records and --verify report it."""


def _topic(log: Log, info: TopicInfo, at: Instant) -> _Topic:
    firsts, appended = [], 0
    since = moment(at - int(_RATE_OVER * 1e6))
    for partition, (first, end) in enumerate(zip(info.first_offsets, info.next_offsets, strict=True)):
        with suppress(DataLossError):  # they have just left by retention
            firsts += [
                block.summary.append_time
                for block in log.blocks(info.name, partition, first, limit=1, on_damage=_ignore)
            ]
        part = info.name, partition
        appended += log.counts({part: log.position(*part, since)}, {part: end})[part]
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
        retention=info.retention,
    )


def _lags(log: Log, topics: list[TopicInfo]) -> list[_Lag]:
    known = {info.name for info in topics}
    found = []
    for group in log.groups():
        lag: dict[str, int] = {}
        oldest: dict[str, Instant] = {}
        for (topic, partition), position in log.committed(group).items():
            if topic not in known:
                continue
            missing = log.counts({(topic, partition): position})[topic, partition]
            lag[topic] = lag.get(topic, 0) + missing
            if missing:
                # What has left by retention was not read either, but nobody can wait for it any more.
                start = max(position, log.position(topic, partition, "earliest"))
                for block in log.blocks(topic, partition, start, limit=1, on_damage=_ignore):
                    oldest[topic] = min(oldest.get(topic, block.summary.append_time), block.summary.append_time)
        found += [
            _Lag(group, topic, count, max(0, now() - oldest[topic]) if topic in oldest else 0)
            for topic, count in lag.items()
        ]
    return found


def _as_json(log: Log, topics: list[TopicInfo], reports: list[IngestReport]) -> dict[str, Any]:
    from tidewheel.ingest.pipeline import adds_up

    listed = []
    for topic in (_topic(log, info, now()) for info in topics):
        fields = {**asdict(topic), **as_fields(topic.retention)}
        del fields["retention"]
        for name in ("first", "last"):
            fields[name] = None if fields[name] is None else format_instant(fields[name])
        listed.append(fields)
    return {
        "log": log.address,
        "topics": listed,
        "groups": [
            {"group": lag.group, "topic": lag.topic, "lag": lag.lag, "behind_seconds": round(lag.behind / 1e6, 3)}
            for lag in _lags(log, topics)
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
            for report in reports
        ],
        "disk": disk_fields(log),
        "warnings": [{"what": each.what, "found": each.found, "fix": each.fix} for each in log_findings(log)],
    }


def _tables(log: Log, topics: list[TopicInfo], reports: list[IngestReport]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    if not topics:
        return Text(f"{log.address} has no topics yet; fill it with: tidewheel ingest --log {log.address}")
    parts: list[RenderableType] = [_topic_table([_topic(log, info, now()) for info in topics])]
    lags = _lags(log, topics)
    if lags:
        parts.append(_lag_table(lags))
    if reports:
        parts.append(_account_table(reports))
    parts += [Text(f"{each.what}: {each.found}\n→ {each.fix}", style="yellow") for each in log_findings(log)]
    return Group(*parts)


def _topic_table(listed: list[_Topic]) -> RenderableType:
    table = _table("Topics")
    if any(topic.compact for topic in listed):
        table.caption = "* keeps only the latest record of each key"
        table.caption_justify = "left"
    table.add_column("topic", style="bold", no_wrap=True)
    for name in ("parts", "records", "size", "per second", "first", "last", "keeps"):
        table.add_column(name, justify="right")
    for topic in listed:
        table.add_row(
            topic.topic + (" *" if topic.compact else ""),
            str(topic.partitions),
            f"{topic.records:,}",
            size(topic.bytes),
            f"{topic.rate:,.1f}",
            *("" if when is None else local_time(when).rpartition(".")[0] for when in (topic.first, topic.last)),
            limits_text(topic.retention) or "all",
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
    """A table of the outcomes of all incoming messages, by source."""
    from tidewheel.ingest.pipeline import adds_up

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
