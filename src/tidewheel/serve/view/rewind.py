"""Rewind the view to an earlier time, from the log, which knows when everything was appended."""

from __future__ import annotations

from collections.abc import Iterable

from tidewheel.errors import LogError
from tidewheel.model.time import Instant
from tidewheel.serve.layers.catalogue import Catalogue
from tidewheel.serve.view.activity import active_at
from tidewheel.serve.view.decode import Decoder, prepared
from tidewheel.serve.view.log_positions import batches_with_marks, offset_at
from tidewheel.serve.view.view import LayerView
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import OnDamage

__all__ = ["view_at"]


def view_at(
    log: Log,
    catalogue: Catalogue,
    names: Iterable[str],
    at: Instant,
    *,
    speed: float,
    most: int,
    on_damage: OnDamage | None = None,
) -> dict[str, LayerView]:
    """The layers of these names as they were at that time of the clock. Only what had not expired by then is read;
    `on_damage` is called with damaged blocks, and the rest is shown."""
    found = {}
    active = active_at(log, at)
    for name in names:
        layer, topic = catalogue.layers.get(name), catalogue.topics.get(name)
        if layer is not None:
            found[name] = LayerView(layer, speed=speed, most=most)
            if topic is not None:
                _fill(found[name], log, topic, catalogue, (active, at), on_damage)
    return found


def _fill(
    view: LayerView,
    log: Log,
    topic: str,
    catalogue: Catalogue,
    moment: tuple[Instant, Instant],
    on_damage: OnDamage | None,
) -> None:
    active, at = moment
    decode = Decoder(catalogue.registry)
    try:
        for partition in range(log.topic_info(topic).partitions):
            part = (topic, partition)
            start, end = (offset_at(log, part, when) for when in (active - view.expiry, at + 1))
            if end <= start:
                continue
            watermark: Instant | None = None
            for batch, marks in batches_with_marks(log, part, start, end, on_damage=on_damage):
                watermark = max(marks, default=watermark)
                for frame in decode(batch).frames:
                    view.apply(prepared(view.layer, frame), now=active, watermark=watermark)
    except LogError:
        return  # retention or a deletion was faster: what had been read is all there is
