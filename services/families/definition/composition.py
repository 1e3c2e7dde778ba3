"""The content that an overlay makes: merged over what it is forked from, checked, and stored where it belongs.

Before: operations.py, batches.py. After: loomlog.connectors.definitions, and the blob store for what is long.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from loomlog.connectors.configuration.memory_block import unknown_memory_placeholders
from loomlog.connectors.configuration.resolve import CONTEXT_TOOL
from loomlog.connectors.configuration.secret_registry import (
    SecretRefused,
    SecretRegistry,
    require_hook_signatures,
    require_rule_signatures,
)
from loomlog.connectors.crypto.content_encryption import has_tokens
from loomlog.connectors.definitions import KINDS, DefinitionProblem, Kind, canonical_json, covers
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.tools.hosts import canonical_host, is_host_allowed
from loomlog.connectors.tools.tool_guide import unknown_placeholders
from loomlog.schemas.generated.values import BlobRef
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.attenuation import Abilities, exceeding, narrowed
from loomlog.services.families.definition.author import Author, RunDefinition
from loomlog.services.families.definition.state import Line, Version, digest_of
from loomlog.services.families.definition.table import SHARED, DefinitionTable, FileDefinition

MEDIA_TYPE = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredContent:
    """A content as commands have it: canonical JSON, or a reference to the blob store when it is long."""

    text: str = ""
    blob: BlobRef | None = None

    @property
    def digest(self) -> bytes:
        return digest_of(self.text, self.blob)


NO_CONTENT = StoredContent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a version is made from: a version, a file, or nothing."""

    parent: tuple[Line, Version] | None = None
    file: FileDefinition | None = None

    @property
    def parent_id(self) -> str:
        return self.parent[0].id_of(self.parent[1].number) if self.parent is not None else ""

    def root_tools(self, kind: Kind) -> tuple[str, ...] | None:
        """Return the tools of the root of the lineage; None: any."""
        if self.file is not None:
            return kind.tools(self.file.content)
        if self.parent is None:
            return None
        line, version = self.parent
        root = line.version(version.root or version.number)
        return root.tools if root is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A content, and its origin."""

    origin: Origin
    content: dict[str, Any]
    stored: StoredContent
    base: StoredContent
    """The content of the file that it is made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the server says in a definition about its author: what starts runs by itself is no way around a limit."""

    operator_key_restricted: bool = False
    isolated_user: str = ""
    """The author sees only what is this user's; empty: it sees all of the tenant."""

    def check(self, kind: Kind, content: Mapping[str, Any]) -> None:
        """Raise DefinitionProblem for a schedule of an isolated user that is to work for another one."""
        if self.isolated_user and kind.name == "schedule" and content.get("user_id") != self.isolated_user:
            text = f"user_id: a schedule of {self.isolated_user[:80]} works for no other user"
            raise DefinitionProblem("invalid_definition", text)

    @property
    def fields(self) -> Mapping[str, Any]:
        return {"operator_key_restricted": self.operator_key_restricted, "isolated": bool(self.isolated_user)}


AGENT = KINDS["agent"]
MCP_SERVER = KINDS["mcpserver"]
Discover = Callable[[str, str, Mapping[str, Any]], Awaitable[list[dict[str, Any]]]]
"""Returns the tools that a server lists, from its name, tenant and content; empty when it does not answer."""
EXCESSES_SHOWN = 5
"""Fields that one refusal lists; more are listed once these are corrected."""


