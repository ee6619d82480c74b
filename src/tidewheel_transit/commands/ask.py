"""`tidewheel ask`: the lookup worker of final stops, for the jobs that need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tidewheel as tw
from tidewheel.cli import (
    DEFAULT_LOG,
    JsonOption,
    LogOption,
    SkipDamagedOption,
    command,
    opened_log,
    parse_duration,
    print_json,
    run_with_progress,
    say,
    stoppable,
    with_options,
)

if TYPE_CHECKING:
    from tidewheel.ingest import Limits, LookupReport, Provider

__all__ = ["ask"]

_PANEL = "Limits"


def _count(help: str, default: int) -> Any:
    """A number of `Limits`. Its default is shown here and set there: that module loads more than a help text should."""
    return typer.Option(min=1, help=help, show_default=f"{default:,}", rich_help_panel=_PANEL)


def _time(help: str, default: str) -> Any:
    """A duration of `Limits`; its default is shown here and set there, too."""
    return typer.Option(
        metavar="DURATION", parser=parse_duration, help=help, show_default=default, rich_help_panel=_PANEL
    )


@dataclass(frozen=True, kw_only=True)
class AskOptions:
    """The options of `tidewheel ask`."""

    lookup: Annotated[str, typer.Argument(metavar="LOOKUP", help="What is looked up: final-stop.")]
    source: Annotated[
        str,
        typer.Option(
            "--provider",
            metavar="SOURCE",
            help="Where to look it up: a routing service (GraphQL address), a folder or zip with GTFS, or simulator.",
        ),
    ]
    log: LogOption = DEFAULT_LOG
    feed: Annotated[str, typer.Option(help="The prefix of the routing service's ids.")] = "HSL"
    key: Annotated[
        str | None,
        typer.Option(
            envvar="TIDEWHEEL_ROUTING_KEY", help="The subscription key of the routing service.", show_default=False
        ),
    ] = None
    concurrency: Annotated[int | None, _count("Lookups at a time.", 50)] = None
    waiting: Annotated[int | None, _count("Open lookups, beyond which no more events are read.", 10_000)] = None
    timeout: Annotated[int | None, _time("For one lookup, with all its attempts.", "5 s")] = None
    attempt_timeout: Annotated[int | None, _time("For one attempt.", "2 s")] = None
    attempts: Annotated[int | None, _count("For one lookup, at most.", 4)] = None
    backoff: Annotated[int | None, _time("Before the second attempt; doubled before each further one.", "100 ms")] = (
        None
    )
    cache_size: Annotated[int | None, _count("How many outcomes are remembered.", 100_000)] = None
    cache_age: Annotated[int | None, _time("Look up an answer again when it is this old.", "6 h")] = None
    retry_failed: Annotated[int | None, _time("Retry a failed lookup after this time.", "10 s")] = None
    retry_unknown: Annotated[int | None, _time("Retry a lookup without an answer after this time.", "10 min")] = None
    breaker_failures: Annotated[
        int | None, _count("Open the circuit breaker after this many failures in a row.", 10)
    ] = None
    breaker_pause: Annotated[
        int | None, _time("How long the breaker stays open; longer after each failed trial.", "5 s")
    ] = None
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when everything in the log has been looked up.")
    ] = False
    skip_damaged: SkipDamagedOption = False
    as_json: JsonOption = False


@command(panel="Into the log")
@with_options(AskOptions)
def ask(options: AskOptions) -> None:
    """Run a lookup worker, which asks about what events name, and writes the answers down for the jobs.

    It follows the events in the log, asks for what is new, and writes the outcome of each request into the topic
    lookups.LOOKUP, where jobs read it. It may be stopped, killed and started again at any time: jobs go on without
    answers, and count what they miss.

        tidewheel ask final-stop --provider simulator
        tidewheel ask final-stop --provider hsl.zip
        tidewheel ask final-stop --provider https://api.example.org/graphql --key ...
        tidewheel ask final-stop --provider https://api.example.org/graphql --concurrency 5 --breaker-pause 1min
    """
    with stoppable() as stop:
        from tidewheel.ingest import LookupWorker
        from tidewheel_transit.final_stop import FINAL_STOP
        from tidewheel_transit.transit_pb2 import VehiclePosition

        if options.lookup != FINAL_STOP.name:
            raise tw.errors.DefinitionError(f"there is no lookup {options.lookup!r}; there is {FINAL_STOP.name}")
        limits = _limits(options)
        provider = _provider(options.source, feed=options.feed, key=options.key)
        with opened_log(options.log) as opened:
            worker = LookupWorker(
                opened,
                FINAL_STOP,
                provider,
                topics="input.vehicle-position",
                type=VehiclePosition,
                limits=limits,
                skip_damaged=options.skip_damaged,
            )
            say(f"looking up {options.lookup} from {provider!r}, into {options.log}")

            def status() -> dict[str, Any]:
                if stop.is_set():
                    worker.stop()
                return _status(worker.report)

            run_with_progress(
                lambda: worker.run(until_idle=options.until_idle),
                stop=stop,
                status=status,
                line=_line,
                as_json=options.as_json,
            )
            if options.as_json:
                print_json(_status(worker.report))
            say(_line(_status(worker.report)))
        if options.until_idle:
            stop.unfinished()


def _limits(options: AskOptions) -> Limits:
    """The limits that were given; the others have their defaults."""
    from tidewheel.ingest import Limits

    given = {
        "concurrency": options.concurrency,
        "waiting": options.waiting or max(Limits.waiting, options.concurrency or 0),
        "timeout": options.timeout,
        "attempt_timeout": options.attempt_timeout,
        "attempts": options.attempts,
        "backoff": options.backoff,
        "cache_size": options.cache_size,
        "cache_age": options.cache_age,
        "retry_failed": options.retry_failed,
        "retry_unknown": options.retry_unknown,
        "breaker_failures": options.breaker_failures,
        "breaker_pause": options.breaker_pause,
    }
    return Limits(**{name: value for name, value in given.items() if value is not None})


def _provider(source: str, *, feed: str, key: str | None) -> Provider:
    from tidewheel_transit.final_stop import GtfsFinalStops, SimulatedFinalStops

    if source == "simulator":
        return SimulatedFinalStops()
    if "://" not in source:
        return GtfsFinalStops(source)
    from tidewheel_transit.final_stop.routing_service import RoutingService

    return RoutingService(source, feed=feed, key=key)


def _status(report: LookupReport) -> dict[str, Any]:
    return {
        "events": report.events,
        "answered": report.answered,
        "unknown": report.unknown,
        "failed": sum(report.failed.values()),
        "open": report.open,
        "lost": report.lost,
        "damaged": report.damaged,
    }


def _line(status: Mapping[str, Any]) -> str:
    lost = f", {status['lost']:,} events had left the log unread" if status["lost"] else ""
    damaged = f", {status['damaged']:,} records were damaged" if status["damaged"] else ""
    return (
        f"{status['events']:,} events, {status['answered']:,} answers, {status['unknown']:,} without one, "
        f"{status['failed']:,} failed, {status['open']:,} open{lost}{damaged}"
    )
