"""The routes of memory.

Before: routes.py. After: memory_endpoints.py.
"""

from loomlog.services.api import memory_endpoints
from loomlog.services.api.route import (
    CURSOR_PARAMETER,
    LIMIT_PARAMETER,
    Handler,
    NamedSchema,
    QueryParameter,
    Route,
    Tag,
)
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import MEMORY_WRITE, TENANT_READ
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE
from loomlog.services.families.memory.operations import FIELD_SCHEMAS

TAG = Tag(name="Memory", description="What agents, users and tenants remember: keys, their past, search.")
OBJECT = {"type": "object"}
TENANT = QueryParameter(name="tenant", description="Administrators: the tenant.")
SCOPE = QueryParameter(name="scope", description="agent, user or tenant; by default user.")
SCOPE_ID = QueryParameter(name="scope_id", description="Name of the agent or id of the user.")
KEY = QueryParameter(name="key", description="The key.", required=True)
SCOPE_PATH = "/v1/_memory/scopes/{scope}/{scope_id:path}"
KEYS = SCOPE_PATH + "/keys"
SEARCH_FIELDS = ("query", "top_k", "prefix", "sources", "rank", "dedup")
DRY_RUN = QueryParameter(name="dry_run", description="false: do it; by default it is only told what would be done.")


def _administration(name: str, handler: Handler, summary: str) -> Route:
    return Route(
        method="POST",
        path=f"/v1/_memory/{name}",
        access=requires(TENANT_SCOPE),
        handler=handler,
        tag=TAG,
        summary=summary,
        response=NamedSchema(name="Memory" + "".join(word.title() for word in name.split("_")), schema=OBJECT),
        query=(SCOPE, SCOPE_ID, DRY_RUN, TENANT),
        refusal_statuses=(400, 503),
    )


