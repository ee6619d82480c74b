"""`tidewheel tail`: the records of a topic, decoded."""

from __future__ import annotations

import base64
import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidewheel.cli.options import (
    DEFAULT_LOG,
    ExistingLogOption,
    JsonOption,
    SkipDamagedOption,
    existing_log,
    local_time,
    out,
    parse_instant,
    report_damage,
    say,
)
from tidewheel.cli.progress import print_json, stoppable
from tidewheel.errors import MalformedError, TopicNotFoundError
from tidewheel.model.time import Instant, format_instant, moment

if TYPE_CHECKING:
    from tidewheel.transport.events.registry import TypeRegistry
    from tidewheel.transport.log.log import Log
    from tidewheel.transport.log.log_types import OnDamage, StartFrom

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
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Show new records as they arrive, until Ctrl-C.")
    ] = False,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="earliest|latest|TIME|OFFSET",
            help="Start here. A time such as 2026-01-31T12:00:00Z means the time of appending to the log.",
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Only this partition.", show_default="all of them")
    ] = None,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="The topic of that name itself, even if the name was switched.")
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

        tidewheel tail input.order
        tidewheel tail analytics.delays --follow
        tidewheel tail dead.events --from earliest --json | jq -r .details.reason | sort | uniq -c
    """
    from tidewheel.transport.topics.aliases import Aliases

    on_damage = report_damage if skip_damaged else None
    with existing_log(log) as opened, stoppable() as stop:
        shown = topic if as_is else Aliases(opened).topic(topic)
        followed = _Followed(opened, topic, shown, partition=partition, as_is=as_is, on_damage=on_damage)
        show = _show_json if as_json else _show
        for record in followed.backlog(_parse_start_from(start_from), count):
            show(record, followed.types)
            if stop.is_set():
                return
        while follow and not stop.is_set():
            try:
                for record in followed.news(0.2):
                    show(record, followed.types)
            except TopicNotFoundError:  # it was deleted, and may be made anew
                stop.wait(0.2)


class _Followed:
    """A topic by the name that was given, and how far its partitions have been shown."""

    def __init__(
        self,
        log: Log,
        name: str,
        topic: str,
        *,
        partition: int | None,
        as_is: bool,
        on_damage: OnDamage | None,
    ) -> None:
        from tidewheel.transport.events.registry import types
        from tidewheel.transport.topics.types import load_types, type_version

        self.types = types
        self._log, self._name, self._topic = log, name, topic
        self._partition, self._as_is, self._on_damage = partition, as_is, on_damage
        self._info = log.topic_info(topic)
        self._known = type_version(log)
        load_types(log, types)
        self._ends = self._latest()

    def backlog(self, start_from: StartFrom | None, count: int | None) -> Iterator[_Record]:
        """The records that are in the log now: from the given start, or the last ones."""
        if start_from is None:
            return iter(_last(self._log, self._topic, self._ends, 10 if count is None else count, self._on_damage))
        starts = {part: self._log.position(self._topic, part[1], start_from) for part in self._ends}
        return islice(_between(self._log, starts, self._ends, self._on_damage), count)

    def news(self, timeout: float) -> Iterator[_Record]:
        """The records that arrive within so many seconds, of the topic that the name stands for now."""
        from tidewheel.transport.topics.types import load_types, type_version

        self._follow_name()
        if not self._log.wait(self._ends, timeout):
            return
        if (known := type_version(self._log)) != self._known:
            self._known = known
            load_types(self._log, self.types)
        latest = {part: self._log.position(self._topic, part[1], "latest") for part in self._ends}
        yield from _between(self._log, self._ends, latest, self._on_damage)
        self._ends = latest

    def _follow_name(self) -> None:
        """Continue with another topic if the name was switched to it, or if the topic was deleted and created again."""
        from tidewheel.transport.topics.aliases import Aliases

        topic = self._topic if self._as_is else Aliases(self._log).topic(self._name)
        if topic != self._topic:
            self._topic, self._info = topic, self._log.topic_info(topic)
            self._ends = self._latest()
            say(f"{self._name} stands for {topic} now")  # whoever reads that is shown all that comes from now on
        elif (found := self._log.topic_info(topic)).id != self._info.id:
            say(f"{topic} was deleted and created again: from its beginning")
            self._info = found
            self._ends = {(topic, each): 0 for each in self._partitions()}

    def _latest(self) -> dict[tuple[str, int], int]:
        return {(self._topic, each): self._log.position(self._topic, each, "latest") for each in self._partitions()}

    def _partitions(self) -> Sequence[int]:
        return range(self._info.partitions) if self._partition is None else [self._partition]


def _parse_start_from(text: str | None) -> StartFrom | None:
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
    """Decode an event as the codec writes it in JSON; for a malformed one, the reason and its bytes."""
    from tidewheel.transport.events import codec

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
    from tidewheel.transport.events import codec

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
