"""What is done with memory: one handler for the bodies of HTTP requests and the inputs of tool calls.

    get set delete list incr merge append_dedupe bounded_list supersede     entries (entry_operations.py)
    search recall add                                                       search.py, consolidation
    sql_*                                                                   the database of the scope
    cursor_* pending_*                                                      the consolidation target of the scope

Before: services/runtime/tools/memory_tool.py, services/api/memory_endpoints.py. After: the handlers of each part.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory.author import RUN, SCOPES, Author, Scope, resolve_scope
from loomlog.services.families.operation import Reply

SQL_SCOPES = (*SCOPES, RUN)
TEXT: Mapping[str, Any] = {"type": "string"}
OPERATIONS: Mapping[str, frozenset[str]] = {
    "get": frozenset({"key", "include_provenance"}),
    "set": frozenset(
        {"key", "value", "ttl", "embed", "embed_text", "provenance", "from_pending", "if_revision", "path"}
    ),
    "delete": frozenset({"key"}),
    "list": frozenset({"prefix", "limit", "after"}),
    "incr": frozenset({"key", "delta", "ttl"}),
    "merge": frozenset({"key", "value", "ttl", "embed"}),
    "append_dedupe": frozenset({"key", "value", "ttl"}),
    "bounded_list": frozenset({"key", "value", "limit", "ttl"}),
    "search": frozenset({"query", "top_k", "prefix", "sources", "rank", "dedup"}),
    "add": frozenset({"messages", "content", "infer", "metadata"}),
    "recall": frozenset({"query", "top_k", "threshold"}),
    "supersede": frozenset({"key", "by_key", "reason"}),
    "sql_query": frozenset({"statement", "args", "timeout_ms"}),
    "sql_exec": frozenset({"statement", "args", "timeout_ms"}),
    "sql_begin": frozenset(),
    "sql_commit": frozenset(),
    "sql_rollback": frozenset(),
    "cursor_get": frozenset(),
    "cursor_scan": frozenset({"limit"}),
    "cursor_lease": frozenset({"lease_ttl_ms"}),
    "cursor_advance": frozenset({"completed_at", "session_id"}),
    "cursor_release": frozenset({"more"}),
    "pending_drain": frozenset({"limit"}),
    "pending_ack": frozenset({"ids"}),
    "read_session": frozenset({"session_id", "max_bytes"}),
}
"""Fields of each operation besides op and scope."""
READS = frozenset(
    {"get", "list", "search", "recall", "sql_query", "cursor_get", "cursor_scan", "pending_drain", "read_session"}
)
SQL = frozenset(op for op in OPERATIONS if op.startswith("sql_"))
CONSOLIDATION = frozenset(
    op for op in OPERATIONS if op.startswith(("cursor_", "pending_")) or op in ("read_session", "supersede")
)
FIELD_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "key": {**TEXT, "description": "Key, at most 512 characters."},
    "value": {"description": "Any JSON value, at most 64 KiB."},
    "ttl": {"type": "integer", "description": "Seconds until the key expires; absent or 0: as before."},
    "embed": {"type": "boolean", "description": "Whether the value is to be found by its meaning."},
    "embed_text": {**TEXT, "description": "Text to embed instead of the value."},
    "provenance": {"type": "object", "description": 'What the value is: {"class": "preference"}. Makes it a fact.'},
    "from_pending": {**TEXT, "description": "Id of the pending entry that the fact was made of."},
    "if_revision": {"type": "integer", "description": "Refuse unless the key has this revision; 0: unless it is new."},
    "path": {**TEXT, "description": "Name in the directory of resources."},
    "include_provenance": {"type": "boolean", "description": "For get: with where the value comes from."},
    "prefix": {**TEXT, "description": "Only keys that begin with this text."},
    "after": {**TEXT, "description": "For list: only keys after this one."},
    "limit": {"type": "integer", "description": "Most entries of a list; for bounded_list: most items that are kept."},
    "delta": {"type": "number", "description": "For incr: what is added, by default 1."},
    "query": {**TEXT, "description": "What is searched for, in plain words."},
    "top_k": {"type": "integer", "description": "Most hits, 1 to 50; by default 10."},
    "sources": {
        "type": "array",
        "items": {**TEXT, "enum": ["facts", "notes", "documents"]},
        "description": "For search: what to search; absent: everything.",
    },
    "rank": {"type": "object", "description": "For search: weights of meaning, age and use."},
    "dedup": {"type": "object", "description": "For search: whether near copies are left out."},
    "messages": {"type": "array", "items": {"type": "object"}, "description": "For add: the messages to learn from."},
    "content": {**TEXT, "description": "For add: the text to learn from, or the fact itself."},
    "infer": {"type": "boolean", "description": "For add: false stores the text as it is; by default true."},
    "metadata": {"type": "object", "description": "For add: kept with the fact."},
    "threshold": {"type": "number", "description": "For recall: least score of a hit."},
    "by_key": {**TEXT, "description": "For supersede: the key that takes its place."},
    "reason": {**TEXT, "description": "For supersede: why, for people."},
    "statement": {**TEXT, "description": "One SQL statement (SQLite)."},
    "args": {"type": "array", "description": 'Values for the ? of the statement; {"$embed": "text"} binds a vector.'},
    "timeout_ms": {"type": "integer", "description": "Most milliseconds of the statement."},
    "lease_ttl_ms": {"type": "integer", "description": "Milliseconds of the lease."},
    "completed_at": {**TEXT, "description": "For cursor_advance: when the session was completed."},
    "session_id": {**TEXT, "description": "Session."},
    "max_bytes": {"type": "integer", "description": "For read_session: most bytes of messages, the newest ones."},
    "more": {"type": "boolean", "description": "For cursor_release: whether work is left, for another pass."},
    "ids": {"type": "array", "items": TEXT, "description": "For pending_ack: ids of pending entries."},
}
OP_HELP = (
    "op get, set, delete, list read and write values by key; incr, merge, append_dedupe, bounded_list change one in "
    "place; search finds entries by words and meaning; recall finds facts, add learns them; sql_query and sql_exec "
    "run one SQL statement on the scope's own database, sql_begin, sql_commit and sql_rollback bracket several."
)


def input_schema() -> dict[str, Any]:
    """Return the JSON schema of all operations, for the tool and for HTTP."""
    return {
        "type": "object",
        "properties": {
            "op": {**TEXT, "enum": list(OPERATIONS), "description": "What to do."},
            "scope": {**TEXT, "enum": list(SQL_SCOPES), "description": "Whose memory; run is for SQL only."},
            **FIELD_SCHEMAS,
        },
        "required": ["op"],
    }


class ScopeOperations(Protocol):
    """The operations of one part."""

    async def run(self, op: str, fields: Mapping[str, Any], author: Author, scope: Scope) -> Reply:
        """Carry out an operation. Raises Refused, Unavailable."""
        ...


class MemoryOperations:
    """The handler of calls of agents."""

    def __init__(
        self,
        entries: ScopeOperations,
        *,
        databases: ScopeOperations | None = None,
        consolidation: ScopeOperations | None = None,
        require_local: Callable[[str, Author], Awaitable[None]] | None = None,
    ) -> None:
        """`databases` None: there is no SQL memory here. `require_local` refuses an op that a remote backend lacks."""
        self._entries = entries
        self._databases = databases
        self._consolidation = consolidation
        self._require_local = require_local

    async def run(self, body: Mapping[str, Any], author: Author) -> Reply:
        """Carry out a call; `body` is its input. Raises Refused, Unavailable."""
        op, fields = parse_operation(body)
        grants, name = author.grants, fields.pop("scope", None)
        assert grants is not None, "calls of agents only"
        if self._require_local is not None and op in SQL | CONSOLIDATION:
            await self._require_local(op, author)
        if op in SQL:
            if self._databases is None:
                raise Refused("sqlmem_unavailable", "SQL memory is off here (LOOMLOG_SQLMEM_ENABLED)")
            scope = resolve_scope(author, _default_scope(name, grants.sql_scopes), SQL_SCOPES, granted="sql_scopes")
            return await self._databases.run(op, fields, author, scope)
        scope = resolve_scope(author, _default_scope(name, grants.memory_scopes))
        if op in CONSOLIDATION and op != "supersede":
            if self._consolidation is None:
                raise Refused("capability_unsupported", f"{op}: this backend has no consolidation")
            return await self._consolidation.run(op, fields, author, scope)
        return await self._entries.run(op, fields, author, scope)


def _default_scope(name: Any, granted: Sequence[str]) -> Any:
    """Return the scope of a call that names none: the only one that is granted."""
    return granted[0] if name is None and len(granted) == 1 else name


def parse_operation(body: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the operation and its fields, scope included; a null is an absent field, except for a value.

    Raises Refused(bad_request).
    """
    op = body.get("op")
    if not isinstance(op, str) or op not in OPERATIONS:
        hint = did_you_mean(op, list(OPERATIONS)) if isinstance(op, str) else ""
        raise Refused("bad_request", f"op: expected one of {', '.join(OPERATIONS)}, not {str(op)[:60]!r}{hint}")
    known = OPERATIONS[op] | {"scope"}
    fields = {name: value for name, value in body.items() if name != "op" and (value is not None or name == "value")}
    if unknown := sorted(set(fields) - known):
        foreign = [name for name in unknown if name not in FIELD_SCHEMAS]
        if foreign:
            listed = ", ".join(sorted(known))
            raise Refused("bad_request", f"{op}: {foreign[0][:60]!r} is unknown, expected are {listed}")
        # Fields of other operations: several providers send every property of the schema.
        fields = {name: value for name, value in fields.items() if name in known}
    return op, fields
