"""Reads of definitions of all kinds: lists, single versions, differences, lineage, and the library.

A definition of another tenant is not found; administrators name the tenant.

Before: handlers.py. After: table.py, in memory; the read model for what states do not keep.
"""

from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from typing import Any, cast

from msgspec import UNSET, structs

from loomlog.connectors.definitions import KINDS, compare_output, diff
from loomlog.projections.tables import InvalidPageToken, page_token, parse_page_token
from loomlog.services.core.operations import OperationCaller
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.answers import format_time
from loomlog.services.families.definition.items import JUDGEMENT_ITEM
from loomlog.services.families.definition.kind_api import LIBRARY_KINDS, DefinitionVersion, Library, LibraryEntry
from loomlog.services.families.definition.lineage import lineage
from loomlog.services.families.definition.operations import DefinitionOperations
from loomlog.services.families.definition.query_api import (
    ACTIVE,
    PARENT,
    Definition,
    DefinitionCompare,
    DefinitionDiff,
    DefinitionEntry,
    DefinitionFilter,
    DefinitionLineage,
    DefinitionLineageOf,
    DefinitionList,
    FieldChange,
    JudgementCount,
    JudgementSums,
    LineageRow,
    OutputChange,
)
from loomlog.services.families.definition.state import Line, Version
from loomlog.services.families.definition.table import (
    FILE,
    NAME,
    SHARED,
    SHARED_SOURCE,
    DefinitionTable,
    FileDefinition,
    Resolved,
)
from loomlog.services.families.definition.table import TENANT as TENANT_SOURCE
from loomlog.services.stream.entities.reads import EntityReads

Place = tuple[Line, Version] | FileDefinition


