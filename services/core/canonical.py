"""States to bytes and back, always the same bytes for the same state: for snapshots and for state hashes.

A state is a tree of frozen dataclasses, tuples and plain values. It is written as JSON with the class name in each
object, fields in the order of the class. The classes that may appear are found from the type hints of the roots, so
reading creates nothing else. Not chosen: pickle (runs code from a topic), Avro (a second description of each state).
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

CLASS = "_"
"""Key under which an object names its class."""
BYTES = "_b"
MAP = "_m"


class UnreadableState(Exception):
    """The bytes are not a state these classes can make."""


class StateCodec:
    """Reads and writes the dataclasses reachable from `roots`."""

    def __init__(self, *roots: Any) -> None:
        self._classes: dict[str, type[Any]] = {}
        self._names: dict[type[Any], tuple[str, ...]] = {}
        for root in roots:
            self._learn(root)

    def encode(self, state: Any) -> bytes:
        """Canonical bytes."""
        return json.dumps(self._plain(state), separators=(",", ":"), ensure_ascii=False).encode()

    def decode(self, data: bytes) -> Any:
        """The state; raises Unreadable."""
        try:
            return self._value(json.loads(data))
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableState(f"{type(error).__name__}: {error}") from error

    def digest(self, state: Any) -> str:
        """Hex SHA-256 of the canonical bytes: two states are equal when their digests are."""
        return sha256(self.encode(state)).hexdigest()

    def _plain(self, value: Any) -> Any:
        if value is None or isinstance(value, str | int | float | bool):
            return value
        if isinstance(value, tuple):
            return [self._plain(item) for item in value]
        if isinstance(value, bytes):
            return {BYTES: b64encode(value).decode()}
        if isinstance(value, Mapping):
            return {MAP: [[key, self._plain(value[key])] for key in sorted(value)]}
        names = self._names[type(value)]
        return {CLASS: type(value).__name__, **{name: self._plain(getattr(value, name)) for name in names}}

    def _value(self, plain: Any) -> Any:
        if isinstance(plain, list):
            return tuple(self._value(item) for item in plain)
        if not isinstance(plain, dict):
            return plain
        if BYTES in plain:
            return b64decode(plain[BYTES])
        if MAP in plain:
            return {key: self._value(item) for key, item in plain[MAP]}
        made: Callable[..., Any] = self._classes[plain[CLASS]]
        return made(**{name: self._value(item) for name, item in plain.items() if name != CLASS})

    def _learn(self, hint: Any) -> None:
        if get_origin(hint) in (Union, UnionType) or get_args(hint):
            for part in get_args(hint):
                self._learn(part)
            return
        if not (isinstance(hint, type) and is_dataclass(hint)) or hint in self._names:
            return
        clash = self._classes.get(hint.__name__)
        assert clash is None, f"two state classes are called {hint.__name__}"
        self._classes[hint.__name__] = hint
        self._names[hint] = tuple(field.name for field in fields(hint))
        for part in get_type_hints(hint).values():
            self._learn(part)
