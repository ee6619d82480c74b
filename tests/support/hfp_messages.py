"""HFP messages that look real, and what became of them in columns."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from tidewheel.ingest.message import Message
from tidewheel.ingest.processor import Processed
from tidewheel.model.time import instant
from tidewheel.transport.events import codec
from tidewheel_transit.topics import TOPICS

AT = "2026-03-02T06:15:30.250Z"
ARRIVED = instant("2026-03-02T06:15:30.900Z")

BODY = {
    "desi": "71",
    "dir": "2",
    "oper": 22,
    "veh": 817,
    "tst": AT,
    "tsi": instant(AT) // 1_000_000,
    "spd": 8.25,
    "hdg": 193,
    "lat": 60.205117,
    "long": 24.968243,
    "acc": -0.5,
    "dl": -65,
    "odo": 4120,
    "drst": 0,
    "oday": "2026-03-02",
    "jrn": 205,
    "line": 61,
    "start": "08:04",
    "loc": "GPS",
    "stop": None,
    "route": "1071",
    "occu": 0,
}
STOP_TIMES = {"ttarr": "2026-03-02T06:14:00.000Z", "ttdep": "2026-03-02T06:14:00.000Z"}


def topic(
    event: str = "vp",
    *,
    journey: str = "journey",
    temporal: str = "ongoing",
    mode: str = "bus",
    operator: str = "0022",
    vehicle: str = "00817",
    end: str = "1071/2/Rautatientori/08:04/1220120/4/60;24/29/06/58",
) -> str:
    return f"/hfp/v2/{journey}/{temporal}/{event}/{mode}/{operator}/{vehicle}" + (f"/{end}" if end else "")


def hfp(event: str = "vp", *, topic: str = topic(), received_at: int = ARRIVED, **fields: Any) -> Message:
    """A message of this event type; `fields` change those of the payload. A topic given is taken as it is."""
    if topic == hfp.__kwdefaults__["topic"]:
        topic = topic.replace("/vp/", f"/{event}/")
    return Message(topic, json.dumps({event.upper(): {**BODY, **fields}}, ensure_ascii=False).encode(), received_at)


def rows(processed: Processed) -> list[dict[str, Any]]:
    """All events by topic and in order, as dictionaries of what is set, with topic and key."""
    found = []
    for name, batch in processed.topics.items():
        decoded = codec.decode_columns(TOPICS[name], batch.column("value"))
        assert not decoded.errors
        frame = pl.from_arrow(decoded.columns)
        assert isinstance(frame, pl.DataFrame)
        keys = batch.column("key").to_pylist()
        for key, row in zip(keys, frame.iter_rows(named=True), strict=True):
            found.append({"topic": name, "key": key} | {k: v for k, v in row.items() if v is not None})
    return found


def row(processed: Processed) -> dict[str, Any]:
    """The only event."""
    assert not processed.dead, processed.dead
    (only,) = rows(processed)
    return only
