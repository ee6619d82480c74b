"""`tidewheel ingest`: messages from outside into the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel.cli.attending import stoppable
from tidewheel.cli.bringing import bring
from tidewheel.cli.common import (
    DEFAULT_LOG,
    CaOption,
    CertificateOption,
    DurationOption,
    JsonOption,
    KeyOption,
    LogOption,
    PasswordFileOption,
    ProcessorOption,
    make_broker,
    make_processor,
    opened_log,
    say,
)
from tidewheel.errors import DefinitionError

if TYPE_CHECKING:
    from tidewheel.ingest.connector import Connector, Deliver
    from tidewheel.ingest.http import HttpConnector

__all__ = ["ingest"]


def ingest(
    mqtt: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Subscribe at this broker: mqtts://host:8883 or host:port.")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Take posted messages there: 127.0.0.1:8090.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="TIDEWHEEL_INGEST_TOKEN", metavar="TEXT", help="Only who brings it may post (--http)."),
    ] = None,
    without_token: Annotated[
        bool,
        typer.Option("--without-token", help="Let everybody who can reach --http post, also from other machines."),
    ] = False,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Pages of this site may post, and its name may stand for this machine; several are possible.",
        ),
    ] = None,
    max_messages: Annotated[
        int, typer.Option(min=1, metavar="N", help="Messages that a posted request may hold.")
    ] = 20_000,
    max_producers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Producers whose last request is remembered (--http).")
    ] = 1_000,
    log: LogOption = DEFAULT_LOG,
    processor: ProcessorOption = "hfp",
    source: Annotated[
        str, typer.Option(metavar="NAME", help="The name of this process: each that runs beside it needs its own.")
    ] = "main",
    mode: Annotated[
        list[str] | None,
        typer.Option(metavar="MODE", help="Only this part of the fleet (bus, tram ...); several are possible."),
    ] = None,
    subscribe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILTER", help="MQTT topic filter; several are possible.", show_default="what the processor wants"
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where the objects go (--processor json): input.order.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The field that tells when it happened (--processor json).")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Field of the record's key (--processor json); several are possible."),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TYPE",
            help="The type of a field: bool, int, double, string, timestamp (--processor json); several are possible.",
            show_default="as its first value",
        ),
    ] = None,
    ca: CaOption = None,
    certificate: CertificateOption = None,
    certificate_key: KeyOption = None,
    password_file: PasswordFileOption = None,
    length: DurationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring messages from MQTT and HTTP into the log, until Ctrl-C.

    A message is acknowledged to its sender only when the log has it, and is in the log once, also after a crash. The
    processor turns it into a record of an input topic, or filters it by a named rule; what is malformed goes to the
    dead letters (dead.PROCESSOR) with the reason. When the log is slow the senders are slowed down. Several processes
    can share a subscription, each with a part of it and a --source of its own. Who can reach --http can write to the
    input topics: it listens on this machine only, unless there is a --token, or --without-token lets everybody in.

        tidewheel ingest --mqtt mqtts://broker.example.org
        tidewheel ingest --mqtt mqtts://anna@broker.example.org --password-file anna.secret
        tidewheel ingest --mqtt localhost:1883 --http 127.0.0.1:8090
        tidewheel ingest --mqtt localhost --mode tram --source trams
        tidewheel ingest --http 127.0.0.1:8090 --processor events
        tidewheel ingest --http 127.0.0.1:8090 --processor json --topic input.order --time ts --key user
        TIDEWHEEL_INGEST_TOKEN=secret tidewheel ingest --http 0.0.0.0:8090
    """
    if mqtt is None and http is None:
        raise DefinitionError("nothing to bring messages from: give --mqtt ADDRESS, --http HOST:PORT, or both")
    from tidewheel.ingest.pipeline import Pipeline

    chosen = make_processor(processor, modes=mode, topic=topic, time=time, key=key, fields=_fields(field or []))
    with stoppable() as stop, opened_log(log) as opened:
        pairs: list[tuple[Connector, Deliver]] = []
        if mqtt is not None:
            from tidewheel.ingest.mqtt import MqttConnector

            connector = MqttConnector(
                make_broker(mqtt, ca=ca, certificate=certificate, key=certificate_key, password_file=password_file),
                subscribe or chosen.subscriptions,
                # The broker keeps the session under this name: the same log and source must find it again.
                client_id=f"tidewheel-{opened.identity}-{source}",
            )
            pairs.append((connector, Pipeline(opened, chosen, source=f"{source}-mqtt")))
            say(f"{', '.join(connector.subscriptions)} of {connector.name} to {log}")
        if http is not None:
            listener = _listener(
                http,
                token=token,
                without_token=without_token,
                allow_origins=allow_origin or [],
                max_messages=max_messages,
                max_producers=max_producers,
            )
            pairs.append((listener, Pipeline(opened, chosen, source=f"{source}-http")))
            say(f"what is posted to {listener.name}/v1/messages and /v1/lines to {log}")
        bring(pairs, stop=stop, length=length, as_json=as_json)
        if length is not None:
            stop.unfinished()


def _fields(given: list[str]) -> dict[str, str]:
    """Types by the names of fields, as --field tells them."""
    found = {}
    for text in given:
        name, equals, kind = text.partition("=")
        if not name or not equals:
            raise DefinitionError(f"--field needs a name and a type, such as amount=double, got {text!r}")
        found[name] = kind
    return found


def _listener(address: str, **options: Any) -> HttpConnector:
    from tidewheel.ingest.http import HttpConnector

    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise DefinitionError(f"--http needs an address such as 127.0.0.1:8090, got {address!r}")
    return HttpConnector(host=host.strip("[]"), port=int(port), **options)
