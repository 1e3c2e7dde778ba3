# ruff: noqa: RUF009 (each row is a call that makes a dataclass field; that is what the rule cannot see)
"""Table of all LOOMLOG_* settings: name, kind, default, meaning and old name, as fields of a frozen dataclass.

A field `listen_addr` is the setting `LOOMLOG_LISTEN_ADDR`; everything else about it is in the field's metadata. The
parser (environment.py) and docs/SETTINGS.md (document.py) are both made from these fields, so no setting can be missing
in one of them. Not chosen: a list of records next to a dataclass (two places to keep equal) and pydantic-settings
(reads the environment itself, and has no aliases that can disagree loudly).

Names of reference deployments (the prefix LOOMCYCLE_) are accepted for every setting that is not new. Secrets are left
out of repr. Paths are absolute after reading. An empty variable counts as not set: env files are full of `NAME=`.

Before: setting_types.py. After: environment.py fills it, every main() reads it.
"""

from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from loomlog.connectors.configuration.setting_types import (
    ADDRESS,
    ADDRESS_OR_OFF,
    ALL_INTERFACES,
    FLAG,
    FLAG_OR_NAME,
    MAX_PORT,
    NAMES,
    ORIGINS,
    PATH,
    PATHS,
    RATIO,
    SERVERS,
    TEXT,
    URL,
    SettingType,
    clamped_integer,
    integer,
    one_of,
)

PREFIX = "LOOMLOG_"
OLD_PREFIX = "LOOMCYCLE_"

MIB = 1024 * 1024
HOUR_MS = 3_600_000
MAX_PARTITIONS = 1024
"""Partitions of a topic; far above what one group of owners can serve. A typo of a few zeros would
take a broker down.
"""
MAX_SPARES = 15
"""Runtimes that wait; each takes the memory of a process, and more than the deaths at once are of no use."""


def setting(
    group: str,
    value_type: SettingType,
    default: Any,
    meaning: str,
    *,
    old: str = "",
    is_new: bool = False,
    secret: bool = False,
) -> Any:
    """Define a row of the table. `old` is the name without the old prefix where it is not the field's own; `is_new`:
    reference deployments have no such name.
    """
    metadata = {"group": group, "kind": value_type, "meaning": meaning, "old": old, "is_new": is_new, "secret": secret}
    return field(default=default, repr=not secret, metadata=metadata)


