"""The catalogue: the available layers, and the topic of the log that each of them shows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path

import msgspec

from tidewheel.errors import DefinitionError
from tidewheel.serve.layers.inference import infer, timed, version_of
from tidewheel.serve.layers.layer import Layer, parse_layers
from tidewheel.serve.layers.sample import Sample
from tidewheel.topic_names import ALIASES_TOPIC, ANALYTICS, TYPES_TOPIC, kind_of
from tidewheel.transport.events.registry import TypeRegistry, types
from tidewheel.transport.log.log import Log
from tidewheel.transport.log.log_types import TopicInfo
from tidewheel.transport.topics.aliases import Aliases
from tidewheel.transport.topics.types import load_types

__all__ = ["Catalogue", "installed_layers", "layers_of_file"]

_GROUP = "tidewheel.layers"
_logger = logging.getLogger(__name__)


def installed_layers() -> list[Layer]:
    """The layers of installed packages: entry points of the group `tidewheel.layers`, each a `Layer` or several."""
    found = []
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        loaded = point.load()
        for layer in [loaded] if isinstance(loaded, Layer) else loaded:
            try:
                found.append(msgspec.convert(msgspec.to_builtins(layer), Layer))
            except (msgspec.ValidationError, TypeError) as error:
                raise DefinitionError(f"entry point {point.name} of {_GROUP} ({point.value}): {error}") from None
    return found


def layers_of_file(path: str | Path) -> list[Layer]:
    """Read the layers that a JSON file describes."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise DefinitionError(f"the file of layers {path} cannot be read: {error.strerror}") from None
    return parse_layers(text, source=str(path))


class Catalogue:
    """The layers of a log: described ones whose topics exist, and for every other topic of results one inferred from
    its fields. A layer of `own` takes precedence over an installed one of the same name or topic, and is always listed.
    Of installed ones of the same name the first whose topic exists is used."""

    def __init__(self, log: Log, *, own: Sequence[Layer] = (), installed: Sequence[Layer] | None = None) -> None:
        self._log = log
        self._own = [*own]
        taken = {layer.name for layer in own} | {layer.topic for layer in own}
        given = installed_layers() if installed is None else installed
        self._described = [*own, *(layer for layer in given if not {layer.name, layer.topic} & taken)]
        self._samples: dict[tuple[str, str], Sample] = {}
        self._known: dict[tuple[str, str], Layer] = {}
        """By name and topic."""
        self._aliases: Mapping[str, str] = {}
        self._versions: dict[str, int] = {}
        self.registry = TypeRegistry(entry_point_group="tidewheel.types")
        self.registry.register(*(types.message_class(name) for name in types.names()))
        self.layers: Mapping[str, Layer] = {layer.name: timed(layer, None) for layer in own}
        self.topics: Mapping[str, str] = {}
        """Of each layer the topic that it shows now; a layer that is not in it has none yet."""
        self.broken_types: Mapping[str, str] = {}
        """The types whose definitions in the log cannot be loaded, and why. Their results cannot be decoded."""

    def refresh(self, infos: Iterable[TopicInfo]) -> None:
        """Refresh the layers from the topics in the log."""
        there = {info.name: info for info in infos}
        self._reread(there.get(TYPES_TOPIC), self._read_types)
        self._reread(there.get(ALIASES_TOPIC), self._read_aliases)
        layers: dict[str, Layer] = {}
        topics: dict[str, str] = {}
        for layer in self._described:
            topic = self._aliases.get(layer.topic, layer.topic)
            if layer.name in layers:
                continue
            if topic in there:
                layers[layer.name] = self._learned(layer.name, layer, there[topic]) or timed(layer, None)
                topics[layer.name] = topic
            elif layer in self._own:
                layers[layer.name] = timed(layer, None)
        shown = {*topics.values(), *(layer.topic for layer in self._described)}
        names = {*there, *self._aliases}
        by_topic = {layer.topic: layer for layer in self._described}
        for name in sorted(name for name in names if kind_of(name) == ANALYTICS and name not in shown):
            topic = self._aliases.get(name, name)
            if topic not in there or topic in topics.values():
                continue
            made = self._learned(name, version_of(name, by_topic), there[topic])
            if made is not None and made.name not in layers:
                layers[made.name] = made
                topics[made.name] = topic
        self.layers, self.topics = layers, topics

    def _reread(self, info: TopicInfo | None, read: Callable[[], None]) -> None:
        """Read a topic if something has been written to it since it was read."""
        if info is None:
            return
        end = sum(info.next_offsets)
        if self._versions.get(info.name) != end:
            read()
            self._versions[info.name] = end  # only now: what could not be read is read the next time

    def _read_types(self) -> None:
        broken: dict[str, str] = {}
        load_types(self._log, self.registry, broken=broken)  # no later look would load them: the others must not wait
        for name, reason in broken.items():
            if name not in self.broken_types:
                _logger.warning("%s", reason)
        self.broken_types = broken

    def _read_aliases(self) -> None:
        self._aliases = Aliases(self._log).all()

    def _learned(self, name: str, described: Layer | None, info: TopicInfo) -> Layer | None:
        """Complete a layer's description from results: all of it, if there is none. The first results do not determine
        everything, so it is repeated with later ones until there are enough; None without results."""
        if described is not None and described.expiry is not None:
            return described
        shown = (name, info.name)
        sample = self._samples.setdefault(shown, Sample(self._log, self.registry))
        if not sample.full and sample.grow(info):
            self._known[shown] = timed(described or infer(name, sample.rows), sample.rows)
        return self._known.get(shown)