MEMORY_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/_memory/scopes",
        access=requires(TENANT_READ),
        handler=memory_endpoints.list_memory_scopes,
        tag=TAG,
        summary="List the names of scopes.",
        response=NamedSchema(name="MemoryScopes", schema=OBJECT),
    ),
    Route(
        method="GET",
        path="/v1/_memory/scopes/{scope}",
        access=requires(TENANT_READ),
        handler=memory_endpoints.list_memory_scope_ids,
        tag=TAG,
        summary="List the scopes of a name that have keys, with their sizes.",
        response=NamedSchema(name="MemoryScopeIds", schema=OBJECT),
        query=(TENANT,),
        refusal_statuses=(400, 503),
    ),
    Route(
        method="GET",
        path=KEYS + "/{key:path}",
        access=requires(TENANT_READ),
        handler=memory_endpoints.get_memory_key,
        tag=TAG,
        summary="Read an entry; with /history behind the key, its changes and who made them.",
        response=NamedSchema(name="MemoryEntry", schema=OBJECT),
        query=(
            QueryParameter(name="history", description="1: the changes of the key."),
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
            TENANT,
        ),
        refusal_statuses=(400, 404, 503),
    ),
    Route(
        method="PUT",
        path=KEYS + "/{key:path}",
        access=requires(MEMORY_WRITE),
        handler=memory_endpoints.put_memory_key,
        recognises_key=True,
        tag=TAG,
        summary="Set a key.",
        body=NamedSchema(
            name="MemoryPut",
            schema={
                "type": "object",
                "properties": {
                    "value": {"description": "Any JSON value, at most 64 KiB."},
                    "embed": {"type": "boolean", "description": "Whether it is to be found by its meaning."},
                    "ttl_seconds": {"type": "integer", "description": "Seconds until it expires; 0: as before."},
                    "if_revision": {"type": "integer", "description": "Refuse unless the key has this revision."},
                },
                "required": ["value"],
            },
            example={"value": {"colour": "red"}},
        ),
        response=NamedSchema(name="MemoryWritten", schema=OBJECT),
        query=(TENANT,),
        refusal_statuses=(400, 409, 413, 503),
    ),
    Route(
        method="DELETE",
        path=KEYS + "/{key:path}",
        access=requires(TENANT_SCOPE),
        handler=memory_endpoints.delete_memory_key,
        tag=TAG,
        summary="Delete a key, if there is one.",
        query=(TENANT,),
        status=204,
        refusal_statuses=(400, 503),
    ),
    Route(
        method="GET",
        path=KEYS,
        access=requires(TENANT_READ),
        handler=memory_endpoints.list_memory_keys,
        tag=TAG,
        summary="List the entries of a scope by key.",
        response=NamedSchema(name="MemoryEntries", schema=OBJECT),
        query=(
            QueryParameter(name="prefix", description="Only keys that begin with this text."),
            QueryParameter(name="after", description="Only keys after this one."),
            LIMIT_PARAMETER,
            QueryParameter(name="include_embedding_metadata", description="1: with the vectors' models."),
            QueryParameter(name="kind", description="fact or note: only entries of this kind; by default all."),
            QueryParameter(
                name="details", description="1: with revision, bytes, source, provenance and the model of the vector."
            ),
            TENANT,
        ),
        refusal_statuses=(400, 503),
    ),
    Route(
        method="DELETE",
        path=SCOPE_PATH,
        access=requires(TENANT_SCOPE),
        handler=memory_endpoints.drop_memory_scope,
        tag=TAG,
        summary="Delete all keys of a scope; dry_run=true, which is the default, only counts them.",
        response=NamedSchema(name="MemoryScopeDropped", schema=OBJECT),
        query=(
            DRY_RUN,
            QueryParameter(name="reason", description="Why, for people."),
            TENANT,
        ),
        refusal_statuses=(400, 503),
    ),
    Route(
        method="GET",
        path="/v1/_memory/superseded",
        access=requires(TENANT_READ),
        handler=memory_endpoints.list_superseded_entries,
        tag=TAG,
        summary="List the entries of a scope that were superseded in the last 30 days, with the values they had.",
        response=NamedSchema(name="MemorySuperseded", schema=OBJECT),
        query=(SCOPE, SCOPE_ID, LIMIT_PARAMETER, CURSOR_PARAMETER, TENANT),
        refusal_statuses=(400, 503),
    ),
    Route(
        method="GET",
        path="/v1/_memory/at",
        access=requires(TENANT_READ),
        handler=memory_endpoints.read_memory_at,
        tag=TAG,
        summary="Read a key as it was at a time, at an event, or before a run.",
        response=NamedSchema(name="MemoryAt", schema=OBJECT),
        query=(
            SCOPE,
            SCOPE_ID,
            KEY,
            QueryParameter(name="at", description="A time, RFC 3339."),
            QueryParameter(name="event", description="A position of the log."),
            QueryParameter(name="before_run", description="A run: as it was when the run started."),
            TENANT,
        ),
        refusal_statuses=(400, 404, 503),
    ),
    Route(
        method="GET",
        path="/v1/_memory/usage",
        access=requires(TENANT_READ),
        handler=memory_endpoints.read_memory_usage,
        tag=TAG,
        summary="Tell what a scope holds, and how much it may.",
        response=NamedSchema(name="MemoryUsage", schema=OBJECT),
        query=(SCOPE, SCOPE_ID, TENANT),
        refusal_statuses=(400, 503),
    ),
    Route(
        method="POST",
        path="/v1/_memory/search",
        access=requires(TENANT_READ),
        handler=memory_endpoints.search_memory,
        tag=TAG,
        summary="Search a scope by words and meaning.",
        body=NamedSchema(
            name="MemorySearch",
            schema={
                "type": "object",
                "properties": {
                    "scope": {"type": "string", "description": "agent, user or tenant; by default user."},
                    "scope_id": {"type": "string", "description": "Name of the agent or id of the user."},
                    **{name: FIELD_SCHEMAS[name] for name in SEARCH_FIELDS},
                },
                "required": ["query"],
            },
            example={"query": "favourite tea", "scope": "user", "scope_id": "ada"},
        ),
        response=NamedSchema(name="MemoryHits", schema=OBJECT),
        query=(TENANT,),
        refusal_statuses=(400, 503),
    ),
    Route(
        method="POST",
        path="/v1/_memory/sql",
        access=requires(TENANT_READ),
        handler=memory_endpoints.query_memory_sql,
        tag=TAG,
        summary="Read the SQL database of a scope with one SELECT: at most 1,000 rows, within 2 seconds.",
        body=NamedSchema(
            name="MemorySqlQuery",
            schema={
                "type": "object",
                "properties": {
                    "scope": {"type": "string", "description": "agent, user, tenant or run; by default user."},
                    "scope_id": {
                        "type": "string",
                        "description": "Name of the agent, id of the user, or id of the root run.",
                    },
                    "statement": FIELD_SCHEMAS["statement"],
                    "args": FIELD_SCHEMAS["args"],
                },
                "required": ["statement"],
            },
            example={"statement": "SELECT name FROM sqlite_schema", "scope": "user", "scope_id": "ada"},
        ),
        response=NamedSchema(name="MemorySqlRows", schema=OBJECT),
        query=(TENANT,),
        refusal_statuses=(400, 409, 503),
    ),
    Route(
        method="GET",
        path="/v1/_memory/embed_stats",
        access=requires(TENANT_READ),
        handler=memory_endpoints.read_embed_stats,
        tag=TAG,
        summary="Tell which models have embedded how much.",
        response=NamedSchema(name="MemoryEmbedStats", schema=OBJECT),
        query=(TENANT,),
        refusal_statuses=(503,),
    ),
    _administration("reembed", memory_endpoints.reembed_memory, "Embed the entries of a scope again."),
    _administration(
        "backfill_embeddings", memory_endpoints.backfill_embeddings, "Embed the entries of a scope that have no vector."
    ),
    _administration(
        "purge_stale_embeddings",
        memory_endpoints.purge_stale_embeddings,
        "Remove the vectors of a scope that belong to former models.",
    ),
)
