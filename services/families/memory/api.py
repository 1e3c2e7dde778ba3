"""The operations of memory: entries by key, their past, search, and what operators do with the index. Pure.

Requests name a scope and its id. Agents name a scope that is granted to them; whose it is follows from the run, and
they need not name the only one. The answers of entries that may be in another installation have `backend_fallback` when
it did not answer and the memory here was used.

Before: __init__.py. After: handlers.py carries them out.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import MEMORY_WRITE, TENANT, TENANT_READ
from loomlog.services.core.endpoints import Endpoint
from loomlog.services.core.operations import (
    PRINTABLE,
    Answer,
    Effect,
    Http,
    Input,
    NoInput,
    Operation,
    Output,
    Tag,
    Tool,
    ToolOperation,
)
from loomlog.services.families.memory import limits

OutputT = TypeVar("OutputT")
TAG = Tag(name="Memory", description="What agents, users and tenants remember: keys, their past, search.")
TOOL = Tool(
    name="Memory",
    description=(
        "Memory that outlives the run, in the scopes that the agent may use: agent, user, tenant. op get, set, delete, "
        "list read and write values by key; incr, merge, append_dedupe, bounded_list change one in place; search finds "
        "entries by words and meaning; recall finds facts, add learns them; sql_query and sql_exec run one SQL "
        "statement on the scope's own database, sql_begin, sql_commit and sql_rollback bracket several."
    ),
    usage_hint="what is set is there in later runs",
    unknown_op_code="bad_request",
)
OF_OPERATORS = ("scope_id",)
"""Fields that no agent gives."""
SCOPE_CODES: Mapping[str, str] = {"scope": "invalid_scope"}
SCOPES = "/v1/_memory/scopes"
SCOPE = SCOPES + "/{scope}/{scope_id:path}"
KEYS = SCOPE + "/keys"
KEY = KEYS + "/{key:path}"
HISTORY = "/history"
USAGE_HEADER = "x-loomlog-memory-usage"
BODY_BYTES_MAX = limits.VALUE_BYTES_MAX * 6 + 64 * 1024
"""A value with every character escaped."""
SEARCH_BODY_BYTES_MAX = 256 * 1024
ENTRIES_DEFAULT, HISTORY_MAX = 200, 100
TTL_SECONDS_MAX = limits.TTL_MS_MAX // 1000
REVISION_MAX = 2**53
TOP_K_DEFAULT, TOP_K_MAX = 10, 50
FACT_CLASS_CHARACTERS_MAX = 64
SPANS_MAX, MESSAGES_MAX = 20, 1_000

# --- fields ----------------------------------------------------------------------------------------------------------

ScopeName = Literal["agent", "user", "tenant"]
Scope = Annotated[ScopeName, Meta(description="Whose memory: agent, user or tenant.")]
ScopeOrDefault = Annotated[
    ScopeName,
    Meta(description="Whose memory: agent, user or tenant; absent: the user's, or the only one that an agent may use."),
]
ScopeId = Annotated[str, Meta(description="Name of the agent or id of the user; a tenant has one scope.")]
Key = Annotated[
    str, Meta(min_length=1, max_length=limits.KEY_CHARACTERS_MAX, description="Key, 1 to 512 characters to be printed.")
]
KeyOrHistory = Annotated[
    str,
    Meta(min_length=1, max_length=limits.KEY_CHARACTERS_MAX + len(HISTORY), description="Key, or /history behind one."),
]
Value = Annotated[Any, Meta(description="Any JSON value, at most 64 KiB.")]
Ttl = Annotated[
    int, Meta(ge=0, le=TTL_SECONDS_MAX, description="Seconds until the key expires; absent or 0: as before.")
]
Embed = Annotated[bool, Meta(description="Whether the value is to be found by its meaning.")]
Prefix = Annotated[str, Meta(max_length=limits.KEY_CHARACTERS_MAX, description="Only keys that begin with this text.")]
After = Annotated[str, Meta(max_length=limits.KEY_CHARACTERS_MAX, description="Only keys after this one.")]
Query = Annotated[str, Meta(description="What is searched for, in plain words.")]
TopK = Annotated[Annotated[int, Meta(ge=1, le=TOP_K_MAX)] | None, Meta(description="Most hits, 1 to 50; null: 10.")]
Weight = Annotated[float, Meta(ge=0.0, le=1_000.0)]
Limit = Annotated[int, Meta(ge=1, le=HISTORY_MAX, description="Most entries of one answer.")]
Cursor = Annotated[str, Meta(max_length=2_000, description="`next` of an earlier answer.")]
DryRun = Annotated[bool, Meta(description="false: do it; by default it is only told what would be done.")]
Place = Annotated[str, Meta(max_length=256, pattern=PRINTABLE)]
Time = Annotated[str, Meta(description="RFC 3339.")]
Source = Annotated[dict[str, Any], Meta(description="Who made the change: origin, run, turn, call, agent, user.")]


class MemorySpan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a dialogue: characters of the text of an event of a run."""

    run_id: Annotated[str, Meta(min_length=1)]
    seq: Annotated[int, Meta(ge=0, le=2**53)] = 0
    start: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    end: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0