class DefinitionQueries:
    """The operations. They raise Refused, and those that wait also ConnectorError and PositionNotRead."""

    def __init__(self, operations: DefinitionOperations, reads: EntityReads, *, clock_ms: Callable[[], int]) -> None:
        self._operations = operations
        self._table = operations.table
        self._reads = reads
        self._clock_ms = clock_ms

    def list(self, asked: DefinitionFilter, caller: OperationCaller) -> DefinitionList:
        """Return a page of what names mean for a tenant, by kind and name."""
        kinds = [known_kind(asked.kind)] if asked.kind else sorted(KINDS)
        start, owner = _parse_cursor(asked.cursor), caller.tenant
        entries: list[DefinitionEntry] = []
        for kind in kinds:
            for name in self._names(kind, owner, asked):
                if (kind, name) <= start:
                    continue
                line = self._line(kind, owner, name)
                entry = self._entry(kind, owner, name, line)
                if not _matches(entry, line, asked):
                    continue
                if len(entries) == asked.limit:
                    last = entries[-1]
                    return DefinitionList(definitions=entries, next=page_token(last.kind, last.name))
                entries.append(entry)
        return DefinitionList(definitions=entries, next=None)

    def _names(self, kind: str, owner: str, asked: DefinitionFilter) -> Iterator[str]:
        files = sorted(name for of, name in self._table.files if of == kind)
        lines = ([line.name for line in self._table.lines(kind, one)] for one in dict.fromkeys((owner, SHARED)))
        before = ""
        for name in merge(files, *lines):
            if name != before and name.startswith(asked.prefix) and asked.name in ("", name):
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
        return DefinitionEntry(
            kind=kind,
            name=name,
            tenant_id=tenant,
            source=cast(Any, source),
            description=_description(resolved),
            active_def_id=resolved.def_id if resolved is not None and is_version else None,
            active_version=resolved.version if resolved is not None else 0,
            version_count=len(versions),
            live_version_count=sum(not version.is_retired for version in versions),
            latest_version=len(versions),
            last_updated=format_time(updated_ms) if updated_ms else None,
            made_by_agent=(line.made_by_agent or None) if line is not None else None,
            static_def_id=file.def_id if file is not None else None,
            static_differs=self._differs(kind, name),
            judgements=self._judgements(kind, owner, name),
        )

    def _differs(self, kind: str, name: str) -> bool:
        line = self._table.line(kind, SHARED, name)
        since_ms = self._clock_ms() - limits.OBSERVED_FOR_MS
        return line is not None and line.static is not None and line.static.differs_since(since_ms)

    def _judgements(self, kind: str, owner: str, name: str) -> JudgementCount:
        """Return those of the tenant's runs, whatever version they had."""
        line = self._table.line(kind, owner, name)
        sums = [line.static_sums, *(version.sums for version in line.versions)] if line is not None else []
        count = sum(one.count for one in sums)
        return JudgementCount(count=count, mean=sum(one.total for one in sums) / count if count else None)

    async def show(self, def_id: str, caller: OperationCaller) -> Definition:
        """Return a version with its content, its author, and the sums of its judgements."""
        place = self._place(def_id, caller)
        judge = caller.tenant if isinstance(place, FileDefinition) else place[0].tenant or caller.tenant
        sums = await self._reads.sum_items(NAME, judge, JUDGEMENT_ITEM, keys_b=[def_id])
        judgements = JudgementSums(count=0, mean=None, min=None, max=None)
        if sums.count:
            judgements = JudgementSums(count=sums.count, mean=sums.mean, min=sums.min, max=sums.max)
        origin: dict[str, Any]
        if isinstance(place, FileDefinition):
            version = self._file_version(place, caller.tenant)
            origin = {"kind": place.kind, "tenant_id": "", "created_by": ""}
        else:
            version, item = await self._operations.describe(*place), await self._table.item(*place)
            origin = {"kind": place[0].kind, "tenant_id": place[0].tenant, "created_by": item.get("by", "")}
            origin["position"] = item["position"]
        return Definition(**structs.asdict(version), **origin, judgements=judgements)

    def _file_version(self, file: FileDefinition, owner: str) -> DefinitionVersion:
        resolved = self._table.resolve(file.kind, owner, file.name)
        return DefinitionVersion(
            def_id=file.def_id,
            name=file.name,
            version=0,
            parent_def_id="",
            description="",
            created_at="",
            created_by_agent_id="",
            created_by_run_id="",
            retired=False,
            bootstrapped_from_static=False,
            content_sha256=file.content_sha256,
            definition=dict(file.content),
            promoted=resolved is not None and resolved.source == FILE,
        )

    async def diff(self, asked: DefinitionCompare, caller: OperationCaller) -> DefinitionDiff:
        """Return what `to` has changed, or what the version changed in its parent."""
        place = self._place(asked.def_id, caller)
        kind, name = (place.kind, place.name) if isinstance(place, FileDefinition) else (place[0].kind, place[0].name)
        if asked.to == PARENT:
            parent = "" if isinstance(place, FileDefinition) else place[1].parent
            first, second = self._place(parent, caller) if parent else None, place
        else:
            first, second = place, self._other(kind, name, asked.to, caller)
        before = await self._content(first) if first is not None else {}
        after = await self._content(second)
        changes = [FieldChange(**change) for change in diff(KINDS[kind], before, after)]
        output = compare_output(before, after) if first is not None else None
        return DefinitionDiff(
            from_=_id_of(first) if first is not None else None,
            to=_id_of(second),
            changes=changes,
            output_change=UNSET if output is None else OutputChange(kind=output.kind, reasons=output.reasons),
        )

    def _other(self, kind: str, name: str, to: str, caller: OperationCaller) -> Place:
        if to == FILE:
            file = self._table.files.get((kind, name))
            if file is None:
                raise Refused("not_found", f"no configuration file defines the {kind} {name}")
            return file
        if to == ACTIVE:
            resolved = self._table.resolve(kind, caller.tenant, name)
            if resolved is None:
                raise Refused("not_found", f"no version of the {kind} {name} is active")
            to = resolved.def_id
        other = self._place(to, caller)
        if (other.kind if isinstance(other, FileDefinition) else other[0].kind) != kind:
            raise Refused("bad_request", f"to is {to[:80]}, which is of another kind than {kind}")
        return other

    async def _content(self, place: Place) -> Mapping[str, Any]:
        return place.content if isinstance(place, FileDefinition) else await self._table.content(*place)

    def lineage(self, asked: DefinitionLineageOf, caller: OperationCaller) -> DefinitionLineage:
        """Return root, ancestors and descendants of a version."""
        place = self._place(asked.def_id, caller)
        if not isinstance(place, FileDefinition):
            return lineage(self._table, *place, asked.depth)
        row = LineageRow(def_id=asked.def_id, name=place.name, version=0, parent_def_id="", retired=False)
        return DefinitionLineage(root=row, ancestors=[], descendants=[], depth=asked.depth, truncated=False)

    def library(self, shelf: str, owner: str) -> Library:
        """Return what there is of a kind, from files and made at run time."""
        kind = LIBRARY_KINDS.get(shelf)
        if kind is None:
            raise Refused("not_found", f"there is no library {shelf[:60]}: {', '.join(LIBRARY_KINDS)}")
        lines = {line.name: line for line in self._table.lines(kind, owner)}
        files = {name: file for (of, name), file in self._table.files.items() if of == kind}
        rows = [self._shelved(name, lines.get(name), files.get(name)) for name in sorted(lines.keys() | files.keys())]
        return Library(entries=rows)

    def _shelved(self, name: str, line: Line | None, file: FileDefinition | None) -> LibraryEntry:
        active = line.version(self._table.active_number(line)) if line is not None else None
        versions = line.versions if line is not None else ()
        return LibraryEntry(
            name=name,
            source="dynamic-only" if file is None else "static-only" if line is None else "both",
            in_static=file is not None,
            in_substrate=line is not None,
            version_count=len(versions),
            live_version_count=sum(not one.is_retired for one in versions),
            latest_version=len(versions),
            active_def_id=line.id_of(active.number) if active is not None and line is not None else None,
            active_retired=active is not None and active.is_retired,
            last_updated=format_time(versions[-1].created_at_ms) if versions else None,
            static_definition=file.content if file is not None else None,
        )

    def _place(self, def_id: str, caller: OperationCaller) -> Place:
        """Return the version with that id that a tenant may see."""
        return visible_place(self._table, def_id, caller.tenant, is_admin=caller.is_admin)


