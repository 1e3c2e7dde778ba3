"""Memory in a process: opened once, for requests, tools, prompts and the ends of runs.

Before: services/families/opening.py. After: handlers.py; backends.py, entry_operations.py, search.py.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from loomlog.connectors.configuration.driver_options import embedder_options
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.memory_block import MemoryEntryBlock
from loomlog.connectors.configuration.secret_registry import NO_SECRETS, SecretRegistry
from loomlog.connectors.configuration.tree import KeyPath
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.embedders.catalog import build_embedder
from loomlog.connectors.embedders.health import ABSENT, HealthTrackingEmbedder
from loomlog.connectors.memory_peer.client import PeerClient
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.memory_index.embedding import EmbedderRefused, call_embedder
from loomlog.projections.memory_index.reads import MemoryIndex, open_index
from loomlog.projections.memory_index.tokens import index_key
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.families.memory.author import scopes_of_run
from loomlog.services.families.memory.backends import Backends
from loomlog.services.families.memory.boot_entries import BootEntries
from loomlog.services.families.memory.change_stream import MemoryChanges
from loomlog.services.families.memory.entry_operations import (
    DEFAULT_ENTRY_LIMITS,
    EntryLimits,
    EntryOperations,
    entry_limits,
)
from loomlog.services.families.memory.erasure import MemoryErasure
from loomlog.services.families.memory.handlers import MemoryHandlers
from loomlog.services.families.memory.index_administration import IndexAdministration
from loomlog.services.families.memory.prompt import bands_part
from loomlog.services.families.memory.prompt_memory import PromptMemory
from loomlog.services.families.memory.run_entries import RunEntries
from loomlog.services.families.memory.search import MemoryFinder, MemorySearcher
from loomlog.services.families.memory.store import MemoryStore
from loomlog.services.families.opening import FamilyContext, FamilyServices, OwnedPartitions, Work
from loomlog.services.families.ports.change_feed import ChangeFeed
from loomlog.services.families.ports.isolation import Isolation
from loomlog.services.families.ports.prompts import DefinitionTextReader, PromptAdditions
from loomlog.services.families.ports.run_ends import EntryWriter
from loomlog.services.families.ports.run_sources import RunSources

NEEDS = ("definition",)
SQL_EMBED_S = 30.0
"""How long the vectors of a statement are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """What the configuration says of memory."""

    limits: EntryLimits = DEFAULT_ENTRY_LIMITS
    embedder: HealthTrackingEmbedder | None = None
    secrets: SecretRegistry = NO_SECRETS
    """The keys of backends."""
    private_hosts: Sequence[str] = ()
    """Hosts of this network that backends may be at."""
    entries: Sequence[MemoryEntryBlock] = ()
    """Entries of the files."""
    bands: str = ""
    """Text of {{memory:consolidation_bands}} in prompts."""


def read_options(loaded: ProcessConfiguration, environment: Mapping[str, str] = os.environ) -> MemoryOptions:
    """Return the options of a process. Raises EmbedderNotConfigured, a ValueError, when the embedder cannot be used."""
    settings, policy = loaded.settings, loaded.configuration.memory.consolidation
    return MemoryOptions(
        limits=entry_limits(settings.memory_max_value_bytes, settings.memory_max_scope_bytes),
        embedder=build_embedder(embedder_options(loaded.configuration, settings), environment),
        secrets=loaded.secret_registry,
        private_hosts=settings.http_private_host_allowlist,
        entries=loaded.configuration.memory.entries,
        bands=bands_part(policy.merge_threshold, policy.related_threshold),
    )