process_setting = partial(setting, "Process")
access_setting = partial(setting, "Access")
log_setting = partial(setting, "Log (Kafka-compatible broker)")
storage_setting = partial(setting, "Postgres and blobs")
file_setting = partial(setting, "Configuration files")
model_setting = partial(setting, "Models")
tool_setting = partial(setting, "Tools")
memory_setting = partial(setting, "Memory")
run_setting = partial(setting, "Runs")
observability_setting = partial(setting, "Observability")
audit_setting = partial(setting, "Audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a process from its environment. Built once in main() by environment.read_settings."""

    home: Path = process_setting(
        PATH,
        Path(".loomlog"),
        "Folder of everything this installation keeps on this machine: the local broker and Postgres, blobs, logs.",
        old="DATA_DIR",
    )
    listen_addr: str = process_setting(ADDRESS, "127.0.0.1:8787", "Where the API listens.")
    base_url: str = process_setting(
        URL, "", "Where the command line finds the API; empty = http:// and the listen address."
    )
    public_url: str = process_setting(URL, "", "The API's address as others see it, for links and callbacks.")
    public_config: bool = process_setting(
        FLAG, False, "Answer /v1/config without a token too: features, providers and models."
    )
    grpc_addr: str = process_setting(ADDRESS, "", "Where gRPC listens, in a process of its own; empty = it is off.")
    grpc_tls_cert: Path | None = process_setting(
        PATH, None, "Certificate of the gRPC server (PEM), together with its key; empty = without TLS.", is_new=True
    )
    grpc_tls_key: Path | None = process_setting(PATH, None, "Key of that certificate (PEM).", is_new=True)
    grpc_reflection: bool = process_setting(
        FLAG, False, "Let gRPC clients ask which RPCs and messages there are.", is_new=True
    )
    replica_id: str = process_setting(
        TEXT, "", "Name of this replica in /healthz and metrics; empty = host name and process id."
    )
    max_request_bytes: int = process_setting(
        integer(1024, 1024 * MIB, "bytes"), 16 * MIB, "Largest request body; more is refused with 413."
    )
    sse_keepalive_ms: int = process_setting(
        clamped_integer(1000, 300_000, "milliseconds"), 20_000, "Silence after which an event stream sends a comment."
    )
    streams_per_principal: int = process_setting(
        integer(1, 5_000), 250, "Event streams that one principal has open in one API process.", is_new=True
    )
    log_level: str = process_setting(
        one_of("debug", "info", "warning", "error"), "info", "Least severity that is logged.", is_new=True
    )
    start_paused: str = process_setting(
        FLAG_OR_NAME,
        "",
        "Come up with everything paused until `loomlog resume`: once for each value, which the log remembers, so that "
        "a replica that restarts pauses nothing again. `loomlog up` makes a value of its own at each start.",
        is_new=True,
    )
    drain_timeout_ms: int = process_setting(
        integer(0, HOUR_MS, "milliseconds"), 10_000, "How long a planned stop waits for calls in flight.", is_new=True
    )

    auth_token: str = access_setting(TEXT, "", "The shared token: an administrator of tenant `default`.", secret=True)
    operator_token_pepper: str = access_setting(
        TEXT,
        "",
        "What minted tokens are hashed with; empty = derived from `LOOMLOG_SECRET_KEY`, and without that none can be "
        "minted. Changing it ends them all.",
        secret=True,
    )
    operator_token_rotation_grace_seconds: int = access_setting(
        integer(0, 30 * 86_400, "seconds"),
        86_400,
        "How long the text of a token before its rotation still gives access, where the request does not say.",
    )
    open_mode: bool = access_setting(
        FLAG, False, "Serve without any token. Refused unless the listen address is a loopback address.", is_new=True
    )
    ui_enabled: bool = access_setting(FLAG, True, "Serve the web page under /ui.", is_new=True)
    ui_login_origins: tuple[str, ...] = access_setting(
        ORIGINS,
        (),
        "Origins whose pages may open the sign-in page and pass a token to it, like https://portal.example; empty = "
        "tokens are pasted.",
    )
    secret_key: str = access_setting(
        TEXT,
        "",
        "Base64 of 32 bytes: signs callbacks, seals what runs may not have in the log and the rows of entities; "
        "empty = callbacks are not signed, and runs that bring credentials are refused.",
        secret=True,
    )
    secret_key_previous: str = access_setting(
        TEXT, "", "The key before it, while it is changed: it still opens and signs too.", secret=True
    )
    redact_secrets: bool = access_setting(
        FLAG,
        True,
        "Mask known secrets before anything is appended to the log, and in results of tools whatever looks like one.",
    )

    kafka: str = log_setting(
        SERVERS, "", "Bootstrap servers; empty = the local broker that `loomlog up` starts.", is_new=True
    )
    kafka_port: int | None = log_setting(
        integer(0, MAX_PORT),
        None,
        "Port of the local broker; empty = that of last time or 19092, 0 = any free one.",
        is_new=True,
    )
    kafka_security_protocol: str = log_setting(
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "PLAINTEXT",
        "How to talk to the brokers.",
        is_new=True,
    )
    kafka_sasl_mechanism: str = log_setting(
        one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "",
        "How to authenticate; needed with the SASL protocols.",
        is_new=True,
    )
    kafka_username: str = log_setting(TEXT, "", "User name for SASL.", is_new=True)
    kafka_password: str = log_setting(TEXT, "", "Password for SASL.", secret=True, is_new=True)
    kafka_ca_file: Path | None = log_setting(
        PATH, None, "Certificates to trust (PEM); empty = those of the system.", is_new=True
    )
    kafka_cert_file: Path | None = log_setting(
        PATH, None, "Client certificate (PEM), together with its key.", is_new=True
    )
    kafka_key_file: Path | None = log_setting(PATH, None, "Key of the client certificate (PEM).", is_new=True)
    kafka_key_password: str = log_setting(TEXT, "", "Password of that key.", secret=True, is_new=True)
    kafka_compression: str = log_setting(
        one_of("lz4", "zstd", "gzip", "none"),
        "lz4",
        "Compression of appended batches. Every reader of the topics needs the same codec.",
        is_new=True,
    )
    partitions: int = log_setting(
        integer(1, MAX_PARTITIONS),
        4,
        "Partitions of each topic when it is created; the same for all families.",
        is_new=True,
    )
    replication_factor: int = log_setting(
        integer(1, 7), 1, "Copies of each topic when it is created; 3 in production.", is_new=True
    )
    session_timeout_ms: int = log_setting(
        integer(500, 300_000, "milliseconds"),
        3_000,
        "Silence after which the group gives an owner's partitions away. Under 6000 the broker must allow it.",
        is_new=True,
    )
    standby_addr: str = log_setting(
        ADDRESS_OR_OFF,
        "127.0.0.1:0",
        "Where a runtime holds sockets by which the others notice its death at once and take over: an address of this "
        "machine that they can reach, or 0.0.0.0 (in a container: its host name then gives the address); port 0 "
        "= any free one. With off it neither listens nor stands by for others.",
        is_new=True,
    )
    spares: int | None = log_setting(
        integer(0, MAX_SPARES),
        None,
        "Runtimes that own nothing and wait: when an owner dies, one of them takes over at once. The same for all "
        "runtimes. Empty = 2 for `loomlog up`, which starts them in addition (1 when less than 4 GiB of memory is "
        "available), and 0 for a runtime of its own; with 0 the runtimes stand by for each other and fold each other's "
        "partitions.",
        is_new=True,
    )
    families: tuple[str, ...] = log_setting(
        NAMES,
        (),
        "Modules with further families of aggregates, which every process imports (docs/FAMILIES.md); their folders "
        "are on PYTHONPATH.",
        is_new=True,
    )
    schema_registry: str = log_setting(
        URL, "", "Schema registry to take schema ids from; empty = the lock file schemas/ids.json.", is_new=True
    )

    postgres: str = storage_setting(
        TEXT,
        "",
        "Connection string of the read models; empty = the local Postgres that `loomlog up` starts.",
        secret=True,
        old="PG_DSN",
    )
    postgres_port: int | None = storage_setting(
        integer(0, MAX_PORT),
        None,
        "Port of the local Postgres; empty = that of last time or 15432, 0 = any free one.",
        is_new=True,
    )
    postgres_sslmode: str = storage_setting(
        one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        "",
        "TLS towards Postgres; empty = as in the connection string.",
        is_new=True,
    )
    postgres_sslrootcert: Path | None = storage_setting(PATH, None, "Certificates to trust (PEM).", is_new=True)
    postgres_sslcert: Path | None = storage_setting(
        PATH, None, "Client certificate (PEM), together with its key.", is_new=True
    )
    postgres_sslkey: Path | None = storage_setting(PATH, None, "Key of the client certificate (PEM).", is_new=True)
    postgres_max_connections: int = storage_setting(
        integer(1, 1000), 10, "Most connections of one process.", old="PG_MAX_OPEN_CONNS"
    )
    postgres_min_connections: int = storage_setting(
        integer(0, 1000), 1, "Connections of one process that stay open when idle.", old="PG_MIN_IDLE_CONNS"
    )
    blob_folder: Path | None = storage_setting(
        PATH, None, "Folder of the payloads too large for the log; empty = `blobs` in the home folder.", is_new=True
    )

    config_dir: Path | None = file_setting(
        PATH, None, "Folder whose *.yaml files are read in name order, before the listed files."
    )
    config_files: tuple[Path, ...] = file_setting(PATHS, (), "Files to read, each on top of those before.")
    config_strict: bool = file_setting(
        FLAG, False, "A file that changes a value of a file before it is an error instead of a warning."
    )
    help_root: Path | None = file_setting(
        PATH,
        None,
        "Folder of further help topics for agents, one `<topic>.md` each; one with the name of a built-in topic "
        "replaces it.",
    )
    agents_root: Path | None = file_setting(
        PATH,
        None,
        "Folder of agents, one `<name>.md` each, in subfolders `<group>/<name>`: the frontmatter has the keys of an "
        "agent, the text below it is the system prompt.",
    )
    skills_root: Path | None = file_setting(
        PATH,
        None,
        "Folder of skills, one folder each with a `SKILL.md`: description and tools in the frontmatter, the "
        "instructions below; up to 64 further texts of the folder, 1 MiB together, are files of the skill.",
    )
    no_default_providers: bool = file_setting(FLAG, False, "Leave out the built-in providers.")
    presets: tuple[str, ...] = file_setting(
        NAMES,
        (),
        "Layers that come with the program, below the installation's files: `base` (aliases, tiers and plans over the "
        "built-in vendors), `local` (the Ollama server of this machine first), `memory` (the agents that turn "
        "conversations into facts; on top of `base`).",
    )

    provider_header_timeout_ms: int = model_setting(
        integer(100, HOUR_MS, "milliseconds"), 60_000, "Longest wait for the first bytes of a model's answer."
    )
    provider_idle_timeout_ms: int = model_setting(
        integer(100, HOUR_MS, "milliseconds"), 90_000, "Longest silence inside a model's answer."
    )
    ollama_local_header_timeout_ms: int = model_setting(
        integer(100, HOUR_MS, "milliseconds"),
        600_000,
        "The first of these for Ollama servers without a key, which load the model first.",
    )
    ollama_local_idle_timeout_ms: int = model_setting(
        integer(100, HOUR_MS, "milliseconds"), 600_000, "The second of these for Ollama servers without a key."
    )
    ollama_num_ctx: int = model_setting(
        integer(0, 10_000_000, "tokens"), 0, "Context window asked of the hosted `ollama`; 0 = the model's own."
    )
    ollama_local_num_ctx: int = model_setting(
        integer(0, 10_000_000, "tokens"),
        0,
        "Context window asked of Ollama servers without a key; 0 = the one a model is loaded with.",
    )
    ollama_local_num_gpu: int = model_setting(
        integer(-1, 1000, "layers"), -1, "Layers Ollama servers without a key put on the GPU; -1 = they decide."
    )
    model_calls_per_provider: int = model_setting(
        integer(0, 10_000),
        0,
        "Model calls one process has open at one provider, where the provider has no max_concurrent; 0 = 1,000, and "
        "calls beyond wait up to ten minutes.",
        is_new=True,
    )
    operator_key_restriction: bool = model_setting(
        FLAG,
        False,
        "Runs of principals without the scope `providers:operator-key` use only the provider keys they bring.",
    )
    fallback_pin_after_success: bool = model_setting(
        FLAG, False, "After a turn succeeded its run stays with that provider."
    )
    resolve_probe_interval_ms: int = model_setting(
        integer(0, 24 * HOUR_MS, "milliseconds"),
        900_000,
        "Between two probes of a provider; moved into 60 s to 60 min.",
    )
    mock_enabled: bool = model_setting(
        FLAG,
        False,
        "Allow the synthetic providers `mock` and `mock-stable`; a file can do it with their option `enabled`.",
    )
    mock_latency_ms: int = model_setting(integer(0, HOUR_MS, "milliseconds"), 50, "How long a synthetic model thinks.")
    mock_latency_jitter_ms: int = model_setting(
        integer(0, HOUR_MS, "milliseconds"), 25, "Most that is added to it at random."
    )
    mock_429_rate: float = model_setting(RATIO, 0.0, "Share of calls to `mock` that are refused as too many.")
    mock_500_rate: float = model_setting(RATIO, 0.0, "Share of calls to `mock` that fail.")

    code_agents_enabled: bool = model_setting(
        FLAG, False, "Allow agents that are JavaScript instead of a model (provider `code-js`)."
    )
    code_agents_root: Path = model_setting(
        PATH, Path("agent_code"), "Folder of their scripts: `<agent>/index.js`, for agents without `code_body`."
    )
    code_agents_run_timeout_seconds: int = model_setting(
        integer(1, 86_400, "seconds"),
        120,
        "How long a run of a code agent may take, parked and paused time left out; an agent's and a run's own "
        "run_timeout_seconds win.",
    )
    code_agents_deterministic: bool = model_setting(
        FLAG, False, "Give every run of a code agent the same chance and the same time, for comparing runs."
    )

    http_host_allowlist: tuple[str, ...] = tool_setting(
        NAMES, (), "Hosts the network tools may reach, subdomains included; `*` = all public ones, empty = none."
    )
    http_caller_authoritative: bool = tool_setting(
        FLAG, False, "A run's own allowed_hosts replace that list instead of narrowing it; loopback names never do."
    )
    hooks_permit_host_widen_owners: tuple[str, ...] = tool_setting(
        NAMES,
        (),
        "Whose hooks may open hosts for a call: `tenant:owner`, or `owner` for hooks of no tenant; joins "
        "`hooks.permit_host_widen.owners` of the files.",
    )
    http_private_host_allowlist: tuple[str, ...] = tool_setting(
        NAMES, (), "Hosts that may be reached although their address is private."
    )
    bash_enabled: bool = tool_setting(FLAG, False, "Allow the tool Bash to agents that list it.")
    bash_allowed_env: tuple[str, ...] = tool_setting(
        NAMES, (), "Environment names a Bash command sees in addition to PATH."
    )
    bash_allowed_creds: tuple[str, ...] = tool_setting(NAMES, (), "Credential names a Bash command sees.")
    bench_enabled: bool = tool_setting(
        FLAG, False, "Allow the tool Bench, which costs nothing, for measuring.", is_new=True
    )
    ledger_path: Path | None = tool_setting(
        PATH,
        None,
        "File the tool Ledger appends a line to for each call, for counting effects; empty = no such tool.",
        is_new=True,
    )
    ledger_effect: str = tool_setting(
        one_of("idempotent", "unsafe"),
        "unsafe",
        "What may be done about a call of Ledger whose result is unknown.",
        is_new=True,
    )
    ledger_reconciles: bool = tool_setting(
        FLAG, False, "Ledger can be asked, after its process was lost, whether a call wrote its line.", is_new=True
    )
    tool_parallelism: int = tool_setting(integer(1, 64), 8, "Tool calls of one turn that run at once.")
    max_interactive_children: int = tool_setting(integer(1, 64), 8, "Resident sub-agents that a run may have at once.")
    interactive_child_idle_ttl_ms: int = tool_setting(
        integer(1_000, 86_400_000),
        1_800_000,
        "Idle time after which a resident sub-agent is closed, when its opener names none; milliseconds.",
    )
    ephemeral_volume_sweep_ms: int = tool_setting(
        integer(1_000, 3_600_000, "milliseconds"),
        60_000,
        "Time between two looks for ephemeral volumes whose run is over.",
    )
    client_tool_timeout_ms: int = tool_setting(
        integer(1_000, 1_800_000, "milliseconds"),
        60_000,
        "How long a client may take for a call of a tool it carries out; then its outcome is unknown.",
    )
    client_tool_max_bytes: int = tool_setting(
        integer(1024, MIB, "bytes"),
        MIB,
        "Largest frame of a client that offers tools, in both directions; the connection is closed for a larger one.",
    )
    client_tool_max_conns: int = tool_setting(
        integer(1, 1_000), 8, "Connections of clients that offer tools, for one principal and API process."
    )
    tool_calls_per_process: int = tool_setting(
        integer(1, 10_000), 128, "Tool calls one process runs at once, all runs together.", is_new=True
    )

    channels_max_value_bytes: int = memory_setting(
        integer(1, 256 * 1024, "bytes"), 64 * 1024, "Largest value of a message, as JSON; more is refused."
    )
    channels_longpoll_cap_ms: int = memory_setting(
        integer(0, 1_800_000, "milliseconds"),
        30_000,
        "Longest wait for messages of channels; a longer one is cut, and the answer says so (wait_capped_ms).",
    )
    memory_max_value_bytes: int = memory_setting(
        integer(1, 256 * 1024, "bytes"), 64 * 1024, "Largest value of a key, as JSON; more is refused."
    )
    memory_max_scope_bytes: int = memory_setting(
        integer(0, 1024 * MIB, "bytes"),
        MIB,
        "Most bytes of all values of a scope; an agent may have less, one of a file also more; 0 = no bound.",
    )
    memory_embed_batch_size: int = memory_setting(
        integer(1, 2_048, "texts"), 100, "Texts of one call of the embedder; its own batch_size wins."
    )
    memory_embed_timeout_ms: int = memory_setting(
        integer(100, 600_000, "milliseconds"), 30_000, "Longest wait for the embedder; its own timeout_ms wins."
    )
    embedder_stub: bool = memory_setting(FLAG, False, "Use the embedder `stub` of tests, whatever the files name.")
    memory_changes_enabled: bool = memory_setting(
        FLAG, True, "Keep the feed of changes, which streams and change_subscriptions read."
    )
    memory_changes_retention_hours: int = memory_setting(
        integer(1, 8_760, "hours"), 24, "How long the feed keeps a change."
    )
    change_sub_interval_ms: int = memory_setting(
        integer(100, HOUR_MS, "milliseconds"),
        5_000,
        "Time between two looks of each of change_subscriptions into the feed.",
    )
    max_consolidation_concurrency: int = memory_setting(
        integer(1, 1_000), 4, "Passes of consolidation that work at once in a runtime; others wait."
    )
    scheduler_enabled: bool = memory_setting(
        FLAG, True, "Let schedules fire; off: instants pass, and run-now still works."
    )
    scheduler_env_allowlist: tuple[str, ...] = memory_setting(
        NAMES,
        (),
        "Environment names whose values schedules may give their runs as credentials; `tenant:NAME` for one tenant.",
    )
    webhooks_enabled: bool = memory_setting(FLAG, True, "Take requests for webhooks.")
    webhooks_env_allowlist: tuple[str, ...] = memory_setting(
        NAMES,
        (),
        "Environment names that webhooks made at run time may use as secrets and give their runs as credentials, "
        "besides the usual names of third parties for secrets; `tenant:NAME` for one tenant.",
    )
    webhooks_allow_unauthenticated: bool = memory_setting(
        FLAG, False, "Let webhooks with auth kind none take requests without any proof."
    )
    sqlmem_enabled: bool = memory_setting(FLAG, True, "Allow agents with sql_scopes their databases.")
    sqlmem_root: Path | None = memory_setting(
        PATH,
        None,
        "Folder of the databases' files, a cache of what is in the log; empty = `sqlmem` in the home folder.",
    )
    sqlmem_max_rows: int = memory_setting(
        integer(1, 100_000, "rows"), 10_000, "Most rows of one answer; more are left out."
    )
    sqlmem_statement_timeout_ms: int = memory_setting(
        integer(10, 600_000, "milliseconds"), 30_000, "Longest time of a statement."
    )
    sqlmem_txn_timeout_ms: int = memory_setting(
        integer(100, HOUR_MS, "milliseconds"), 30_000, "Idle time after which an open transaction is rolled back."
    )
    sqlmem_max_open_txns: int = memory_setting(
        integer(1, 10_000), 64, "Transactions that one process has open; three quarters for a tenant."
    )
    sqlmem_max_txn_depth: int = memory_setting(integer(1, 64), 16, "Transactions within each other.")
    sqlmem_quota_bytes: int = memory_setting(
        integer(0, 1024 * MIB, "bytes"),
        50 * MIB,
        "Most bytes of a database; an agent may have less, one of a file also more; 0 = no bound.",
    )

    max_concurrent_runs_per_user: int | None = run_setting(
        integer(0, 1_000_000), None, "Wins over concurrency.max_concurrent_runs_per_user; 0 = no bound."
    )
    provider_queue_depth: int | None = run_setting(
        integer(0, 1_000_000), None, "Wins over concurrency.provider_queue_depth."
    )
    provider_queue_timeout_ms: int | None = run_setting(
        integer(0, HOUR_MS, "milliseconds"), None, "Wins over concurrency.provider_queue_timeout_ms."
    )

    metrics_enabled: bool = observability_setting(
        FLAG, True, "Serve /metrics: the API's to administrators only, each runtime's on 127.0.0.1."
    )
    metrics_sample_interval_ms: int = observability_setting(
        integer(0, HOUR_MS, "milliseconds"),
        5_000,
        "How often the api takes a sample of its memory, its CPU and the runs at work, kept for 7 days; 0 = never.",
    )
    runtime_metrics_port: int = observability_setting(
        integer(0, MAX_PORT),
        18911,
        "Port of a runtime's own /metrics on 127.0.0.1; a further runtime takes the next free one, 0 = any free one.",
        is_new=True,
    )
    insights_host: str = observability_setting(
        TEXT,
        "127.0.0.1",
        "Address or host name that insights listens on, and a Host it answers to beside loopback. It asks for no "
        "token: name another address only in a network that trusted processes alone reach.",
        is_new=True,
    )
    insights_port: int = observability_setting(
        integer(0, MAX_PORT),
        18901,
        "Port of the insights service on LOOMLOG_INSIGHTS_HOST; 0 = any free one.",
        is_new=True,
    )
    insights_history_minutes: int = observability_setting(
        integer(1, 240, "minutes"),
        15,
        "How long insights keeps its windows; a restart reads that much again.",
        is_new=True,
    )
    insights_url: str = observability_setting(
        URL,
        "",
        "Where the api asks insights for its report; empty = http://127.0.0.1:<LOOMLOG_INSIGHTS_PORT>.",
        is_new=True,
    )
    insights_enabled: bool = observability_setting(FLAG, True, "Run the insights service with the others.", is_new=True)
    otel_exporter_otlp_endpoint: str = observability_setting(
        URL, "", "Collector that gets the traces (OTLP over HTTP); empty = no traces."
    )
    otel_exporter_otlp_headers: str = observability_setting(
        TEXT, "", "Headers for the collector, `name=value` with commas between.", secret=True
    )
    otel_service_name: str = observability_setting(TEXT, "loomlog", "Service name in traces.")
    otel_traces_sampler_ratio: float = observability_setting(RATIO, 1.0, "Share of runs that are traced.")

    audit_key_file: Path | None = audit_setting(
        PATH,
        None,
        "Ed25519 key that signs checkpoints of the log (`loomlog audit keygen`); without a key nothing is signed.",
        is_new=True,
    )
    audit_key: str = audit_setting(
        TEXT, "", "The same key itself, PEM or base64, instead of a file.", secret=True, is_new=True
    )
    audit_public_keys: Path | None = audit_setting(
        PATH, None, "File of the public keys whose checkpoints are trusted; our own key needs no listing.", is_new=True
    )
    audit_log_path: Path | None = audit_setting(
        PATH,
        None,
        "File to which the projector appends each act as a line of JSON; empty = acts are in the log and at "
        "GET /v1/_audit only.",
    )
    audit_every_records: int = audit_setting(
        integer(1, 10_000, "records"), 1_000, "A partition is signed after so many new records ...", is_new=True
    )
    audit_every_ms: int = audit_setting(
        integer(100, HOUR_MS, "milliseconds"), 10_000, "... or so long after the first of them.", is_new=True
    )

    encryption_key: str = audit_setting(
        TEXT,
        "",
        "Key-encryption key, base64 of 32 bytes: user content is encrypted with a key for each subject, and can be "
        "erased; empty = content is in the log in plaintext.",
        secret=True,
        is_new=True,
    )
    encryption_key_file: Path | None = audit_setting(PATH, None, "A file with that key instead.", is_new=True)
    encryption_key_previous: str = audit_setting(
        TEXT, "", "The key before it, until `loomlog subjects rewrap` is done.", secret=True, is_new=True
    )

    @property
    def effective_blob_folder(self) -> Path:
        """Blob folder in force."""
        return self.blob_folder or self.home / "blobs"

    @property
    def effective_sqlmem_root(self) -> Path:
        """Folder in force of the databases of memory."""
        return self.sqlmem_root or self.home / "sqlmem"

    @property
    def listen_addrs(self) -> tuple[str, ...]:
        """Addresses where requests come in."""
        return (self.listen_addr, self.grpc_addr) if self.grpc_addr else (self.listen_addr,)

    @property
    def api_url(self) -> str:
        """Address where the command line finds the API; an address that means all interfaces becomes this machine."""
        host, _, port = self.listen_addr.rpartition(":")
        return self.base_url or f"http://{'127.0.0.1' if host in ALL_INTERFACES else host}:{port}"

    def postgres_tls_options(self) -> dict[str, str]:
        """Return the TLS settings that are set, by libpq's parameter names, to pass along with the
        connection string.
        """
        options = {
            "sslmode": self.postgres_sslmode,
            "sslrootcert": self.postgres_sslrootcert,
            "sslcert": self.postgres_sslcert,
            "sslkey": self.postgres_sslkey,
        }
        return {name: str(value) for name, value in options.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """Row of the table, as the parser and the document read it."""

    field: str
    name: str
    old_name: str
    """Empty when the setting is new."""
    group: str
    value_type: SettingType
    default: object
    meaning: str
    is_secret: bool


def setting_rows() -> tuple[SettingRow, ...]:
    """Return the rows of the table in its own order."""
    return tuple(
        SettingRow(
            field=entry.name,
            name=PREFIX + entry.name.upper(),
            old_name=OLD_PREFIX + (entry.metadata["old"] or entry.name.upper()) if not entry.metadata["is_new"] else "",
            group=entry.metadata["group"],
            value_type=entry.metadata["kind"],
            default=entry.default,
            meaning=entry.metadata["meaning"],
            is_secret=entry.metadata["secret"],
        )
        for entry in fields(Settings)
    )
