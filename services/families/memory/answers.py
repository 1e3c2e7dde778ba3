"""How entries and their changes are shown. Pure.

Before: entry_operations.py, handlers.py. After: api.py has the records.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, convert

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.values import Provenance
from loomlog.services.families.memory import api, limits
from loomlog.services.families.memory.store import StoredEntry
from loomlog.services.families.memory.values import parse_value

VERSION_FIELDS = frozenset(api.MemoryVersion.__struct_fields__)
HIDDEN_FIELDS = frozenset({"value", "previous_revision"})
"""Fields of a stored change that are shown in another form."""


def entry_row(entry: StoredEntry, **more: Any) -> api.MemoryRow:
    """Return an entry as lists show it; `more` has details."""
    return api.MemoryRow(
        key=entry.key,
        value=parse_value(entry.text),
        created_at=format_rfc3339(entry.created_at_ms),
        updated_at=format_rfc3339(max(entry.updated_at_ms, entry.created_at_ms)),
        expires_at=format_rfc3339(entry.expires_at_ms) if entry.expires_at_ms else UNSET,
        **more,
    )


def entry_details(entry: StoredEntry) -> dict[str, Any]:
    """Return the details of an entry by field of MemoryRow."""
    return {
        "revision": entry.revision,
        "bytes": entry.bytes,
        "embed": entry.embed,
        "source": entry.source,
        "provenance": fact_origin(entry),
    }


def expires_at(entry: StoredEntry) -> str | None:
    """Return when an entry expires; None: never."""
    return format_rfc3339(entry.expires_at_ms) if entry.expires_at_ms else None


def fact_origin(entry: StoredEntry) -> api.MemoryFactOrigin | None:
    """Return the provenance of an entry; None for a note."""
    if entry.provenance is None:
        return None
    stored = entry.provenance
    return api.MemoryFactOrigin(
        origin=stored.get("origin", ""),
        fact_class=stored.get("fact_class", ""),
        source_session_id=stored.get("source_session_id", ""),
        source_run_id=stored.get("source_run_id", ""),
        origin_available=bool(stored.get("source_session_id") or stored.get("source_run_id")),
        spans=list(stored.get("spans") or ()),
    )


def provenance_of(fields: Mapping[str, Any] | None) -> Provenance | None:
    """Return a provenance of its stored fields."""
    return None if fields is None else convert({"spans": (), **fields}, Provenance)


def usage_fields(usage: Mapping[str, int]) -> dict[str, Any]:
    """Return `usage` of a scope, and `usage_warning` when it is nearly full; nothing when the usage is not known."""
    if not usage:
        return {}
    quota = usage["quota_bytes"]
    shown: dict[str, Any] = {"usage": api.MemorySize(**usage)}
    if quota > 0 and usage["bytes"] >= quota * limits.USAGE_NOTICE_SHARE:
        shown["usage_warning"] = f"the scope has {usage['bytes']} of {quota} bytes: delete what is not needed"
    return shown


def version_fields(version: Mapping[str, Any]) -> dict[str, Any]:
    """Return a change of a key by field of MemoryVersion."""
    kept = VERSION_FIELDS - HIDDEN_FIELDS
    shown = {name: value for name, value in version.items() if name in kept and value != ""}
    shown["at"] = format_rfc3339(version["at_ms"])
    if version.get("previous_revision"):
        shown["previous_revision"] = version["previous_revision"]
    if "value" in version:
        shown["value"] = parse_value(version["value"])
    if version.get("expires_at_ms"):
        shown["expires_at"] = format_rfc3339(version["expires_at_ms"])
    return shown


def version_rows(versions: Sequence[Mapping[str, Any]]) -> list[api.MemoryVersion]:
    """Return changes of a key as they are shown."""
    return [api.MemoryVersion(**version_fields(version)) for version in versions]


def superseded_row(change: Mapping[str, Any], before: Mapping[str, Any] | None) -> api.MemorySupersededRow:
    """Return a superseded entry: the change, and the version that it ended, if that is still kept."""
    shown = {"key": change["key"], **version_fields(change)}
    if before is not None:
        ended = version_fields(before)
        shown |= {"value": ended.get("value"), "provenance": ended.get("provenance"), "valid_from": ended["at"]}
    return api.MemorySupersededRow(**shown)
