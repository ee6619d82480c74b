"""The demo on the terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tidewheel as tw
from tidewheel import topic_names
from tidewheel.cli import local_time
from tidewheel.ingest import adds_up
from tidewheel_transit.commands.demo_watch import INPUT, Check, Quantiles, Snapshot

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidewheel.ingest import IngestReport

__all__ = ["Dashboard", "first_of_all", "plain", "summary"]

_BARS = "▁▂▃▄▅▆▇█"
_MODES = {"bus": "blue", "ubus": "blue", "tram": "green", "train": "magenta", "metro": "yellow", "ferry": "cyan"}


class Dashboard:
    """Draws what the demo is doing, and remembers the rates for the small curves."""

    def __init__(self) -> None:
        self._received: deque[float] = deque(maxlen=14)
        self._processed: deque[float] = deque(maxlen=14)

    def draw(self, now: Snapshot, *, height: int, stage: str) -> RenderableType:
        """Draw the whole picture, for a terminal of this many lines."""
        from rich import box
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        self._received.append(now.received)
        self._processed.append(now.processed)
        title = Text.assemble(
            ("Tidewheel", "bold cyan"), "  simulated city → log → Spark → log → ", (now.url or "the live map", "bold")
        )
        return Group(
            Panel(
                self._figures(now),
                title=title,
                title_align="left",
                subtitle=Text(stage, style="yellow" if stage.endswith("...") else "dim"),
                subtitle_align="right",
                border_style="cyan",
                box=box.ROUNDED,
            ),
            Panel(_account(now), title="[bold]Where everything is", title_align="left", border_style="blue"),
            Panel(
                _results(now, rows=max(3, min(8, height - 24))),
                title="[bold]Latest results",
                title_align="left",
                border_style="green",
            ),
        )

    def _figures(self, now: Snapshot) -> RenderableType:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2), expand=True)
        for _ in range(2):
            grid.add_column(style="dim", no_wrap=True, min_width=9)
            grid.add_column(ratio=1, no_wrap=True, overflow="crop")
        started = bool(now.job.get("batches"))
        positions = now.rates.get(INPUT, 0.0)
        grid.add_row(
            "in",
            f"[bold]{now.received:,.0f}[/bold] events/s {_curve(self._received)}",
            "processed",
            f"[bold]{now.processed:,.0f}[/bold] positions/s {_curve(self._processed)}",
        )
        latency = now.latency
        grid.add_row(
            "lag",
            f"[bold]{now.lag:,}[/bold] positions" + (f" ({now.lag / positions:.1f} s)" if positions else ""),
            "latency",
            f"p50 [bold]{latency.p50:.2f} s[/bold]  p99 [bold]{latency.p99:.2f} s[/bold]" if latency else "–",
        )
        behind = now.job.get("behind_seconds")
        watermark = now.job.get("watermark")
        grid.add_row(
            "watermark",
            f"[bold]{_clock(watermark)}[/bold] ({behind:.1f} s behind)" if watermark else "–",
            "batches",
            f"[bold]{now.job['batches']:,}[/bold], the last took {now.job['batch_ms']:,.0f} ms" if started else "–",
        )
        return grid


def plain(now: Snapshot) -> str:
    """The same in one line, without a terminal."""
    line = f"{now.seconds:4.0f} s: in {now.received:,.0f} events/s"
    if now.job.get("batches"):
        line += f", processed {now.processed:,.0f} positions/s, lag {now.lag:,}, results {now.results:,}"
    if now.latency:
        line += f", latency {now.latency.p50:.2f} s p50, {now.latency.p99:.2f} s p99"
    return line + (f", watermark {_clock(now.job['watermark'])}" if now.job.get("watermark") else "")


def first_of_all(address: tw.time.Instant, firsts: Sequence[tw.time.Instant | None]) -> str:
    """How long after its address was shown the map had something to show.

    >>> first_of_all(5_000_000, [3_000_000, 20_500_000])
    'start:      first vehicles at once, first results 15.5 s after the address of the map was shown'
    """
    parts = [
        f"first {what} " + ("at once" if first <= address else f"{(first - address) / 1e6:.1f} s")
        for what, first in zip(("vehicles", "results"), firsts, strict=True)
        if first is not None
    ]
    return f"start:      {', '.join(parts) or 'nothing came'} after the address of the map was shown"


def summary(
    job: Mapping[str, Any],
    results: int,
    reports: Sequence[IngestReport],
    latency: Quantiles | None,
    check: Check,
) -> str:
    """A summary of what was processed."""
    lines = []
    for report in reports:
        topics, filtered, dead = (sum(part.values()) for part in (report.topics, report.filtered, report.dead))
        lines.append(
            f"in:         {report.received:,} events = {topics:,} in topics + {filtered:,} filtered "
            f"+ {dead:,} dead letters  {_mark(adds_up(report), 'does not add up')}"
        )
    done = f"{job.get('events', 0):,} events in {job.get('batches', 0):,} batches, {job.get('results', 0):,} results"
    lines.append(f"processed:  {done}")
    wrong = f"{check.missing:,} missing, {check.twice:,} too many"
    span = "" if check.whole else " that are still in the log,"
    lines.append(
        f"results:    {results:,} of vehicle-cell; {check.expected:,} positions on a journey with a place,{span} each "
        f"has its result once  {_mark(check.passed, wrong)}"
    )
    if latency is not None:
        lines.append(
            f"latency:    from ingestion to the result in the log {latency.p50:.2f} s p50, {latency.p99:.2f} s p99 "
            f"({latency.count:,} results, after the first batch)"
        )
    return "\n".join(lines)


def _mark(good: bool, otherwise: str) -> str:
    return "[green]✓[/green]" if good else f"[red]✗ {otherwise}[/red]"


def _curve(history: Sequence[float]) -> str:
    top = max(history, default=0.0) or 1.0
    bars = "".join(_BARS[min(len(_BARS) - 1, int(each / top * len(_BARS)))] for each in history)
    return f"[cyan]{bars}[/cyan]"


def _account(now: Snapshot) -> RenderableType:
    from rich.table import Table

    both = Table.grid(padding=(0, 4), expand=True)
    both.add_column(ratio=1)
    both.add_column(ratio=1)
    both.add_row(_topics(now), _balance(now))
    return both


def _topics(now: Snapshot) -> RenderableType:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", min_width=9)
    grid.add_column(justify="right", min_width=7, style="dim")
    for topic, count in now.topics.items():
        style = "green" if topic_names.kind_of(topic) == topic_names.ANALYTICS else "blue"
        grid.add_row(f"[{style}]{topic}[/{style}]", f"{count:,}", f"{now.rates[topic]:,.0f}/s")
    return grid


def _balance(now: Snapshot) -> RenderableType:
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", min_width=10, style="bold")
    grid.add_column(no_wrap=True)
    for report in now.reports:
        grid.add_row(f"{report.received:,}", "came in")
        grid.add_row(f"= {sum(report.topics.values()):,}", "in topics")
        for rule, count in sorted(report.filtered.items()) or [("", 0)]:
            grid.add_row(f"+ {count:,}", f"filtered [dim]{rule}[/dim]")
        for kind, count in sorted(report.dead.items()) or [("", 0)]:
            grid.add_row(f"+ {count:,}", f"dead letters [dim]{kind}[/dim]")
        grid.add_row(_mark(adds_up(report), "does not add up"), "")
    return grid


def _results(now: Snapshot, *, rows: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    if not now.latest:
        return Text("none yet", style="dim")
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("time")
    table.add_column("mode")
    table.add_column("line")
    table.add_column("vehicle")
    table.add_column("H3 cell")
    table.add_column("speed", justify="right")
    table.add_column("delay", justify="right")
    for result in now.latest[:rows]:
        table.add_row(*_result(result))
    return table


def _result(result: Mapping[str, Any]) -> tuple[str, ...]:
    speed, delay = result["speed"], result["delay"]
    style = _MODES.get(result["mode"], "white")
    late = "–" if delay is None else "on time" if abs(delay) < 60 else _minutes(-delay)
    return (
        local_time(round(result["event_time"].timestamp() * 1_000_000)),
        f"[{style}]{result['mode']}[/{style}]",
        result["route"] or "–",
        f"{result['operator']}/{result['vehicle']}",
        f"{result['cell']:x}",
        "–" if speed is None else f"{speed * 3.6:.0f} km/h",
        late,
    )


def _minutes(late: int) -> str:
    """The delay in whole minutes; positive is late."""
    return f"[red]{late // 60} min late[/red]" if late > 0 else f"{-late // 60} min early"


def _clock(text: str) -> str:
    return local_time(tw.time.instant(text)).rpartition(".")[0]
