"""Backends of agents: the entries of this installation, or those of another one, by `memory_backend` of the agent.

A name is a definition of the kind memorybackend, resolved at each call: the tenant's own, one of the files, the shared
one. A remote backend has entries and search; learning, consolidation and SQL are of this installation and are refused.

With `fallback_on_error: inprocess` an operation that the peer does not answer is done here as a whole, and its reply
has `backend_fallback`. What was written so stays here: it is not sent to the peer later, and a write whose outcome at
the peer is unknown may be in both. After a failure the peer is left alone for `health_check_interval_seconds`, then it
is asked in the background, and gets calls again once it answers.

Which variable may be the key is decided by the registry of secrets, by tenant and host: a definition that a tenant made
could otherwise send the secrets of others to an address of its choice.

Before: services.py. After: remote_backend.py, entry_operations.py.
"""

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import structs

from loomlog.connectors.configuration.memory_block import (
    TENANT_PLACEHOLDER,
    MemoryBackendBlock,
    MemoryBackendConfig,
    iter_backend_problems,
)
from loomlog.connectors.configuration.principals import DEFAULT_TENANT
from loomlog.connectors.configuration.secret_registry import Purpose, SecretRefused, SecretRegistry, host_of
from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.services.core.operations import Answer
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition.table import TENANT, Resolved
from loomlog.services.families.memory.api import (
    MemoryAnswer,
    MemoryFacts,
    MemoryHits,
    MemoryRecall,
    MemorySearch,
    MemorySet,
    MemorySetDone,
)
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.entry_operations import EntryOperations
from loomlog.services.families.memory.remote_backend import Peer, PeerDown, RemoteBackend
from loomlog.services.families.memory.store import Backend, Change, StoredEntry, Written
from loomlog.services.stream.entities.reads import PositionNotRead

log = logging.getLogger(__name__)

KIND = "memorybackend"
BACKENDS_MAX = 200
"""Backends whose connections are kept; those that were used last."""
TENANT_CHARACTER = re.compile(r"[A-Za-z0-9_-]")
SEPARATOR = ":"
READ_WAIT_S = 1.0
"""Seconds of one read for a prompt, of which a hanging peer must not hold back the start of a run."""
ValueT = TypeVar("ValueT")
AnswerT = TypeVar("AnswerT", bound=MemoryAnswer)

BuildPeer = Callable[[str, str], Peer]
"""Returns the client of a base_url and an api_version. Raises Permanent."""


class BackendDefinitions(Protocol):
    """Resolves names (services/families/definition/table.py)."""

    def resolve(self, kind: str, tenant: str, name: str) -> Resolved | None: ...

    async def load(self, resolved: Resolved) -> Mapping[str, Any]:
        """Return the content. Raises ConnectorError, PositionNotRead."""
        ...


