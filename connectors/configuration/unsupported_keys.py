"""Keys of existing deployments that this version does not support: accepted and reported, never silently faked.

Four closed tables (blocks of a file, keys of agents, tools, environment names) name the feature each entry belongs to.
An entry leaves this file in the commit that brings its feature. A block, a key or a tool gets one warning; a name with
the old prefix is accepted silently, since an env file lists dozens of them; a name with our own prefix gets a warning.
Names that were retired by the reference are errors, because ignoring them would loosen what they once confined.

After: environment.py, check.py, load.py, document.py.
"""

from collections.abc import Mapping

UNSUPPORTED_BLOCKS: Mapping[str, str] = {
    "a2a_agents": "agent-to-agent peers",
    "a2a_server_cards": "agent-to-agent peers",
    "cache": "provider response cache",
    "document_sources": "documents",
    "env_allowlist": "a list of variables in a file (LOOMLOG_WEBHOOKS_ENV_ALLOWLIST and others name them)",
    "search_priority": "web search",
    "search_providers": "web search",
    "storage": "storage backends (Postgres is set by LOOMLOG_POSTGRES)",
}

UNSUPPORTED_AGENT_KEYS: Mapping[str, str] = {
    "history_scope": "history",
    "search_providers": "web search",
    "skill_def_scopes": "scopes of definitions of skills",
    "system_prompt_base": "shared prompts",
}
"""Keys of agents.<name> that are checked and have no effect -> feature."""

SUPPORTED_TOOLS = frozenset(
    {
        "A2AAgentDef",
        "A2AServerCardDef",
        "Agent",
        "AgentDef",
        "Bash",
        "Bench",
        "Channel",
        "Context",
        "DocumentSourceDef",
        "Edit",
        "Evaluation",
        "Glob",
        "Grep",
        "HTTP",
        "Interruption",
        "Ledger",
        "MCPServerDef",
        "Memory",
        "MemoryBackendDef",
        "Read",
        "ScheduleDef",
        "Skill",
        "SkillDef",
        "TeamDef",
        "VolumeDef",
        "WebFetch",
        "WebhookDef",
        "Write",
    }
)
UNSUPPORTED_TOOLS: Mapping[str, str] = {
    "Bashbox": "the in-process shell",
    "CredentialDef": "definitions of credentials by agents",
    "Document": "documents",
    "History": "history",
    "NotebookEdit": "notebooks",
    "OperatorTokenDef": "definitions of tokens by agents",
    "Path": "paths",
    "WebSearch": "web search",
}
EXTERNAL_TOOL_PREFIXES: Mapping[str, str] = {
    "a2a__": "agent-to-agent peers",
}
"""Prefixes of tools whose names are defined elsewhere, so they cannot be checked here."""

UNSUPPORTED_DRIVERS: Mapping[str, str] = {
    "anthropic_oauth_dev": "Anthropic by OAuth",
}

RETIRED_SETTINGS: Mapping[str, str] = {
    "READ_ROOT": "declare `volumes: {source: {path: ..., mode: ro}}` and list it in `agents.<name>.volumes`",
    "WRITE_ROOT": "declare `volumes: {out: {path: ..., mode: rw}}` and list it in `agents.<name>.volumes`",
    "BASH_CWD": "Bash runs in a writable volume: list one in `agents.<name>.volumes`",
}


def _map_names(feature: str, names: str, prefix: str = "") -> dict[str, str]:
    return {prefix + name: feature for name in names.split()}


