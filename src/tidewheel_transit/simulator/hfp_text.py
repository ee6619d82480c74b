"""HFP v2 as text: topics and payloads of whole columns."""

from __future__ import annotations

from typing import Final

import polars as pl

from tidewheel_transit.topics import EVENTS

__all__ = ["payloads", "topics"]

_ISO: Final = "%Y-%m-%dT%H:%M:%S%.3fZ"
_WITH_TIMES: Final = [
    event for event, home in EVENTS.items() if "scheduled_arrival" in home.message.DESCRIPTOR.fields_by_name
]
_NO_GEOHASH: Final = "0////"


def topics(frame: pl.DataFrame) -> pl.Series:
    """The MQTT topic of each message.

    It ends in the digits of the coordinates, those of latitude and longitude in turns: 60;24/19/73/44.
    """
    head = pl.format(
        "/hfp/v2/{}/{}/{}/{}/{}/{}",
        "journey",
        "temporal",
        "event",
        "mode",
        pl.col("operator").cast(pl.String).str.zfill(4),
        pl.col("vehicle").cast(pl.String).str.zfill(5),
    )
    lat, lon = ((pl.col(name) * 1_000 + 1e-7).floor().cast(pl.Int64) for name in ("lat", "lon"))
    digits = [pl.concat_str(part // unit % 10 for part in (lat, lon)) for unit in (100, 10, 1)]
    geohash = pl.format("{}/{};{}/{}/{}/{}", "geohash_level", lat // 1_000, lon // 1_000, *digits)
    journey = pl.format(
        "{}/{}/{}/{}/{}/{}/{}",
        head,
        "route",
        "direction",
        "headsign",
        "start",
        pl.col("next_stop").fill_null(""),
        geohash.fill_null(_NO_GEOHASH),
    )
    return frame.select(topic=pl.when(pl.col("journey") == "journey").then(journey).otherwise(head))["topic"]


def payloads(frame: pl.DataFrame) -> pl.Series:
    """The JSON payload of each message."""
    signed = pl.col("journey") == "journey"
    fields = [
        pl.col("designation").alias("desi"),
        pl.col("direction").cast(pl.String).alias("dir"),
        pl.when(signed).then(pl.coalesce("reported_operator", "operator")).alias("oper"),
        pl.col("vehicle").alias("veh"),
        pl.col("event_time").dt.strftime(_ISO).alias("tst"),
        pl.col("event_time").dt.epoch("s").alias("tsi"),
        pl.col("speed").alias("spd"),
        pl.col("heading").alias("hdg"),
        pl.col("lat"),
        pl.col("lon").alias("long"),
        pl.col("acc"),
        pl.col("delay").alias("dl"),
        pl.col("odometer").alias("odo"),
        pl.col("doors").alias("drst"),
        pl.col("operating_day").alias("oday"),
        pl.col("journey_number").alias("jrn"),
        pl.col("line"),
        pl.col("start"),
        pl.col("location_source").alias("loc"),
        pl.col("stop").cast(pl.Int64),
        pl.col("route"),
        pl.col("occupancy").alias("occu"),
    ]
    body = pl.struct(fields).struct.json_encode().str.strip_suffix("}")
    scheduled = pl.concat_str(
        pl.lit(',"ttarr":'), _quoted_time("scheduled_arrival"), pl.lit(',"ttdep":'), _quoted_time("scheduled_departure")
    )
    times = pl.when(pl.col("event").is_in(_WITH_TIMES)).then(scheduled).otherwise(pl.lit(""))
    # The other fields are the JSON of an object of their own, which goes on where the body has been cut.
    extra = pl.concat_str(pl.lit(","), pl.col("extra").str.strip_chars("{}")).fill_null("")
    event = pl.col("event").str.to_uppercase()
    payload = pl.concat_str(pl.lit('{"'), event, pl.lit('":'), body, times, extra, pl.lit("}}"))
    return frame.select(payload=payload)["payload"]


def _quoted_time(column: str) -> pl.Expr:
    return pl.concat_str(pl.lit('"'), pl.col(column).dt.strftime(_ISO), pl.lit('"')).fill_null("null")
