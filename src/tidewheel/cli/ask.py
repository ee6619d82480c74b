"""`tidewheel ask`: look things up outside the stream, for the jobs that need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel.cli.attending import attend, print_json, stoppable
from tidewheel.cli.common import DEFAULT_LOG, JsonOption, LogOption, opened_log, parse_duration, say
from tidewheel.errors import DefinitionError

if TYPE_CHECKING:
    from tidewheel.ingest.lookup import Provider, Report

__all__ = ["ask"]


def ask(
    lookup: Annotated[str, typer.Argument(metavar="LOOKUP", help="What is looked up: final-stop.")],
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Who knows: the address of a routing service (GraphQL), a folder or zip with GTFS, or simulator.",
        ),
    ],
    log: LogOption = DEFAULT_LOG,
    feed: Annotated[str, typer.Option(help="What the routing service puts before its ids.")] = "HSL",
    key: Annotated[
        str | None,
        typer.Option(
            envvar="TIDEWHEEL_ROUTING_KEY", help="The subscription key of the routing service.", show_default=False
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="So many questions at a time.")] = 50,
    timeout: Annotated[
        int,
        typer.Option(metavar="DURATION", parser=parse_duration, help="For one question, with all its attempts."),
    ] = 5_000_000,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when all that is in the log is settled.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look up what events raise, and write the answers down for the jobs.

    It follows the events in the log, asks for what is new, and writes what became of each question into the topic
    lookups.LOOKUP, where jobs read it. It may be stopped, killed and started again at any time: jobs go on without
    answers, and count what they miss.

        tidewheel ask final-stop --from simulator
        tidewheel ask final-stop --from hsl.zip
        tidewheel ask final-stop --from https://api.example.org/graphql --key ...
    """
    with stoppable() as stop:
        from tidewheel.apps.transit.final_stop import FINAL_STOP
        from tidewheel.apps.transit.transit_pb2 import VehiclePosition
        from tidewheel.ingest.lookup import Asker, Limits

        if lookup != FINAL_STOP.name:
            raise DefinitionError(f"there is no lookup {lookup!r}; there is {FINAL_STOP.name}")
        limits = Limits(
            concurrency=concurrency,
            waiting=max(10_000, concurrency),
            timeout=timeout,
            attempt_timeout=min(timeout, 2_000_000),
        )
        provider = _provider(source, feed=feed, key=key)
        with opened_log(log) as opened:
            asker = Asker(
                opened,
                FINAL_STOP,
                provider,
                topics="input.vehicle-position",
                type=VehiclePosition,
                limits=limits,
            )
            say(f"looking up {lookup} from {provider!r}, into {log}")

            def status() -> dict[str, Any]:
                if stop.is_set():
                    asker.stop()
                return _status(asker.report)

            attend(lambda: asker.run(until_idle=until_idle), stop=stop, status=status, line=_line, as_json=as_json)
            if as_json:
                print_json(_status(asker.report))
            say(_line(_status(asker.report)))
        if until_idle:
            stop.unfinished()


def _provider(source: str, *, feed: str, key: str | None) -> Provider:
    from tidewheel.apps.transit.final_stop import GtfsFinalStops, RoutingService, SimulatedFinalStops

    if source == "simulator":
        return SimulatedFinalStops()
    return RoutingService(source, feed=feed, key=key) if "://" in source else GtfsFinalStops(source)


def _status(report: Report) -> dict[str, Any]:
    return {
        "events": report.events,
        "answered": report.answered,
        "unknown": report.unknown,
        "failed": sum(report.failed.values()),
        "open": report.open,
        "lost": report.lost,
    }


def _line(status: Mapping[str, Any]) -> str:
    lost = f", {status['lost']:,} events had left the log unread" if status["lost"] else ""
    return (
        f"{status['events']:,} events, {status['answered']:,} answers, {status['unknown']:,} without one, "
        f"{status['failed']:,} failed, {status['open']:,} open{lost}"
    )