class Backends:
    """The backends of agents: an operation is done where the author's agent has its memory (protocol Finder).

    `secrets` has the keys of peers.
    """

    def __init__(
        self,
        entries: EntryOperations,
        definitions: BackendDefinitions,
        build_peer: BuildPeer,
        *,
        secrets: SecretRegistry,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entries = entries
        self._definitions = definitions
        self._build_peer = build_peer
        self._secrets = secrets
        self._clock_s = clock_s
        self._remotes: OrderedDict[tuple[str, str, str, bytes], _Remote] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def run(
        self, operate: Callable[[EntryOperations], Awaitable[Answer[AnswerT]]], author: Author
    ) -> Answer[AnswerT]:
        """Return what an operation on the entries of the author gives. Raises Refused, Unavailable."""
        remote = await self._select(author)
        if remote is None:
            return await operate(self._entries)
        try:
            return await remote.run(operate, author)
        except Unavailable as error:
            if not remote.has_fallback:
                raise
            log.warning("%s; the memory here is used instead", error)
        try:
            answer = await operate(self._entries)
        except Refused as refused:
            where = (
                f"{refused} (answered by the memory here, because the backend {remote.backend.name} does not answer)"
            )
            raise Refused(
                refused.code,
                where,
                details={**refused.details, "backend_fallback": True},
                retry_after_s=refused.retry_after_s,
            ) from refused
        return structs.replace(answer, value=structs.replace(answer.value, backend_fallback=True))

    async def set(self, asked: MemorySet, author: Author, scope: Scope) -> Answer[MemorySetDone]:
        """Set a key. Raises Refused, Unavailable."""
        return await self.run(lambda entries: entries.set(asked, author, scope), author)

    async def search(self, scope: Scope, asked: MemorySearch, author: Author) -> MemoryHits:
        """Return what a search finds (protocol Finder). Raises Refused, Unavailable."""
        return (await self.run(lambda entries: entries.search(asked, author, scope), author)).value

    async def recall(self, scope: Scope, asked: MemoryRecall, author: Author) -> MemoryFacts:
        """Return the facts that a search finds. Raises Refused, Unavailable."""
        return (await self.run(lambda entries: entries.recall(asked, author, scope), author)).value

    async def backend_of(self, author: Author) -> Backend:
        """Return where the author's entries are, for the prompt of one run.

        Raises Refused, Unavailable.

        Once a peer has not answered a read within READ_WAIT_S, all further reads are of the fallback.
        """
        remote, store = await self._select(author), self._entries.store
        return store if remote is None else _RemoteEntries(remote, store if remote.has_fallback else None)

    async def require_local(self, op: str, author: Author) -> None:
        """Raise Refused(capability_unsupported) when the author's entries are in another installation."""
        remote = await self._select(author)
        if remote is not None:
            name = remote.backend.name
            text = f"{op}: the memory backend {name} is another installation, which has entries and search only"
            raise Refused("capability_unsupported", text)

    async def close(self) -> None:
        """Close the connections to all peers."""
        for remote in self._remotes.values():
            await remote.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    # --- selection ---------------------------------------------------------------------------------------------------

    async def _select(self, author: Author) -> "_Remote | None":
        """Return the remote backend of the author's agent; None for the entries here."""
        name = "" if author.grants is None else author.grants.memory_backend
        if not name:
            return None
        resolved = self._definitions.resolve(KIND, author.tenant, name)
        if resolved is None:
            text = f"there is no memory backend {name[:80]!r}, in memory_backends of the files or made by the tenant"
            raise Refused("capability_unsupported", text)
        is_own = resolved.source == TENANT
        place = (resolved.source, author.tenant if is_own else "", name, resolved.digest)
        remote = self._remotes.get(place)
        if remote is None:
            block = await self._load(resolved)
            if block.kind == "inprocess":
                return None
            remote = self._remotes.get(place) or self._open(block, resolved, author.tenant if is_own else "")
            self._remotes[place] = remote
            self._trim()
        self._remotes.move_to_end(place)
        return remote

    async def _load(self, resolved: Resolved) -> MemoryBackendBlock:
        try:
            block: MemoryBackendBlock = KINDS[KIND].block_of(await self._definitions.load(resolved))
        except (ConnectorError, PositionNotRead) as error:
            raise Unavailable(f"the memory backend {resolved.name}: it cannot be read: {error}") from error
        except DefinitionProblem as problem:
            raise _unusable(resolved.name, str(problem)) from problem
        for broken in iter_backend_problems(block):
            raise _unusable(resolved.name, f"{'.'.join(broken.path)}: {broken.message}")
        return block

    def _open(self, block: MemoryBackendBlock, resolved: Resolved, owner: str) -> "_Remote":
        config = block.config or MemoryBackendConfig()
        try:
            peer = self._build_peer(config.base_url, config.api_version)
        except Permanent as error:
            raise _unusable(resolved.name, str(error)) from error
        tenancy = _Tenancy(resolved.name, block, self._secrets, owner=owner)
        backend = RemoteBackend(resolved.name, peer, key_of=tenancy.key, prefix_of=tenancy.prefix)
        return _Remote(
            backend,
            EntryOperations(self._entries.store, self._entries.limits, backend=lambda author: backend, finder=backend),
            has_fallback=block.fallback_on_error == "inprocess",
            interval_s=block.health_check_interval_seconds,
            clock_s=self._clock_s,
        )

    def _trim(self) -> None:
        while len(self._remotes) > BACKENDS_MAX:
            _, remote = self._remotes.popitem(last=False)
            closing = asyncio.get_running_loop().create_task(remote.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


class _RemoteEntries:
    """Entries of a remote backend outside of operations (protocol Backend): reads have a fallback, writes have none."""

    def __init__(self, remote: "_Remote", fallback: Backend | None) -> None:
        self._remote = remote
        self._fallback = fallback
        self._is_down = False

    async def get(self, scope: Scope, key: str, author: Author) -> StoredEntry | None:
        return await self._read(author, lambda reader: reader.get(scope, key, author))

    async def list(
        self, scope: Scope, author: Author, *, prefix: str = "", after: str = "", limit: int
    ) -> tuple[Sequence[StoredEntry], bool]:
        return await self._read(
            author, lambda reader: reader.list(scope, author, prefix=prefix, after=after, limit=limit)
        )

    async def set(self, scope: Scope, key: str, change: Change, author: Author, step: str = "") -> Written:
        return await self._remote.guard(author, lambda: self._remote.backend.set(scope, key, change, author, step))

    async def delete(self, scope: Scope, key: str, author: Author) -> tuple[bool, str]:
        return await self._remote.guard(author, lambda: self._remote.backend.delete(scope, key, author))

    async def _read(self, author: Author, read: Callable[[Backend], Awaitable[ValueT]]) -> ValueT:
        if self._is_down and self._fallback is not None:
            return await read(self._fallback)
        try:
            return await self._remote.guard(author, lambda: read(self._remote.backend), READ_WAIT_S)
        except Unavailable as error:
            self._is_down = True
            if self._fallback is None:
                raise
            log.warning("%s; the memory here is read instead", error)
            return await read(self._fallback)


class _Remote:
    """A remote backend, and whether it is worth asking."""

    def __init__(
        self,
        backend: RemoteBackend,
        entries: EntryOperations,
        *,
        has_fallback: bool,
        interval_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        """`interval_s` 0: it is asked for each call."""
        self.backend = backend
        self.has_fallback = has_fallback
        self._entries = entries
        self._interval_s = interval_s
        self._clock_s = clock_s
        self._check_at_s: float | None = None
        """When it is asked in the background; None while it is taken to answer."""
        self._check: asyncio.Task[None] | None = None

    async def guard(
        self, author: Author, ask: Callable[[], Awaitable[ValueT]], timeout_s: float | None = None
    ) -> ValueT:
        """Return what the peer answers, unless it is left alone. Raises Unavailable."""
        name = self.backend.name
        if self._check_at_s is not None:
            self._start_check(author.tenant)
            text = f"it did not answer, and is asked again every {self._interval_s:g} s"
            raise Unavailable(f"the memory backend {name}: {text}")
        try:
            async with asyncio.timeout(timeout_s):
                return await ask()
        except PeerDown:
            self._leave_alone()
            raise
        except TimeoutError as error:
            self._leave_alone()
            raise Unavailable(f"the memory backend {name}: no answer within {timeout_s:g} s") from error

    def _leave_alone(self) -> None:
        if self._interval_s:
            self._check_at_s = self._clock_s() + self._interval_s

    async def run(
        self, operate: Callable[[EntryOperations], Awaitable[Answer[AnswerT]]], author: Author
    ) -> Answer[AnswerT]:
        return await self.guard(author, lambda: operate(self._entries))

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
        await self.backend.close()

    def _start_check(self, tenant: str) -> None:
        if self._check is None and self._check_at_s is not None and self._clock_s() >= self._check_at_s:
            self._check = asyncio.get_running_loop().create_task(self._ask(tenant))

    async def _ask(self, tenant: str) -> None:
        try:
            is_alive = await self.backend.is_alive(tenant)
            self._check_at_s = None if is_alive else self._clock_s() + self._interval_s
        finally:
            self._check = None


class _Tenancy:
    """The key and the prefix of each tenant at a peer.

    `owner` is the tenant that made the definition; empty for one of the files or of all tenants.
    """

    def __init__(self, name: str, block: MemoryBackendBlock, secrets: SecretRegistry, *, owner: str) -> None:
        self._name = name
        self._strategy = block.tenancy_strategy
        self._variable = (block.config or MemoryBackendConfig()).api_key_env or ""
        self._host = host_of((block.config or MemoryBackendConfig()).base_url)
        self._secrets = secrets
        self._owner = owner

    def key(self, tenant: str) -> str:
        """Return the API key for the requests of a tenant; empty when none is configured. Raises Refused."""
        variable = self._variable
        match self._strategy:
            case None if not self._owner and tenant != DEFAULT_TENANT:
                text = f"it has no tenancy_strategy, so it serves the tenant {DEFAULT_TENANT} alone and not {tenant}"
                raise _unusable(self._name, text)
            case None:
                pass
            case strategy if strategy.kind == "key_per_tenant":
                variable = strategy.env_pattern.replace(TENANT_PLACEHOLDER, tenant)
        if not variable:
            return ""
        try:
            return self._secrets.resolve(variable, Purpose.BACKEND_KEY, tenant=tenant, host=self._host).strip()
        except SecretRefused as refused:
            raise _unusable(self._name, str(refused)) from refused

    def prefix(self, tenant: str) -> str:
        """Return what stands before scope ids and keys of a tenant; no name with it is one of another tenant.

        A pattern without a character after the tenant that no tenant's name has gets a colon.
        """
        strategy = self._strategy
        if strategy is None or strategy.kind != "shared_key_with_prefix":
            return ""
        _, _, end = strategy.prefix_pattern.partition(TENANT_PLACEHOLDER)
        separates = TENANT_CHARACTER.sub("", end.replace(TENANT_PLACEHOLDER, ""))
        prefix = strategy.prefix_pattern.replace(TENANT_PLACEHOLDER, tenant) + ("" if separates else SEPARATOR)
        return prefix.replace("%", "%25").replace("/", "%2F")


def _unusable(name: str, problem: str) -> Refused:
    return Refused("capability_unsupported", f"the memory backend {name[:80]}: {problem}")
