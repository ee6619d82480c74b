"""The type registry: which protobuf messages an event may carry, and how each looks in columns."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from importlib.metadata import entry_points
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError, Message

from tidewheel.errors import DefinitionError, UnknownTypeError
from tidewheel.transport.events import event_pb2
from tidewheel.transport.events.converter import Converter
from tidewheel.transport.events.typed_envelope import typed_envelope

if TYPE_CHECKING:
    from tidewheel.transport.log.log import Log

__all__ = ["TypeRegistry", "type_name", "types"]


def type_name(of: str | type[Message] | Message) -> str:
    """The full name of a message type, given as a name, a class or a message.

    >>> type_name(event_pb2.Punctuation)
    'tidewheel.v1.Punctuation'
    """
    return of if isinstance(of, str) else str(of.DESCRIPTOR.full_name)


class TypeRegistry:
    """A registry of message types by full name.

    Types come from `register`, from installed packages (entry points of the group `tidewheel.types`, each naming a
    generated module or a message class), and from the log itself, which keeps the definitions of what is in it.

    >>> registry = TypeRegistry()
    >>> registry.register(event_pb2.Punctuation)
    >>> registry.names(), registry.message_class("tidewheel.v1.Punctuation").__name__
    (['tidewheel.v1.Punctuation'], 'Punctuation')
    >>> registry.schema("tidewheel.v1.Punctuation").names
    ['epoch']
    >>> registry.converter("tidewheel.v1.Punctuation").schema == registry.schema("tidewheel.v1.Punctuation")
    True
    >>> registry.event_converter("tidewheel.v1.Punctuation").schema.names
    ['event_time', 'ingestion_time', 'details']
    >>> elsewhere = TypeRegistry()
    >>> elsewhere.register_definition("tidewheel.v1.Punctuation", registry.definition("tidewheel.v1.Punctuation"))
    >>> elsewhere.registered_definition("tidewheel.v1.Punctuation") is not None
    True
    >>> elsewhere.register_broken("city.Order", DefinitionError("city.Order has no fields"))
    """

    def __init__(self, *, entry_point_group: str | None = None) -> None:
        self._classes: dict[str, type[Message]] = {}
        self._converters: dict[str, Converter] = {}
        self._event_converters: dict[str, dict[tuple[frozenset[str] | None, bool], Converter]] = {}
        self._definitions: dict[str, bytes] = {}
        self._broken: dict[str, str] = {}
        self._group = entry_point_group
        self._lock = threading.RLock()

    def register(self, *added: type[Message] | FileDescriptor | ModuleType, log: Log | None = None) -> None:
        """Add message classes, or all messages of a file or generated module. A known name is replaced.

        With `log` their definitions are also written there: other processes do not see what this one registers.
        """
        names: list[str] = []
        with self._lock:
            for item in added:
                file = getattr(item, "DESCRIPTOR", None) if isinstance(item, ModuleType) else item
                if isinstance(item, type) and issubclass(item, Message):
                    names.append(self._add(item))
                elif isinstance(file, FileDescriptor):
                    found = map(message_factory.GetMessageClass, file.message_types_by_name.values())
                    names += map(self._add, found)
                else:
                    raise DefinitionError(
                        f"cannot register {item!r}: give a generated message class, its module or its file descriptor"
                    )
        if log is not None:
            from tidewheel.transport.topics.types import publish_types

            publish_types(log, self, names)

    def register_definition(self, name: str, file_descriptor_set: bytes) -> None:
        """Add a type from its definition (see `definition`)."""
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in FileDescriptorSet.FromString(file_descriptor_set).file:
                pool.Add(file)
            found = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        except (DecodeError, TypeError, KeyError) as error:
            reason = error.args[0] if error.args else error
            raise DefinitionError(
                f"the definition of message type {name!r} cannot be loaded: {reason}. Register the type anew with "
                "tidewheel.types.register(..., log=log)"
            ) from error
        with self._lock:
            self._add(found)
            self._definitions[name] = file_descriptor_set

    def register_broken(self, name: str, error: DefinitionError) -> None:
        """Note that a type's definition cannot be loaded: using the type is an error that says so."""
        with self._lock:
            self._broken[name] = str(error)

    def registered_definition(self, name: str) -> bytes | None:
        """Return the definition that a type was registered with; None if it was registered as a class."""
        return self._definitions.get(name)

    def definition(self, name: str) -> bytes:
        """Return a `FileDescriptorSet` that defines the type completely."""
        files: dict[str, FileDescriptorProto] = {}
        _collect(self.message_class(name).DESCRIPTOR.file, files)
        return FileDescriptorSet(file=files.values()).SerializeToString(deterministic=True)

    def message_class(self, name: str | type[Message]) -> type[Message]:
        """Return the generated class of a type."""
        if not isinstance(name, str):
            self.register(name)
            return name
        found = self._classes.get(name)
        if found is None:
            self._load_entry_points()
            found = self._classes.get(name)
        if found is None and name in self._broken:
            raise DefinitionError(self._broken[name])
        if found is None:
            raise UnknownTypeError(
                f"message type {name!r} is not registered; known: {', '.join(self.names()) or 'none'}. "
                "Register its generated class with tidewheel.types.register(...); for Spark, whose other processes do "
                "not see that, also in the log: tidewheel.types.register(..., log=log)"
            )
        return found

    def names(self) -> list[str]:
        """List all names known so far."""
        self._load_entry_points()
        return sorted(self._classes)

    def __contains__(self, name: object) -> bool:
        if name not in self._classes:
            self._load_entry_points()
        return name in self._classes

    def converter(self, name: str | type[Message]) -> Converter:
        """Return the converter between this type and Arrow columns."""
        key = type_name(name)
        with self._lock:
            if key not in self._converters:
                self._converters[key] = Converter(self.message_class(name).DESCRIPTOR)
            return self._converters[key]

    def event_converter(
        self, name: str | type[Message], only: frozenset[str] | None = None, *, named: bool = True
    ) -> Converter:
        """Return a converter of whole events that carry this type, in one pass; with `only`, of these fields of the
        envelope and the message alone, if they can be separated. `named`: with the name of each event's type."""
        key = type_name(name)
        with self._lock:
            converters = self._event_converters.setdefault(key, {})
            if (only, named) not in converters:
                message = self.message_class(name).DESCRIPTOR
                files = FileDescriptorSet.FromString(self.definition(key))
                converters[only, named] = Converter(typed_envelope(message, files, only, named=named))
            return converters[only, named]

    def schema(self, name: str | type[Message]) -> pa.Schema:
        """Return the type's fields as Arrow columns."""
        return self.converter(name).schema

    def _add(self, message: type[Message]) -> str:
        name = type_name(message)
        self._broken.pop(name, None)
        if self._classes.get(name) is not message:
            self._classes[name] = message
            self._converters.pop(name, None)
            self._event_converters.pop(name, None)
            self._definitions.pop(name, None)
        return name

    def _load_entry_points(self) -> None:
        with self._lock:
            group, self._group = self._group, None
            if group is not None:
                for point in entry_points(group=group):
                    loaded = point.load()
                    self.register(*(loaded if isinstance(loaded, Iterable) else (loaded,)))

    def __repr__(self) -> str:
        return f"<TypeRegistry: {len(self._classes)} types>"


def _collect(file: Any, into: dict[str, FileDescriptorProto]) -> None:
    for needed in file.dependencies:
        _collect(needed, into)
    if file.name not in into:
        proto = FileDescriptorProto()
        file.CopyToProto(proto)
        into[file.name] = proto


types = TypeRegistry(entry_point_group="tidewheel.types")
"""The registry that everything uses by default."""
types.register(event_pb2)
