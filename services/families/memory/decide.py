"""The rules of a memory scope.

Values are ciphertext here when content is encrypted, so what follows from a value (incr, merge, ...) is computed by the
sender, and decided with the revision it saw: `revision_conflict` tells it to read again.

Before: the loop has a command. After: state.py.
"""

import json
from collections.abc import Sequence
from typing import assert_never

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.memory_commands import DeleteEntry, DropScope, SetEntry, SupersedeEntry
from loomlog.schemas.generated.memory_events import (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)
from loomlog.schemas.generated.values import MemorySource
from loomlog.schemas.records import copy_as
from loomlog.services.core.families import At, TimerFired
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory import limits
from loomlog.services.families.memory.author import AGENT, SCOPES, TENANT, USER
from loomlog.services.families.memory.state import MemoryEvent, MemoryScope, evolve, name_bytes, without

MemoryCommand = SetEntry | DeleteEntry | SupersedeEntry | DropScope
Decision = Sequence[MemoryEvent | CommandRefused]
ANY_REVISION = -1


def decide(scope: MemoryScope, command: MemoryCommand | TimerFired, at: At) -> Decision:
    """Return the events that follow a command."""
    try:
        match command:
            case SetEntry():
                return _set(scope, command, at)
            case DeleteEntry():
                return _delete(scope, command, at)
            case SupersedeEntry():
                return _supersede(scope, command, at)
            case DropScope():
                return _drop(scope, command, at)
            case TimerFired():
                return _expire(scope, at)
            case _:
                assert_never(command)
    except Refused as refused:
        return [CommandRefused(code=refused.code, message=refused.message)]


