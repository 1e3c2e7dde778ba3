"""Every bounded resource that tenants share, and the share of each tenant and principal in it: one row each.

The code takes its bounds from here, docs/LIMITS.md shows the table (`python -m tests.lint.bounded_resources` writes
it), and a test finds every semaphore, pool, executor and bounded table of the source without a row
(tests/lint/test_bounded_resources.py).

A bound that is one request's, one run's or one process's own needs no share; such rows have no limits and say why.
Shares of a total that an operator sets are those of ShareLimits.in_turn.

Before: whatever opens, queues or runs something. After: shares.py.
"""

from loomlog.schemas.records import Value
from loomlog.services.core.shares import ShareLimits


class BoundedResource(Value, frozen=True, kw_only=True):
    """A row. `name` is a plural noun, as refusals say it; `where` the modules that create it."""

    name: str
    process: str
    where: tuple[str, ...]
    reason: str
    limits: ShareLimits | None = None
    total: str = ""
    """The bound in words, where it is no shared one or follows from a setting; so are the next two."""
    per_tenant: str = ""
    per_principal: str = ""

    @property
    def shares(self) -> ShareLimits:
        """The shares of a resource that has them."""
        assert self.limits is not None, f"{self.name} has no shares"
        return self.limits


def _bounds(total: int, per_tenant: int = 0, per_principal: int = 0) -> ShareLimits:
    return ShareLimits.of(total, per_tenant=per_tenant, per_principal=per_principal)


# --- api -------------------------------------------------------------------------------------------------------------

REQUESTS = BoundedResource(
    name="requests",
    process="api",
    where=("services/api/request_shares.py",),
    limits=_bounds(256),
    reason="handled at a time; more wait in turn, up to 10 s. An answer takes milliseconds: 256 keep a core busy",
)
WAITING_REQUESTS = BoundedResource(
    name="waiting requests",
    process="api",
    where=("services/api/request_shares.py",),
    limits=_bounds(4_000, 1_000, 100),
    reason="long polls, joins of batches and other requests that wait for minutes; a client needs one for each reader",
)
MCP_LONG_CALLS = BoundedResource(
    name="long calls of MCP",
    process="api",
    where=("services/api/service.py",),
    limits=_bounds(4_000, 1_000, 16),
    reason="as many as existing servers take of one session, which counts as a principal here; cheap calls take none",
)
EVENT_STREAMS = BoundedResource(
    name="event streams",
    process="api",
    where=("services/api/request_shares.py",),
    limits=_bounds(10_000, 5_000, 250),
    reason="10 KiB each, and as many reads when they open; a browser tab has one. LOOMLOG_STREAMS_PER_PRINCIPAL sets "
    "the share of a principal",
)
STARTED_STREAMS = BoundedResource(
    name="streams of started runs",
    process="api",
    where=("services/api/request_shares.py",),
    limits=_bounds(10_000),
    reason="the answer of a start is a stream; runs are bounded by admission, so a service that starts many for others "
    "needs many",
)
HISTORIES = BoundedResource(
    name="histories that are read",
    process="api",
    where=("services/application/queries/run_history.py",),
    limits=_bounds(8),
    reason="replays, forks, comparisons and exports: each holds the conversation of a run in memory",
)
IMPORTS = BoundedResource(
    name="imports under way",
    process="api",
    where=("services/application/transfer/imports.py",),
    limits=_bounds(2),
    reason="each folds whole runs",
)
LOG_READS = BoundedResource(
    name="reads of the log",
    process="api",
    where=("services/application/queries/log_pages.py",),
    limits=ShareLimits.in_turn(1),
    reason="one reader of ranges, used in turn; eight may wait for it, with shares of their own",
)
CLIENT_CONNECTIONS = BoundedResource(
    name="client connections",
    process="api",
    where=("services/application/clients/connections.py",),
    limits=_bounds(1_000),
    reason="WebSockets of clients that offer tools. LOOMLOG_CLIENT_TOOL_MAX_CONNS sets the share of a principal (8)",
)
SCHEDULES = BoundedResource(
    name="schedules made at run time",
    process="installation",
    where=(),
    limits=_bounds(20_000, 2_000, 500),
    reason="those of files are the operator's and do not count; a service makes one for each of its users",
)
SCHEDULE_FIRES = BoundedResource(
    name="fires of schedules in a day",
    process="installation",
    where=(),
    limits=_bounds(20 * 86_400, 4 * 86_400, 86_400),
    reason="one a second for a principal, four for a tenant: each fire is a run",
)