class MemoryProvenance(Struct, frozen=True, kw_only=True):
    """What a value is, and where it was learnt; what else is named is left out."""

    fact_class: Annotated[str, Meta(max_length=FACT_CLASS_CHARACTERS_MAX, pattern=PRINTABLE)] | None = msgspec.field(
        default=None, name="class"
    )
    source_session_id: str | UnsetType = UNSET
    source_run_id: str | UnsetType = UNSET
    spans: Annotated[list[MemorySpan], Meta(max_length=SPANS_MAX)] | None = None


class MemoryMessage(Struct, frozen=True, kw_only=True):
    """A message to learn from."""

    role: Literal["user", "assistant", "system", "tool"] = "user"
    content: Annotated[str, Meta(min_length=1)]


class MemoryRank(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Weights of meaning, age and use; absent: those by default."""

    semantic_weight: Weight | None = None
    recency_weight: Weight | None = None
    recency_half_life_hours: Annotated[float, Meta(ge=0.001, le=1_000_000.0)] | None = None
    frequency_weight: Weight | None = None
    source_weight: Weight | None = None


class MemoryDedup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What becomes of near copies: only the best stays (drop), it names the others (merge), or they name it (keep)."""

    enabled: bool | None = None
    threshold: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    mode: Literal["drop", "merge", "keep"] | None = None


# --- input -----------------------------------------------------------------------------------------------------------


class MemoryScopesOfName(Input, frozen=True, kw_only=True):
    scope: Scope


class MemoryScopeInput(Input, frozen=True, kw_only=True):
    """Base of what is about a scope."""

    scope: ScopeOrDefault | UnsetType = UNSET
    scope_id: ScopeId = ""


class MemoryRead(MemoryScopeInput, frozen=True, kw_only=True):
    key: KeyOrHistory
    history: Annotated[bool, Meta(description="1: the changes of the key.")] = False
    limit: Limit = HISTORY_MAX
    cursor: Cursor = ""


class MemoryPut(MemoryScopeInput, frozen=True, kw_only=True):
    key: Key
    value: Value
    embed: Annotated[bool, Meta(description="Whether it is to be found by its meaning.")] = False
    ttl_seconds: Annotated[
        int, Meta(ge=0, le=TTL_SECONDS_MAX, description="Seconds until it expires; 0: as before.")
    ] = 0
    if_revision: Annotated[
        int, Meta(ge=-1, le=REVISION_MAX, description="Refuse unless the key has this revision.")
    ] = -1


class MemoryListEntries(MemoryScopeInput, frozen=True, kw_only=True):
    prefix: Prefix = ""
    after: After = ""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX, description="Most entries of one answer.")] = ENTRIES_DEFAULT
    include_embedding_metadata: Annotated[bool, Meta(description="1: with the vectors' models.")] = False
    kind: (
        Annotated[Literal["fact", "note"], Meta(description="fact or note: only entries of this kind; by default all.")]
        | UnsetType
    ) = UNSET
    details: Annotated[
        bool, Meta(description="1: with revision, bytes, source, provenance and the model of the vector.")
    ] = False


