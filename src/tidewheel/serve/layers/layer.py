"""Layers: what a page must know of a result topic to show it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from tidewheel.errors import DefinitionError
from tidewheel.topic_names import job_of
from tidewheel.transport.log.log import check_topic_name

__all__ = [
    "Cell",
    "Colouring",
    "Edge",
    "Figure",
    "Geometry",
    "Layer",
    "Nowhere",
    "Point",
    "Scale",
    "Show",
    "Value",
    "parse_layers",
]

EXPIRY = 30_000
"""After so many milliseconds a result on the map expires if nothing else is known."""

MIN_EXPIRY = 3_600_000
"""For so many milliseconds at least a result without a place is shown, if nothing else is known: it is in no one's way,
and its row shows its time."""

LONGEST = 24 * 3_600_000
"""No result is shown for more milliseconds."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_WANTED = {"sequential": 2, "diverging": 3}

Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=500)]
Field: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
Show: TypeAlias = Literal["cells", "moving", "points", "arrows", "alerts", "table"]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a layer: immutable, without unknown fields."""


def _freeze(part: _Part, **fields: Iterable[Any]) -> None:
    for name, values in fields.items():
        msgspec.structs.force_setattr(part, name, tuple(values))


class Cell(_Part, frozen=True, tag_field="kind", tag="cell"):
    """The H3 cell in this field: its index as a number, or as text in hexadecimal."""

    cell: Field = "cell"


class Point(_Part, frozen=True, tag_field="kind", tag="point"):
    """A point at a latitude and longitude in degrees, facing a heading if there is one."""

    lat: Field = "lat"
    lon: Field = "lon"
    heading: Field | None = None


class Edge(_Part, frozen=True, tag_field="kind", tag="edge", rename={"source": "from", "target": "to"}):
    """An edge from one H3 cell to another."""

    source: Field = "cell"
    target: Field = "neighbour"


class Nowhere(_Part, frozen=True, tag_field="kind", tag="none"):
    """The geometry of results without a place."""


Geometry: TypeAlias = Cell | Point | Edge | Nowhere


class Value(_Part, frozen=True):
    """The field that the colour shows."""

    field: Field
    label: Text = ""
    unit: Text = ""


class Figure(_Part, frozen=True):
    """A field that the details show."""

    field: Field
    label: Text = ""
    unit: Text = ""


class Scale(_Part, frozen=True):
    """From value to colour: numbers between the ends of `domain` (with a middle if it diverges), or `categories`.

    Without `colours` the page uses ramps of its own, which suit light and dark.
    """

    kind: Literal["sequential", "diverging", "categorical"]
    domain: Sequence[float] = ()
    colours: Sequence[str] = ()
    categories: dict[str, str] = {}

    def __post_init__(self) -> None:
        _freeze(self, domain=map(float, self.domain), colours=self.colours)
        colours = [*self.colours, *self.categories.values()]
        wrong = [colour for colour in colours if not _COLOUR.fullmatch(colour)]
        if wrong:
            raise DefinitionError(f"a colour looks like #1f77b4, got {wrong[0]!r}")
        if self.kind == "categorical":
            if not self.categories:
                raise DefinitionError("a categorical scale needs categories, such as {'bus': '#0072b2'}")
            return
        wanted = _WANTED[self.kind]
        numbers = list(self.domain)
        if len(numbers) != wanted or not all(map(math.isfinite, numbers)) or sorted(set(numbers)) != numbers:
            raise DefinitionError(f"a {self.kind} scale needs a domain of {wanted} rising numbers, got {numbers}")
        if self.colours and len(self.colours) < wanted:
            raise DefinitionError(f"a {self.kind} scale needs at least {wanted} colours, got {len(self.colours)}")


class Colouring(_Part, frozen=True):
    """Another way to colour the same results."""

    value: Value
    scale: Scale


class Layer(_Part, frozen=True):
    """How the results of a topic are shown. Times are in milliseconds.

    Without `expiry` the windows of the results tell it and `period`: results expire a period and 5 s after their
    arrival, those of sessions when the longest of them would have passed once more, and `EXPIRY` after it if there are
    no windows. Results without a place stay for `MIN_EXPIRY` at least. Time in which nothing comes to the log does not
    count.

    Args:
        topic: The topic of the results.
        name: Names the layer in addresses and subscriptions; by default it is that of the topic.
        title: What the page calls it.
        about: What the page says of it.
        key: The fields that make a result's identity; by default the key that its record has in the log.
        geometry: Which fields tell the place.
        show: As what it is drawn.
        value: The field that colours the results.
        scale: The colours of the values.
        alternatives: Other ways to colour the results, which the page offers.
        figures: The fields that are shown in numbers.
        filters: The fields by which clients may filter.
        filters_also: Further fields that a filter looks at.
        all_fields: Whether clients get all fields, or only those that the layer names.
        expiry: How long after its arrival a result is shown.
        period: How often a window ends: early results of windows that end later than the next one are not shown.
        on: Whether the page shows it at first.

    >>> Layer(topic="analytics.busy", geometry=Cell(), show="cells", value=Value(field="count")).name
    'busy'
    """

    topic: str
    name: str = ""
    title: Text = ""
    about: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    key: Sequence[Field] = ()
    geometry: Geometry = Nowhere()
    show: Show = "table"
    value: Value | None = None
    scale: Scale | None = None
    alternatives: Sequence[Colouring] = ()
    figures: Sequence[Figure] = ()
    filters: Sequence[Field] = ()
    filters_also: dict[Field, Sequence[Field]] = {}
    all_fields: bool = True
    expiry: Annotated[int, msgspec.Meta(ge=1, le=LONGEST)] | None = None
    period: Annotated[int, msgspec.Meta(ge=1, le=LONGEST)] | None = None
    on: bool = True

    def __post_init__(self) -> None:
        _freeze(self, key=self.key, alternatives=self.alternatives, figures=self.figures, filters=self.filters)
        also = {name: tuple(fields) for name, fields in self.filters_also.items()}
        msgspec.structs.force_setattr(self, "filters_also", also)
        check_topic_name(self.topic)
        if not self.name:
            msgspec.structs.force_setattr(self, "name", job_of(self.topic) or self.topic)
        if not _NAME.fullmatch(self.name):
            raise DefinitionError(f"a layer's name is 1 to 249 letters, digits, dots, hyphens and _, got {self.name!r}")
        if not self.title:
            msgspec.structs.force_setattr(self, "title", self.name.replace("-", " ").replace("_", " ").capitalize())
        if not isinstance(self.geometry, _KINDS[self.show]):
            wanted = " or ".join(_tag(kind) for kind in _KINDS[self.show])
            got = _tag(type(self.geometry))
            raise DefinitionError(f"layer {self.name!r}: {self.show} need a geometry of kind {wanted}, got {got}")
        if self.scale is not None and self.value is None:
            raise DefinitionError(
                f"layer {self.name!r}: a scale needs a value to show; add value, or leave the scale out"
            )
        strange = [name for name in self.filters_also if name not in self.filters]
        if strange:
            raise DefinitionError(
                f"layer {self.name!r}: filters_also has {strange[0]!r}, which is none of its filters; add it to filters"
            )
        for what, names in (("key", self.key), ("filters", self.filters), ("figures", self._figure_names())):
            twice = [name for name in names if list(names).count(name) > 1]
            if twice:
                raise DefinitionError(f"layer {self.name!r}: {what} has {twice[0]!r} twice")

    def _figure_names(self) -> list[str]:
        return [figure.field for figure in self.figures]

    def filtered_fields(self, name: str) -> tuple[str, ...]:
        """The fields that the filter of this name looks at: one of them that has an allowed value is enough."""
        return (name, *self.filters_also.get(name, ()))

    @property
    def named_fields(self) -> frozenset[str]:
        """The fields that the layer itself names."""
        place: Iterable[str] = msgspec.structs.asdict(self.geometry).values()
        values = [self.value, *(each.value for each in self.alternatives)]
        also = (name for names in self.filters_also.values() for name in names)
        shown = (value.field for value in values if value is not None)
        place = (name for name in place if name)
        return frozenset({*self.key, *place, *shown, *self._figure_names(), *self.filters, *also})

    @property
    def cells(self) -> frozenset[str]:
        """The fields that hold H3 cells."""
        if isinstance(self.geometry, Cell):
            return frozenset({self.geometry.cell, "cell"})
        if isinstance(self.geometry, Edge):
            return frozenset({self.geometry.source, self.geometry.target})
        return frozenset({"cell", "neighbour"})

    def description(self) -> dict[str, Any]:
        """Describe it as JSON, for the page."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        if plain["scale"] is not None:
            unused = ("domain", "colours") if plain["scale"]["kind"] == "categorical" else ("categories",)
            plain["scale"] = {key: value for key, value in plain["scale"].items() if key not in unused}
        return plain


_KINDS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "cells": (Cell,),
    "moving": (Point,),
    "points": (Point,),
    "alerts": (Point, Cell, Nowhere),
    "arrows": (Edge,),
    "table": (Nowhere, Cell, Point, Edge),
}


def _tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    layers: list[Layer]


def parse_layers(text: str | bytes, *, source: str) -> list[Layer]:
    """Layers from JSON: a list of them, or an object with such a list as `layers`.

    >>> parse_layers('[{"topic": "analytics.x", "show": "cells"}]', source="my.json")
    Traceback (most recent call last):
    ...
    tidewheel.errors.DefinitionError: my.json: layer 'x': cells need a geometry of kind cell, got none - at `$[0]`
    """
    try:
        raw = msgspec.json.decode(text)
        layers = msgspec.convert(raw, _File).layers if isinstance(raw, dict) else msgspec.convert(raw, list[Layer])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DefinitionError(f"{source}: {error}") from None
    names = [layer.name for layer in layers]
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"{source}: two layers are called {name!r}; names are unique")
    return layers
