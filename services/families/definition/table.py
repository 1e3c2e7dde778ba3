"""What resolves to what, in every process: the lines of definitions as far as this process has read, and the files.

One order for all kinds: the tenant's own line, the configuration files, the shared line (tenant ""). Volumes: the files
first, so that no line ever shadows an operator's folder. A retired version is never resolved.

Before: the replicas fold a line. After: operations.py; the runtime at each start, spawn and use of a skill.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from loomlog.connectors.definitions import KINDS, DefinitionProblem, canonical_json
from loomlog.connectors.errors import Permanent
from loomlog.connectors.protocols import Blobs, VolumeBinding
from loomlog.projections.entity_items import ItemRow
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.position import Position
from loomlog.schemas.records import Value
from loomlog.services.core.definitions import static_def_id
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.definition.apply import APPLIED, Batch
from loomlog.services.families.definition.apply import KIND as BATCH_KIND
from loomlog.services.families.definition.content import parse_content
from loomlog.services.families.definition.items import VERSION_ITEM
from loomlog.services.families.definition.state import VOLUME, Line, Version, digest_of, line_id
from loomlog.services.stream.entities.reads import EntityReads
from loomlog.services.stream.entities.replicas import Replicas

NAME = "definition"
"""Name of the family."""
AGENT = "agent"
"""The kind of agents."""
SHARED = ""
"""Tenant of the lines that all tenants see."""
TENANT, FILE, SHARED_SOURCE = "tenant", "file", "shared"
CONTENTS_MAX = 20_000
"""Parsed contents kept; another costs the parsing of its JSON."""

BATCH_READ_MS = 3_600_000
"""A process that has not read events of this age owns no partitions, and nothing is started by it."""

Content = dict[str, Any]


class FileDefinition(Value, frozen=True, kw_only=True):
    """A definition of the configuration files."""

    kind: str
    name: str
    content: Content
    text: str
    """The content as canonical JSON."""
    digest: bytes
    content_sha256: str

    @property
    def def_id(self) -> str:
        return static_def_id(self.kind, self.name, self.digest)


class Resolved(Value, frozen=True, kw_only=True):
    """What a name resolves to. `content` is None while a long one has not been loaded (`DefinitionTable.load`)."""

    kind: str
    name: str
    source: str
    def_id: str
    version: int = 0
    """0 for a definition of a file."""
    digest: bytes
    content: Content | None
    line: Line | None = None

    @property
    def is_of_file(self) -> bool:
        return self.source == FILE


def file_definition(kind: str, name: str, content: Content) -> FileDefinition:
    """Return a definition of a file with its hashes."""
    text = canonical_json(content)
    known = KINDS.get(kind)
    content_sha256 = known.hash(name, content) if known is not None else ""
    return FileDefinition(
        kind=kind, name=name, content=content, text=text, digest=digest_of(text, None), content_sha256=content_sha256
    )


def newest_positions(tokens: Iterable[str]) -> list[str]:
    """Return the newest position token of each partition; empty tokens are left out."""
    newest: dict[tuple[str, int], Position] = {}
    for position in map(Position.parse, filter(None, tokens)):
        place = position.topic, position.partition
        if place not in newest or newest[place].offset < position.offset:
            newest[place] = position
    return [str(position) for position in newest.values()]


class DefinitionTable:
    """The lines and the files. `files`: by kind and name. `reads` has the contents that states do not keep."""

    def __init__(
        self,
        replicas: Replicas,
        files: Mapping[tuple[str, str], FileDefinition],
        *,
        blobs: Blobs,
        reads: EntityReads,
    ) -> None:
        self.files = files
        self._replicas = replicas
        self._blobs = blobs
        self._reads = reads
        self._names: dict[tuple[str, str], dict[str, str]] = {}
        """By tenant and kind: names, and the ids of their aggregates."""
        self._made: set[tuple[str, str]] = set()
        """Tenants and kinds of which there has been a version."""
        self._versions: dict[str, tuple[str, int]] = {}
        """By def_id: aggregate and number."""
        self._counted: dict[str, int] = {}
        """Number of versions in `_versions`, by aggregate."""
        self._batches: dict[str, Batch] = {}
        """By aggregate."""
        self._whole: set[str] = set()
        """Aggregates of batches that are applied and have been read with all their lines."""
        self._contents: OrderedDict[bytes, Content] = OrderedDict()
        self._of_files = {place: _of_file(file) for place, file in files.items()}
        self._file_ids = {one.def_id: one for one in files.values()}
        self._changed = asyncio.Event()
        replicas.on_fold(NAME, self._folded)

    def _folded(self, aggregate: str) -> None:
        self._changed.set()
        line = self._replicas.state(aggregate)
        if isinstance(line, Batch):
            self._batches[aggregate] = line
            return
        self._names.setdefault((line.tenant, line.kind), {})[line.name] = aggregate
        if line.versions:
            self._made.add((line.tenant, line.kind))
        for version in line.versions[self._counted.get(aggregate, 0) :]:
            self._versions[line.id_of(version.number)] = (aggregate, version.number)
        self._counted[aggregate] = len(line.versions)

    async def until(self, holds: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until it holds, which is asked again after each event that is read; returns whether it does."""
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return holds()
        return True

    # --- lines -------------------------------------------------------------------------------------------------------

    def line(self, kind: str, tenant: str, name: str) -> Line | None:
        """Return a line that has had events, deleted or not."""
        aggregate = aggregate_id(NAME, tenant, line_id(kind, name))
        return self._replicas.state(aggregate) if aggregate in self._counted else None

    def position(self, line: Line) -> str:
        """Return the position token of the line's last event."""
        return self._position(line.tenant, line.kind, line.name)

    def _position(self, tenant: str, kind: str, name: str) -> str:
        return self._replicas.position(aggregate_id(NAME, tenant, line_id(kind, name)))

    def positions(self, line: Line, *, now_ms: int) -> list[str]:
        """Return the position tokens with which another process sees the line as this one does: that of its last event;
        of one that was promoted with a batch a moment ago, the newest of each partition that the batch is in.
        """
        tokens = [self.position(line)]
        batch = self.batch(line.tenant, line.staged_by or line.batch)
        is_old = not line.staged and now_ms - line.promoted_at_ms > BATCH_READ_MS
        if batch is None or batch.status != APPLIED or is_old:
            return tokens
        tokens.append(self.batch_position(line.tenant, batch.id))
        tokens += [self._position(line.tenant, change.kind, change.name) for change in batch.changes]
        return newest_positions(tokens)

    def start_positions(self, tenant: str, agent: str, now_ms: int) -> list[str]:
        """Return the positions that a start of an agent must include, as far as this process has read."""
        lines = (self.line(AGENT, owner, agent) for owner in dict.fromkeys((tenant, SHARED)))
        return [token for line in lines if line is not None for token in self.positions(line, now_ms=now_ms)]

    def lines(self, kind: str, tenant: str, *, with_deleted: bool = False) -> Iterator[Line]:
        """Yield a tenant's lines of a kind that have versions, by name; without those that are deleted."""
        names = self._names.get((tenant, kind), {})
        for name in sorted(names):
            line: Line = self._replicas.state(names[name])
            if line.versions and (with_deleted or not line.is_deleted):
                yield line

    def tenants(self, kind: str) -> list[str]:
        """Return the tenants that have lines of a kind."""
        return sorted(tenant for tenant, of_kind in self._names if of_kind == kind)

    def count(self, tenant: str | None = None) -> int:
        """Return the number of lines of a tenant, or of all."""
        return sum(len(names) for (owner, _), names in self._names.items() if tenant is None or owner == tenant)

    def find(self, def_id: str) -> tuple[Line, Version] | None:
        """Return the version with that id, whose ever it is."""
        place = self._versions.get(def_id)
        if place is None:
            return None
        line: Line = self._replicas.state(place[0])
        version = line.version(place[1])
        return None if version is None else (line, version)

    def find_file(self, def_id: str) -> FileDefinition | None:
        """Return the definition of a file of this process with that id."""
        return self._file_ids.get(def_id)

    # --- resolving ---------------------------------------------------------------------------------------------------

    def resolve(self, kind: str, tenant: str, name: str) -> Resolved | None:
        """Return what the name means for a tenant; None if nothing."""
        file = self._of_files.get((kind, name))
        if kind == VOLUME and file is not None:
            return file
        # Most tenants have nothing of their own, and each start of a run asks.
        own = self._active(kind, tenant, name, TENANT) if tenant != SHARED and (tenant, kind) in self._made else None
        if own is not None:
            return own
        return file if file is not None else self._active(kind, SHARED, name, SHARED_SOURCE)

    def file_version(self, file: FileDefinition) -> Resolved:
        """Return a definition of a file as what a name resolves to."""
        return _of_file(file)

    def has_skills(self, tenant: str) -> bool:
        """Whether any skill was defined at run time that the tenant may see."""
        return any((owner, "skill") in self._made for owner in (tenant, SHARED))

    def has_volumes(self, tenant: str) -> bool:
        """Whether any volume was made at run time that the tenant may see."""
        return any((owner, VOLUME) in self._made for owner in (tenant, SHARED))

    def volume(self, tenant: str, name: str) -> VolumeBinding | None:
        """Return a volume that was made at run time."""
        resolved = self.resolve(VOLUME, tenant, name)
        if resolved is None or resolved.content is None:
            return None
        return VolumeBinding(
            name=name, path=str(resolved.content["path"]), mode=str(resolved.content["mode"]), is_default=False
        )

    def _active(self, kind: str, tenant: str, name: str, source: str) -> Resolved | None:
        line = self.line(kind, tenant, name)
        if line is None or line.is_deleted:
            return None
        version = line.version(self.active_number(line))
        return None if version is None or version.is_retired else self.resolved(line, version, source)

    def active_number(self, line: Line) -> int:
        """Return the number of the active version; until a batch has been read as a whole, of the one before it."""
        if line.staged and self.is_applied(line.tenant, line.staged_by):
            return line.staged
        number = line.active
        for batch, replaced in reversed(line.batches):
            if self.is_applied(line.tenant, batch):
                break
            number = replaced
        return number

    def is_applied(self, tenant: str, batch_id: str) -> bool:
        """Whether a batch is applied, and all its versions have been read here: its lines are in other partitions."""
        aggregate = aggregate_id(NAME, tenant, line_id(BATCH_KIND, batch_id))
        if aggregate in self._whole:
            return True
        batch = self._batches.get(aggregate)
        if batch is None or batch.status != APPLIED:
            return False
        if not all(change.def_id in self._versions for change in batch.changes):
            return False
        self._whole.add(aggregate)
        return True

    def batch(self, tenant: str, batch_id: str) -> Batch | None:
        """Return a batch as far as this process has read."""
        return self._batches.get(aggregate_id(NAME, tenant, line_id(BATCH_KIND, batch_id)))

    def batch_position(self, tenant: str, batch_id: str) -> str:
        """Return the position token of a batch's last event."""
        return self._position(tenant, BATCH_KIND, batch_id)

    def resolved(self, line: Line, version: Version, source: str = "") -> Resolved:
        """Return a version of a line as what a name resolves to."""
        return Resolved(
            kind=line.kind,
            name=line.name,
            source=source or (TENANT if line.tenant else SHARED_SOURCE),
            def_id=line.id_of(version.number),
            version=version.number,
            digest=version.digest,
            content=self._known_content(version.digest, version.content),
            line=line,
        )

    def _known_content(self, digest: bytes, text: str) -> Content | None:
        content = self._contents.get(digest)
        if content is None and text:
            content = self._keep(digest, parse_content(text))
        return content

    def _keep(self, digest: bytes, content: Content) -> Content:
        self._contents[digest] = content
        if len(self._contents) > CONTENTS_MAX:
            self._contents.popitem(last=False)
        return content

    async def load(self, resolved: Resolved) -> Content:
        """Return the content, from wherever it lies. Raises ConnectorError, PositionNotRead."""
        if resolved.content is not None:
            return resolved.content
        assert resolved.line is not None, "only a version may lie elsewhere"
        version = resolved.line.version(resolved.version)
        assert version is not None
        return await self.content(resolved.line, version)

    async def content(self, line: Line, version: Version) -> Content:
        """Return the content of a version, from wherever it lies. Raises ConnectorError, PositionNotRead."""
        known = self._known_content(version.digest, version.content)
        if known is not None:
            return known
        return self._keep(version.digest, parse_content(await self.text(line, version)))

    async def text(self, line: Line, version: Version) -> str:
        """Return the canonical JSON of a version. Raises ConnectorError, PositionNotRead; Permanent(invalid) for one
        that is not what its hash says.
        """
        blob = version.blob
        text = version.content
        if not text and blob is None:
            item = await self.item(line, version)
            text = str(item.get("content", ""))
            blob = BlobRef.from_avro(item["blob"]) if item.get("blob") else None
        if not text and blob is not None:
            text = (await self._blobs.get(blob)).decode(errors="replace")
        try:
            parse_content(text)
        except DefinitionProblem as problem:
            raise Permanent(
                f"{line.kind} {line.name}, version {version.number}: {problem}", kind="invalid"
            ) from problem
        return text

    async def item(self, line: Line, version: Version) -> Mapping[str, Any]:
        """Return the row of a version: author, reason, content hash, and the position of its event.

        Raises ConnectorError, PositionNotRead.
        """
        rows = await self.items(line, [version])
        if not rows:
            raise Permanent(
                f"{line.kind} {line.name}, version {version.number}: its row is missing; rebuild the read model of "
                "entities",
                kind="not_found",
            )
        return rows[version.number]

    async def items(self, line: Line, versions: list[Version]) -> dict[int, Mapping[str, Any]]:
        """Return the rows of versions, by number. Raises ConnectorError, PositionNotRead."""
        ids = {line.id_of(version.number): version.number for version in versions}
        rows = await self._reads.load_items(NAME, line.tenant, VERSION_ITEM, list(ids), positions=[self.position(line)])
        return {ids[row.id]: {**orjson.loads(row.document), "position": self._position_of(row)} for row in rows}

    def _position_of(self, row: ItemRow) -> str:
        return str(Position(topic=self._reads.topic, partition=row.partition, offset=row.offset))


def _of_file(file: FileDefinition) -> Resolved:
    return Resolved(
        kind=file.kind, name=file.name, source=FILE, def_id=file.def_id, digest=file.digest, content=file.content
    )