class MemoryDrop(MemoryScopeInput, frozen=True, kw_only=True):
    dry_run: DryRun = True
    reason: Annotated[str, Meta(max_length=256, description="Why, for people.")] = ""


class MemoryListSuperseded(MemoryScopeInput, frozen=True, kw_only=True):
    limit: Limit = HISTORY_MAX
    cursor: Cursor = ""


class MemoryReadAt(MemoryScopeInput, frozen=True, kw_only=True):
    key: Key
    at: Annotated[str, Meta(description="A time, RFC 3339.")] = ""
    event: Annotated[Place, Meta(description="A position of the log.")] = ""
    before_run: Annotated[Place, Meta(description="A run: as it was when the run started.")] = ""


class MemoryAdminister(Input, frozen=True, kw_only=True):
    scope: Scope
    scope_id: ScopeId = ""
    dry_run: DryRun = True


class MemorySearch(MemoryScopeInput, frozen=True, kw_only=True):
    query: Query
    top_k: TopK = None
    prefix: Annotated[str | None, Meta(description="Only keys that begin with this text.")] = None
    sources: Annotated[
        list[Literal["facts", "notes", "documents"]] | None, Meta(description="What to search; null: everything.")
    ] = None
    rank: Annotated[MemoryRank | None, Meta(description="Weights of meaning, age and use.")] = None
    dedup: Annotated[MemoryDedup | None, Meta(description="Whether near copies are left out.")] = None


class MemoryGet(MemoryScopeInput, frozen=True, kw_only=True):
    key: Key
    include_provenance: Annotated[bool, Meta(description="With where the value comes from.")] = False


class MemorySet(MemoryScopeInput, frozen=True, kw_only=True):
    key: Key
    value: Value
    ttl: Ttl = 0
    embed: Embed = False
    embed_text: Annotated[str, Meta(description="Text to embed instead of the value.")] = ""
    provenance: Annotated[
        MemoryProvenance | None, Meta(description='What the value is: {"class": "preference"}. Makes it a fact.')
    ] = None
    from_pending: Annotated[str, Meta(description="Id of the pending entry that the fact was made of.")] = ""
    if_revision: (
        Annotated[
            int,
            Meta(ge=0, le=REVISION_MAX, description="Refuse unless the key has this revision; 0: unless it is new."),
        ]
        | UnsetType
    ) = UNSET
    path: Annotated[str, Meta(description="Name in the directory of resources.")] = ""


class MemoryDelete(MemoryScopeInput, frozen=True, kw_only=True):
    key: Key


class MemoryList(MemoryScopeInput, frozen=True, kw_only=True):
    prefix: Prefix = ""
    after: After = ""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX, description="Most entries of a list.")] = limits.LIST_DEFAULT


class MemoryIncr(MemoryScopeInput, frozen=True, kw_only=True):
    key: Key
    delta: Annotated[int | float, Meta(description="What is added, by default 1.")] = 1
    ttl: Ttl = 0


class MemoryMerge(MemoryScopeInput, frozen=True, kw_only=True):
    key: Key
    value: Value
    ttl: Ttl = 0
    embed: Embed = False


class MemoryAppend(MemoryScopeInput, frozen=True, kw_only=True):
    key: Key
    value: Value
    ttl: Ttl = 0


class MemoryBoundedList(MemoryScopeInput, frozen=True, kw_only=True):
    key: Key
    value: Value
    limit: Annotated[int, Meta(ge=1, le=limits.BOUNDED_LIST_MAX, description="Most items that are kept.")]
    ttl: Ttl = 0


class MemoryAdd(MemoryScopeInput, frozen=True, kw_only=True):
    messages: (
        Annotated[
            list[MemoryMessage], Meta(min_length=1, max_length=MESSAGES_MAX, description="The messages to learn from.")
        ]
        | UnsetType
    ) = UNSET
    content: (
        Annotated[str, Meta(min_length=1, description="The text to learn from, or the fact itself.")] | UnsetType
    ) = UNSET
    infer: Annotated[bool, Meta(description="false stores the text as it is; by default true.")] = True
    metadata: Annotated[dict[str, Any], Meta(description="Kept with the fact.")] = msgspec.field(default_factory=dict)