SQL_STATEMENTS = BoundedResource(
    name="SQL statements under way",
    process="runtime and api",
    where=("services/families/database/files.py",),
    limits=_bounds(8),
    reason="they compete for the cores, and each has a process of 10 MB, which is killed at the deadline",
)

# --- runtime ---------------------------------------------------------------------------------------------------------

CALLBACKS = BoundedResource(
    name="attempts of callbacks",
    process="runtime",
    where=("services/families/callback/posts.py",),
    limits=ShareLimits.in_turn(50),
    reason="half of the connections of their client; slow receivers of one tenant hold up its own callbacks",
)


def _row(name: str, process: str, where: str, total: str, reason: str, *, shared: bool = False) -> BoundedResource:
    """Return a row whose bounds are words; `shared`: three quarters for a tenant and its users, in turn."""
    return BoundedResource(
        name=name,
        process=process,
        where=(where,),
        total=total,
        reason=reason,
        per_tenant="three quarters" if shared else "",
        per_principal="as the tenant" if shared else "",
    )


_ADMISSION = "services/core/admission.py"
_THREADS_WHY = "only through tool calls, which have shares of these threads (services/runtime/tools/tool_slots.py)"
_PROVIDERS = "services/runtime/models/provider_queues.py"
_POSTGRES_WHY = "reached through requests, tool calls and partitions, which have shares; a read takes milliseconds"
RESOURCES: tuple[BoundedResource, ...] = (
    REQUESTS,
    WAITING_REQUESTS,
    MCP_LONG_CALLS,
    EVENT_STREAMS,
    STARTED_STREAMS,
    HISTORIES,
    IMPORTS,
    SCHEDULES,
    SCHEDULE_FIRES,
    LOG_READS,
    CLIENT_CONNECTIONS,
    _row(
        "commands that wait for the log",
        "api",
        "services/application/command_publisher.py",
        "20,000 or 64 MiB",
        "only through requests and streams, which have shares",
    ),
    _row(
        "runs of a bulk request",
        "api",
        "services/application/runs/bulk.py",
        "25",
        "of one request, which has its share of the requests",
    ),
    _row(
        "runs of a state file",
        "api",
        "services/application/transfer/restore.py",
        "32",
        "of one restore; administrators",
    ),
    _row(
        "records of refused acts",
        "api",
        "services/families/act/recording.py",
        "200 commands, 10,000 kinds a minute",
        "beyond it refusals are answered and not recorded",
    ),
    _row(
        "reports of refused deliveries",
        "api",
        "services/families/webhook/rejections.py",
        "of 10,000 webhooks",
        "metrics of webhooks; beyond it reports are left out, and deliveries are not affected",
    ),
    _row(
        "deliveries that wait for their webhooks",
        "api",
        "services/families/webhook/own_deliveries.py",
        "400, of them 200 that were taken",
        "beyond it reports of refused ones are left out, and a list of deliveries may lack the last ones",
    ),
    _row(
        "runs at work",
        "runtime",
        _ADMISSION,
        "max_concurrent_runs",
        "in turn; a user may have a limit of its own, which counts parked runs too",
        shared=True,
    ),
    _row("starts that wait", "runtime", _ADMISSION, "max_queue_depth", "in turn", shared=True),
    _row(
        "calls of a provider",
        "runtime",
        _PROVIDERS,
        "max_concurrent, or 1,000",
        "in turn; scripts of code agents: 16",
        shared=True,
    ),
    _row(
        "tool calls",
        "runtime",
        "services/runtime/tools/tool_slots.py",
        "LOOMLOG_TOOL_CALLS_PER_PROCESS",
        "in turn, all tools together",
        shared=True,
    ),
    _row("threads of the file tools", "runtime", "connectors/tools/thread_pool.py", "8", _THREADS_WHY, shared=True),
    _row("threads of the file tools, where they are made", "runtime", "connectors/tools/registry.py", "8", "see above"),
    _row(
        "threads for folders of volumes",
        "runtime",
        "services/families/definition/volumes.py",
        "2",
        "only through tool calls and requests, which have shares; a folder takes a millisecond",
    ),
    CALLBACKS,
    _row(
        "connections of hooks and callbacks",
        "runtime",
        "connectors/http/signed_callbacks.py",
        "100",
        "half for callbacks, which have shares, the rest for hooks of tool calls, which have shares",
    ),
    _row(
        "connections to memory backends",
        "runtime and api",
        "connectors/memory_peer/client.py",
        "50",
        "through tool calls and requests, which have shares",
    ),
    _row("connections of a web request", "runtime", "connectors/tools/web_client.py", "1", "of one tool call"),
    _row(
        "calls of a turn side by side",
        "runtime",
        "services/runtime/tools/tool_calls.py",
        "LOOMLOG_TOOL_PARALLELISM",
        "of one run",
    ),
    _row(
        "scripts of code agents",
        "runtime",
        "connectors/models/code_sandbox.py",
        "16",
        "only through the calls of their provider, which have shares of it",
    ),
    SQL_STATEMENTS,
    _row(
        "minted tokens in force",
        "api",
        "services/families/identity/handlers.py",
        "100,000",
        "administrators make them, and quotas bound those of a tenant (PUT /v1/_quotas)",
    ),
    BoundedResource(
        name="open SQL transactions",
        process="runtime",
        where=("services/families/database/open_transactions.py",),
        total="LOOMLOG_SQLMEM_MAX_OPEN_TXNS",
        per_tenant="three quarters",
        per_principal="half",
        reason="a tree of runs has one at a time",
    ),
    _row(
        "deliveries of microservices",
        "runtime",
        "services/families/webhook/ingress_reader.py",
        "8 batches, 64 bodies",
        "trusted producers of the topic, each partition in order",
    ),
    _row(
        "schedules that are armed",
        "runtime",
        "services/families/schedule/reconciler.py",
        "50",
        "short commands after a take-over or a change; schedules have shares of their own",
    ),
    _row(
        "previews that wait",
        "runtime",
        "services/runtime/models/previews.py",
        "10,000 pieces",
        "beyond it previews are left out, never results; producers of them are model calls, which have shares",
    ),
    _row(
        "notes after runs",
        "runtime",
        "services/families/consolidation/run_ends.py",
        "10,000 scopes",
        "one for each scope; runs have shares",
    ),
    _row(
        "summaries of ended runs",
        "runtime",
        "services/runtime/telemetry/run_summaries.py",
        "20,000",
        "metrics; beyond it they are counted as dropped",
    ),
    _row(
        "commands of budgets under way",
        "runtime",
        "services/families/budget/accounts.py",
        "20,000",
        "one or two for each model call, which have shares",
    ),
    _row(
        "calls over a session with an MCP server",
        "runtime and api",
        "connectors/mcp/http_transport.py",
        "64",
        "one for each tenant and its headers; runs have shares of tool calls",
    ),
    _row(
        "requests to authorization servers of MCP servers",
        "runtime and api",
        "connectors/mcp/oauth_client.py",
        "one a login or a renewal",
        "a connection is made for each request and closed after it",
    ),
    _row("Postgres connections of the runtime", "runtime", "services/runtime/resources.py", "4", _POSTGRES_WHY),
    _row(
        "Postgres connections for entities",
        "runtime and api",
        "services/stream/entities/topic_sets.py",
        "for each topic set 4, in the api LOOMLOG_POSTGRES_MAX_CONNECTIONS",
        _POSTGRES_WHY,
    ),
    _row(
        "Postgres connections for credentials",
        "runtime and api",
        "connectors/storage/side_table.py",
        "4",
        _POSTGRES_WHY,
    ),
    _row(
        "uses of credentials that wait to be noted",
        "runtime and api",
        "services/families/identity/credential_uses.py",
        "10,000",
        "one for each credential, agent, user and purpose, sent every second; nothing waits for them",
    ),
    _row(
        "Postgres connections for Idempotency-Keys",
        "api",
        "connectors/storage/side_table.py",
        "2",
        _POSTGRES_WHY,
    ),
    _row("Postgres connections for metric samples", "api", "connectors/storage/side_table.py", "2", _POSTGRES_WHY),
    _row(
        "Postgres connections of the api",
        "api",
        "services/application/bootstrap.py",
        "LOOMLOG_POSTGRES_MAX_CONNECTIONS",
        _POSTGRES_WHY,
    ),
    _row(
        "Postgres connections of the index", "runtime and api", "projections/memory_index/reads.py", "4", _POSTGRES_WHY
    ),
    _row(
        "Postgres connections of the indexer",
        "projector",
        "services/projector/memory_indexer.py",
        "5",
        "the projector works for all tenants in the order of the log",
    ),
    _row("reads of a schema registry", "all", "connectors/kafka/schema_registry.py", "4", "at the start of a process"),
    _row("warnings about options", "runtime", "connectors/models/anthropic.py", "1,000", "lines of the log"),
    _row(
        "connections between owners",
        "runtime",
        "connectors/process/liveness_sockets.py",
        "1,000",
        "other runtimes of the installation",
    ),
)
