"""What `tidewheel topics` changes: how long records are kept, topics deleted, groups forgotten."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import typer

from tidewheel.cli.options import ExitCode, out, size
from tidewheel.cli.progress import print_json
from tidewheel.errors import DefinitionError
from tidewheel.model.time import duration, format_duration
from tidewheel.topic_names import is_internal

if TYPE_CHECKING:
    from tidewheel.transport.log.log import Log
    from tidewheel.transport.log.log_types import Retention, TopicInfo

__all__ = ["as_fields", "chosen", "delete", "forget", "keep", "limits_text", "parse_limits"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B")


def chosen(log: Log, names: Sequence[str], *, everything: bool) -> list[TopicInfo]:
    """The topics of these names, in which * stands for anything; without a name all of them. The log's own topics must
    be named, or asked for with `everything`."""
    infos = {info.name: info for info in log.topics()}
    shown = [name for name in infos if everything or not is_internal(name)]
    if not names:
        return [infos[name] for name in shown]
    found: dict[str, TopicInfo] = {}
    for name in names:
        matching = [other for other in shown if fnmatchcase(other, name)]
        found.update({other: infos[other] for other in matching} if matching else {name: log.topic_info(name)})
    return [found[name] for name in sorted(found)]


def parse_limits(texts: Sequence[str]) -> Retention:
    """Ages and sizes of the command line.

    >>> parse_limits(["1h", "500MB"]), parse_limits(["all"])
    (Retention(age=3600000000, size=500000000), Retention(age=None, size=None))
    """
    from tidewheel.transport.log.log_types import Retention

    limits: dict[str, int] = {}
    for text in texts:
        if text == "all":
            continue
        match = _SIZE.fullmatch(text)
        try:
            limit = _bytes(*match.groups()) if match else duration(text)
        except DefinitionError:
            limit = 0
        if limit <= 0:
            raise typer.BadParameter(f"--keep takes 1h, 7d, 500MB, 2GiB or all, got {text!r}")
        limits["size" if match else "age"] = limit
    return Retention(**limits)


def _bytes(number: str, power: str, binary: str) -> int:
    return int(float(number) * (1024 if binary else 1000) ** " KMGT".index(power.upper() or " "))


def limits_text(retention: Retention) -> str:
    """Say the limits of a topic in words."""
    age = None if retention.age is None else format_duration(retention.age)
    return ", ".join(part for part in (age, None if retention.size is None else size(retention.size)) if part)


def keep(log: Log, topics: Sequence[TopicInfo], retention: Retention, *, as_json: bool) -> None:
    """Limit topics, and let go what is beyond the limit."""
    _check_not_own(topics)
    for info in topics:
        log.create_topic(info.name, retention=retention, compact=info.compact)
    log.maintain()
    for info in topics:
        left = log.topic_info(info.name).count
        if as_json:
            print_json({"topic": info.name, **as_fields(retention), "records": left})
        else:
            limit = limits_text(retention) or "all"
            out().print(f"{info.name} keeps {limit}: {left:,} of {info.count:,} records left", markup=False)


def as_fields(retention: Retention) -> dict[str, float | None]:
    """The limits of a topic, for programs."""
    return {"keep_seconds": None if retention.age is None else retention.age / 1e6, "keep_bytes": retention.size}


def delete(log: Log, topics: Sequence[TopicInfo], *, yes: bool, as_json: bool) -> None:
    """Delete topics: all of them, or none if one is still read."""
    _check_not_own(topics)
    for info in topics:
        _check_not_read(log, info.name)
    names = " and ".join(", ".join(info.name for info in topics).rsplit(", ", 1))
    _confirm(f"delete {names} with their {sum(info.count for info in topics):,} records?", yes=yes)
    for info in topics:
        log.delete_topic(info.name)
        if as_json:
            print_json({"deleted": info.name})
        else:
            out().print(f"deleted {info.name}: {info.count:,} records", markup=False)
    log.maintain()  # gives the space back


def forget(log: Log, group: str, *, yes: bool, as_json: bool) -> None:
    """Forget how far a group has come."""
    groups = log.groups()
    if group not in groups:
        close = get_close_matches(group, groups, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise DefinitionError(f"no group {group!r}{hint} There are: {', '.join(groups) or 'none'}")
    read = " and ".join(sorted({topic for topic, _ in log.committed(group)}))
    _confirm(f"forget how far {group} has come in {read}?", yes=yes)
    log.forget(group)
    if as_json:
        print_json({"forgotten": group})
    else:
        out().print(f"forgot {group}, which had read {read}", markup=False)


def _check_not_own(topics: Sequence[TopicInfo]) -> None:
    for info in topics:
        if is_internal(info.name):
            raise DefinitionError(f"{info.name} is the log's own; without it other topics could not be read")


def _check_not_read(log: Log, topic: str) -> None:
    from tidewheel.transport.topics.aliases import Aliases

    for group in log.groups():
        if any(name == topic for name, _ in log.committed(group)):
            raise DefinitionError(
                f"{topic} is read by the group {group}; stop it, and then forget it: tidewheel topics --forget {group} "
                "(a group that is there again after that is at work)"
            )
    for name, target in Aliases(log).all().items():
        if target == topic:
            raise DefinitionError(
                f"{topic} is what {name} stands for; let it stand for another one first: tidewheel switch {name} TOPIC"
            )


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise DefinitionError(f"{question} There is nobody to ask here: say --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(ExitCode.FAILED)
