"""HFP messages that were read, to records of their topics: a column at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import Message as ProtobufMessage
from msgspec import Raw

import tidewheel as tw
from tidewheel_transit.hfp_payload import Body
from tidewheel_transit.hfp_topic import TopicInfo

__all__ = ["Row", "to_records"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DIRECTIONS: Final = {"1": 1, "2": 2, 1: 1, 2: 2, None: None}
_FROM_TOPIC: Final = ("journey", "temporal", "event", "mode", "operator", "vehicle", "headsign", "next_stop")


class Row(NamedTuple):
    """A message that was read; `extra`: the fields of its payload that are not known."""

    info: TopicInfo
    body: Body
    extra: dict[str, Raw] | None
    received_at: tw.time.Instant


def to_records(message: type[ProtobufMessage], rows: Sequence[Row]) -> pa.RecordBatch:
    """Records of the rows, in their order, each as an event with this message."""
    infos, bodies, extras, received = zip(*rows, strict=True)
    topics = dict(zip(TopicInfo._fields, zip(*infos, strict=True), strict=True))
    event_time = _instants(
        [body.tst - _EPOCH if body.tst is not None else timedelta(seconds=body.tsi) for body in bodies]
    )
    columns: dict[str, Sequence[Any] | pa.Array] = {
        **{name: topics[name] for name in _FROM_TOPIC},
        "route": [topic or body.route for topic, body in zip(topics["route"], bodies, strict=True)],
        "direction": [topic or _DIRECTIONS[body.dir] for topic, body in zip(topics["direction"], bodies, strict=True)],
        "start": [topic or body.start for topic, body in zip(topics["start"], bodies, strict=True)],
        "lat": [body.lat for body in bodies],
        "lon": [body.long for body in bodies],
        "speed": [body.spd for body in bodies],
        "acc": [body.acc for body in bodies],
        "heading": [body.hdg for body in bodies],
        "operating_day": [body.oday for body in bodies],
        "delay": [body.dl for body in bodies],
        "odometer": [body.odo for body in bodies],
        "stop": [str(body.stop) if type(body.stop) is int else body.stop for body in bodies],
        "designation": [body.desi for body in bodies],
        "journey_number": [body.jrn for body in bodies],
        "line": [body.line for body in bodies],
        "doors": [body.drst for body in bodies],
        "location_source": [body.loc for body in bodies],
        "occupancy": [body.occu for body in bodies],
        "reported_operator": _others([body.oper for body in bodies], topics["operator"]),
        "reported_vehicle": _others([body.veh for body in bodies], topics["vehicle"]),
        "extra": _extra(infos, bodies, extras, event_time),
    }
    schema = tw.types.schema(message)
    if "scheduled_arrival" in schema.names:
        columns["scheduled_arrival"] = _optional_instants([body.ttarr for body in bodies])
        columns["scheduled_departure"] = _optional_instants([body.ttdep for body in bodies])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, schema.field(name).type) for name, column in columns.items()], names=list(columns)
    )
    values = tw.codec.encode_columns(
        message, batch, event_time=event_time, ingestion_time=pa.array(received, pa.int64())
    )
    return tw.records(values, keys=topics["key"], event_times=event_time, type=message.DESCRIPTOR.full_name)


def _others(reported: Sequence[int | None], known: Sequence[int]) -> list[int | None]:
    return [value if value != own else None for value, own in zip(reported, known, strict=True)]


def _extra(
    infos: Sequence[TopicInfo], bodies: Sequence[Body], extras: Sequence[dict[str, Raw] | None], event_time: pa.Array
) -> list[str | None]:
    """Per row as JSON: the fields that are not known, and those of the payload that say otherwise than what was taken
    (route, direction and start from the topic, the time from tst)."""
    found: list[dict[str, Any] | None] = list(extras)
    seconds = pc.divide(event_time.cast(pa.int64()), 1_000_000)
    others = pc.indices_nonzero(pc.not_equal(seconds, pa.array([body.tsi for body in bodies], pa.int64())))
    for row in others.to_pylist():
        found[row] = {**(found[row] or {}), "tsi": bodies[row].tsi}
    for row, (info, body) in enumerate(zip(infos, bodies, strict=True)):
        if info.route != body.route and info.route and body.route:
            found[row] = {**(found[row] or {}), "route": body.route}
        if info.start != body.start and info.start and body.start:
            found[row] = {**(found[row] or {}), "start": body.start}
        if body.dir and info.direction and info.direction != _DIRECTIONS[body.dir]:
            found[row] = {**(found[row] or {}), "dir": body.dir}
    return [msgspec.json.encode(fields).decode() if fields else None for fields in found]


def _instants(since_epoch: Sequence[timedelta | None]) -> pa.Array:
    # Twice as fast as making timestamps of datetimes that have a zone.
    return pa.array(since_epoch, pa.duration("us")).cast(pa.int64()).cast(pa.timestamp("us", "UTC"))


def _optional_instants(times: Sequence[datetime | None]) -> pa.Array:
    return _instants([None if time is None else time - _EPOCH for time in times])
