"""Rows of memory: what is looked up by key, by change, and by scope.

    entry     by `<scope>/<scope id>/<key>`: the value as it is now, removed with the key
    version   each change of a key; key_a is that of the key (`version_key`), the number is the time. Kept for 30 days,
              older ones are in the log
    scope     by `<scope>/<scope id>`: keys, bytes, time of the last change; removed with the last key

Before: the projection of entities. After: store.py.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson
from msgspec import structs

from loomlog.schemas.generated.memory_events import (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)
from loomlog.schemas.generated.values import Envelope, MemorySource, Provenance
from loomlog.services.core.families import Item
from loomlog.services.families.memory.author import aggregate_name
from loomlog.services.families.memory.state import MemoryEvent, MemoryScope

ENTRY_ITEM, VERSION_ITEM, SCOPE_ITEM = "entry", "version", "scope"
VERSION_KEPT_MS = 30 * 86_400_000


def scope_prefix(scope: str, scope_id: str) -> str:
    """Return the beginning of the ids of all entries of a scope: the only slashes before the key are ours."""
    return f"{scope}/{scope_id.replace('%', '%25').replace('/', '%2F')}/"


def entry_id(scope: str, scope_id: str, key: str) -> str:
    """Return the id of the row of an entry."""
    return scope_prefix(scope, scope_id) + key


def version_key(scope: str, scope_id: str, key: str) -> str:
    """Return the key of the rows of an entry's changes."""
    return sha256(entry_id(scope, scope_id, key).encode()).hexdigest()[:32]


def items(state: MemoryScope, event: MemoryEvent, envelope: Envelope) -> Sequence[Item]:
    """Return the rows of an event."""
    scope, scope_id = state.scope, state.scope_id
    rows: list[Item] = []
    match event:
        case EntrySet():
            document = entry_document(event)
            rows.append(Item(kind=ENTRY_ITEM, id=entry_id(scope, scope_id, event.key), document=document))
            rows.append(_version(scope, scope_id, event.key, event.revision, envelope, document))
        case EntryDeleted() | EntrySuperseded():
            change: dict[str, Any] = {
                "key": event.key,
                "revision": event.revision,
                "previous_revision": event.previous_revision,
                "op": "delete",
                "source": _plain(event.source),
            }
            if isinstance(event, EntrySuperseded):
                change |= {"op": "supersede", "by_key": event.by_key, "reason": event.reason}
            rows.append(Item(kind=ENTRY_ITEM, id=entry_id(scope, scope_id, event.key)))
            rows.append(_version(scope, scope_id, event.key, event.revision, envelope, _json(change)))
        case EntriesExpired() | ScopeDropped():
            common: dict[str, Any] = {"revision": event.revision, "op": "expire"}
            if isinstance(event, ScopeDropped):
                common |= {"op": "drop", "reason": event.reason, "source": _plain(event.source)}
            for number, key in enumerate(event.keys):
                rows.append(Item(kind=ENTRY_ITEM, id=entry_id(scope, scope_id, key)))
                text = _json({"key": key, **common})
                rows.append(_version(scope, scope_id, key, event.revision, envelope, text, f".{number}"))
    rows.append(_scope_row(scope, scope_id, state, envelope))
    return rows


def _version(
    scope: str, scope_id: str, key: str, revision: int, envelope: Envelope, document: str, number: str = ""
) -> Item:
    return Item(
        kind=VERSION_ITEM,
        id=f"{aggregate_name(scope, scope_id)}#{revision:010d}{number}",
        key_a=version_key(scope, scope_id, key),
        number=envelope.at_ms,
        document=document,
        kept_ms=VERSION_KEPT_MS,
    )


def _scope_row(scope: str, scope_id: str, state: MemoryScope, envelope: Envelope) -> Item:
    usage = {
        "keys": state.keys,
        "bytes": state.bytes,
        "quota_bytes": state.quota_bytes,
        "updated_at_ms": envelope.at_ms,
    }
    return Item(
        kind=SCOPE_ITEM,
        id=aggregate_name(scope, scope_id),
        number=state.bytes,
        document=_json(usage) if state.keys else "",
    )


def entry_document(event: EntrySet) -> str:
    """Return the document of the row of an entry."""
    return _json(
        {
            "key": event.key,
            "value": event.value,
            "bytes": event.value_bytes,
            "revision": event.revision,
            "previous_revision": event.previous_revision,
            "created_at_s": event.created_at_s,
            "expires_at_ms": event.expires_at_ms,
            "op": event.op,
            "embed": event.embed,
            "embed_text": event.embed_text,
            "provenance": None if event.provenance is None else _plain(event.provenance),
            "source": _plain(event.source),
        }
    )


def _plain(record: MemorySource | Provenance) -> Mapping[str, Any]:
    """Return a record as JSON, without the fields that say nothing: turn 0 says something of a run only."""
    fields = structs.asdict(record)
    empty = ("", (), None) if fields.get("run_id") else ("", (), None, 0)
    return {name: value for name, value in fields.items() if value not in empty}


def _json(value: Any) -> str:
    return orjson.dumps(value, default=structs.asdict).decode()
