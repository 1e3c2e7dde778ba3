"""SQL databases of memory for callers outside of runs: one statement that reads.

The bounds are tighter than those of agents, because a person waits and the process serves others meanwhile. The files
are those of this process, made from the log on first use; so a call sees what is committed, and none of the open
transactions of runs.

Before: services/api/memory_endpoints.py. After: services/families/database/operations.py.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from loomlog.connectors.protocols import Blobs
from loomlog.schemas.records import replace
from loomlog.services.application.authentication import require_member
from loomlog.services.application.dispatch import resolve_tenant
from loomlog.services.application.errors import RETRY_SOON_S, bad_request, run_refusing
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.families.database.files import DatabaseFiles
from loomlog.services.families.database.operations import DatabaseOperations
from loomlog.services.families.database.page_store import Decrypt
from loomlog.services.families.memory.author import RUN, SCOPE_ID_CHARACTERS_MAX, Author, Scope, named_scope
from loomlog.services.families.memory.operations import SQL_SCOPES
from loomlog.services.families.memory.wiring import MemoryOptions, SqlOptions, embed_for_sql
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads

ROWS_MAX = 1_000
STATEMENT_S = 2.0
BUSY_WAIT_S = 2.0
FILES_MAX, FILES_BYTES_MAX = 20, 256 * 1024 * 1024
FIELDS = ("scope", "scope_id", "statement", "args")


class MemorySql:
    """The use case. Methods raise Refused; `tenant` empty is the caller's."""

    def __init__(
        self,
        options: MemoryOptions,
        commands: EntityCommands,
        reads: EntityReads,
        blobs: Blobs,
        *,
        clock_ms: Callable[[], int],
        decrypt: Decrypt,
        keys: SubjectKeys | None = None,
    ) -> None:
        embedder = options.embedder
        self._options = options.sql
        self._build = partial(
            DatabaseOperations,
            commands,
            reads,
            blobs=blobs,
            clock_ms=clock_ms,
            decrypt=decrypt,
            embed=None if embedder is None else partial(embed_for_sql, embedder),
        )
        self._files: DatabaseFiles | None = None
        self._databases: DatabaseOperations | None = None
        self._opening = asyncio.Lock()
        if keys is not None:
            keys.on_erased.append(self._forget)

    async def query(self, caller: Caller, body: Any, *, tenant: str = "") -> dict[str, Any]:
        """Return `columns`, `rows` (at most ROWS_MAX) and `truncated` of a SELECT within STATEMENT_S."""
        require_member(caller)
        owner = resolve_tenant(caller, tenant)
        if not isinstance(body, Mapping):
            raise bad_request('the body must be an object such as {"statement": "SELECT 1", "scope": "tenant"}')
        if unknown := sorted(set(body) - set(FIELDS)):
            raise bad_request(f"{unknown[0][:60]!r} is unknown, expected are {', '.join(FIELDS)}")
        scope, fields = _scope(owner, body), _statement_fields(body)
        databases = await self._open()
        author = Author(tenant=owner, subject=caller.subject, command_id="", issued_at_ms=0)
        reply = await run_refusing(
            databases.run("sql_query", fields, author, scope), unavailable_code="memory_unavailable"
        )
        return {"scope": scope.name, "scope_id": scope.id, **reply.fields}

    async def close(self) -> None:
        """Remove the files of this process."""
        if self._databases is not None:
            await self._databases.close()

    async def _open(self) -> DatabaseOperations:
        if self._options is None:
            raise Refused("sqlmem_unavailable", "SQL memory is off here (LOOMLOG_SQLMEM_ENABLED)")
        async with self._opening:
            if self._databases is None:
                limits = _limits(self._options)
                try:
                    self._files = await asyncio.to_thread(DatabaseFiles, self._options.root, limits)
                except OSError as error:
                    text = f"the folder {self._options.root} of the databases cannot be used: {error.strerror}"
                    raise Refused("memory_unavailable", text, retry_after_s=RETRY_SOON_S) from error
                self._databases = self._build(files=self._files, limits=limits)
            return self._databases

    def _forget(self, tenant: str, subject: str) -> None:
        if self._files is not None:
            self._files.forget(tenant)


def _limits(options: SqlOptions) -> Any:
    return replace(
        options.limits,
        rows_max=min(options.limits.rows_max, ROWS_MAX),
        statement_s=min(options.limits.statement_s, STATEMENT_S),
        busy_wait_s=BUSY_WAIT_S,
        files_max=FILES_MAX,
        files_bytes_max=FILES_BYTES_MAX,
    )


def _statement_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement and its arguments. They are checked before the database is opened, which may be away."""
    if "statement" not in body:
        raise Refused("missing_value", "statement: it is missing; expected the text of one SELECT")
    if not isinstance(statement := body["statement"], str) or not statement:
        raise Refused("sql_refused", f"statement: expected the text of one SELECT, not {_shown(statement)}")
    if not isinstance(args := body.get("args", []), list):
        raise Refused(
            "sql_refused", f"args: expected a list of the values for the ? of the statement, not {_shown(args)}"
        )
    return {"statement": statement, "args": args}


def _text(body: Mapping[str, Any], name: str, default: str) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise bad_request(f"{name}: expected text, not {_shown(value)}")
    return value or default


def _shown(value: Any) -> str:
    return repr(value)[:60] if value is not None else "null"


def _scope(tenant: str, body: Mapping[str, Any]) -> Scope:
    name, scope_id = _text(body, "scope", "user"), _text(body, "scope_id", "")
    if name not in SQL_SCOPES:
        raise Refused("invalid_scope", f"scope: expected one of {', '.join(SQL_SCOPES)}, not {name[:60]!r}")
    if name != "tenant" and not scope_id:
        raise Refused("missing_scope_id", f"scope_id: scope {name} needs an id")
    if name == RUN:
        if len(scope_id) > SCOPE_ID_CHARACTERS_MAX or not scope_id.isprintable():
            raise Refused("invalid_scope", f"scope_id: expected the id of a root run, not {scope_id[:60]!r}")
        return Scope(tenant, RUN, scope_id)
    return named_scope(tenant, name, scope_id)
