"""The JSON of definitions on the wire, as existing clients read it (reference runtime 4.7).

Before: operations.py. After: HTTP and tools.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET

from loomlog.services.families.definition.kind_api import DefinitionNamesRow, DefinitionVersion
from loomlog.services.families.definition.query_api import LineageRow
from loomlog.services.families.definition.state import Line, Version


def version_row(
    line: Line, version: Version, item: Mapping[str, Any], definition: Mapping[str, Any], *, promoted: bool
) -> DefinitionVersion:
    """Return a version as every answer shows it; `item` is its row in the read model, or the fields of its event."""
    return DefinitionVersion(
        def_id=line.id_of(version.number),
        name=line.name,
        version=version.number,
        parent_def_id=version.parent,
        description=item.get("description", ""),
        created_at=format_time(version.created_at_ms),
        created_by_agent_id=version.created_by_agent_id,
        created_by_run_id=item.get("created_by_run_id", ""),
        retired=version.is_retired,
        bootstrapped_from_static=version.is_bootstrapped,
        content_sha256=item.get("content_sha256", ""),
        definition=dict(definition),
        expires_at=format_time(version.expires_at_ms) if version.expires_at_ms else UNSET,
        promoted=promoted,
    )


def names_row(line: Line, active: Version | None) -> DefinitionNamesRow:
    """Return a line as lists of names show it, with the active version."""
    return DefinitionNamesRow(
        name=line.name,
        tenant_id=line.tenant,
        version_count=len(line.versions),
        live_version_count=sum(not version.is_retired for version in line.versions),
        latest_version=len(line.versions),
        last_updated=format_time(max(line.promoted_at_ms, line.versions[-1].created_at_ms)),
        active_def_id=line.id_of(active.number) if active is not None else UNSET,
        active_retired=active.is_retired if active is not None else UNSET,
    )


def lineage_row(line: Line, version: Version) -> LineageRow:
    """Return a version as a lineage shows it."""
    return LineageRow(
        def_id=line.id_of(version.number),
        name=line.name,
        version=version.number,
        parent_def_id=version.parent,
        retired=version.is_retired,
    )


def format_time(at_ms: int) -> str:
    """Return a time as RFC 3339 with nine digits after the second."""
    whole, rest = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}000000Z"