UNSUPPORTED_SETTINGS: Mapping[str, str] = {
    **_map_names(
        "the time of the sweep (expired keys are hidden at once, and removed every 15 minutes)", "MEMORY_SWEEP_MS"
    ),
    **_map_names(
        "the number of targets that one tick starts (each target has a timer of its own here)",
        "MAX_CONSOLIDATION_TARGETS",
    ),
    **_map_names("replicas (owned by the log here)", "REPLICAS_SWEEP_INTERVAL_MS REPLICAS_STALE_AFTER_MS"),
    **_map_names(
        "the time that callers are cached (tokens are in memory here, and end at once)",
        "AUTH_CACHE_TTL_SECONDS AUTH_VERBOSE",
    ),
    **_map_names("storage backends", "STORAGE_BACKEND PG_AUTOMIGRATE PGVECTOR_ENABLED SQLITE_VEC_PATH"),
    **_map_names(
        "databases in Postgres (those of memory are SQLite in the log here)", "PG_DSN SHARED_SCHEMAS", prefix="SQLMEM_"
    ),
    **_map_names(
        "limits and copies of files of SQL memory (the log is the truth here, and files are a cache)",
        "TOTAL_MAX_BYTES SNAPSHOT_MAX_SCOPE_BYTES GC_INTERVAL_MS SCOPE_TTL_MS",
        prefix="SQLMEM_",
    ),
    **_map_names("the audit of SQL memory (each statement is in the log here)", "AUDIT_MODE", prefix="SQLMEM_"),
    **_map_names("documents", "MAX_DOCUMENT_ASSET_BYTES DEADLINK_GC_MS DEADLINK_GC_DRY_RUN"),
    **_map_names(
        "delayed messages of channels (a queue has at most 5,000, and no process sweeps them)",
        "CHANNELS_MAX_PENDING_DEFERRED CHANNELS_SWEEP_MS",
    ),
    **_map_names(
        "definitions",
        "AGENT_DEF_MAX_DEFINITION_BYTES AGENT_DEF_MAX_DESCRIPTION_BYTES AGENT_DEF_MAX_CODE_BYTES "
        "SKILL_DEF_MAX_BODY_BYTES SKILL_DEF_MAX_DESCRIPTION_BYTES DYNAMIC_AGENT_DEFAULT_TTL_SECONDS "
        "DYNAMIC_AGENT_SWEEP_INTERVAL_MS",
    ),
    **_map_names("evaluations", "EVALUATION_MAX_JUDGEMENT_BYTES EVALUATION_MAX_RATIONALE_BYTES"),
    **_map_names("web search", "WEBSEARCH_PROVENANCE"),
    **_map_names(
        "the in-process shell",
        "BASHBOX_ENABLED BASHBOX_FALLBACK_COMMANDS BASHBOX_FALLBACK_ALLOWED_ENV BASHBOX_FALLBACK_ALLOWED_CREDS "
        "BASHBOX_ALLOWED_ENV BASHBOX_ALLOWED_CREDS",
    ),
    **_map_names("Anthropic by OAuth", "ANTHROPIC_OAUTH_DEV_ENABLED ANTHROPIC_OAUTH_CALLBACK_PORT"),
    **_map_names(
        "run supervision (the log does it here)",
        "CANCEL_ACK_TIMEOUT_MS HEARTBEAT_SWEEPER HEARTBEAT_SWEEP_INTERVAL_MS HEARTBEAT_STALE_MS "
        "SESSION_LOCK_GC_INTERVAL_MS SESSION_LOCK_MAX_IDLE_MS RESUME_FANOUT",
    ),
    **_map_names("pause", "PAUSE_CACHE_TTL_MS PAUSE_DEFAULT_TIMEOUT_MS"),
    **_map_names(
        "retention",
        "RETENTION_ENABLED RETENTION_INTERVAL_MS RETENTION_EXPORT_DIR RETENTION_DEFS_MODE RETENTION_DEFS_MAX_AGE_MS "
        "RETENTION_DEFS_KEEP_LAST_N RETENTION_CHATS_MODE RETENTION_CHATS_MAX_AGE_MS "
        "RETENTION_CHATS_INTERNAL_MAX_AGE_MS RETENTION_MEM_MODE RETENTION_MEM_MAX_AGE_MS "
        "RETENTION_MEM_CONTENT_MODE RETENTION_MEM_CONTENT_MAX_AGE_MS "
        "USAGE_SWEEPER USAGE_SWEEP_INTERVAL_MS USAGE_DETAIL_RETENTION_MS USAGE_RUN_RETENTION_MODE "
        "USAGE_RUN_RETENTION_MS USAGE_EXPORT_DIR",
    ),
    **_map_names(
        "ticks of schedules (each has a timer here, and a fire does not wait for its run)",
        "SCHEDULER_TICK_SECONDS SCHEDULER_FIRE_TIMEOUT_SECONDS",
    ),
    **_map_names("agent-to-agent peers", "A2A_ENABLED A2A_SERVER_CARD A2A_PUBLIC_BASE_URL A2A_TENANCY_ROUTING"),
    **_map_names(
        "MCP",
        "MCP_MAX_CONCURRENT_CALLS MCP_SPAWN_RUN_TIMEOUT_MS MCP_ALLOW_PRIVILEGED_TOOLS MCP_ALLOW_DYNAMIC_STDIO "
        "MCP_ALLOW_PRIVATE_IPS MCP_RECIPES_ROOT MCP_UPSTREAM_TOKEN MCP_UPSTREAM_HEADER_TIMEOUT_MS "
        "MCP_UPSTREAM_RECONNECT_ATTEMPTS",
    ),
    **_map_names(
        "the time that metric samples are kept (7 days), and samples of the machine",
        "METRICS_RETENTION_DAYS METRICS_SWEEP_INTERVAL_MS METRICS_COLLECT_SYSTEM",
    ),
}
"""Suffix after the prefix -> feature."""

UNSUPPORTED_SECRETS = frozenset({"SQLMEM_PG_DSN", "MCP_UPSTREAM_TOKEN"})
"""Those of UNSUPPORTED_SETTINGS with values that no file may expand."""
