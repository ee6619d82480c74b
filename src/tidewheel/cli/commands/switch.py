"""`tidewheel switch`: another topic under the name that readers ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from tidewheel.cli.options import DEFAULT_LOG, ExistingLogOption, JsonOption, existing_log, out
from tidewheel.cli.progress import print_json

__all__ = ["switch"]


def switch(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name that readers use.", show_default=False)
    ] = None,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="The topic that it stands for from now on.", show_default=False),
    ] = None,
    log: ExistingLogOption = DEFAULT_LOG,
    as_json: JsonOption = False,
) -> None:
    """Let a name stand for another topic, for all readers of results by that name.

    A new version of a job writes beside the old one, into topics of its own (tidewheel run JOB --version v2). When its
    results are as they should be (tidewheel compare), readers are switched to them at once: one record in the log.
    Switching back is switching to the topic of the same name. Without arguments it lists what stands for what.

        tidewheel switch analytics.delays analytics.delays.v2
        tidewheel switch analytics.delays analytics.delays     (back again)
        tidewheel switch
    """
    from tidewheel.transport.topics.aliases import Aliases

    with existing_log(log) as opened:
        aliases = Aliases(opened)
        if name is not None and topic is None:
            raise typer.BadParameter(f"which topic is {name} to stand for? tidewheel switch {name} TOPIC")
        if name is not None and topic is not None:
            before = aliases.switch(name, topic)
            if not as_json:
                out().print(f"{name} stands for {topic}, it was {before}", markup=False)
        if as_json:
            print_json(dict(aliases.all()))
        elif name is None:
            for each, target in aliases.all().items():
                out().print(f"{each} stands for {target}", markup=False)