class MemoryRecall(MemoryScopeInput, frozen=True, kw_only=True):
    query: Query
    top_k: TopK = None
    threshold: Annotated[float, Meta(ge=-1.0, le=1.0, description="Least score of a hit.")] = 0.0


class MemorySupersede(MemoryScopeInput, frozen=True, kw_only=True):
    key: Key
    by_key: Annotated[str, Meta(description="The key that takes its place.")] = ""
    reason: Annotated[str, Meta(description="Why, for people.")] = ""


# --- answers of requests ---------------------------------------------------------------------------------------------


class MemoryScopeName(Output, frozen=True, kw_only=True):
    name: str
    description: str


class MemoryScopes(Output, frozen=True, kw_only=True):
    scopes: list[MemoryScopeName]


class MemoryScopeRow(Output, frozen=True, kw_only=True):
    scope_id: str
    key_count: int
    bytes: int
    updated_at: Time


class MemoryScopeIds(Output, frozen=True, kw_only=True):
    scope: str
    scope_ids: list[MemoryScopeRow]


class MemoryModel(Output, frozen=True, kw_only=True):
    """A model of vectors."""

    provider: str
    model: str
    dimension: int


class MemoryFactOrigin(Output, frozen=True, kw_only=True):
    """What a fact is, and where it was learnt."""

    origin: str
    fact_class: str = msgspec.field(name="class")
    source_session_id: str
    source_run_id: str
    origin_available: Annotated[bool, Meta(description="Whether the session or the run is known.")]
    spans: list[dict[str, Any]]


class MemoryRow(Output, frozen=True, kw_only=True):
    """An entry; from revision on with details."""

    key: str
    value: Any
    created_at: Time
    updated_at: Time
    expires_at: Time | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    bytes: int | UnsetType = UNSET
    embed: bool | UnsetType = UNSET
    embedded_with: Annotated[MemoryModel | None, Meta(description="null: it has no vector now.")] | UnsetType = UNSET
    source: Source | UnsetType = UNSET
    provenance: Annotated[MemoryFactOrigin | None, Meta(description="null: a note.")] | UnsetType = UNSET


class MemoryEntries(Output, frozen=True, kw_only=True):
    scope: str
    scope_id: str
    entries: list[MemoryRow]
    truncated: bool
    embedding_metadata: dict[str, MemoryModel] | UnsetType = UNSET


class MemoryVersion(Output, frozen=True, kw_only=True):
    """A change of a key; one that removes it has no value."""

    bytes: int | UnsetType = UNSET
    revision: int
    op: str
    embed_text: str | UnsetType = UNSET
    provenance: Annotated[dict[str, Any] | None, Meta(description="null: a note.")] | UnsetType = UNSET
    source: Source | UnsetType = UNSET
    by_key: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    position: str
    at: Time
    previous_revision: int | UnsetType = UNSET
    value: Any = UNSET
    expires_at: Time | UnsetType = UNSET


class MemoryEntry(Output, frozen=True, kw_only=True):
    """An entry; or, with /history behind the key, its changes."""

    scope: str
    scope_id: str
    entry: MemoryRow | UnsetType = UNSET
    key: str | UnsetType = UNSET
    versions: list[MemoryVersion] | UnsetType = UNSET
    next: Annotated[str | None, Meta(description="Cursor of the following page.")] | UnsetType = UNSET


class MemorySupersededRow(MemoryVersion, frozen=True, kw_only=True):
    """A change that superseded a key, with the value it had."""

    key: str
    valid_from: Time | UnsetType = UNSET


class MemorySuperseded(Output, frozen=True, kw_only=True):
    scope: str
    scope_id: str
    superseded: list[MemorySupersededRow]
    next: str | None


class MemoryAt(Output, frozen=True, kw_only=True):
    scope: str
    scope_id: str
    key: str
    existed: bool
    value: Any
    version: MemoryVersion | None


