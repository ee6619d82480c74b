"""Which fields of a class are stored, and under which names: declared, so that no renaming changes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = ["StoredFields"]


class StoredFields:
    """The fields of a dataclass that checkpoints store, by the names that they store them under.

    A field that comes to be called otherwise keeps its stored name: `renamed` says which attribute has it now.
    `micros`: those that are spans of time, in microseconds.

    >>> StoredFields("gap", "name", micros=("gap",), renamed={"gap": "silence"}).attributes
    {'gap': 'silence', 'name': 'name'}
    """

    def __init__(self, *names: str, micros: Collection[str] = (), renamed: Mapping[str, str] | None = None) -> None:
        self.attributes = {name: (renamed or {}).get(name, name) for name in names}
        self.micros = frozenset(micros)
