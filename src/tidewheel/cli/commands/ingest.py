"""`tidewheel ingest`: messages from outside into the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel.cli.broker import make_broker
from tidewheel.cli.command_options import with_options
from tidewheel.cli.connectors import run_connectors
from tidewheel.cli.options import (
    DEFAULT_LOG,
    CaOption,
    CertificateOption,
    DurationOption,
    JsonOption,
    KeyOption,
    LogOption,
    PasswordFileOption,
    ProcessorOption,
    opened_log,
    say,
)
from tidewheel.cli.processors import make_processor
from tidewheel.cli.progress import stoppable
from tidewheel.errors import DefinitionError

if TYPE_CHECKING:
    from tidewheel.ingest.connector import Connector, Deliver
    from tidewheel.ingest.http.connector import HttpConnector

__all__ = ["ingest"]


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """The options of `tidewheel ingest`."""

    mqtt: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Subscribe at this broker: mqtts://host:8883 or host:port.")
    ] = None
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen for posted messages here: 127.0.0.1:8090.")
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TIDEWHEEL_INGEST_TOKEN", metavar="TEXT", help="The token that clients must send to post (--http)."
        ),
    ] = None
    without_token: Annotated[
        bool,
        typer.Option("--without-token", help="Let everyone who can reach --http post, also from other machines."),
    ] = False
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Pages of this site may post, and its name may stand for this machine; several are possible.",
        ),
    ] = None
    max_messages: Annotated[int, typer.Option(min=1, metavar="N", help="The limit of messages per request.")] = 20_000
    max_producers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Producers whose last request is remembered (--http).")
    ] = 1_000
    log: LogOption = DEFAULT_LOG
    processor: ProcessorOption = None
    source: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The name of this process; processes that run at the same time need different names."
        ),
    ] = "main"
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the processor; several are possible."),
    ] = None
    subscribe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILTER", help="MQTT topic filter; several are possible.", show_default="what the processor wants"
        ),
    ] = None
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The topic of the objects (--processor json): input.order.")
    ] = None
    time: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The field with the event time (--processor json).")
    ] = None
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Field of the record's key (--processor json); several are possible."),
    ] = None
    field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TYPE",
            help="The type of a field: bool, int, double, string, timestamp (--processor json); several are possible.",
            show_default="as its first value",
        ),
    ] = None
    ca: CaOption = None
    certificate: CertificateOption = None
    certificate_key: KeyOption = None
    password_file: PasswordFileOption = None
    length: DurationOption = None
    as_json: JsonOption = False


@with_options(IngestOptions)
def ingest(options: IngestOptions) -> None:
    """Bring messages from MQTT and HTTP into the log, until Ctrl-C.

    A message is acknowledged to its sender only when the log has it, and is in the log once, also after a crash. The
    processor turns it into a record of an input topic, or filters it by a named rule; what is malformed goes to the
    dead letters (dead.PROCESSOR) with the reason. When the log is slow the senders are slowed down. Several processes
    can share a subscription, each with a part of it and a --source of its own. Who can reach --http can write to the
    input topics: it listens on this machine only, unless there is a --token, or --without-token lets everybody in.

        tidewheel ingest --http 127.0.0.1:8090 --processor events
        tidewheel ingest --http 127.0.0.1:8090 --processor json --topic input.order --time ts --key user
        tidewheel ingest --mqtt mqtts://anna@broker.example.org --password-file anna.secret --processor mine
        tidewheel ingest --mqtt localhost --processor mine --option part=north --source north
        TIDEWHEEL_INGEST_TOKEN=secret tidewheel ingest --http 0.0.0.0:8090 --processor events
    """
    if options.mqtt is None and options.http is None:
        raise DefinitionError("nothing to bring messages from: give --mqtt ADDRESS, --http HOST:PORT, or both")
    from tidewheel.ingest.pipeline import Pipeline

    chosen = make_processor(
        options.processor,
        own=options.option or [],
        topic=options.topic,
        time=options.time,
        key=options.key,
        fields=_fields(options.field or []),
    )
    with stoppable() as stop, opened_log(options.log) as opened:
        pairs: list[tuple[Connector, Deliver]] = []
        if options.mqtt is not None:
            from tidewheel.ingest.mqtt.connector import MqttConnector

            connector = MqttConnector(
                make_broker(
                    options.mqtt,
                    ca=options.ca,
                    certificate=options.certificate,
                    key=options.certificate_key,
                    password_file=options.password_file,
                ),
                options.subscribe or chosen.subscriptions,
                # The broker keeps the session under this name: the same log and source must find it again.
                client_id=f"tidewheel-{opened.identity}-{options.source}",
            )
            pairs.append((connector, Pipeline(opened, chosen, source=f"{options.source}-mqtt")))
            say(f"{', '.join(connector.subscriptions)} of {connector.name} to {options.log}")
        if options.http is not None:
            listener = _listener(
                options.http,
                token=options.token,
                without_token=options.without_token,
                allow_origins=options.allow_origin or [],
                messages=options.max_messages,
                producers=options.max_producers,
            )
            pairs.append((listener, Pipeline(opened, chosen, source=f"{options.source}-http")))
            say(f"what is posted to {listener.name}/v1/messages and /v1/lines to {options.log}")
        run_connectors(pairs, stop=stop, length=options.length, as_json=options.as_json)
        if options.length is not None:
            stop.unfinished()


def _fields(given: list[str]) -> dict[str, str]:
    """Types by the names of fields, as --field gives them."""
    found = {}
    for text in given:
        name, equals, kind = text.partition("=")
        if not name or not equals:
            raise DefinitionError(f"--field needs a name and a type, such as amount=double, got {text!r}")
        found[name] = kind
    return found


def _listener(address: str, *, messages: int, producers: int, **options: Any) -> HttpConnector:
    from tidewheel.ingest.http.connector import HttpConnector
    from tidewheel.ingest.http.limits import HttpLimits

    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise DefinitionError(f"--http needs an address such as 127.0.0.1:8090, got {address!r}")
    limits = HttpLimits(messages=messages, producers=producers)
    return HttpConnector(host=host.strip("[]"), port=int(port), limits=limits, **options)
