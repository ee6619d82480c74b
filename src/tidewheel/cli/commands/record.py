"""`tidewheel record`: what a broker publishes, into a file that can be replayed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from tidewheel.cli.broker import make_broker
from tidewheel.cli.connectors import run_connectors
from tidewheel.cli.options import (
    CaOption,
    CertificateOption,
    DurationOption,
    JsonOption,
    KeyOption,
    PasswordFileOption,
    ProcessorOption,
    parse_duration,
    say,
)
from tidewheel.cli.processors import make_processor
from tidewheel.cli.progress import stoppable
from tidewheel.errors import DefinitionError

__all__ = ["record"]

_MEGABYTE = 1_000_000


def record(
    mqtt: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The broker: mqtts://host:8883 or host:port.", show_default=False)
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="The recording: x.jsonl, x.jsonl.gz or x.jsonl.zst.", show_default=False),
    ],
    subscribe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILTER",
            help="What to record, as an MQTT topic filter; several are possible.",
            show_default="what the processor wants",
        ),
    ] = None,
    processor: ProcessorOption = None,
    ca: CaOption = None,
    certificate: CertificateOption = None,
    certificate_key: KeyOption = None,
    password_file: PasswordFileOption = None,
    rotate_size: Annotated[
        int | None, typer.Option(min=1, metavar="MEGABYTES", help="Start a new, numbered file at this size.")
    ] = None,
    rotate_age: Annotated[
        int | None,
        typer.Option(metavar="DURATION", parser=parse_duration, help="Start a new, numbered file after this time."),
    ] = None,
    length: DurationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record what an MQTT broker publishes.

    Writes one JSON line for each message: when it arrived, its topic, its payload. A message is acknowledged to the
    broker only when it is on the disk, and an existing recording is continued. The processor is asked only what to
    subscribe to: everything that comes is recorded, whatever is in it. Goes on until Ctrl-C.

        tidewheel record --mqtt mqtts://broker.example.org --processor mine --output city.jsonl.gz --for 10min
        tidewheel record --mqtt localhost:1883 --subscribe 'shop/#' --output shop.jsonl.zst --rotate-age 1h
        tidewheel replay city.jsonl.gz --processor mine
    """
    from tidewheel.ingest.mqtt.connector import MqttConnector
    from tidewheel.ingest.replay.recorder import Recorder, RecordingWriter

    if not output.parent.is_dir():
        raise DefinitionError(f"the folder {output.parent} of the recording does not exist; make it first")
    connector = MqttConnector(
        make_broker(mqtt, ca=ca, certificate=certificate, key=certificate_key, password_file=password_file),
        subscribe or make_processor(processor).subscriptions,
        # The same file, the same session: what the broker kept since the last time comes first.
        client_id=f"tidewheel-record-{_fingerprint(output)}",
    )
    with (
        stoppable() as stop,
        RecordingWriter(
            output,
            rotate_size=None if rotate_size is None else rotate_size * _MEGABYTE,
            rotate_age=None if rotate_age is None else timedelta(microseconds=rotate_age),
        ) as writer,
    ):
        say(f"recording {', '.join(connector.subscriptions)} of {connector.name} to {writer.path}")
        run_connectors([(connector, Recorder(writer))], stop=stop, length=length, as_json=as_json)
        if length is not None:
            stop.unfinished()


def _fingerprint(path: Path) -> str:
    import hashlib
    import socket

    return hashlib.sha256(f"{socket.gethostname()}:{path.absolute()}".encode()).hexdigest()[:16]
