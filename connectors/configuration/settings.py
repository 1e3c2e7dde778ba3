# ruff: noqa: RUF009 (each row is a call that makes a dataclass field; that is what the rule cannot see)
"""Table of all LOOMLOG_* settings: name, kind, default, meaning and old name, as fields of a frozen dataclass.

A field `listen_addr` is the setting `LOOMLOG_LISTEN_ADDR`; everything else about it is in the field's metadata. The
parser (environment.py) and docs/SETTINGS.md (document.py) are both made from these fields, so no setting can be missing
in one of them. Not chosen: a list of records next to a dataclass (two places to keep equal) and pydantic-settings
(reads the environment itself, and has no aliases that can disagree loudly).

Names of reference deployments (the prefix LOOMCYCLE_) are accepted for every setting that has `old`. Secrets are left
out of repr. Paths are absolute after reading. An empty variable counts as not set: env files are full of `NAME=`.

Before: setting_types.py. After: environment.py fills it, every main() reads it.
"""

from dataclasses import dataclass, field, fields
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
SAME_NAME = "same"
"""Value of `old` when the old name differs from ours only in its prefix."""


def setting(
    group: str, value_type: SettingType, default: Any, meaning: str, *, old: str = "", secret: bool = False
) -> Any:
    """Define a row of the table. `old` is the name without the old prefix, SAME_NAME when it is the field's own."""
    return field(
        default=default,
        repr=not secret,
        metadata={"group": group, "kind": value_type, "meaning": meaning, "old": old, "secret": secret},
    )


