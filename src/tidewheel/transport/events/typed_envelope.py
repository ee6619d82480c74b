"""A message type for events whose details are of a known type.

On the wire, a message where `Any` has bytes looks the same. So events and what they carry can be decoded in one pass,
and fields that nobody asks for are passed over.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, timestamp_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

__all__ = ["typed_envelope"]

_PACKAGE = "tidewheel.typed"
_TIMES = ("event_time", "ingestion_time")


def typed_envelope(
    message: Any, files: FileDescriptorSet, only: frozenset[str] | None = None, *, named: bool = True
) -> Descriptor:
    """An event that carries this message, which the files define; with `only`, with these fields of both alone.
    `named`: with the name of the message's type."""
    pool = descriptor_pool.DescriptorPool()
    own = FileDescriptorProto(name="tidewheel/typed_envelope.proto", package=_PACKAGE, syntax="proto3")
    stamp = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    for file in {file.name: file for file in (stamp, *files.file)}.values():
        pool.Add(file)
        own.dependency.append(file.name)
    carried = f".{message.full_name}"
    if only is not None and _separable(message):
        own.message_type.append(_part(message, only))
        carried = f".{_PACKAGE}.Message"
    details = own.message_type.add(name="Details")
    if named:  # as bytes: it is only compared, so nobody need look whether each is text
        details.field.add(name="type_url", number=1, type="TYPE_BYTES", label="LABEL_OPTIONAL")
    details.field.add(name="value", number=2, type="TYPE_MESSAGE", type_name=carried, label="LABEL_OPTIONAL")
    event = own.message_type.add(name="Event")
    for number, name in enumerate(_TIMES, start=1):
        if only is None or name in only:
            kind = ".google.protobuf.Timestamp"
            event.field.add(name=name, number=number, type="TYPE_MESSAGE", type_name=kind, label="LABEL_OPTIONAL")
    kind = f".{_PACKAGE}.Details"
    event.field.add(name="details", number=3, type="TYPE_MESSAGE", type_name=kind, label="LABEL_OPTIONAL")
    pool.Add(own)
    return pool.FindMessageTypeByName(f"{_PACKAGE}.Event")


def _separable(message: Any) -> bool:
    """Whether fields can be decoded without the others: map fields cannot, nor can messages of older syntax."""
    file = FileDescriptorProto()
    message.file.CopyToProto(file)
    maps = any(field.message_type is not None and field.message_type.GetOptions().map_entry for field in message.fields)
    return file.syntax == "proto3" and not maps


def _part(message: Any, only: frozenset[str]) -> DescriptorProto:
    whole = DescriptorProto()
    message.CopyToProto(whole)
    part = DescriptorProto(name="Message")
    for field in whole.field:
        if field.name in only:
            kept: FieldDescriptorProto = part.field.add()
            kept.CopyFrom(field)
            if field.HasField("oneof_index"):  # that it may be unset must stay
                kept.proto3_optional = True
                kept.oneof_index = len(part.oneof_decl)
                part.oneof_decl.add(name=f"_{field.name}")
    return part
