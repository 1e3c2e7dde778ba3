"""Messages of the service: their classes, and both ways between them and JSON values. Pure.

    to_fields   a message as the fields of an operation's input: only what is set; an optional field that is set counts
                also when it is zero or empty
    to_message  an answer as a message: fields that the message does not have are left out, null is absent

Bytes are JSON, save those of images (base64 in JSON) and of state files (as they are). Numbers of fields are in
schemas/proto/grpc.proto; the classes are in a pool of their own, because a program may also have those of loomcycle.

Before: front.py. After: schemas/generated/grpc.binpb.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from loomlog import schemas
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.application.errors import bad_request
from loomlog.services.core.json_text import JsonInvalid, parse_json

DESCRIPTORS = Path(schemas.__file__).parent / "generated" / "grpc.binpb"
PACKAGE, SERVICE = "loomcycle.v1", "loomcycle.v1.Loomcycle"
TIMESTAMP, ALLOWED_HOSTS = "google.protobuf.Timestamp", f"{PACKAGE}.HostAllowlist"
IMAGES, STATE_FILES = f"{PACKAGE}.PromptContentBlock.data", f"{PACKAGE}.RestoreSnapshotRequest.raw_json"
OTHER_NAMES: Mapping[str, str] = {
    "cache_creation_tokens": "cache_creation_input_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
}
"""Fields of messages that JSON calls otherwise, with that name."""
_Write = Callable[[Message, Any], None]


def _load_pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = _load_pool()


def service_descriptor() -> ServiceDescriptor:
    """Return the descriptor of the service."""
    return POOL.FindServiceByName(SERVICE)


@cache
def message_class(name: str) -> type[Message]:
    """Return the class of a message of the service."""
    return GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def parse(kind: type[Message], raw: bytes) -> Message:
    """Return the message in these bytes. Raises Refused: bad_request."""
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise bad_request(f"the message cannot be read as a {kind.DESCRIPTOR.name}: {error}") from error


# --- messages to JSON ------------------------------------------------------------------------------------------------


def to_fields(message: Message) -> dict[str, Any]:
    """Return the fields that are set, as JSON values. Raises Refused for bytes that are not JSON."""
    return {field.name: _read(field, value) for field, value in message.ListFields()}


def _read(field: FieldDescriptor, value: Any) -> Any:
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return dict(value)
        return [_read_one(field, one) for one in value]
    return _read_one(field, value)


def _read_one(field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _read_bytes(field, value)
    if field.message_type is None:
        return value
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return format_rfc3339(value.seconds * 1_000 + value.nanos // 1_000_000)
        case "loomcycle.v1.HostAllowlist":
            return list(value.list)
        case _:
            return to_fields(value)


def _read_bytes(field: FieldDescriptor, value: bytes) -> Any:
    if field.full_name == IMAGES:
        return base64.b64encode(value).decode()
    if field.full_name == STATE_FILES:
        return value
    return read_json(field.name, value)


def read_json(name: str, value: bytes) -> Any:
    """Return the JSON in a field of bytes. Raises Refused: bad_request."""
    try:
        return parse_json(value)
    except JsonInvalid as error:
        raise bad_request(f"{name}: expected JSON: it {error}") from error


# --- JSON to messages ------------------------------------------------------------------------------------------------


def to_message(kind: type[Message], value: Any) -> Message:
    """Return an answer, a record or a mapping, as a message."""
    message = kind()
    _fill(message, value if isinstance(value, Mapping) else msgspec.to_builtins(value))
    return message


def _fill(message: Message, values: Mapping[str, Any]) -> None:
    for name, other, write in _writers(message.DESCRIPTOR):
        value = values.get(name)
        if value is None:
            value = values.get(other)
        if value is not None:
            write(message, value)


@cache
def _writers(kind: Descriptor) -> tuple[tuple[str, str, _Write], ...]:
    """Return how each field is written, with its names in JSON."""
    return tuple((field.name, OTHER_NAMES.get(field.name, field.name), _writer(field)) for field in kind.fields)


def _writer(field: FieldDescriptor) -> _Write:
    name, kind = field.name, field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return _map_writer(name, kind.fields_by_name["value"])
    if kind is not None and field.is_repeated:
        return lambda message, values: _add_all(getattr(message, name), values)
    if kind is not None and kind.full_name == TIMESTAMP:
        return lambda message, text: _set_time(getattr(message, name), text)
    if kind is not None:
        return lambda message, value: _fill_part(getattr(message, name), value)
    convert = _converter(field)
    if field.is_repeated:
        return lambda message, values: getattr(message, name).extend(convert(one) for one in values)
    return lambda message, value: setattr(message, name, convert(value))


def _map_writer(name: str, field: FieldDescriptor) -> _Write:
    def write(message: Message, values: Mapping[str, Any]) -> None:
        entries = getattr(message, name)
        for key, value in values.items():
            if field.message_type is None:
                entries[key] = convert(value)
            else:
                _fill_part(entries[key], value)

    convert = _converter(field)
    return write


def _converter(field: FieldDescriptor) -> Callable[[Any], Any]:
    match field.type:
        case FieldDescriptor.TYPE_BYTES:
            return lambda value: value if isinstance(value, bytes) else orjson.dumps(value)
        case FieldDescriptor.TYPE_STRING:
            return str
        case FieldDescriptor.TYPE_BOOL:
            return bool
        case FieldDescriptor.TYPE_DOUBLE:
            return float
        case _:
            return int


def _add_all(parts: Any, values: Iterable[Mapping[str, Any]]) -> None:
    for value in values:
        _fill_part(parts.add(), value)


def _fill_part(part: Message, value: Mapping[str, Any]) -> None:
    part.SetInParent()
    _fill(part, value)


def _set_time(message: Any, text: str) -> None:
    at = datetime.fromisoformat(text)
    message.seconds, message.nanos = int(at.timestamp()), at.microsecond * 1_000
