"""`tidewheel tail`: the records of a topic, decoded."""

from __future__ import annotations

import base64
import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel.cli.attending import print_json, stoppable
from tidewheel.cli.common import (
    DEFAULT_LOG,
    ExistingLogOption,
    JsonOption,
    SkipDamagedOption,
    existing_log,
    local_time,
    out,
    parse_instant,
    say,
    tell_damage,
)
from tidewheel.errors import MalformedError, TopicNotFoundError
from tidewheel.model.time import Instant, format_instant, moment

if TYPE_CHECKING:
    from tidewheel.transport.log import Log, OnDamage, Start
    from tidewheel.transport.registry import TypeRegistry

__all__ = ["tail"]


@dataclass(frozen=True, slots=True)
class _Record:
    partition: int
    offset: int
    append_time: Instant
    key: bytes | None
    value: bytes


def tail(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic; tidewheel topics lists them.", show_default=False)
    ],
    log: ExistingLogOption = DEFAULT_LOG,
    count: Annotated[
        int | None,
        typer.Option(
            "-n", "--lines", min=0, help="How many records: the last 10, or with --from all.", show_default=False
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="earliest|latest|TIME|OFFSET",
            help="Begin there. A time such as 2026-01-31T12:00:00Z is that of appending to the log.",
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Only this partition.", show_default="all of them")
    ] = None,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="The topic of that name itself, whatever the name was switched to.")
    ] = False,
    skip_damaged: SkipDamagedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the records of a topic, decoded.

    Shows the last 10 records, oldest first, as their message type says: types come from installed packages and from the
    log itself, which keeps the definitions of what jobs and processors write. A record of a type that neither knows is
    shown as such, and one that is malformed with the reason. With --json each record is a line with its event_time,
    ingestion_time (of a result: when it was written), batch_time (of a result: its batch's clock) and details as in the
    log's own JSON encoding, besides partition, offset, append_time and key.
    A name that was switched to another topic (tidewheel switch) shows that one, and follows it.

        tidewheel tail input.arrival
        tidewheel tail analytics.vehicle-cell --follow
        tidewheel tail dead.hfp --from earliest --json | jq -r .details.reason | sort | uniq -c
    """
    from tidewheel.transport.aliases import Aliases
    from tidewheel.transport.registry import types
    from tidewheel.transport.type_topic import load_types, type_version

    begin = _start(start)
    on_damage = tell_damage if skip_damaged else None
    with existing_log(log) as opened, stoppable() as stop:
        name, topic = topic, topic if as_is else Aliases(opened).topic(topic)
        info = opened.topic_info(topic)
        partitions = range(info.partitions) if partition is None else [partition]
        known = type_version(opened)
        load_types(opened, types)
        show = _show_json if as_json else _show
        ends = {(topic, each): opened.position(topic, each, "latest") for each in partitions}
        if begin is None:
            backlog: Iterator[_Record] = iter(_last(opened, topic, ends, 10 if count is None else count, on_damage))
        else:
            starts = {part: opened.position(topic, part[1], begin) for part in ends}
            backlog = islice(_between(opened, starts, ends, on_damage), count)
        for record in backlog:
            show(record, types)
            if stop.is_set():
                return
        while follow and not stop.is_set():
            try:
                now = topic if as_is else Aliases(opened).topic(name)
                if now != topic:
                    topic, info = now, opened.topic_info(now)
                    numbers = range(info.partitions) if partition is None else [partition]
                    ends = {(topic, each): opened.position(topic, each, "latest") for each in numbers}
                    say(f"{name} stands for {now} now")  # whoever reads that is shown all that comes from now on
                elif (found := opened.topic_info(topic)).id != info.id:
                    say(f"{topic} was deleted and made anew: from its beginning")
                    info = found
                    ends = {(topic, each): 0 for each in (range(info.partitions) if partition is None else [partition])}
                if opened.wait(ends, 0.2):
                    if type_version(opened) != known:
                        known = type_version(opened)
                        load_types(opened, types)
                    news = {part: opened.position(topic, part[1], "latest") for part in ends}
                    for record in _between(opened, ends, news, on_damage):
                        show(record, types)
                    ends = news
            except TopicNotFoundError:  # it was deleted, and may be made anew
                stop.wait(0.2)


def _start(text: str | None) -> Start | None:
    if text is None or text == "earliest" or text == "latest":
        return text  # type: ignore[return-value]  # one of the three
    if text.isascii() and text.isdigit():
        return int(text)
    return moment(parse_instant(text))


def _last(
    log: Log, topic: str, ends: dict[tuple[str, int], int], count: int, on_damage: OnDamage | None
) -> list[_Record]:
    """The last records of all partitions together, oldest first."""
    if count == 0:
        return []
    found: list[_Record] = []
    for (_, partition), end in ends.items():
        first = log.position(topic, partition, "earliest")
        reach = count
        while True:
            start = max(first, end - reach)
            mine = list(_read(log, topic, partition, start, end, on_damage))[-count:]
            if len(mine) == count or start == first:
                break
            reach *= 4  # compaction leaves gaps: as many offsets were fewer records
        found += mine
    return sorted(found, key=_order)[-count:]


def _between(
    log: Log, starts: dict[tuple[str, int], int], ends: dict[tuple[str, int], int], on_damage: OnDamage | None
) -> Iterator[_Record]:
    """The records of all partitions, in the order in which they were appended."""
    readers = (_read(log, *part, starts[part], end, on_damage) for part, end in ends.items())
    return heapq.merge(*readers, key=_order)


def _order(record: _Record) -> tuple[Instant, int, int]:
    return record.append_time, record.partition, record.offset


def _read(log: Log, topic: str, partition: int, start: int, end: int, on_damage: OnDamage | None) -> Iterator[_Record]:
    import pyarrow as pa

    for batch in log.read(topic, partition, start, end=end, on_damage=on_damage):
        columns = [batch.records.column(name) for name in ("offset", "append_time", "key", "value")]
        columns[1] = columns[1].cast(pa.int64())
        for fields in zip(*(column.to_pylist() for column in columns), strict=True):
            yield _Record(partition, *fields)


def _decoded(record: _Record, types: TypeRegistry) -> dict[str, Any]:
    """The event as the codec writes it in JSON; what is malformed: the reason, and its bytes."""
    from tidewheel.transport import codec

    try:
        event = codec.decode(record.value, registry=types)
        fields: dict[str, Any] = json.loads(codec.encode(event, format="json", registry=types))
        return fields
    except MalformedError as error:
        return {"malformed": str(error), "raw": base64.b64encode(record.value).decode()}


def _show_json(record: _Record, types: TypeRegistry) -> None:
    fields: dict[str, Any] = {"partition": record.partition, "offset": record.offset}
    fields["append_time"] = format_instant(record.append_time)
    try:
        fields["key"] = None if record.key is None else record.key.decode()
    except UnicodeDecodeError:
        fields["key_base64"] = base64.b64encode(record.key or b"").decode()
    print_json(fields | _decoded(record, types))


def _when(record: _Record, fields: Mapping[str, Any], types: TypeRegistry) -> str:
    from tidewheel.transport import codec

    if "event_time" in fields:
        return local_time(parse_instant(fields["event_time"]))
    there = codec.decode(record.value, registry=types).HasField("event_time")
    return "event time out of range" if there else "no event time"


def _show(record: _Record, types: TypeRegistry) -> None:
    from rich.text import Text

    line = Text()
    line.append(f"{record.partition}:{record.offset}", style="dim")
    fields = _decoded(record, types)
    if "malformed" in fields:
        line.append(f"  malformed: {fields['malformed']} ({len(record.value):,} bytes)", style="red")
        out().print(line)
        return
    line.append(f"  {_when(record, fields, types)}", style="cyan")
    if record.key is not None:
        line.append(f"  {record.key.decode(errors='replace')}", style="yellow")
    details = dict(fields.get("details", {}))
    name = details.pop("@type", "").rpartition("/")[2]
    hidden = details.pop("@bytes", None)
    line.append(f"  {name.rpartition('.')[2] or 'nothing'}", style="bold")
    if name and name not in types:
        line.append(f"  unknown type {name}, {len(base64.b64decode(hidden or ''))} bytes", style="red")
    for field, value in details.items():
        line.append(f"  {field}=", style="dim")
        line.append(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    out().print(line)
