"""The operations of databases: SQL on the database of a scope of memory. Pure.

Agents have them as ops of the tool Memory, transactions included. Requests read with one SELECT, within the tighter
bounds of their process.

Before: __init__.py. After: handlers.py carries them out.
"""

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import MEMORY_WRITE, TENANT_READ
from loomlog.services.core.operations import Effect, Http, Input, Operation, Output, ToolOperation
from loomlog.services.families.memory.api import OF_OPERATORS, SCOPE_CODES, TAG, TOOL

TIMEOUT_MS_MAX = 24 * 3_600_000
"""Longest time that a call may name; that of the operator bounds it."""
SqlScope = Annotated[
    Literal["agent", "user", "tenant", "run"],
    Meta(
        description="Whose database: agent, user, tenant, or run, which is that of the tree of runs; absent: the "
        "user's, or the only one that an agent may use."
    ),
]
Statement = Annotated[str, Meta(min_length=1, description="One SQL statement (SQLite).")]
Args = Annotated[list[Any], Meta(description='Values for the ? of the statement; {"$embed": "text"} binds a vector.')]
TimeoutMs = Annotated[int, Meta(ge=1, le=TIMEOUT_MS_MAX, description="Most milliseconds of the statement.")]


class DatabaseInput(Input, frozen=True, kw_only=True):
    """Base of what is about a database."""

    scope: SqlScope | UnsetType = UNSET


class DatabaseExec(DatabaseInput, frozen=True, kw_only=True):
    statement: Statement
    args: Args = msgspec.field(default_factory=list)
    timeout_ms: TimeoutMs | UnsetType = UNSET


class DatabaseQuery(DatabaseExec, frozen=True, kw_only=True):
    scope_id: Annotated[str, Meta(description="Name of the agent, id of the user, or id of the root run.")] = ""


class MemorySqlRows(Output, frozen=True, kw_only=True):
    """Rows by column; requests are told the scope."""

    scope: str | UnsetType = UNSET
    scope_id: str | UnsetType = UNSET
    columns: list[str]
    rows: list[list[Any]]
    truncated: Annotated[bool, Meta(description="Whether there are more rows.")]


class DatabaseChanged(Output, frozen=True, kw_only=True):
    rows_affected: int
    last_insert_id: int


class DatabaseTransaction(Output, frozen=True, kw_only=True):
    ok: bool
    depth: Annotated[int, Meta(description="Transactions that are open, one inside of the other.")]


_operation = partial(
    Operation,
    tag=TAG,
    field_codes={**SCOPE_CODES, "statement": "sql_refused", "args": "sql_refused"},
    missing_codes={"statement": "missing_value"},
    unavailable_code="memory_unavailable",
)


def _tool(op: str) -> ToolOperation:
    return ToolOperation(tool=TOOL.name, op=op, without=OF_OPERATORS)


def _transaction(verb: str, summary: str) -> Operation[Any, Any]:
    return _operation(
        name=f"database.{verb}",
        summary=summary,
        input=DatabaseInput,
        output=DatabaseTransaction,
        access=requires(MEMORY_WRITE),
        effect=Effect.WRITE,
        tool=_tool(f"sql_{verb}"),
    )


QUERY = _operation(
    name="database.query",
    summary="Read the SQL database of a scope with one SELECT: at most 1,000 rows, within 2 seconds.",
    input=DatabaseQuery,
    output=MemorySqlRows,
    access=requires(TENANT_READ),
    effect=Effect.READ,
    http=(
        Http(
            route="POST /v1/_memory/sql",
            id="query_memory_sql",
            without=("timeout_ms",),
            body_name="MemorySqlQuery",
            refusal_statuses=(400, 409, 503),
            example={"statement": "SELECT name FROM sqlite_schema", "scope": "user", "scope_id": "ada"},
        ),
    ),
    tool=_tool("sql_query"),
)
EXEC = _operation(
    name="database.exec",
    summary="Carry out a statement that writes.",
    input=DatabaseExec,
    output=DatabaseChanged,
    access=requires(MEMORY_WRITE),
    effect=Effect.WRITE,
    tool=_tool("sql_exec"),
)
BEGIN = _transaction("begin", "Begin a transaction, or one inside of it.")
COMMIT = _transaction("commit", "Commit the innermost transaction.")
ROLLBACK = _transaction("rollback", "Take the innermost transaction back.")
OPERATIONS = (QUERY, EXEC, BEGIN, COMMIT, ROLLBACK)