def next_timer_ms(scope: MemoryScope) -> int:
    """Return when expired keys are removed."""
    if not scope.next_expiry_ms:
        return 0
    return (scope.next_expiry_ms // limits.SWEEP_MS + 1) * limits.SWEEP_MS


def key_problem(key: str) -> str:
    """Return what is wrong with a key; empty when nothing is."""
    if not 0 < len(key) <= limits.KEY_CHARACTERS_MAX:
        return f"key: it has {len(key)} characters, expected 1 to {limits.KEY_CHARACTERS_MAX}"
    return "" if key.isprintable() else "key: it has characters that cannot be printed, such as NUL or a line break"


def _set(scope: MemoryScope, command: SetEntry, at: At) -> Decision:
    _check_names(command, at)
    _check_value(command)
    _check_revision(scope, command.key, command.if_revision, at)
    size = command.value_bytes or len(command.value.encode())
    quota = command.quota_bytes or limits.SCOPE_BYTES_DEFAULT
    events: list[MemoryEvent] = []
    if problem := _space_problem(scope, command.key, size, quota):
        scope, events = _without_expired(scope, command, at)
        problem = _space_problem(scope, command.key, size, quota) if events else problem
        if problem:
            raise Refused("memory_quota_exceeded", problem)
    old = scope.find(command.key, at.at_ms)
    expires_at_ms = at.at_ms + command.ttl_ms if command.ttl_ms else (old.expires_at_ms if old is not None else 0)
    stored = scope.stored(command.key)
    event = copy_as(
        EntrySet,
        command,
        value_bytes=size,
        revision=scope.revision + 1,
        previous_revision=0 if old is None else old.revision,
        created_at_s=at.at_ms // 1000 if old is None else old.created_at_s,
        expires_at_ms=expires_at_ms,
        source=_source(command, at),
        usage_bytes=scope.bytes + size - (0 if stored is None else stored.bytes),
        usage_keys=scope.keys + (stored is None),
        quota_bytes=quota,
    )
    return [*events, event]


def _delete(scope: MemoryScope, command: DeleteEntry, at: At) -> Decision:
    _check_names(command, at)
    _check_revision(scope, command.key, command.if_revision, at)
    old = scope.find(command.key, at.at_ms)
    if old is None:
        return []
    return [
        copy_as(
            EntryDeleted,
            command,
            revision=scope.revision + 1,
            previous_revision=old.revision,
            source=_source(command, at),
            usage_bytes=scope.bytes - old.bytes,
            usage_keys=scope.keys - 1,
        )
    ]


def _supersede(scope: MemoryScope, command: SupersedeEntry, at: At) -> Decision:
    _check_names(command, at)
    old = scope.find(command.key, at.at_ms)
    if old is None:
        raise Refused("not_found", f"key: there is no {command.key[:120]!r} to archive")
    if command.by_key and (problem := key_problem(command.by_key)):
        raise Refused("bad_request", f"by_{problem}")
    return [
        copy_as(
            EntrySuperseded,
            command,
            revision=scope.revision + 1,
            previous_revision=old.revision,
            source=_source(command, at),
        )
    ]


def _drop(scope: MemoryScope, command: DropScope, at: At) -> Decision:
    _check_scope(command)
    keys = sorted(key for key, _ in scope.entries())
    events: list[ScopeDropped] = []
    dropped_bytes = 0
    for start in range(0, len(keys), limits.KEYS_PER_EVENT):
        some = keys[start : start + limits.KEYS_PER_EVENT]
        dropped_bytes += sum(entry.bytes for key in some if (entry := scope.stored(key)) is not None)
        event = copy_as(
            ScopeDropped,
            command,
            keys=tuple(some),
            more=start + len(some) < len(keys),
            revision=scope.revision + 1 + len(events),
            dropped_keys=start + len(some),
            dropped_bytes=dropped_bytes,
            source=_source(command, at),
        )
        events.append(event)
    return events


def _expire(scope: MemoryScope, at: At) -> Decision:
    """Return the event that removes keys; also without any, since it names the next time."""
    return [_expired(scope, scope.expired(at.at_ms)[: limits.KEYS_PER_EVENT])]


def _expired(scope: MemoryScope, keys: Sequence[str]) -> EntriesExpired:
    after = without(scope, keys)
    return EntriesExpired(
        scope=scope.scope,
        scope_id=scope.scope_id,
        keys=tuple(keys),
        revision=scope.revision + 1,
        usage_bytes=after.bytes,
        usage_keys=after.keys,
    )


def _without_expired(scope: MemoryScope, command: SetEntry, at: At) -> tuple[MemoryScope, list[MemoryEvent]]:
    """Remove what has expired, for a write that needs the space; the key itself stays, so that its size is replaced."""
    keys = [key for key in scope.expired(at.at_ms) if key != command.key]
    events: list[MemoryEvent] = []
    for start in range(0, len(keys), limits.KEYS_PER_EVENT):
        event = _expired(scope, keys[start : start + limits.KEYS_PER_EVENT])
        events.append(event)
        scope = evolve(scope, event, at.at_ms)
    return scope, events


def _space_problem(scope: MemoryScope, key: str, size: int, quota: int) -> str:
    old = scope.stored(key)
    after = scope.bytes + size - (0 if old is None else old.bytes)
    if quota != limits.NO_QUOTA and after > quota:
        return (
            f"the scope would have {after} bytes, at most {quota} are kept; it has {scope.bytes} in {scope.keys} keys: "
            "delete some, or raise the quota"
        )
    if old is None and scope.keys >= limits.KEYS_MAX:
        return f"the scope has {scope.keys} keys, and no scope has more: delete some"
    if old is None and scope.name_bytes + name_bytes(key) > limits.NAMES_BYTES_MAX:
        return (
            f"the names of the keys of the scope take {scope.name_bytes} bytes ({limits.ENTRY_BYTES} and the length "
            f"of each), at most {limits.NAMES_BYTES_MAX} are kept: delete some, or use shorter keys"
        )
    return ""


def _check_revision(scope: MemoryScope, key: str, expected: int, at: At) -> None:
    if expected == ANY_REVISION:
        return
    entry = scope.find(key, at.at_ms)
    current = 0 if entry is None else entry.revision
    if expected != current:
        state = f"it has revision {current}" if current else "there is no such key"
        raise Refused("revision_conflict", f"{key[:120]!r}: revision {expected} was expected, and {state}; read again")


def _check_names(command: SetEntry | DeleteEntry | SupersedeEntry, at: At) -> None:
    _check_scope(command)
    if problem := key_problem(command.key):
        raise Refused("bad_request", problem)


def _check_scope(command: MemoryCommand) -> None:
    if command.scope not in SCOPES:
        listed = ", ".join(SCOPES)
        raise Refused("invalid_scope", f"scope: expected one of {listed}, not {command.scope[:60]!r}")
    if bool(command.scope_id) != (command.scope in (AGENT, USER)):
        what = "the tenant's scope has no id" if command.scope == TENANT else f"scope {command.scope} needs an id"
        raise Refused("invalid_scope", f"scope_id: {what}")


def _check_value(command: SetEntry) -> None:
    if not 0 <= command.ttl_ms <= limits.TTL_MS_MAX:
        raise Refused("bad_request", f"ttl_ms: expected 0 to {limits.TTL_MS_MAX}, not {command.ttl_ms}")
    if command.quota_bytes < limits.NO_QUOTA:
        raise Refused("bad_request", f"quota_bytes: expected 0, -1 or a number of bytes, not {command.quota_bytes}")
    size = len(command.value.encode(errors="replace"))
    most = limits.VALUE_BYTES_DEFAULT if command.source is None else limits.VALUE_BYTES_MAX * 3 // 2
    if command.value_bytes:  # it is ciphertext: a third larger
        size, most = command.value_bytes, limits.VALUE_BYTES_MAX
    if not command.value:
        raise Refused("missing_value", "value: expected JSON text; null is a value too")
    if size > most:
        raise Refused("memory_value_too_large", f"value: it has {size} bytes, at most {most} are kept")
    if command.source is None and not command.value.startswith("lenc1") and not _is_json(command.value):
        raise Refused("invalid_value", "value: expected JSON text")


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _source(command: MemoryCommand, at: At) -> MemorySource:
    return command.source or MemorySource(origin="service", principal=at.caller)