_P, _S, _K, _D, _C = "Process", "Access", "Log (Kafka-compatible broker)", "Postgres and blobs", "Configuration files"
_M, _T, _E, _R, _O, _A = "Models", "Tools", "Memory", "Runs", "Observability", "Audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a process from its environment. Built once in main() by environment.read_settings."""

    home: Path = setting(
        _P,
        PATH,
        Path(".loomlog"),
        "Folder of everything this installation keeps on this machine: the local broker and Postgres, blobs, logs.",
        old="DATA_DIR",
    )
    listen_addr: str = setting(_P, ADDRESS, "127.0.0.1:8787", "Where the API listens.", old=SAME_NAME)
    base_url: str = setting(
        _P, URL, "", "Where the command line finds the API; empty = http:// and the listen address.", old=SAME_NAME
    )
    public_url: str = setting(
        _P, URL, "", "The API's address as others see it, for links and callbacks.", old=SAME_NAME
    )
    public_config: bool = setting(
        _P,
        FLAG,
        False,
        "Answer /v1/config without a token too: features, providers and models.",
        old=SAME_NAME,
    )
    grpc_addr: str = setting(
        _P, ADDRESS, "", "Where gRPC listens, in a process of its own; empty = it is off.", old=SAME_NAME
    )
    grpc_tls_cert: Path | None = setting(
        _P, PATH, None, "Certificate of the gRPC server (PEM), together with its key; empty = without TLS."
    )
    grpc_tls_key: Path | None = setting(_P, PATH, None, "Key of that certificate (PEM).")
    grpc_reflection: bool = setting(_P, FLAG, False, "Let gRPC clients ask which RPCs and messages there are.")
    replica_id: str = setting(
        _P, TEXT, "", "Name of this replica in /healthz and metrics; empty = host name and process id.", old=SAME_NAME
    )
    max_request_bytes: int = setting(
        _P,
        integer(1024, 1024 * MIB, "bytes"),
        16 * MIB,
        "Largest request body; more is refused with 413.",
        old=SAME_NAME,
    )
    sse_keepalive_ms: int = setting(
        _P,
        clamped_integer(1000, 300_000, "milliseconds"),
        20_000,
        "Silence after which an event stream sends a comment.",
        old=SAME_NAME,
    )
    streams_per_principal: int = setting(
        _P, integer(1, 5_000), 250, "Event streams that one principal has open in one API process."
    )
    log_level: str = setting(_P, one_of("debug", "info", "warning", "error"), "info", "Least severity that is logged.")
    start_paused: str = setting(
        _P,
        FLAG_OR_NAME,
        "",
        "Come up with everything paused until `loomlog resume`: once for each value, which the log remembers, so that "
        "a replica that restarts pauses nothing again. `loomlog up` makes a value of its own at each start.",
    )
    drain_timeout_ms: int = setting(
        _P, integer(0, HOUR_MS, "milliseconds"), 10_000, "How long a planned stop waits for calls in flight."
    )

    auth_token: str = setting(
        _S, TEXT, "", "The shared token: an administrator of tenant `default`.", old=SAME_NAME, secret=True
    )
    operator_token_pepper: str = setting(
        _S,
        TEXT,
        "",
        "What minted tokens are hashed with; empty = derived from `LOOMLOG_SECRET_KEY`, and without that none can be "
        "minted. Changing it ends them all.",
        old=SAME_NAME,
        secret=True,
    )
    operator_token_rotation_grace_seconds: int = setting(
        _S,
        integer(0, 30 * 86_400, "seconds"),
        86_400,
        "How long the text of a token before its rotation still gives access, where the request does not say.",
        old=SAME_NAME,
    )
    open_mode: bool = setting(
        _S, FLAG, False, "Serve without any token. Refused unless the listen address is a loopback address."
    )
    ui_enabled: bool = setting(_S, FLAG, True, "Serve the web page under /ui.")
    ui_login_origins: tuple[str, ...] = setting(
        _S,
        ORIGINS,
        (),
        "Origins whose pages may open the sign-in page and pass a token to it, like https://portal.example; empty = "
        "tokens are pasted.",
        old=SAME_NAME,
    )
    secret_key: str = setting(
        _S,
        TEXT,
        "",
        "Base64 of 32 bytes: signs callbacks, seals what runs may not have in the log and the rows of entities; "
        "empty = callbacks are not signed, and runs that bring credentials are refused.",
        old=SAME_NAME,
        secret=True,
    )
    secret_key_previous: str = setting(
        _S,
        TEXT,
        "",
        "The key before it, while it is changed: it still opens and signs too.",
        old=SAME_NAME,
        secret=True,
    )
    redact_secrets: bool = setting(
        _S,
        FLAG,
        True,
        "Mask known secrets before anything is appended to the log, and in results of tools whatever looks like one.",
        old=SAME_NAME,
    )

    kafka: str = setting(_K, SERVERS, "", "Bootstrap servers; empty = the local broker that `loomlog up` starts.")
    kafka_port: int | None = setting(
        _K,
        integer(0, MAX_PORT),
        None,
        "Port of the local broker; empty = that of last time or 19092, 0 = any free one.",
    )
    kafka_security_protocol: str = setting(
        _K, one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), "PLAINTEXT", "How to talk to the brokers."
    )
    kafka_sasl_mechanism: str = setting(
        _K,
        one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "",
        "How to authenticate; needed with the SASL protocols.",
    )
    kafka_username: str = setting(_K, TEXT, "", "User name for SASL.")
    kafka_password: str = setting(_K, TEXT, "", "Password for SASL.", secret=True)
    kafka_ca_file: Path | None = setting(_K, PATH, None, "Certificates to trust (PEM); empty = those of the system.")
    kafka_cert_file: Path | None = setting(_K, PATH, None, "Client certificate (PEM), together with its key.")
    kafka_key_file: Path | None = setting(_K, PATH, None, "Key of the client certificate (PEM).")
    kafka_key_password: str = setting(_K, TEXT, "", "Password of that key.", secret=True)
    kafka_compression: str = setting(
        _K,
        one_of("lz4", "zstd", "gzip", "none"),
        "lz4",
        "Compression of appended batches. Every reader of the topics needs the same codec.",
    )
    partitions: int = setting(
        _K, integer(1, MAX_PARTITIONS), 4, "Partitions of each topic when it is created; the same for all families."
    )
    replication_factor: int = setting(_K, integer(1, 7), 1, "Copies of each topic when it is created; 3 in production.")
    session_timeout_ms: int = setting(
        _K,
        integer(500, 300_000, "milliseconds"),
        3_000,
        "Silence after which the group gives an owner's partitions away. Under 6000 the broker must allow it.",
    )
    standby_addr: str = setting(
        _K,
        ADDRESS_OR_OFF,
        "127.0.0.1:0",
        "Where a runtime holds sockets by which the others notice its death at once and take over: an address of this "
        "machine that they can reach, or 0.0.0.0 (in a container: its host name then gives the address); port 0 "
        "= any free one. With off it neither listens nor stands by for others.",
    )
    spares: int | None = setting(
        _K,
        integer(0, MAX_SPARES),
        None,
        "Runtimes that own nothing and wait: when an owner dies, one of them takes over at once. The same for all "
        "runtimes. Empty = 2 for `loomlog up`, which starts them in addition (1 when less than 4 GiB of memory is "
        "available), and 0 for a runtime of its own; with 0 the runtimes stand by for each other and fold each other's "
        "partitions.",
    )
    families: tuple[str, ...] = setting(
        _K,
        NAMES,
        (),
        "Modules with further families of aggregates, which every process imports (docs/FAMILIES.md); their folders "
        "are on PYTHONPATH.",
    )
    schema_registry: str = setting(
        _K, URL, "", "Schema registry to take schema ids from; empty = the lock file schemas/ids.json."
    )

    postgres: str = setting(
        _D,
        TEXT,
        "",
        "Connection string of the read models; empty = the local Postgres that `loomlog up` starts.",
        old="PG_DSN",
        secret=True,
    )
    postgres_port: int | None = setting(
        _D,
        integer(0, MAX_PORT),
        None,
        "Port of the local Postgres; empty = that of last time or 15432, 0 = any free one.",
    )
    postgres_sslmode: str = setting(
        _D,
        one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        "",
        "TLS towards Postgres; empty = as in the connection string.",
    )
    postgres_sslrootcert: Path | None = setting(_D, PATH, None, "Certificates to trust (PEM).")
    postgres_sslcert: Path | None = setting(_D, PATH, None, "Client certificate (PEM), together with its key.")
    postgres_sslkey: Path | None = setting(_D, PATH, None, "Key of the client certificate (PEM).")
    postgres_max_connections: int = setting(
        _D, integer(1, 1000), 10, "Most connections of one process.", old="PG_MAX_OPEN_CONNS"
    )
    postgres_min_connections: int = setting(
        _D, integer(0, 1000), 1, "Connections of one process that stay open when idle.", old="PG_MIN_IDLE_CONNS"
    )
    blob_folder: Path | None = setting(
        _D, PATH, None, "Folder of the payloads too large for the log; empty = `blobs` in the home folder."
    )

    config_dir: Path | None = setting(
        _C, PATH, None, "Folder whose *.yaml files are read in name order, before the listed files.", old=SAME_NAME
    )
    config_files: tuple[Path, ...] = setting(
        _C, PATHS, (), "Files to read, each on top of those before.", old=SAME_NAME
    )
    config_strict: bool = setting(
        _C,
        FLAG,
        False,
        "A file that changes a value of a file before it is an error instead of a warning.",
        old=SAME_NAME,
    )
    help_root: Path | None = setting(
        _C,
        PATH,
        None,
        "Folder of further help topics for agents, one `<topic>.md` each; one with the name of a built-in topic "
        "replaces it.",
        old=SAME_NAME,
    )
    agents_root: Path | None = setting(
        _C,
        PATH,
        None,
        "Folder of agents, one `<name>.md` each, in subfolders `<group>/<name>`: the frontmatter has the keys of an "
        "agent, the text below it is the system prompt.",
        old=SAME_NAME,
    )
    skills_root: Path | None = setting(
        _C,
        PATH,
        None,
        "Folder of skills, one folder each with a `SKILL.md`: description and tools in the frontmatter, the "
        "instructions below; up to 64 further texts of the folder, 1 MiB together, are files of the skill.",
        old=SAME_NAME,
    )
    no_default_providers: bool = setting(_C, FLAG, False, "Leave out the built-in providers.", old=SAME_NAME)
    presets: tuple[str, ...] = setting(
        _C,
        NAMES,
        (),
        "Layers that come with the program, below the installation's files: `base` (aliases, tiers and plans over the "
        "built-in vendors), `local` (the Ollama server of this machine first), `memory` (the agents that turn "
        "conversations into facts; on top of `base`).",
        old=SAME_NAME,
    )

    provider_header_timeout_ms: int = setting(
        _M,
        integer(100, HOUR_MS, "milliseconds"),
        60_000,
        "Longest wait for the first bytes of a model's answer.",
        old=SAME_NAME,
    )
    provider_idle_timeout_ms: int = setting(
        _M, integer(100, HOUR_MS, "milliseconds"), 90_000, "Longest silence inside a model's answer.", old=SAME_NAME
    )
    ollama_local_header_timeout_ms: int = setting(
        _M,
        integer(100, HOUR_MS, "milliseconds"),
        600_000,
        "The first of these for Ollama servers without a key, which load the model first.",
        old=SAME_NAME,
    )
    ollama_local_idle_timeout_ms: int = setting(
        _M,
        integer(100, HOUR_MS, "milliseconds"),
        600_000,
        "The second of these for Ollama servers without a key.",
        old=SAME_NAME,
    )
    ollama_num_ctx: int = setting(
        _M,
        integer(0, 10_000_000, "tokens"),
        0,
        "Context window asked of the hosted `ollama`; 0 = the model's own.",
        old=SAME_NAME,
    )
    ollama_local_num_ctx: int = setting(
        _M,
        integer(0, 10_000_000, "tokens"),
        0,
        "Context window asked of Ollama servers without a key; 0 = the one a model is loaded with.",
        old=SAME_NAME,
    )
    ollama_local_num_gpu: int = setting(
        _M,
        integer(-1, 1000, "layers"),
        -1,
        "Layers Ollama servers without a key put on the GPU; -1 = they decide.",
        old=SAME_NAME,
    )
    model_calls_per_provider: int = setting(
        _M,
        integer(0, 10_000),
        0,
        "Model calls one process has open at one provider, where the provider has no max_concurrent; 0 = 1,000, and "
        "calls beyond wait up to ten minutes.",
    )
    operator_key_restriction: bool = setting(
        _M,
        FLAG,
        False,
        "Runs of principals without the scope `providers:operator-key` use only the provider keys they bring.",
        old=SAME_NAME,
    )
    fallback_pin_after_success: bool = setting(
        _M, FLAG, False, "After a turn succeeded its run stays with that provider.", old=SAME_NAME
    )
    resolve_probe_interval_ms: int = setting(
        _M,
        integer(0, 24 * HOUR_MS, "milliseconds"),
        900_000,
        "Between two probes of a provider; moved into 60 s to 60 min.",
        old=SAME_NAME,
    )
    mock_enabled: bool = setting(
        _M,
        FLAG,
        False,
        "Allow the synthetic providers `mock` and `mock-stable`; a file can do it with their option `enabled`.",
        old=SAME_NAME,
    )
    mock_latency_ms: int = setting(
        _M, integer(0, HOUR_MS, "milliseconds"), 50, "How long a synthetic model thinks.", old=SAME_NAME
    )
    mock_latency_jitter_ms: int = setting(
        _M, integer(0, HOUR_MS, "milliseconds"), 25, "Most that is added to it at random.", old=SAME_NAME
    )
    mock_429_rate: float = setting(
        _M, RATIO, 0.0, "Share of calls to `mock` that are refused as too many.", old=SAME_NAME
    )
    mock_500_rate: float = setting(_M, RATIO, 0.0, "Share of calls to `mock` that fail.", old=SAME_NAME)

    code_agents_enabled: bool = setting(
        _M, FLAG, False, "Allow agents that are JavaScript instead of a model (provider `code-js`).", old=SAME_NAME
    )
    code_agents_root: Path = setting(
        _M,
        PATH,
        Path("agent_code"),
        "Folder of their scripts: `<agent>/index.js`, for agents without `code_body`.",
        old=SAME_NAME,
    )
    code_agents_run_timeout_seconds: int = setting(
        _M,
        integer(1, 86_400, "seconds"),
        120,
        "How long a run of a code agent may take, parked and paused time left out; an agent's and a run's own "
        "run_timeout_seconds win.",
        old=SAME_NAME,
    )
    code_agents_deterministic: bool = setting(
        _M,
        FLAG,
        False,
        "Give every run of a code agent the same chance and the same time, for comparing runs.",
        old=SAME_NAME,
    )

    http_host_allowlist: tuple[str, ...] = setting(
        _T,
        NAMES,
        (),
        "Hosts the network tools may reach, subdomains included; `*` = all public ones, empty = none.",
        old=SAME_NAME,
    )
    http_caller_authoritative: bool = setting(
        _T,
        FLAG,
        False,
        "A run's own allowed_hosts replace that list instead of narrowing it; loopback names never do.",
        old=SAME_NAME,
    )
    hooks_permit_host_widen_owners: tuple[str, ...] = setting(
        _T,
        NAMES,
        (),
        "Whose hooks may open hosts for a call: `tenant:owner`, or `owner` for hooks of no tenant; joins "
        "`hooks.permit_host_widen.owners` of the files.",
        old=SAME_NAME,
    )
    http_private_host_allowlist: tuple[str, ...] = setting(
        _T, NAMES, (), "Hosts that may be reached although their address is private.", old=SAME_NAME
    )
    bash_enabled: bool = setting(_T, FLAG, False, "Allow the tool Bash to agents that list it.", old=SAME_NAME)
    bash_allowed_env: tuple[str, ...] = setting(
        _T, NAMES, (), "Environment names a Bash command sees in addition to PATH.", old=SAME_NAME
    )
    bash_allowed_creds: tuple[str, ...] = setting(_T, NAMES, (), "Credential names a Bash command sees.", old=SAME_NAME)
    bench_enabled: bool = setting(_T, FLAG, False, "Allow the tool Bench, which costs nothing, for measuring.")
    ledger_path: Path | None = setting(
        _T,
        PATH,
        None,
        "File the tool Ledger appends a line to for each call, for counting effects; empty = no such tool.",
    )
    ledger_effect: str = setting(
        _T, one_of("idempotent", "unsafe"), "unsafe", "What may be done about a call of Ledger whose result is unknown."
    )
    ledger_reconciles: bool = setting(
        _T, FLAG, False, "Ledger can be asked, after its process was lost, whether a call wrote its line."
    )
    tool_parallelism: int = setting(_T, integer(1, 64), 8, "Tool calls of one turn that run at once.", old=SAME_NAME)
    max_interactive_children: int = setting(
        _T, integer(1, 64), 8, "Resident sub-agents that a run may have at once.", old=SAME_NAME
    )
    interactive_child_idle_ttl_ms: int = setting(
        _T,
        integer(1_000, 86_400_000),
        1_800_000,
        "Idle time after which a resident sub-agent is closed, when its opener names none; milliseconds.",
        old=SAME_NAME,
    )
    ephemeral_volume_sweep_ms: int = setting(
        _T,
        integer(1_000, 3_600_000, "milliseconds"),
        60_000,
        "Time between two looks for ephemeral volumes whose run is over.",
        old=SAME_NAME,
    )
    client_tool_timeout_ms: int = setting(
        _T,
        integer(1_000, 1_800_000, "milliseconds"),
        60_000,
        "How long a client may take for a call of a tool it carries out; then its outcome is unknown.",
        old=SAME_NAME,
    )
    client_tool_max_bytes: int = setting(
        _T,
        integer(1024, MIB, "bytes"),
        MIB,
        "Largest frame of a client that offers tools, in both directions; the connection is closed for a larger one.",
        old=SAME_NAME,
    )
    client_tool_max_conns: int = setting(
        _T,
        integer(1, 1_000),
        8,
        "Connections of clients that offer tools, for one principal and API process.",
        old=SAME_NAME,
    )
    tool_calls_per_process: int = setting(
        _T, integer(1, 10_000), 128, "Tool calls one process runs at once, all runs together."
    )

    channels_max_value_bytes: int = setting(
        _E,
        integer(1, 256 * 1024, "bytes"),
        64 * 1024,
        "Largest value of a message, as JSON; more is refused.",
        old=SAME_NAME,
    )
    channels_longpoll_cap_ms: int = setting(
        _E,
        integer(0, 1_800_000, "milliseconds"),
        30_000,
        "Longest wait for messages of channels; a longer one is cut, and the answer says so (wait_capped_ms).",
        old=SAME_NAME,
    )
    memory_max_value_bytes: int = setting(
        _E,
        integer(1, 256 * 1024, "bytes"),
        64 * 1024,
        "Largest value of a key, as JSON; more is refused.",
        old=SAME_NAME,
    )
    memory_max_scope_bytes: int = setting(
        _E,
        integer(0, 1024 * MIB, "bytes"),
        MIB,
        "Most bytes of all values of a scope; an agent may have less, one of a file also more; 0 = no bound.",
        old=SAME_NAME,
    )
    memory_embed_batch_size: int = setting(
        _E,
        integer(1, 2_048, "texts"),
        100,
        "Texts of one call of the embedder; its own batch_size wins.",
        old=SAME_NAME,
    )
    memory_embed_timeout_ms: int = setting(
        _E,
        integer(100, 600_000, "milliseconds"),
        30_000,
        "Longest wait for the embedder; its own timeout_ms wins.",
        old=SAME_NAME,
    )
    embedder_stub: bool = setting(
        _E, FLAG, False, "Use the embedder `stub` of tests, whatever the files name.", old=SAME_NAME
    )
    memory_changes_enabled: bool = setting(
        _E, FLAG, True, "Keep the feed of changes, which streams and change_subscriptions read.", old=SAME_NAME
    )
    memory_changes_retention_hours: int = setting(
        _E, integer(1, 8_760, "hours"), 24, "How long the feed keeps a change.", old=SAME_NAME
    )
    change_sub_interval_ms: int = setting(
        _E,
        integer(100, HOUR_MS, "milliseconds"),
        5_000,
        "Time between two looks of each of change_subscriptions into the feed.",
        old=SAME_NAME,
    )
    max_consolidation_concurrency: int = setting(
        _E, integer(1, 1_000), 4, "Passes of consolidation that work at once in a runtime; others wait.", old=SAME_NAME
    )
    scheduler_enabled: bool = setting(
        _E, FLAG, True, "Let schedules fire; off: instants pass, and run-now still works.", old=SAME_NAME
    )
    scheduler_env_allowlist: tuple[str, ...] = setting(
        _E,
        NAMES,
        (),
        "Environment names whose values schedules may give their runs as credentials; `tenant:NAME` for one tenant.",
        old=SAME_NAME,
    )
    webhooks_enabled: bool = setting(_E, FLAG, True, "Take requests for webhooks.", old=SAME_NAME)
    webhooks_env_allowlist: tuple[str, ...] = setting(
        _E,
        NAMES,
        (),
        "Environment names that webhooks made at run time may use as secrets and give their runs as credentials, "
        "besides the usual names of third parties for secrets; `tenant:NAME` for one tenant.",
        old=SAME_NAME,
    )
    webhooks_allow_unauthenticated: bool = setting(
        _E, FLAG, False, "Let webhooks with auth kind none take requests without any proof.", old=SAME_NAME
    )
    sqlmem_enabled: bool = setting(_E, FLAG, True, "Allow agents with sql_scopes their databases.", old=SAME_NAME)
    sqlmem_root: Path | None = setting(
        _E,
        PATH,
        None,
        "Folder of the databases' files, a cache of what is in the log; empty = `sqlmem` in the home folder.",
        old=SAME_NAME,
    )
    sqlmem_max_rows: int = setting(
        _E, integer(1, 100_000, "rows"), 10_000, "Most rows of one answer; more are left out.", old=SAME_NAME
    )
    sqlmem_statement_timeout_ms: int = setting(
        _E, integer(10, 600_000, "milliseconds"), 30_000, "Longest time of a statement.", old=SAME_NAME
    )
    sqlmem_txn_timeout_ms: int = setting(
        _E,
        integer(100, HOUR_MS, "milliseconds"),
        30_000,
        "Idle time after which an open transaction is rolled back.",
        old=SAME_NAME,
    )
    sqlmem_max_open_txns: int = setting(
        _E,
        integer(1, 10_000),
        64,
        "Transactions that one process has open; three quarters for a tenant.",
        old=SAME_NAME,
    )
    sqlmem_max_txn_depth: int = setting(_E, integer(1, 64), 16, "Transactions within each other.", old=SAME_NAME)
    sqlmem_quota_bytes: int = setting(
        _E,
        integer(0, 1024 * MIB, "bytes"),
        50 * MIB,
        "Most bytes of a database; an agent may have less, one of a file also more; 0 = no bound.",
        old=SAME_NAME,
    )

    max_concurrent_runs_per_user: int | None = setting(
        _R,
        integer(0, 1_000_000),
        None,
        "Wins over concurrency.max_concurrent_runs_per_user; 0 = no bound.",
        old=SAME_NAME,
    )
    provider_queue_depth: int | None = setting(
        _R, integer(0, 1_000_000), None, "Wins over concurrency.provider_queue_depth.", old=SAME_NAME
    )
    provider_queue_timeout_ms: int | None = setting(
        _R, integer(0, HOUR_MS, "milliseconds"), None, "Wins over concurrency.provider_queue_timeout_ms.", old=SAME_NAME
    )

    metrics_enabled: bool = setting(
        _O, FLAG, True, "Serve /metrics: the API's to administrators only, each runtime's on 127.0.0.1.", old=SAME_NAME
    )
    metrics_sample_interval_ms: int = setting(
        _O,
        integer(0, HOUR_MS, "milliseconds"),
        5_000,
        "How often the api takes a sample of its memory, its CPU and the runs at work, kept for 7 days; 0 = never.",
        old=SAME_NAME,
    )
    runtime_metrics_port: int = setting(
        _O,
        integer(0, MAX_PORT),
        18911,
        "Port of a runtime's own /metrics on 127.0.0.1; a further runtime takes the next free one, 0 = any free one.",
    )
    insights_host: str = setting(
        _O,
        TEXT,
        "127.0.0.1",
        "Address or host name that insights listens on, and a Host it answers to beside loopback. It asks for no "
        "token: name another address only in a network that trusted processes alone reach.",
    )
    insights_port: int = setting(
        _O, integer(0, MAX_PORT), 18901, "Port of the insights service on LOOMLOG_INSIGHTS_HOST; 0 = any free one."
    )
    insights_history_minutes: int = setting(
        _O, integer(1, 240, "minutes"), 15, "How long insights keeps its windows; a restart reads that much again."
    )
    insights_url: str = setting(
        _O, URL, "", "Where the api asks insights for its report; empty = http://127.0.0.1:<LOOMLOG_INSIGHTS_PORT>."
    )
    insights_enabled: bool = setting(_O, FLAG, True, "Run the insights service with the others.")
    otel_exporter_otlp_endpoint: str = setting(
        _O, URL, "", "Collector that gets the traces (OTLP over HTTP); empty = no traces.", old=SAME_NAME
    )
    otel_exporter_otlp_headers: str = setting(
        _O, TEXT, "", "Headers for the collector, `name=value` with commas between.", old=SAME_NAME, secret=True
    )
    otel_service_name: str = setting(_O, TEXT, "loomlog", "Service name in traces.", old=SAME_NAME)
    otel_traces_sampler_ratio: float = setting(_O, RATIO, 1.0, "Share of runs that are traced.", old=SAME_NAME)

    audit_key_file: Path | None = setting(
        _A,
        PATH,
        None,
        "Ed25519 key that signs checkpoints of the log (`loomlog audit keygen`); without a key nothing is signed.",
    )
    audit_key: str = setting(_A, TEXT, "", "The same key itself, PEM or base64, instead of a file.", secret=True)
    audit_public_keys: Path | None = setting(
        _A, PATH, None, "File of the public keys whose checkpoints are trusted; our own key needs no listing."
    )
    audit_log_path: Path | None = setting(
        _A,
        PATH,
        None,
        "File to which the projector appends each act as a line of JSON; empty = acts are in the log and at "
        "GET /v1/_audit only.",
        old=SAME_NAME,
    )
    audit_every_records: int = setting(
        _A, integer(1, 10_000, "records"), 1_000, "A partition is signed after so many new records ..."
    )
    audit_every_ms: int = setting(
        _A, integer(100, HOUR_MS, "milliseconds"), 10_000, "... or so long after the first of them."
    )

    encryption_key: str = setting(
        _A,
        TEXT,
        "",
        "Key-encryption key, base64 of 32 bytes: user content is encrypted with a key for each subject, and can be "
        "erased; empty = content is in the log in plaintext.",
        secret=True,
    )
    encryption_key_file: Path | None = setting(_A, PATH, None, "A file with that key instead.")
    encryption_key_previous: str = setting(
        _A, TEXT, "", "The key before it, until `loomlog subjects rewrap` is done.", secret=True
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
            old_name=_old_name(entry.name, entry.metadata["old"]),
            group=entry.metadata["group"],
            value_type=entry.metadata["kind"],
            default=entry.default,
            meaning=entry.metadata["meaning"],
            is_secret=entry.metadata["secret"],
        )
        for entry in fields(Settings)
    )


def _old_name(name: str, old: str) -> str:
    if not old:
        return ""
    return OLD_PREFIX + (name.upper() if old == SAME_NAME else old)
