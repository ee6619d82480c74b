"""The type registry: which protobuf messages an event may carry, and how each looks in columns."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

import ptars
import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message

from tidewheel.errors import DefinitionError, UnknownTypeError
from tidewheel.transport import event_pb2

__all__ = ["TypeRegistry", "type_name", "types"]

# Microseconds are what the system keeps; nanoseconds would also end in the year 2262.
_COLUMNS = ptars.PtarsConfig(timestamp_unit="us", duration_unit="us", time_unit="us")


def type_name(of: str | type[Message] | Message) -> str:
    """The full name of a message type, given as a name, a class or a message.

    >>> type_name(event_pb2.Punctuation)
    'tidewheel.v1.Punctuation'
    """
    return of if isinstance(of, str) else str(of.DESCRIPTOR.full_name)


class TypeRegistry:
    """Knows message types by their full names.

    Types come from `register`, from installed packages (entry points of the group `tidewheel.types`, each naming a
    generated module or a message class), and from the log itself, which keeps the definitions of what is in it.

    >>> registry = TypeRegistry()
    >>> registry.register(event_pb2.Punctuation)
    >>> registry.schema("tidewheel.v1.Punctuation").names
    ['epoch']
    """

    def __init__(self, *, entry_point_group: str | None = None) -> None:
        self._classes: dict[str, type[Message]] = {}
        self._handlers: dict[str, Any] = {}
        self._event_handlers: dict[str, Any] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._group = entry_point_group
        self._lock = threading.RLock()

    def register(self, *added: type[Message] | FileDescriptor | ModuleType) -> None:
        """Add message classes, or all messages of a file or generated module. A known name is replaced."""
        with self._lock:
            for item in added:
                file = getattr(item, "DESCRIPTOR", None) if isinstance(item, ModuleType) else item
                if isinstance(item, type) and issubclass(item, Message):
                    self._add(item)
                elif isinstance(file, FileDescriptor):
                    for descriptor in file.message_types_by_name.values():
                        self._add(message_factory.GetMessageClass(descriptor))
                else:
                    raise DefinitionError(
                        f"cannot register {item!r}: give a generated message class, its module or its file descriptor"
                    )

    def register_definition(self, name: str, file_descriptor_set: bytes) -> None:
        """Add a type from its definition (see `definition`)."""
        files = FileDescriptorSet.FromString(file_descriptor_set)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        with self._lock:
            self._add(message_factory.GetMessageClass(pool.FindMessageTypeByName(name)))

    def definition(self, name: str) -> bytes:
        """A `FileDescriptorSet` with all that is needed to know the type elsewhere."""
        files: dict[str, FileDescriptorProto] = {}
        _collect(self.message_class(name).DESCRIPTOR.file, files)
        return FileDescriptorSet(file=files.values()).SerializeToString(deterministic=True)

    def message_class(self, name: str | type[Message]) -> type[Message]:
        """The generated class of a type."""
        if not isinstance(name, str):
            self.register(name)
            return name
        found = self._classes.get(name)
        if found is None:
            self._load_entry_points()
            found = self._classes.get(name)
        if found is None:
            raise UnknownTypeError(
                f"message type {name!r} is not registered; known: {', '.join(self.names()) or 'none'}. "
                "Register its generated class with tidewheel.types.register(...)"
            )
        return found

    def names(self) -> list[str]:
        """All names known so far."""
        self._load_entry_points()
        return sorted(self._classes)

    def __contains__(self, name: object) -> bool:
        if name not in self._classes:
            self._load_entry_points()
        return name in self._classes

    def handler(self, name: str | type[Message]) -> Any:
        """The converter between this type and Arrow columns."""
        key = type_name(name)
        with self._lock:
            if key not in self._handlers:
                descriptor = self.message_class(name).DESCRIPTOR
                pool = ptars.HandlerPool([descriptor.file], config=_COLUMNS)
                self._handlers[key] = pool.get_for_message(descriptor)
            return self._handlers[key]

    def event_handler(self, name: str | type[Message]) -> Any:
        """The converter of whole events that carry this type, in one pass: on the wire, a message of a known type where
        `Any` has bytes looks the same."""
        key = type_name(name)
        with self._lock:
            if key not in self._event_handlers:
                self.message_class(name)
                descriptor = _event_of(key, FileDescriptorSet.FromString(self.definition(key)))
                pool = ptars.HandlerPool([descriptor.file], config=_COLUMNS)
                self._event_handlers[key] = pool.get_for_message(descriptor)
            return self._event_handlers[key]

    def schema(self, name: str | type[Message]) -> pa.Schema:
        """The type's fields as Arrow columns."""
        key = type_name(name)
        if key not in self._schemas:
            self._schemas[key] = self.handler(name).schema()
        return self._schemas[key]

    def _add(self, message: type[Message]) -> None:
        name = type_name(message)
        if self._classes.get(name) is not message:
            self._classes[name] = message
            for known in (self._handlers, self._event_handlers, self._schemas):
                known.pop(name, None)

    def _load_entry_points(self) -> None:
        with self._lock:
            group, self._group = self._group, None
            if group is not None:
                for point in entry_points(group=group):
                    loaded = point.load()
                    self.register(*(loaded if isinstance(loaded, Iterable) else (loaded,)))

    def __repr__(self) -> str:
        return f"<TypeRegistry: {len(self._classes)} types>"


def _event_of(name: str, files: FileDescriptorSet) -> Descriptor:
    """The type of an event whose details are of this type."""
    pool = descriptor_pool.DescriptorPool()
    own = FileDescriptorProto(name="tidewheel/typed_event.proto", package="tidewheel.typed", syntax="proto3")
    for file in files.file:
        pool.Add(file)
        own.dependency.append(file.name)
    if timestamp_pb2.DESCRIPTOR.name not in own.dependency:
        needed = FileDescriptorProto()
        timestamp_pb2.DESCRIPTOR.CopyToProto(needed)
        pool.Add(needed)
        own.dependency.append(needed.name)
    details = own.message_type.add(name="Details")
    details.field.add(name="type_url", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    details.field.add(name="value", number=2, type="TYPE_MESSAGE", type_name=f".{name}", label="LABEL_OPTIONAL")
    event = own.message_type.add(name="Event")
    for number, (field, kind) in enumerate(
        {
            "event_time": "google.protobuf.Timestamp",
            "ingestion_time": "google.protobuf.Timestamp",
            "details": "tidewheel.typed.Details",
        }.items(),
        start=1,
    ):
        event.field.add(name=field, number=number, type="TYPE_MESSAGE", type_name=f".{kind}", label="LABEL_OPTIONAL")
    pool.Add(own)
    return pool.FindMessageTypeByName("tidewheel.typed.Event")


def _collect(file: Any, into: dict[str, FileDescriptorProto]) -> None:
    for needed in file.dependencies:
        _collect(needed, into)
    if file.name not in into:
        proto = FileDescriptorProto()
        file.CopyToProto(proto)
        into[file.name] = proto


types = TypeRegistry(entry_point_group="tidewheel.types")
"""The registry that everything uses unless told otherwise."""
types.register(event_pb2)