class Composer:
    """Makes contents. Raises DefinitionProblem, ConnectorError, PositionNotRead."""

    def __init__(
        self,
        table: DefinitionTable,
        blobs: Blobs,
        *,
        hosts: Collection[str] | None = None,
        secrets: SecretRegistry | None = None,
    ) -> None:
        """`hosts`: those that a definition may name as addresses to call; None: any. `secrets`: which of them may sign
        what its rules and hooks send; None: that is not checked here.
        """
        self._secrets = secrets
        self._table = table
        self._blobs = blobs
        self._hosts = hosts
        self.discover: Discover | None = None

    def default_origin(self, kind: Kind, name: str, tenant: str) -> Origin:
        """Return what a name is forked from: the active version of the tenant, of all tenants, or the file."""
        for owner in dict.fromkeys((tenant, SHARED)):
            line = self._table.line(kind.name, owner, name)
            version = line.active_version if line is not None else None
            if line is not None and version is not None:
                return Origin(parent=(line, version))
        return Origin(file=self._table.files.get((kind.name, name)))

    async def compose(
        self,
        kind: Kind,
        name: str,
        overlay: Mapping[str, Any],
        origin: Origin,
        author: Author,
        *,
        inline_bytes_max: int = limits.INLINE_BYTES_MAX,
        discovers: bool = True,
    ) -> Composition:
        """Return the content of an overlay over its origin; with what a server lists, if it `discovers`."""
        stamp = stamp_of(author)
        base = await self._table.content(*origin.parent) if origin.parent is not None else None
        if origin.file is not None:
            base = origin.file.content
        content = kind.stamp(kind.compose(name, overlay, base), stamp.fields)
        abilities = await self._abilities(author)
        if kind is AGENT and abilities is not None:
            content = kind.content_of(narrowed(kind.block_of(content), name, abilities, overlay))
        stamp.check(kind, content)
        self._require_allowed_host(kind, content)
        self._require_signatures(content, author.tenant)
        _require_within(kind, name, content, abilities, base)
        if kind is MCP_SERVER and self.discover is not None and discovers:
            discovered = await self.discover(name, author.tenant, content)
            content = kind.stamp(content, {**stamp.fields, "discovered_tools": discovered})
        prompt = str(content.get("system_prompt", ""))
        if unknown := (*unknown_placeholders(prompt), *unknown_memory_placeholders(prompt)):
            raise DefinitionProblem("invalid_definition", f"system_prompt: unknown placeholder {unknown[0][:80]}")
        text = canonical_json(content)
        if has_tokens(text):
            raise DefinitionProblem(
                "invalid_definition", "the definition holds encrypted text, which would be opened for its runs"
            )
        return Composition(
            origin=origin,
            content=content,
            stored=await store_content(self._blobs, text, inline_bytes_max),
            base=await store_content(self._blobs, origin.file.text, inline_bytes_max) if origin.file else NO_CONTENT,
        )

    def _require_allowed_host(self, kind: Kind, content: Mapping[str, Any]) -> None:
        """Raise DefinitionProblem for an address that no process would be allowed to call."""
        if self._hosts is None or not kind.reached:
            return
        host = canonical_host(urlsplit(str(content[kind.reached])).hostname or "")
        if not is_host_allowed(host, self._hosts):
            text = f"{kind.reached}: the host {host[:120]} is not among LOOMLOG_HTTP_HOST_ALLOWLIST"
            raise DefinitionProblem("invalid_definition", text)

    def _require_signatures(self, content: Mapping[str, Any], tenant: str) -> None:
        """Raise DefinitionProblem for a secret that may not sign, so that nothing is written that could not be sent."""
        if self._secrets is None:
            return
        try:
            require_rule_signatures(self._secrets, (content.get("approvals") or {}).get("rules") or (), tenant)
            require_hook_signatures(self._secrets, content.get("on_complete") or (), tenant)
        except SecretRefused as refused:
            raise DefinitionProblem("invalid_definition", str(refused)) from refused

    async def require_within(self, kind: Kind, name: str, content: Mapping[str, Any], author: Author) -> None:
        """Raise DefinitionProblem(grants_exceeded) for a content that has more than the run that makes it active."""
        _require_within(kind, name, content, await self._abilities(author))

    async def _abilities(self, author: Author) -> Abilities | None:
        """Return what the author's agent can do in its run; None outside a run."""
        if author.grants is None:
            return None
        run = author.definition or RunDefinition()
        content = await self._definition_of(author.agent, run)
        if content is None:
            text = f"the definition of the agent {author.agent} is gone, so what this run may write is not known"
            raise DefinitionProblem("grants_exceeded", text)
        block = AGENT.block_of(content)
        return Abilities(
            agent=author.agent,
            block=replace(block, tools=run.tools, disable_context=bool(covers(run.tools, (CONTEXT_TOOL,)))),
            user=run.user_id,
            user_tier=run.user_tier,
            hosts=run.hosts,
            is_narrowed=bool(covers(run.tools, block.tools)),
            has_narrowed_hosts=run.has_narrowed_hosts,
        )

    async def _definition_of(self, agent: str, run: RunDefinition) -> Mapping[str, Any] | None:
        if not run.def_id:
            file = self._table.files.get((AGENT.name, agent))
            return None if file is None else file.content
        place = self._table.find(run.def_id)
        return None if place is None else await self._table.content(*place)


def _require_within(
    kind: Kind,
    name: str,
    content: Mapping[str, Any],
    abilities: Abilities | None,
    base: Mapping[str, Any] | None = None,
) -> None:
    """Raise DefinitionProblem(grants_exceeded) for a content that has more than a run, or more than `base`, which it is
    made from. Outside a run nothing is compared.
    """
    if abilities is None:
        return
    origin = kind.block_of(base) if base is not None else None
    excesses = exceeding(kind.block, name, kind.block_of(content), abilities, origin)
    if excesses:
        listed = "; ".join(map(str, excesses[:EXCESSES_SHOWN]))
        raise DefinitionProblem("grants_exceeded", f"cannot widen {name}: {listed}")


def stamp_of(author: Author) -> Stamp:
    """Return what a definition says about its author."""
    return Stamp(
        operator_key_restricted=author.operator_key_restricted,
        isolated_user=author.subject if author.is_isolated else "",
    )


async def store_content(blobs: Blobs, text: str, inline_bytes_max: int = limits.INLINE_BYTES_MAX) -> StoredContent:
    """Return a canonical JSON as commands have it; a long one is in the blob store then. Raises ConnectorError."""
    if len(text.encode()) <= inline_bytes_max:
        return StoredContent(text=text)
    return StoredContent(blob=await blobs.put(text.encode(), MEDIA_TYPE))