class MemorySize(Output, frozen=True, kw_only=True):
    """What a scope holds, and how much it may."""

    bytes: int
    quota_bytes: int
    keys: int


class MemoryUsage(Output, frozen=True, kw_only=True):
    scope: str
    scope_id: str
    usage: MemorySize | UnsetType = UNSET
    usage_warning: str | UnsetType = UNSET
    keys_max: int


class MemoryWritten(Output, frozen=True, kw_only=True):
    scope: str
    scope_id: str
    key: str
    embedded: bool
    value: Annotated[Any, Meta(description="What an earlier request with this Idempotency-Key has written.")] = UNSET
    embed_warning: str | UnsetType = UNSET
    usage: MemorySize | UnsetType = UNSET
    usage_warning: str | UnsetType = UNSET


class MemoryScopeDropped(Output, frozen=True, kw_only=True):
    scope: str
    scope_id: str
    dry_run: bool
    keys: int
    bytes: int | UnsetType = UNSET


class MemoryModelRow(MemoryModel, frozen=True, kw_only=True):
    rows: int
    bytes: int


class MemoryEmbedStats(Output, frozen=True, kw_only=True):
    tenant: str
    models: list[MemoryModelRow]
    total_embedding_bytes: int
    notes: list[str] | UnsetType = UNSET


class MemoryReembed(Output, frozen=True, kw_only=True):
    scope: str
    scope_id: str
    dry_run: bool
    rows_total: int
    current_embedder: MemoryModel
    rows_to_reembed: int | UnsetType = UNSET
    sample_keys: list[str] | UnsetType = UNSET
    sample_keys_capped: bool | UnsetType = UNSET
    rows_reembedded: int | UnsetType = UNSET
    rows_failed: int | UnsetType = UNSET
    failed_keys: list[str] | UnsetType = UNSET


class MemoryBackfillEmbeddings(Output, frozen=True, kw_only=True):
    scope: str
    scope_id: str
    dry_run: bool
    candidates: int
    embedded: int
    failed: int
    skipped_empty: int
    more: bool


class MemoryPurgeStaleEmbeddings(Output, frozen=True, kw_only=True):
    scope: str
    scope_id: str
    dry_run: bool
    scanned: int
    stale: int
    purged: int
    truncated: bool


# --- answers of entries, wherever they are ---------------------------------------------------------------------------


class MemoryAnswer(Output, frozen=True, kw_only=True):
    """Base of the answers of entries that may be in another installation."""

    backend_fallback: bool | UnsetType = UNSET


class MemoryValue(MemoryAnswer, frozen=True, kw_only=True):
    """A value; null, without a revision, when there is no such key."""

    value: Any
    expires_at: Time | None
    revision: int | UnsetType = UNSET
    provenance: Annotated[MemoryFactOrigin | None, Meta(description="null: a note.")] | UnsetType = UNSET
    source: Source | UnsetType = UNSET


class MemorySetDone(MemoryAnswer, frozen=True, kw_only=True):
    ok: bool
    embedded: bool | UnsetType = UNSET
    embed_warning: str | UnsetType = UNSET
    revision: int | UnsetType = UNSET
    usage: MemorySize | UnsetType = UNSET
    usage_warning: str | UnsetType = UNSET


class MemoryDeleted(MemoryAnswer, frozen=True, kw_only=True):
    deleted: bool


class MemoryListedRow(Output, frozen=True, kw_only=True):
    key: str
    value: Any
    expires_at: Time | None


class MemoryListed(MemoryAnswer, frozen=True, kw_only=True):
    entries: list[MemoryListedRow]
    truncated: bool


class MemoryReduced(MemoryAnswer, frozen=True, kw_only=True):
    value: Any
    usage: MemorySize | UnsetType = UNSET
    usage_warning: str | UnsetType = UNSET
    dropped: int | UnsetType = UNSET


