"""`tidewheel simulate`: a city's fleet, made up, into the log or to an MQTT broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tidewheel as tw
from tidewheel.cli import (
    DEFAULT_LOG,
    Account,
    CaOption,
    CertificateOption,
    JsonOption,
    KeyOption,
    LogOption,
    PasswordFileOption,
    Rate,
    account_line,
    command,
    make_broker,
    opened_log,
    parse_duration,
    parse_instant,
    parse_speed,
    print_json,
    run_with_progress,
    say,
    stoppable,
    with_options,
)

if TYPE_CHECKING:
    from tidewheel.ingest import Broker
    from tidewheel_transit.simulator import Chunk

__all__ = ["simulate"]

_STEP = 200_000
"""How much goes to the log or the broker at a time, in microseconds: what is waited for at most."""


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """The options of `tidewheel simulate`."""

    log: LogOption = DEFAULT_LOG
    mqtt: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Publish to this broker instead of the log: host:port or mqtts://host."),
    ] = None
    rate: Annotated[float, typer.Option(min=1, help="Events per second, as the mean of a day.")] = 700
    rush_hours: Annotated[
        bool, typer.Option("--rush-hours/--steady", help="Peaks and a quiet night, or the same rate at every hour.")
    ] = True
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same city and traffic.")] = 7
    speed: Annotated[str, typer.Option(metavar="NUMBER|max", help="How many times as fast as the clock.")] = "1"
    length: Annotated[
        int | None,
        typer.Option(
            "--for", metavar="DURATION", parser=parse_duration, help="How much time to simulate: 30s, 5min, 2h."
        ),
    ] = None
    clock: Annotated[
        int | None,
        typer.Option(
            metavar="TIME",
            parser=parse_instant,
            help="What the simulated clock shows first: 2026-01-31T07:00:00Z.",
            show_default="now; with a speed above 1 so that it ends now",
        ),
    ] = None
    ca: CaOption = None
    certificate: CertificateOption = None
    certificate_key: KeyOption = None
    password_file: PasswordFileOption = None
    as_json: JsonOption = False


@command(panel="Into the log")
@with_options(SimulateOptions)
def simulate(options: SimulateOptions) -> None:
    """Simulate a city's vehicles.

    Buses, trams and the rest send a position each second and an event at every stop, door and traffic light, as
    Helsinki's vehicles do (HFP v2): with delays that spread, disorder, duplicates, tunnels and noise. What goes to the
    log is what the processor hfp makes of the messages; what goes to a broker are the messages themselves. It goes on
    until Ctrl-C or for as long as --for says. The log grows until it is limited (tidewheel topics --keep).

        tidewheel simulate
        tidewheel simulate --rate 5000 --steady --for 10min
        tidewheel simulate --for 10min --speed max   (the last ten minutes)
        tidewheel simulate --for 24h --speed max --clock 2026-01-31T00:00:00Z   (a whole day, as fast as possible)
        tidewheel simulate --mqtt localhost:1883
    """
    factor = parse_speed(options.speed)
    back = 0 if options.clock is not None else _head_start(factor, options.length)
    with stoppable() as stop:
        from tidewheel_transit.simulator import Simulator, drive
        from tidewheel_transit.simulator.network import network

        network()  # takes a moment: the simulated clock must not begin that much too late
        broker = (
            None
            if options.mqtt is None
            else make_broker(
                options.mqtt,
                ca=options.ca,
                certificate=options.certificate,
                key=options.certificate_key,
                password_file=options.password_file,
            )
        )
        with _into_log(options.log) if broker is None else _to_broker(broker) as target:
            fleet = Simulator(
                start=tw.time.now() - back if options.clock is None else options.clock,
                seed=options.seed,
                rate=options.rate,
                rush_hours=options.rush_hours,
            )
            where = options.log if broker is None else broker.address
            say(f"{fleet.vehicles:,} vehicles from {tw.time.format_instant(fleet.start)} on, to {where}")

            def status() -> dict[str, Any]:
                return {"simulated": tw.time.format_duration(fleet.position - fleet.start), **target.counts()}

            def line(status: Mapping[str, Any]) -> str:
                return f"{status['simulated']}: {target.line(status)}"

            run_with_progress(
                lambda: drive(fleet, target.deliver, speed=factor, step=_STEP, length=options.length, stop=stop),
                stop=stop,
                status=status,
                line=line,
                as_json=options.as_json,
            )
            if options.as_json:
                print_json(status())
            say(line(status()))
        if options.length is not None and fleet.position < fleet.start + options.length:
            stop.unfinished()


def _head_start(speed: float | None, length: tw.time.Duration | None) -> tw.time.Duration:
    """How long ago the simulation begins, so that it never overtakes the clock: events from the future are refused.

    >>> _head_start(1.0, None), _head_start(None, 60), _head_start(4.0, 60)
    (0, 60, 45)
    """
    if speed is not None and speed <= 1:
        return 0
    if length is None:
        shown = "max" if speed is None else f"{speed:g}"
        raise tw.errors.DefinitionError(
            f"at speed {shown} the simulation overtakes the clock, and its events are refused as from the future; say "
            "how long (--for 1h: it then ends now), or what the simulated clock shows first (--clock)"
        )
    return length if speed is None else length - round(length / speed)


@dataclass(frozen=True, slots=True)
class _Target:
    """The target of the chunks, and its description."""

    deliver: Callable[[Chunk], object]
    counts: Callable[[], dict[str, Any]]
    line: Callable[[Mapping[str, Any]], str]


@contextmanager
def _into_log(address: str) -> Iterator[_Target]:
    from tidewheel.ingest import Pipeline
    from tidewheel_transit.hfp import HfpProcessor

    with opened_log(address) as log:
        pipeline = Pipeline(log, HfpProcessor(), source="simulator")
        yield _Target(
            lambda chunk: pipeline.deliver_processed(chunk.records(), received=len(chunk)),
            Account(pipeline.report),
            account_line,
        )


@contextmanager
def _to_broker(broker: Broker) -> Iterator[_Target]:
    from tidewheel.ingest import MqttPublisher

    rate, published = Rate(), 0
    with MqttPublisher(broker) as publisher:

        def deliver(chunk: Chunk) -> None:
            nonlocal published
            published += publisher.publish(chunk.messages())

        yield _Target(
            deliver,
            lambda: {"published": published, "rate": round(rate(published), 1)},
            lambda status: f"{status['published']:,} messages published ({status['rate']:,.0f}/s)",
        )