def visible_place(table: DefinitionTable, def_id: str, owner: str, *, is_admin: bool) -> Place:
    """Return the version with that id that a tenant may see; administrators see all. Raises Refused(not_found)."""
    file = table.find_file(def_id)
    if file is not None and file.kind in KINDS:
        return file
    place = table.find(def_id)
    is_seen = place is not None and (is_admin or place[0].tenant in (owner, SHARED))
    if place is None or not is_seen or place[0].kind not in KINDS or place[0].is_deleted:
        raise Refused("not_found", f"the version {def_id[:80]} is not found")
    return place


def known_kind(name: str) -> str:
    """Return the name of a kind. Raises Refused(bad_request)."""
    if name not in KINDS:
        raise Refused("bad_request", f"kind is {name[:60]!r}: expected {', '.join(sorted(KINDS))}")
    return name


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
        raise Refused("bad_request", f"cursor: {error}") from error
    return kind, name


def _matches(entry: DefinitionEntry, line: Line | None, asked: DefinitionFilter) -> bool:
    has_retired = entry.live_version_count < entry.version_count
    if asked.active is not None and asked.active != bool(entry.active_def_id):
        return False
    if asked.retired is not None and asked.retired != has_retired:
        return False
    return not asked.created_by or (line is not None and asked.created_by in (line.made_by, line.made_by_agent))