class MemoryHit(Output, frozen=True, kw_only=True):
    """An entry that was found; one of another installation has what that tells."""

    key: str
    kind: Annotated[Any, Meta(description="fact, note or document.")] = UNSET
    value: Any
    score: Annotated[Any, Meta(description="Cosine to the query; 0: it has no vector.")] = UNSET
    rank_score: Any = UNSET
    ranks: Annotated[Any, Meta(description="Places by words (lexical) and by meaning (semantic).")] = UNSET
    embedded_with: Annotated[Any, Meta(description="Provider and model of its vector.")] = UNSET
    expires_at: Annotated[Any, Meta(description="RFC 3339; null: never.")] = UNSET
    merged: Annotated[list[str], Meta(description="Keys of its copies.")] | UnsetType = UNSET
    duplicate_of: str | UnsetType = UNSET
    chunk_id: Any = UNSET
    document: Any = UNSET
    title: Any = UNSET


class MemoryHits(MemoryAnswer, frozen=True, kw_only=True):
    entries: list[MemoryHit]
    query_embedding_dim: Annotated[Any, Meta(description="0: vectors did not take part.")] = UNSET
    truncated: Any = UNSET
    sources_applied: bool | UnsetType = UNSET
    dedup_dropped: Any = UNSET
    rank_note: Any = UNSET
    note: str | UnsetType = UNSET


class MemoryFact(Output, frozen=True, kw_only=True):
    id: str
    memory: str
    score: float
    metadata: dict[str, Any] | UnsetType = UNSET


class MemoryFacts(MemoryAnswer, frozen=True, kw_only=True):
    facts: list[MemoryFact]


class MemoryAdded(MemoryAnswer, frozen=True, kw_only=True):
    status: Annotated[str, Meta(description="pending: it is learnt later; done: it is a fact.")]
    event_id: Annotated[str, Meta(description="Id of the pending entry, or position of the fact.")]


class MemorySupersedeDone(MemoryAnswer, frozen=True, kw_only=True):
    ok: bool


class WrittenAnswer(Answer[OutputT], frozen=True, kw_only=True):
    """Answer of a PUT, with what its headers tell."""

    revision: int
    usage: Mapping[str, int] = {}


def written_headers(done: WrittenAnswer[Any]) -> Mapping[str, str]:
    """Return the revision of an entry that was put, and the usage of its scope."""
    usage = ", ".join(f"{name}={value}" for name, value in done.usage.items())
    return {"etag": f'"{done.revision}"', USAGE_HEADER: usage}


# --- operations ------------------------------------------------------------------------------------------------------

_operation = partial(Operation, tag=TAG, field_codes=SCOPE_CODES)
_http = partial(Http, parts_escaped=True, refusal_statuses=(400, 503))
_read = partial(_operation, access=requires(TENANT_READ), effect=Effect.READ)
_write = partial(_operation, access=requires(MEMORY_WRITE), effect=Effect.WRITE)
_write_value = partial(
    _write, field_codes={**SCOPE_CODES, "value": "invalid_value"}, missing_codes={"value": "missing_value"}
)


def _tool(op: str) -> ToolOperation:
    return ToolOperation(tool=TOOL.name, op=op, without=OF_OPERATORS)


def _administration(verb: str, route: str, route_id: str, summary: str, output: type[Output]) -> Operation[Any, Any]:
    return _operation(
        name=f"memory.{verb}",
        summary=summary,
        input=MemoryAdminister,
        output=output,
        access=requires(TENANT),
        effect=Effect.WRITE,
        missing_codes=SCOPE_CODES,
        http=(_http(route=f"POST /v1/_memory/{route}", id=route_id, query=("scope", "scope_id", "dry_run")),),
    )


