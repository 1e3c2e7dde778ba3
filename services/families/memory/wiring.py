"""The parts of memory that runtimes and the api put together in the same way: entries, their index, and an embedder.

Before: services/runtime/memory_setup.py, services/application/bootstrap.py. After: entry_operations.py, search.py,
index_administration.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loomlog.connectors.configuration.driver_options import embedder_options
from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.embedders.catalog import build_embedder
from loomlog.connectors.embedders.health import HealthTrackingEmbedder
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.projections.memory_index.embedding import EmbedderRefused, call_embedder
from loomlog.projections.memory_index.reads import MemoryIndex, open_index
from loomlog.projections.memory_index.tokens import index_key
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.database.limits import SqlLimits
from loomlog.services.families.memory.entry_operations import (
    DEFAULT_ENTRY_LIMITS,
    EntryLimits,
    EntryOperations,
    entry_limits,
)
from loomlog.services.families.memory.index_administration import IndexAdministration
from loomlog.services.families.memory.search import MemoryFinder, MemorySearch
from loomlog.services.families.memory.store import Decrypt, MemoryStore
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads

SQL_EMBED_S = 30.0
"""How long the vectors of a statement are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions:
    """What SQL memory takes of the configuration."""

    root: Path
    """Folder for the files of all processes of this machine."""
    limits: SqlLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """What memory takes of the configuration."""

    limits: EntryLimits = DEFAULT_ENTRY_LIMITS
    embedder: HealthTrackingEmbedder | None = None
    sql: SqlOptions | None = None
    """None: SQL memory is off."""


DEFAULT_MEMORY_OPTIONS = MemoryOptions()


def memory_options(loaded: ProcessConfiguration, environment: Mapping[str, str]) -> MemoryOptions:
    """Read the options. Raises EmbedderNotConfigured, a ValueError, when the embedder cannot be used."""
    settings = loaded.settings
    return MemoryOptions(
        limits=entry_limits(settings.memory_max_value_bytes, settings.memory_max_scope_bytes),
        embedder=build_embedder(embedder_options(loaded.configuration, settings), environment),
        sql=sql_options(settings),
    )


def sql_options(settings: Settings) -> SqlOptions | None:
    """Return the folder and the bounds of SQL memory; None when it is off."""
    if not settings.sqlmem_enabled:
        return None
    limits = SqlLimits(
        rows_max=settings.sqlmem_max_rows,
        statement_s=settings.sqlmem_statement_timeout_ms / 1000,
        idle_s=settings.sqlmem_txn_timeout_ms / 1000,
        transactions_max=settings.sqlmem_max_open_txns,
        depth_max=settings.sqlmem_max_txn_depth,
        quota_bytes=settings.sqlmem_quota_bytes,
    )
    return SqlOptions(root=settings.effective_sqlmem_root, limits=limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServices:
    """Entries of a process, found by their words and their meaning."""

    store: MemoryStore
    entries: EntryOperations
    options: MemoryOptions
    search: MemorySearch | None = None
    administration: IndexAdministration | None = None
    index: MemoryIndex | None = None

    async def close(self) -> None:
        """Write what is counted, and close the connections."""
        if self.search is not None:
            await self.search.close()
        if self.index is not None:
            await self.index.close()
        if self.options.embedder is not None:
            await self.options.embedder.close()


async def open_memory_index(postgres: PostgresOptions, secret: SecretKey | None) -> MemoryIndex:
    """Open the index. Postgres may be away: then searches fail until it is back."""
    return await open_index(postgres, index_key(secret))


def build_memory_services(
    options: MemoryOptions,
    commands: EntityCommands,
    reads: EntityReads,
    index: MemoryIndex | None,
    *,
    decrypt: Decrypt,
    clock_ms: Callable[[], int],
) -> MemoryServices:
    """Build the services over the entities of a process. `index` None: nothing is found by search."""
    embedder = options.embedder
    store = MemoryStore(commands, reads, clock_ms=clock_ms, decrypt=decrypt)
    if index is None:
        return MemoryServices(store=store, entries=EntryOperations(store, options.limits), options=options)
    embedders = () if embedder is None else (embedder,)
    search = MemorySearch(index, reads, clock_ms=clock_ms, decrypt=decrypt, embedders=embedders)
    embedding = None if embedder is None else search
    return MemoryServices(
        store=store,
        entries=EntryOperations(store, options.limits, embedding=embedding, finder=MemoryFinder(search)),
        options=options,
        search=search,
        administration=IndexAdministration(index, reads, decrypt=decrypt, embedder=embedder),
        index=index,
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
