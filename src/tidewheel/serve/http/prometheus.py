"""Metrics in the text format of Prometheus: a dozen numbers, no library needed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping

from tidewheel.ingest.http.connections import Connections
from tidewheel.serve.view.feed import Feed
from tidewheel.serve.view.hub import Hub

__all__ = ["exposition"]


def exposition(feed: Feed, hub: Hub, connections: Connections) -> str:
    """All metrics; the feed's lock is held."""
    return "".join(_lines(feed, hub, connections))


def _lines(feed: Feed, hub: Hub, connections: Connections) -> Iterator[str]:
    status = feed.status.latest
    yield _metric("up", "gauge", "Is the reader of the log well?", int(not feed.health()))
    yield _metric("clients", "gauge", "Connected clients.", len(hub))
    yield _metric("connections", "gauge", "Connections, those of clients included.", len(connections))
    yield _metric("connections_dropped_total", "counter", "Silent ones that gave way to others.", connections.dropped)
    yield _metric("connections_refused_total", "counter", "Beyond the limits.", connections.refused)
    yield _metric("subscriptions", "gauge", "Different subscriptions.", hub.subscriptions)
    yield _metric("subscriptions_refused_total", "counter", "Beyond the limit.", hub.refused)
    yield _metric("clients_behind", "gauge", "Clients that have missed a frame and not caught up yet.", hub.behind)
    yield _metric("frames_total", "counter", "Frames handed to clients.", hub.frames_sent)
    yield _metric("frame_bytes_total", "counter", "Bytes of these frames.", hub.bytes_sent)
    yield _metric("caught_up_total", "counter", "Fresh snapshots for clients that were behind.", hub.caught_up)
    yield _metric(
        "items", "gauge", "Results that are shown.", {("layer", n): len(feed.view[n].items) for n in feed.view}
    )
    yield _metric("keys", "gauge", "Results, shown or not.", {("layer", n): feed.view[n].keys for n in feed.view})
    topics = dict(feed.status.topic_stats)  # the reader adds to it as topics come
    yield _metric("results_total", "counter", "Results read.", {("topic", t): p.count for t, p in topics.items()})
    bad = {("topic", t): p.bad for t, p in topics.items()}
    yield _metric("undecodable_total", "counter", "Results that could not be decoded.", bad)
    broken = len(feed.catalogue.broken_types)
    yield _metric("broken_types", "gauge", "Types whose definitions in the log cannot be loaded.", broken)
    marks = {("topic", t): p.watermark / 1e6 for t, p in topics.items() if p.watermark is not None}
    yield _metric("watermark_seconds", "gauge", "Event time before which everything is there.", marks)
    yield _metric("history_rows", "gauge", "Results of the last hour in memory.", feed.history.rows)
    yield _metric("history_bytes", "gauge", "Memory of packed results.", feed.history.packed_bytes)
    for name, about in (
        ("in_rate", "Input events a second."),
        ("result_rate", "Results a second."),
        ("behind", "Input records that the slowest job has not finished."),
        ("late", "Events that were too late, ever."),
        ("dead", "Dead letters, ever."),
    ):
        if status.get(name) is not None:
            yield _metric(name, "gauge", about, status[name])
    if status.get("lag") is not None:
        yield _metric("lag_seconds", "gauge", "From the inputs' event time to the watermark.", status["lag"] / 1_000)
    if status.get("latency") is not None:
        quantiles = {("quantile", f"0.{name[1:]}"): value / 1_000 for name, value in status["latency"].items()}
        yield _metric(
            "latency_seconds",
            "gauge",
            "From when the inputs reached a result's event time to when it is here.",
            quantiles,
        )
    yield _metric("cpu_seconds_total", "counter", "Processor time of this process.", time.process_time())
    yield _metric("resident_bytes", "gauge", "Memory of this process.", _resident())


def _metric(name: str, kind: str, about: str, value: float | Mapping[tuple[str, str], float]) -> str:
    name = f"tidewheel_serve_{name}"
    head = f"# HELP {name} {about}\n# TYPE {name} {kind}\n"
    if not isinstance(value, Mapping):
        return f"{head}{name} {value}\n"
    labelled = (f'{name}{{{label}="{_escaped(text)}"}} {number}\n' for (label, text), number in sorted(value.items()))
    return head + "".join(labelled)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _resident() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