LIST_SCOPES = _read(
    name="memory.scopes",
    summary="List the names of scopes.",
    input=NoInput,
    output=MemoryScopes,
    http=(Http(route=f"GET {SCOPES}", id="list_memory_scopes", takes_tenant=False),),
)
LIST_SCOPE_IDS = _read(
    name="memory.scope_ids",
    summary="List the scopes of a name that have keys, with their sizes.",
    input=MemoryScopesOfName,
    output=MemoryScopeIds,
    http=(_http(route=f"GET {SCOPES}/{{scope}}", id="list_memory_scope_ids"),),
)
READ = _read(
    name="memory.read",
    summary="Read an entry; with /history behind the key, its changes and who made them.",
    input=MemoryRead,
    output=MemoryEntry,
    http=(_http(route=f"GET {KEY}", id="get_memory_key", refusal_statuses=(400, 404, 503)),),
)
PUT = _write_value(
    name="memory.put",
    summary="Set a key.",
    input=MemoryPut,
    output=MemoryWritten,
    http=(
        _http(
            route=f"PUT {KEY}",
            id="put_memory_key",
            codes={"bad_request": "invalid_value", "payload_too_large": "memory_value_too_large"},
            body_bytes_max=BODY_BYTES_MAX,
            headers=written_headers,
            recognises_key=True,
            refusal_statuses=(400, 409, 413, 503),
            example={"value": {"colour": "red"}},
        ),
    ),
)
DELETE = _operation(
    name="memory.delete",
    summary="Delete a key, if there is one.",
    input=MemoryDelete,
    output=MemoryDeleted,
    access=requires(TENANT),
    effect=Effect.WRITE,
    http=(_http(route=f"DELETE {KEY}", id="delete_memory_key", status=204),),
    tool=_tool("delete"),
)
LIST_ENTRIES = _read(
    name="memory.entries",
    summary="List the entries of a scope by key.",
    input=MemoryListEntries,
    output=MemoryEntries,
    http=(_http(route=f"GET {KEYS}", id="list_memory_keys"),),
)
DROP = _operation(
    name="memory.drop",
    summary="Delete all keys of a scope; dry_run=true, which is the default, only counts them.",
    input=MemoryDrop,
    output=MemoryScopeDropped,
    access=requires(TENANT),
    effect=Effect.WRITE,
    http=(_http(route=f"DELETE {SCOPE}", id="drop_memory_scope"),),
)
LIST_SUPERSEDED = _read(
    name="memory.superseded",
    summary="List the entries of a scope that were superseded in the last 30 days, with the values they had.",
    input=MemoryListSuperseded,
    output=MemorySuperseded,
    http=(_http(route="GET /v1/_memory/superseded", id="list_superseded_entries"),),
)
READ_AT = _read(
    name="memory.at",
    summary="Read a key as it was at a time, at an event, or before a run.",
    input=MemoryReadAt,
    output=MemoryAt,
    http=(_http(route="GET /v1/_memory/at", id="read_memory_at", refusal_statuses=(400, 404, 503)),),
)
READ_USAGE = _read(
    name="memory.usage",
    summary="Tell what a scope holds, and how much it may.",
    input=MemoryScopeInput,
    output=MemoryUsage,
    http=(_http(route="GET /v1/_memory/usage", id="read_memory_usage"),),
)
SEARCH = _read(
    name="memory.search",
    summary="Search a scope by words and meaning.",
    input=MemorySearch,
    output=MemoryHits,
    field_codes={**SCOPE_CODES, "sources": "invalid_sources"},
    missing_codes={"query": "missing_query", "scope_id": "missing_scope_id"},
    http=(
        _http(
            route="POST /v1/_memory/search",
            id="search_memory",
            body_bytes_max=SEARCH_BODY_BYTES_MAX,
            example={"query": "favourite tea", "scope": "user", "scope_id": "ada"},
        ),
    ),
    tool=_tool("search"),
)
EMBED_STATS = _read(
    name="memory.embed_stats",
    summary="Tell which models have embedded how much.",
    input=NoInput,
    output=MemoryEmbedStats,
    http=(_http(route="GET /v1/_memory/embed_stats", id="read_embed_stats", refusal_statuses=(503,)),),
)
REEMBED = _administration("reembed", "reembed", "reembed_memory", "Embed the entries of a scope again.", MemoryReembed)
BACKFILL = _administration(
    "backfill",
    "backfill_embeddings",
    "backfill_embeddings",
    "Embed the entries of a scope that have no vector.",
    MemoryBackfillEmbeddings,
)
PURGE_STALE = _administration(
    "purge_stale",
    "purge_stale_embeddings",
    "purge_stale_embeddings",
    "Remove the vectors of a scope that belong to former models.",
    MemoryPurgeStaleEmbeddings,
)
GET = _read(name="memory.get", summary="Read a value.", input=MemoryGet, output=MemoryValue, tool=_tool("get"))
SET = _write_value(
    name="memory.set",
    summary="Set a key to a value.",
    input=MemorySet,
    output=MemorySetDone,
    tool=_tool("set"),
)
LIST = _read(
    name="memory.list",
    summary="List keys with their values.",
    input=MemoryList,
    output=MemoryListed,
    tool=_tool("list"),
)
INCR = _write(
    name="memory.incr",
    summary="Add to a number.",
    input=MemoryIncr,
    output=MemoryReduced,
    field_codes={**SCOPE_CODES, "delta": "invalid_value"},
    tool=_tool("incr"),
)
MERGE = _write_value(
    name="memory.merge",
    summary="Merge an object into an object.",
    input=MemoryMerge,
    output=MemoryReduced,
    tool=_tool("merge"),
)
APPEND_DEDUPE = _write_value(
    name="memory.append_dedupe",
    summary="Append an item to a list, unless it has an equal one.",
    input=MemoryAppend,
    output=MemoryReduced,
    tool=_tool("append_dedupe"),
)
BOUNDED_LIST = _write_value(
    name="memory.bounded_list",
    summary="Append an item to a list of at most so many; the first ones make room.",
    input=MemoryBoundedList,
    output=MemoryReduced,
    tool=_tool("bounded_list"),
)
ADD = _write(
    name="memory.add",
    summary="Learn facts of messages or a text, or keep the text as a fact.",
    input=MemoryAdd,
    output=MemoryAdded,
    tool=_tool("add"),
)
RECALL = _read(
    name="memory.recall",
    summary="Find facts.",
    input=MemoryRecall,
    output=MemoryFacts,
    missing_codes={"query": "missing_query"},
    tool=_tool("recall"),
)
SUPERSEDE = _write(
    name="memory.supersede",
    summary="Archive a key.",
    input=MemorySupersede,
    output=MemorySupersedeDone,
    tool=_tool("supersede"),
)
OPERATIONS = (
    LIST_SCOPES,
    LIST_SCOPE_IDS,
    READ,
    PUT,
    DELETE,
    LIST_ENTRIES,
    DROP,
    LIST_SUPERSEDED,
    READ_AT,
    READ_USAGE,
    SEARCH,
    EMBED_STATS,
    REEMBED,
    BACKFILL,
    PURGE_STALE,
    GET,
    SET,
    LIST,
    INCR,
    MERGE,
    APPEND_DEDUPE,
    BOUNDED_LIST,
    ADD,
    RECALL,
    SUPERSEDE,
)
"""In the order in which routes are matched: those of a key before those of its scope."""
CHANGES_TAG = Tag(name="Changes", description="What has changed, without the values: for caches and other followers.")
CHANGES_QUERY = {
    "since": "Seq after which the feed resumes, of a frame seen before; `gap` in the first frame says that changes in "
    "between are gone. Anything else than a number is 0, the oldest change that is kept.",
    "tenant": "Administrators: only this tenant.",
}
WATCH_MEMORY = Endpoint(
    id="watch_memory_changes",
    route="GET /v1/_memory/changes",
    access=requires(TENANT),
    summary="Follow the changes of memory: feed, then change with scope and key, without values.",
    tag=CHANGES_TAG,
    query=CHANGES_QUERY,
    unavailable_code="projection_unavailable",
)
WATCH_DOCUMENTS = Endpoint(
    id="watch_document_changes",
    route="GET /v1/_document/changes",
    access=requires(TENANT),
    summary="Follow the changes of documents: feed, then change, without contents.",
    tag=CHANGES_TAG,
    query=CHANGES_QUERY,
    unavailable_code="projection_unavailable",
)
ENDPOINTS = (WATCH_MEMORY, WATCH_DOCUMENTS)
