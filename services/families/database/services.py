"""Databases in a process: opened at once where agents write, and with the first request in a process that only reads.

The bounds of requests are tighter than those of agents, because a person waits and the process serves others meanwhile.
The files are those of this process, made from the log on first use.

Before: services/families/opening.py. After: handlers.py, operations.py.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.database.erasure import DatabaseErasure
from loomlog.services.families.database.files import DatabaseFiles
from loomlog.services.families.database.handlers import DatabaseHandlers
from loomlog.services.families.database.limits import SqlLimits
from loomlog.services.families.database.operations import DatabaseOperations
from loomlog.services.families.memory.services import MemoryServices, embed_for_sql
from loomlog.services.families.opening import FamilyContext, FamilyServices, OwnedPartitions

NEEDS = ("memory",)
ROWS_MAX = 1_000
STATEMENT_S = 2.0
BUSY_WAIT_S = 2.0
FILES_MAX, FILES_BYTES_MAX = 20, 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions:
    """What SQL memory takes of the configuration."""

    root: Path
    """Folder for the files of all processes of this machine."""
    limits: SqlLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOptions:
    """What the configuration says of databases."""

    sql: SqlOptions | None = None
    """None: SQL memory is off."""


def read_options(loaded: ProcessConfiguration) -> DatabaseOptions:
    """Return the options of a process."""
    settings = loaded.settings
    if not settings.sqlmem_enabled:
        return DatabaseOptions()
    limits = SqlLimits(
        rows_max=settings.sqlmem_max_rows,
        statement_s=settings.sqlmem_statement_timeout_ms / 1000,
        idle_s=settings.sqlmem_txn_timeout_ms / 1000,
        transactions_max=settings.sqlmem_max_open_txns,
        depth_max=settings.sqlmem_max_txn_depth,
        quota_bytes=settings.sqlmem_quota_bytes,
    )
    sql = SqlOptions(root=settings.effective_sqlmem_root, limits=limits)
    return DatabaseOptions(sql=sql)


class DatabaseServices:
    """The databases of a process."""

    def __init__(
        self,
        options: DatabaseOptions,
        build: Callable[[DatabaseFiles, SqlLimits], DatabaseOperations],
        *,
        is_for_agents: bool,
    ) -> None:
        """Open the databases of agents. Raises OSError when their folder cannot be made."""
        self._options = options
        self._build = build
        self._files: DatabaseFiles | None = None
        self._opening = asyncio.Lock()
        self.operations: DatabaseOperations | None = None
        """None: SQL memory is off, or nothing was asked for yet."""
        if options.sql is not None and is_for_agents:
            self._use(DatabaseFiles(options.sql.root, options.sql.limits), options.sql.limits)

    async def open(self) -> DatabaseOperations:
        """Return the databases. Raises Refused(sqlmem_unavailable), Unavailable."""
        sql = self._options.sql
        if sql is None:
            raise Refused("sqlmem_unavailable", "SQL memory is off here (LOOMLOG_SQLMEM_ENABLED)")
        async with self._opening:
            if self.operations is not None:
                return self.operations
            limits = request_limits(sql.limits)
            try:
                files = await asyncio.to_thread(DatabaseFiles, sql.root, limits)
            except OSError as error:
                text = f"the folder {sql.root} of the databases cannot be used: {error.strerror}"
                raise Unavailable(text) from error
            return self._use(files, limits)

    async def close(self) -> None:
        """Remove the files of this process."""
        if self.operations is not None:
            await self.operations.close()

    def forget(self, tenant: str, subject: str) -> None:
        """Remove the files of a tenant, of whose content some is erased."""
        if self._files is not None:
            self._files.forget(tenant)

    def _use(self, files: DatabaseFiles, limits: SqlLimits) -> DatabaseOperations:
        self._files = files
        self.operations = self._build(files, limits)
        return self.operations


def request_limits(limits: SqlLimits) -> SqlLimits:
    """Return the bounds of requests: those of the operator, or tighter ones."""
    return replace(
        limits,
        rows_max=min(limits.rows_max, ROWS_MAX),
        statement_s=min(limits.statement_s, STATEMENT_S),
        busy_wait_s=BUSY_WAIT_S,
        files_max=FILES_MAX,
        files_bytes_max=FILES_BYTES_MAX,
    )


def open_family(context: FamilyContext) -> FamilyServices:
    """Open databases over the entities of this process."""
    memory = context.get(MemoryServices)
    embedder = memory.options.embedder

    def build(files: DatabaseFiles, limits: SqlLimits) -> DatabaseOperations:
        return DatabaseOperations(
            context.commands,
            context.reads,
            files,
            context.blobs,
            clock_ms=context.clock_ms,
            limits=limits,
            decrypt=context.decrypt,
            encrypt=context.encrypt,
            embed=None if embedder is None else partial(embed_for_sql, embedder),
        )

    is_for_agents = context.find(OwnedPartitions) is not None
    services = DatabaseServices(context.options(DatabaseOptions), build, is_for_agents=is_for_agents)
    if context.keys is not None:
        context.keys.on_erased.append(services.forget)
    context.provide(services)
    handlers = DatabaseHandlers(services.open, require_local=memory.backends.require_local)
    eraser = DatabaseErasure(context.commands, context.reads, context.clock_ms)
    return FamilyServices(handlers=handlers.by_operation(), erasers=(eraser,), close=services.close)
