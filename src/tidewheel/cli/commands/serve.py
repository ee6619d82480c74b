"""`tidewheel serve`: the live map of a log's results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tidewheel.cli.command_options import with_options
from tidewheel.cli.options import DEFAULT_LOG, DurationOption, ExistingLogOption, JsonOption, existing_log, say
from tidewheel.cli.progress import Stop, print_json, run_with_progress, stoppable
from tidewheel.errors import DefinitionError, JobError
from tidewheel.threads import reason_of

__all__ = ["serve"]


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The options of `tidewheel serve`."""

    log: ExistingLogOption = DEFAULT_LOG
    host: Annotated[str, typer.Option(metavar="NAME", help="Where to listen; 0.0.0.0 lets other machines in.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 chooses a free port, and prints it.")] = 8080
    layers: Annotated[
        str | None, typer.Option(metavar="FILE", help="Layers of your own, as JSON; see docs/map.md.")
    ] = None
    lines: Annotated[str | None, typer.Option(metavar="FILE", help="GeoJSON that is drawn under the layers.")] = None
    tiles: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A map under the layers: https://tile.example.org/{z}/{x}/{y}.png"),
    ] = None
    attribution: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The attribution of the tiles, shown on the map.")
    ] = None
    token: Annotated[
        str | None,
        typer.Option(envvar="TIDEWHEEL_TOKEN", metavar="TEXT", help="The token that clients must send."),
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Pages of this site may use the API, too; may be given several times."),
    ] = None
    speed: Annotated[
        float, typer.Option(help="The speed of the replay that fills the log: results expire that much faster.")
    ] = 1.0
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False
    length: DurationOption = None
    as_json: JsonOption = False


@with_options(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Serve the live map: results as they happen, in the browser.

    Follows every topic of results (analytics.*) in the log, keeps what is current, and serves it: as a page, over
    WebSocket and server-sent events, and over HTTP. Layers come from installed packages and from --layers; a topic that
    has none gets one made from its fields. It listens on this machine only unless --host says otherwise; then give it a
    --token. It goes on until Ctrl-C, or for as long as --for says.

        tidewheel serve
        tidewheel serve --log city.tw --open
        tidewheel serve --layers my-layers.json --port 9000
        TIDEWHEEL_TOKEN=secret tidewheel serve --host 0.0.0.0 --allow-origin https://map.example.org
    """
    with existing_log(options.log) as opened, stoppable() as stop:
        from tidewheel.serve import Background
        from tidewheel.serve import serve as start
        from tidewheel.serve.layers.catalogue import layers_of_file

        own = [] if options.layers is None else layers_of_file(options.layers)
        lines = None if options.lines is None else _geojson(options.lines)
        background = Background(lines=lines, tiles=options.tiles, attribution=options.attribution)
        server = start(
            opened,
            host=options.host,
            port=options.port,
            layers=own,
            background=background,
            token=options.token,
            allow_origins=options.allow_origin or [],
            speed=options.speed,
        )
        with server:
            say(f"{server.url} shows {options.log}. Ctrl-C ends it.", style="bold")
            if options.as_json:
                print_json(server.status())
            if options.open_page:
                typer.launch(server.url)
            run_with_progress(
                lambda: _until_stopped(server, stop),
                stop=stop,
                status=server.status,
                line=_line,
                length=options.length,
                as_json=options.as_json,
            )


def _until_stopped(server: Any, stop: Stop) -> None:
    while not stop.wait(0.2):
        if not server.running:
            why = "its log tells more" if server.failure is None else reason_of(server.failure)
            raise JobError(f"the live map has ended by itself: {why}")


def _geojson(path: str) -> Mapping[str, Any]:
    try:
        content = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise DefinitionError(f"the lines {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DefinitionError(f"the lines {path} are not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("type") != "FeatureCollection":
        raise DefinitionError(f"the lines {path} must be a FeatureCollection of GeoJSON")
    return content


def _line(status: Mapping[str, Any]) -> str:
    wrong = [*status["trouble"], *status["warnings"]]
    trouble = f", {'; '.join(wrong)}" if wrong else ""
    latency = status["latency"]
    behind = "" if latency is None else f", results {latency['p50'] / 1_000:.1f} s after their events"
    return (
        f"{status['clients']:,} clients, {status['shown']:,} results shown in {len(status['layers'])} layers "
        f"({status['result_rate'] or 0:,.0f}/s){behind}{trouble}"
    )
