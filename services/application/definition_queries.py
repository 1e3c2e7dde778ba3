"""Reads of definitions of all kinds: lists, single versions, differences, lineage, and the runs of a version.

A definition of another tenant is not found; administrators name the tenant.

Before: services/api/definition_query_endpoints.py. After: services/families/definition/table.py, in memory; the read
model for what states do not keep.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from typing import Any, cast

from loomlog.connectors.definitions import KINDS, diff
from loomlog.projections.run_queries import RunFilter
from loomlog.projections.tables import InvalidPageToken, page_token, parse_page_token
from loomlog.schemas.records import Value
from loomlog.services.application.authentication import require_member, require_scope
from loomlog.services.application.definition_json import DefinitionDiff, DefinitionEntry, DefinitionList, JudgementCount
from loomlog.services.application.definitions import Definitions, kind_named
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.runs import RunList, RunQueries
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.answers import format_time
from loomlog.services.families.definition.items import JUDGEMENT_ITEM
from loomlog.services.families.definition.lineage import DEPTH_DEFAULT, lineage
from loomlog.services.families.definition.state import Line, Version
from loomlog.services.families.definition.table import FILE, NAME, SHARED, SHARED_SOURCE, FileDefinition, Resolved
from loomlog.services.families.definition.table import TENANT as TENANT_SOURCE
from loomlog.services.stream.entities.reads import EntityReads

AGENT = "agent"
PARENT, ACTIVE = "", "active"
"""Values of `to` of a difference, besides `file` and a def_id."""
PAGE_DEFAULT, PAGE_MAX = 100, 500
Place = tuple[Line, Version] | FileDefinition


class DefinitionFilter(Value, frozen=True, kw_only=True):
    """Filter of a list; empty and None: any. `created_by`: subject or agent that made the first version."""

    kind: str = ""
    name: str = ""
    prefix: str = ""
    active: bool | None = None
    retired: bool | None = None
    created_by: str = ""


class DefinitionQueries:
    """The use cases. All methods raise Refused."""

    def __init__(
        self, definitions: Definitions, runs: RunQueries, reads: EntityReads, *, clock_ms: Callable[[], int]
    ) -> None:
        self._definitions = definitions
        self._table = definitions.table
        self._runs = runs
        self._reads = reads
        self._clock_ms = clock_ms

    def list(
        self,
        caller: Caller,
        criteria: DefinitionFilter,
        *,
        tenant: str = "",
        limit: int = PAGE_DEFAULT,
        after: str = "",
    ) -> DefinitionList:
        """Return a page of what names mean for a tenant, by kind and name."""
        owner = self._owner(caller, tenant)
        kinds = [kind_named(criteria.kind).name] if criteria.kind else sorted(KINDS)
        start = _parse_cursor(after)
        entries: list[DefinitionEntry] = []
        for kind in kinds:
            for name in self._names(kind, owner, criteria):
                if (kind, name) <= start:
                    continue
                line = self._line(kind, owner, name)
                entry = self._entry(kind, owner, name, line)
                if not _matches(entry, line, criteria):
                    continue
                if len(entries) == limit:
                    last = entries[-1]
                    return {"definitions": entries, "next": page_token(last["kind"], last["name"])}
                entries.append(entry)
        return {"definitions": entries, "next": None}

    def _names(self, kind: str, owner: str, criteria: DefinitionFilter) -> Iterator[str]:
        files = sorted(name for of, name in self._table.files if of == kind)
        lines = ([line.name for line in self._table.lines(kind, one)] for one in dict.fromkeys((owner, SHARED)))
        before = ""
        for name in merge(files, *lines):
            if name != before and name.startswith(criteria.prefix) and criteria.name in ("", name):
                yield name
            before = name

    def _line(self, kind: str, owner: str, name: str) -> Line | None:
        """Return the line that a tenant sees: its own, or the shared one if neither it nor a file hides that."""
        own = self._living(kind, owner, name)
        has_active = own is not None and self._table.active_number(own)
        if has_active or (kind, name) in self._table.files:
            return own
        return self._living(kind, SHARED, name) or own

    def _living(self, kind: str, tenant: str, name: str) -> Line | None:
        line = self._table.line(kind, tenant, name)
        return line if line is not None and line.versions and not line.is_deleted else None

    def _entry(self, kind: str, owner: str, name: str, line: Line | None) -> DefinitionEntry:
        file = self._table.files.get((kind, name))
        resolved = self._table.resolve(kind, owner, name)
        versions = line.versions if line is not None else ()
        tenant = line.tenant if line is not None else owner
        source = resolved.source if resolved is not None else TENANT_SOURCE if tenant else SHARED_SOURCE
        is_version = resolved is not None and resolved.source != FILE
        updated_ms = max(line.promoted_at_ms, versions[-1].created_at_ms) if line is not None else 0
        return {
            "kind": kind,
            "name": name,
            "tenant_id": tenant,
            "source": cast(Any, source),
            "description": _description(resolved),
            "active_def_id": resolved.def_id if resolved is not None and is_version else None,
            "active_version": resolved.version if resolved is not None else 0,
            "version_count": len(versions),
            "live_version_count": sum(not version.is_retired for version in versions),
            "latest_version": len(versions),
            "last_updated": format_time(updated_ms) if updated_ms else None,
            "made_by_agent": (line.made_by_agent or None) if line is not None else None,
            "static_def_id": file.def_id if file is not None else None,
            "static_differs": self._differs(kind, name),
            "judgements": self._judgements(kind, owner, name),
        }

    def _differs(self, kind: str, name: str) -> bool:
        line = self._table.line(kind, SHARED, name)
        since_ms = self._clock_ms() - limits.OBSERVED_FOR_MS
        return line is not None and line.static is not None and line.static.differs_since(since_ms)

    def _judgements(self, kind: str, owner: str, name: str) -> JudgementCount:
        """Return those of the tenant's runs, whatever version they had."""
        line = self._table.line(kind, owner, name)
        sums = [line.static_sums, *(version.sums for version in line.versions)] if line is not None else []
        count = sum(one.count for one in sums)
        return {"count": count, "mean": sum(one.total for one in sums) / count if count else None}

    async def show(self, caller: Caller, def_id: str, *, tenant: str = "") -> dict[str, Any]:
        """Return a version with its content, its author, and the sums of its judgements."""
        owner = self._owner(caller, tenant)
        place = self.place(caller, def_id, owner)
        judge = owner if isinstance(place, FileDefinition) else place[0].tenant or owner
        sums = await self._definitions.read(self._reads.sum_items(NAME, judge, JUDGEMENT_ITEM, keys_b=[def_id]))
        judgements: dict[str, Any] = {"count": sums.count, "mean": None, "min": None, "max": None}
        if sums.count:
            judgements |= {"mean": sums.mean, "min": sums.min, "max": sums.max}
        row: dict[str, Any]
        row = self._file_row(place, owner) if isinstance(place, FileDefinition) else await self._version_row(*place)
        return row | {"judgements": judgements}

    async def _version_row(self, line: Line, version: Version) -> dict[str, Any]:
        row: dict[str, Any] = await self._definitions.read(self._definitions.operations.describe(line, version))
        item = await self._definitions.read(self._table.item(line, version))
        origin = {"created_by": item.get("by", ""), "position": item["position"]}
        return {"kind": line.kind, "tenant_id": line.tenant} | origin | row

    def _file_row(self, file: FileDefinition, owner: str) -> dict[str, Any]:
        resolved = self._table.resolve(file.kind, owner, file.name)
        return {
            "kind": file.kind,
            "tenant_id": "",
            "created_by": "",
            "def_id": file.def_id,
            "name": file.name,
            "version": 0,
            "parent_def_id": "",
            "description": "",
            "created_at": "",
            "created_by_agent_id": "",
            "created_by_run_id": "",
            "retired": False,
            "bootstrapped_from_static": False,
            "content_sha256": file.content_sha256,
            "definition": dict(file.content),
            "promoted": resolved is not None and resolved.source == FILE,
        }

    async def diff(self, caller: Caller, def_id: str, *, to: str = PARENT, tenant: str = "") -> DefinitionDiff:
        """Return what `to` has changed: a def_id, `active` or `file`; empty: what the version changed in its parent."""
        owner = self._owner(caller, tenant)
        place = self.place(caller, def_id, owner)
        kind, name = (place.kind, place.name) if isinstance(place, FileDefinition) else (place[0].kind, place[0].name)
        if to == PARENT:
            parent = "" if isinstance(place, FileDefinition) else place[1].parent
            first, second = self.place(caller, parent, owner) if parent else None, place
        else:
            first, second = place, self._other(caller, kind, name, to, owner)
        before = await self._content(first) if first is not None else {}
        after = await self._content(second)
        ids = {"from": _id_of(first) if first is not None else None, "to": _id_of(second)}
        return cast(DefinitionDiff, ids | {"changes": diff(KINDS[kind], before, after)})

    def _other(self, caller: Caller, kind: str, name: str, to: str, owner: str) -> Place:
        if to == FILE:
            file = self._table.files.get((kind, name))
            if file is None:
                raise Refused("not_found", f"no configuration file defines the {kind} {name}")
            return file
        if to == ACTIVE:
            resolved = self._table.resolve(kind, owner, name)
            if resolved is None:
                raise Refused("not_found", f"no version of the {kind} {name} is active")
            to = resolved.def_id
        other = self.place(caller, to, owner)
        if (other.kind if isinstance(other, FileDefinition) else other[0].kind) != kind:
            raise bad_request(f"to is {to[:80]}, which is of another kind than {kind}")
        return other

    async def _content(self, place: Place) -> Mapping[str, Any]:
        if isinstance(place, FileDefinition):
            return place.content
        content: Mapping[str, Any] = await self._definitions.read(self._table.content(*place))
        return content

    def lineage(self, caller: Caller, def_id: str, *, depth: int = DEPTH_DEFAULT, tenant: str = "") -> dict[str, Any]:
        """Return root, ancestors and descendants of a version."""
        place = self.place(caller, def_id, self._owner(caller, tenant))
        if isinstance(place, FileDefinition):
            row = {
                "def_id": def_id,
                "name": place.name,
                "version": 0,
                "parent_def_id": "",
                "retired": False,
            }
            return {"root": row, "ancestors": [], "descendants": [], "depth": depth, "truncated": False}
        return lineage(self._table, *place, depth)

    async def runs(
        self,
        caller: Caller,
        def_id: str,
        *,
        statuses: frozenset[str] = frozenset(),
        tenant: str = "",
        limit: int,
        after: str = "",
    ) -> RunList:
        """Return the runs that are pinned to a version of an agent, newest first."""
        place = self.place(caller, def_id, self._owner(caller, tenant))
        if isinstance(place, FileDefinition):
            raise bad_request(f"{def_id} is of a configuration file, to which no run is pinned: list runs by agent")
        if place[0].kind != AGENT:
            raise bad_request(f"{def_id} is a {place[0].kind}: only agents have runs")
        return await self._runs.runs(
            caller, RunFilter(def_id=def_id, statuses=statuses), tenant=tenant, limit=limit, after=after
        )

    def place(self, caller: Caller, def_id: str, owner: str) -> Place:
        """Return the version with that id that a tenant may see. Raises Refused(not_found)."""
        file = self._table.find_file(def_id)
        if file is not None and file.kind in KINDS:
            return file
        place = self._table.find(def_id)
        is_seen = place is not None and (caller.is_admin or place[0].tenant in (owner, SHARED))
        if place is None or not is_seen or place[0].kind not in KINDS or place[0].is_deleted:
            raise Refused("not_found", f"the version {def_id[:80]} is not found")
        return place

    def _owner(self, caller: Caller, tenant: str) -> str:
        require_scope(caller, TENANT)
        require_member(caller)
        return self._definitions.tenant(caller, tenant)


def _description(resolved: Resolved | None) -> str | None:
    """Return what a definition says that it is for; None for one without a text, or whose content is not loaded."""
    text = resolved.content.get("description") if resolved is not None and resolved.content is not None else None
    return text if isinstance(text, str) and text else None


def _id_of(place: Place) -> str:
    return place.def_id if isinstance(place, FileDefinition) else place[0].id_of(place[1].number)


def _parse_cursor(cursor: str) -> tuple[str, str]:
    if not cursor:
        return "", ""
    try:
        kind, name = parse_page_token(cursor, 2)
    except InvalidPageToken as error:
        raise bad_request(f"cursor: {error}") from error
    return kind, name


def _matches(entry: DefinitionEntry, line: Line | None, criteria: DefinitionFilter) -> bool:
    has_retired = entry["live_version_count"] < entry["version_count"]
    if criteria.active is not None and criteria.active != bool(entry["active_def_id"]):
        return False
    if criteria.retired is not None and criteria.retired != has_retired:
        return False
    return not criteria.created_by or (line is not None and criteria.created_by in (line.made_by, line.made_by_agent))