def find_start_problems(loaded: ProcessConfiguration, environ: Mapping[str, str]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the embedder if it cannot be built."""
    try:
        read_options(loaded, environ)
    except ValueError as error:
        yield ("memory", "embedder"), str(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServices:
    """What others use of memory."""

    store: MemoryStore
    entries: EntryOperations
    backends: Backends
    options: MemoryOptions
    search: MemorySearcher | None
    """None: nothing is found by search."""
    index: MemoryIndex | None

    async def close(self) -> None:
        """Write what is counted, and close the connections."""
        await self.backends.close()
        if self.search is not None:
            await self.search.close()
        if self.index is not None:
            await self.index.close()
        if self.options.embedder is not None:
            await self.options.embedder.close()

    def embedder_state(self) -> Mapping[str, Any]:
        """Return the state of the embedder of this process: no texts, no addresses."""
        embedder = self.options.embedder
        health = ABSENT if embedder is None else embedder.health
        failed_at_ms = health.last_failure_at_ms
        shown = {"state": health.state, "successes": health.successes, "failures": health.failures}
        if failed_at_ms is None:
            return shown
        return {
            **shown,
            "last_failure_kind": health.last_failure_kind,
            "last_failure_at": format_rfc3339(failed_at_ms),
        }


async def connect(postgres: PostgresOptions, secret: SecretKey | None) -> MemoryIndex:
    """Open the index. Postgres may be away: then searches fail until it is back."""
    return await open_index(postgres, index_key(secret))


def open_family(context: FamilyContext) -> FamilyServices:
    """Open memory over the entities of this process."""
    options, index = context.options(MemoryOptions), context.find(MemoryIndex)
    embedder, reads, decrypt, clock_ms = options.embedder, context.reads, context.decrypt, context.clock_ms
    store = MemoryStore(context.commands, reads, clock_ms=clock_ms, decrypt=decrypt)
    search, administration = None, None
    if index is not None:
        embedders = () if embedder is None else (embedder,)
        search = MemorySearcher(index, reads, clock_ms=clock_ms, decrypt=decrypt, embedders=embedders)
        administration = IndexAdministration(index, reads, decrypt=decrypt, embedder=embedder)
    entries = EntryOperations(
        store,
        options.limits,
        embedding=None if embedder is None else search,
        finder=None if search is None else MemoryFinder(search),
    )
    backends = Backends(
        entries,
        context.get(DefinitionTable),
        lambda base_url, version: PeerClient(base_url, api_version=version, private_hosts=options.private_hosts),
        secrets=options.secrets,
    )
    services = MemoryServices(
        store=store, entries=entries, backends=backends, options=options, search=search, index=index
    )
    context.provide(services)
    handlers = MemoryHandlers(
        entries, backends, index=index, administration=administration, find_run=context.get(RunSources).find
    )
    changes = MemoryChanges(context.find(ChangeFeed), services.embedder_state)
    tasks: dict[str, Work] = {"memory changes": changes.run}
    if (owned := context.find(OwnedPartitions)) is not None:
        boot_entries = BootEntries(options.entries, context.commands, options.limits)
        tasks["entries of the files"] = partial(boot_entries.run, owned.is_first)
        context.provide_as(EntryWriter, RunEntries(backends, context.get(Isolation), clock_ms))
        context.provide_as(PromptAdditions, _prompt_memory(context, backends, options.bands))
    eraser = MemoryErasure(context.commands, reads, context.parts.replicas, index, clock_ms)
    return FamilyServices(
        handlers=handlers.by_operation(),
        endpoints=changes.by_endpoint(),
        tasks=tasks,
        erasers=(eraser,),
        start_positions=lambda tenant, agent, user_id: store.written_positions(scopes_of_run(tenant, agent, user_id)),
        close=services.close,
    )


def _prompt_memory(context: FamilyContext, backends: Backends, bands: str) -> PromptMemory:
    return PromptMemory(
        backends.backend_of,
        texts=context.get(DefinitionTextReader),
        blobs=context.blobs,
        bands=bands,
        decrypt=context.decrypt,
        encrypt=context.encrypt,
        finder=backends,
        is_isolated=context.get(Isolation),
    )


async def embed_for_sql(embedder: HealthTrackingEmbedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """Return the vectors of texts that a statement binds.

    Raises Refused(embed_failed), Unavailable.
    """
    try:
        return await call_embedder(embedder, texts, timeout_s=SQL_EMBED_S)
    except EmbedderRefused as refused:
        if refused.is_temporary:
            raise Unavailable(str(refused)) from refused
        raise Refused("embed_failed", str(refused)) from refused
