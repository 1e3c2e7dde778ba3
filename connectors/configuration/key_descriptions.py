"""A sentence and an example for every key of the configuration files, for docs/SETTINGS.md.

The generator fails when a key has no entry, and a test reads every example with the type of its key.

Before: model.py, agent_block.py, memory_block.py. After: document.py.
"""

from collections.abc import Mapping
from typing import NamedTuple

from loomlog.connectors.configuration import (
    agent_block,
    approvals_block,
    channel_block,
    credential_block,
    issuer_block,
    local_api_block,
    mcp_block,
    memory_block,
    model,
    schedule_block,
    secret_block,
    trigger_block,
    webhook_block,
)


class KeyDescription(NamedTuple):
    """What a key does, and a YAML value that it takes."""

    meaning: str
    example: str


_CANDIDATE: Mapping[str, KeyDescription] = {
    "provider": KeyDescription("Provider of the model; without it `model` is an alias.", "anthropic"),
    "model": KeyDescription("Name of the model at the provider, or an alias of `models`.", "claude-sonnet-4-5"),
    "model_pattern": KeyDescription(
        "Pattern with `*`; the newest model of the provider that matches.", "claude-sonnet-*"
    ),
    "effort": KeyDescription("How much the model thinks.", "medium"),
}

KEY_DESCRIPTIONS: Mapping[type, Mapping[str, KeyDescription]] = {
    model.Configuration: {
        "defaults": KeyDescription("Model of agents that name none.", "{provider: openai, model: gpt-5-mini}"),
        "models": KeyDescription("Short names of models.", "{small: {provider: openai, model: gpt-5-mini}}"),
        "agents": KeyDescription("Agents, by name.", "{assistant: {tier: low, tools: [Read]}}"),
        "providers": KeyDescription(
            "Providers of models, besides the built-in ones and on top of them.",
            "{gateway: {driver: openai, base_url: 'https://llm.example.com/v1'}}",
        ),
        "provider_priority": KeyDescription(
            "Order in which providers are tried for a tier.", "[anthropic, openai, mock]"
        ),
        "tiers": KeyDescription(
            "Candidates of each class of models, best first.", "{low: [{provider: openai, model: gpt-5-mini}]}"
        ),
        "user_tiers": KeyDescription(
            "Plans of users, with candidates of their own.",
            "{default: {tiers: {low: [{provider: openai, model: gpt-5-mini}]}}}",
        ),
        "concurrency": KeyDescription("Bounds on active runs.", "{max_concurrent_runs: 64}"),
        "pricing": KeyDescription("What models cost.", "{currency: USD}"),
        "volumes": KeyDescription("Folders that agents may read or write.", "{source: {path: ./src, mode: ro}}"),
        "remote_tools": KeyDescription(
            "Tools that other services carry out over the log.",
            "{add_to_order: {description: Adds an item to an order., input_schema: {type: object}}}",
        ),
        "mcp_servers": KeyDescription(
            "MCP servers whose tools agents may use, as `mcp__SERVER__TOOL`.",
            "{files: {transport: stdio, command: npx, args: [-y, '@modelcontextprotocol/server-filesystem', /srv]}}",
        ),
        "local_api": KeyDescription(
            "An HTTP API whose operations agents may use as tools, as its OpenAPI file describes them.",
            "{spec: openapi.yaml, base_url: 'http://localhost:3000', tool_name_prefix: shop_}",
        ),
        "skills": KeyDescription(
            "Instructions that agents load when they need them.",
            "{house-style: {description: How we write., body: Be brief.}}",
        ),
        "interruption": KeyDescription("Questions of agents to people.", "{max_pending_per_run: 3}"),
        "approvals": KeyDescription(
            "Rules for the tool calls of all tenants: allow, deny or ask people.",
            "{rules: [{name: no-shell, tools: [Bash], then: deny}]}",
        ),
        "principals": KeyDescription(
            "Who may call the API, each with a token, a tenant and scopes.",
            "{ci: {token_env: LOOMLOG_CI_TOKEN, tenant: acme, subject: ci, scopes: ['runs:create']}}",
        ),
        "issuers": KeyDescription(
            "Identity providers whose tokens are accepted, and with which people sign in.",
            "{company: {issuer: 'https://id.example.com', audience: loomlog, tenant: acme, default_access: tenant}}",
        ),
        "credential_stores": KeyDescription(
            "Stores outside of loomlog that stored credentials may name values in; variables are in `secrets`.",
            "{vault: {type: vault, url: 'https://vault.example.com', tenants: '*', prefix: 'loomlog/{tenant}'}}",
        ),
        "hooks": KeyDescription("What hooks of tool calls may do.", "{permit_host_widen: {owners: [acme]}}"),
        "context_plugins": KeyDescription(
            "What is done to a conversation before a provider gets it.", "[{name: redact}]"
        ),
        "memory": KeyDescription(
            "Memory: search, entries set at the start, facts of chats.", "{embedder: {provider: openai}}"
        ),
        "memory_backends": KeyDescription(
            "Other installations that keep memory.",
            "{other: {kind: remote, config: {base_url: 'https://memory.example.com'}}}",
        ),
        "change_subscriptions": KeyDescription(
            "Addresses that get the changes of memory.",
            "{crm: {callback_url: 'https://crm.example.com/changes', secret_env: CRM_SECRET}}",
        ),
        "channels": KeyDescription(
            "Queues between agents, applications and people.", "{reports: {scope: tenant, default_ttl: 7d}}"
        ),
        "scheduled_runs": KeyDescription(
            "Runs that start at given times.", "{nightly: {agent: assistant, schedule: '0 3 * * *'}}"
        ),
        "webhooks": KeyDescription(
            "Requests from outside that start runs or become messages.",
            "{github: {agent: assistant, auth: {kind: hmac, signing_secret_env: GITHUB_WEBHOOK_SECRET}}}",
        ),
        "secrets": KeyDescription(
            "Variables of the environment that definitions and runs may name, and for what.",
            "{CALLBACK_SECRET_CRM: {tenants: [acme], uses: [callback], hosts: [crm.example.com]}}",
        ),
    },
    model.Defaults: {
        "provider": KeyDescription("Provider of agents that name no provider, model or tier.", "anthropic"),
        "model": KeyDescription("Model of those agents.", "claude-sonnet-4-5"),
    },
    model.ModelAlias: {
        **_CANDIDATE,
        "provider": KeyDescription("Provider of the model.", "openai"),
        "model": KeyDescription("Name of the model at the provider.", "gpt-5-mini"),
    },
    agent_block.AgentBlock: {
        "description": KeyDescription(
            "What the agent is for; other agents see it when they choose whom to ask.", "Reviews Python code"
        ),
        "provider": KeyDescription("Provider of the agent's model.", "anthropic"),
        "model": KeyDescription("Model, or an alias of `models`; not together with `tier`.", "claude-sonnet-4-5"),
        "tier": KeyDescription("Class of models, resolved by `tiers` and the user's plan for each run.", "middle"),
        "effort": KeyDescription("How much the model thinks, where it can.", "high"),
        "providers": KeyDescription(
            "Order of providers for this agent's tier, instead of `provider_priority`.", "[openai, anthropic]"
        ),
        "models": KeyDescription(
            "Candidates of each tier for this agent, instead of `tiers`.",
            "{low: [{provider: openai, model: gpt-5-mini}]}",
        ),
        "system_prompt": KeyDescription("System prompt of every run.", "You review code. Answer in three sentences."),
        "system_prompt_file": KeyDescription(
            "File with the system prompt, relative to the configuration file.", "prompts/reviewer.md"
        ),
        "system_prompt_base": KeyDescription("Name of a shared prompt to begin with.", "house-rules"),
        "tools": KeyDescription(
            "Tools the model may call: names, or beginnings with `*`. None are given by default.",
            "[Read, Grep, 'client:*']",
        ),
        "volumes": KeyDescription("Folders the file tools may use; none: the volume named `default`.", "[source]"),
        "max_tokens": KeyDescription("Most tokens of one answer; 0 = the provider's default.", "4096"),
        "max_iterations": KeyDescription("Most model calls of a run; 0 = the default of the process.", "30"),
        "unbounded_iterations": KeyDescription(
            "No limit of model calls; cancel, budgets and the run's timeout still apply.", "true"
        ),
        "run_timeout_seconds": KeyDescription("Longest time of a run; 0 = the default of the process.", "600"),
        "retry_attempts": KeyDescription(
            "Attempts of a model call after the first one failed for a passing reason.", "3"
        ),
        "sampling": KeyDescription("Sampling parameters.", "{temperature: 0.2}"),
        "unknown_outcome": KeyDescription(
            "After a process died within an unsafe tool call: tell the model, ask a person, or fail the run.", "ask"
        ),
        "disable_context": KeyDescription("Do not give the agent the Context tool.", "true"),
        "code": KeyDescription(
            "Folder below LOOMLOG_CODE_AGENTS_ROOT with the script of a code agent, or the script itself.", "summarise"
        ),
        "code_body": KeyDescription(
            "Folder of a code agent: code decides each turn instead of a model.", "agents/summarise"
        ),
        "skills": KeyDescription(
            "Patterns of the skills it may load: `team/*`, `-team/secret` takes away, `-*` all; empty = all skills.",
            "[pdf, team/*]",
        ),
        "max_concurrent_children": KeyDescription("Most runs that the Agent tool keeps going at a time; 0 = 4.", "8"),
        "compaction": KeyDescription("When and how a long conversation is summarised.", "{enabled: true}"),
        "search_providers": KeyDescription("Order of search services for WebSearch.", "[brave, exa]"),
        "memory_scopes": KeyDescription("Scopes of memory that it may use; none by default.", "[agent, user]"),
        "memory_quota_bytes": KeyDescription(
            "Most bytes of a scope of memory; 0 = LOOMLOG_MEMORY_MAX_SCOPE_BYTES. Made at run time, at most that.",
            "1048576",
        ),
        "sql_scopes": KeyDescription("Scopes whose database it may use; none by default.", "[user, run]"),
        "sql_quota_bytes": KeyDescription(
            "Most bytes of a database; 0 = LOOMLOG_SQLMEM_QUOTA_BYTES. Made at run time, at most that.", "1048576"
        ),
        "memory_backend": KeyDescription("Name of `memory_backends`; empty = memory is here.", "team"),
        "core_blocks": KeyDescription(
            "Entries of memory (keys core/<label>) that are always in the prompt; each label once.",
            "[{label: persona}]",
        ),
        "inherit_core_blocks": KeyDescription(
            "Core blocks of the parent's user and tenant are in its prompt too.", "true"
        ),
        "memory_inject_max_tokens": KeyDescription("Most tokens of memory put into the prompt; 0 = 1024.", "500"),
        "inject_tool_guide": KeyDescription("Put a guide to the tools into the prompt.", "true"),
        "internal": KeyDescription("Hide the agent from the lists of agents; other agents may still start it.", "true"),
        "memory_protocol": KeyDescription(
            "Put rules for using memory, and its indexes (keys /memory/index), into the prompt.", "true"
        ),
        "memory_consolidation": KeyDescription(
            "It may move the watermarks of consolidation and archive facts.", "true"
        ),
        "memory_index_max_bytes": KeyDescription("Most bytes of the memory index in the prompt; 0 = 24576.", "4096"),
        "memory_roots": KeyDescription(
            "With memory_protocol, `lazy`: the indexes (keys /memory/index) there are; `force`: lists of keys too, "
            "in scopes without one; `suppress`: none; default lazy.",
            "lazy",
        ),
        "channels": KeyDescription("Channels the agent may use.", "{publish: [alerts]}"),
        "agent_def_scopes": KeyDescription(
            "Agents it may define: self, descendants, any, named:NAME. promote: also activate what others made.",
            "[self]",
        ),
        "skill_def_scopes": KeyDescription("Scopes in which it may define skills.", "[self]"),
        "schedule_def_scopes": KeyDescription("Scopes in which it may define schedules.", "[self]"),
        "a2a_server_card_def_scopes": KeyDescription("Scopes in which it may define A2A server cards.", "[self]"),
        "a2a_agent_def_scopes": KeyDescription("Scopes in which it may define A2A agents.", "[self]"),
        "volume_def_scopes": KeyDescription("Scopes in which it may define volumes.", "[self]"),
        "evaluation_scopes": KeyDescription("Scopes in which it may write evaluations.", "[submit_self]"),
        "history_scope": KeyDescription("Runs whose history it may read.", "[user]"),
        "interruption": KeyDescription("Whether it may ask a person.", "{enabled: true}"),
        "approvals": KeyDescription(
            "Rules for its tool calls, beside those of the file and of the tenant.",
            "{rules: [{name: no-shell, tools: [Bash], then: deny}]}",
        ),
        "output_schema": KeyDescription(
            "JSON Schema of the final answer, an object at its top; a run ends with a record that meets it.",
            "{type: object, properties: {total: {type: number}}, required: [total]}",
        ),
        "output_retries": KeyDescription(
            "How often the model may correct an answer that does not meet the schema; 2 if absent.", "1"
        ),
    },
    approvals_block.ApprovalsBlock: {
        "rules": KeyDescription(
            "Rules in the order in which they are tried; the first one that matches a call decides. OPERATING.md has "
            "their form.",
            "[{name: pay, tools: [pay], then: ask, ask: {subjects: [ann], within_s: 3600}}]",
        ),
    },
    agent_block.SamplingBlock: {
        "temperature": KeyDescription("Randomness, 0 to 2.", "0.2"),
        "top_p": KeyDescription("Share of probability that is sampled from, 0 to 1.", "0.9"),
        "top_k": KeyDescription("Number of tokens that are sampled from.", "40"),
        "frequency_penalty": KeyDescription("Penalty of frequent tokens, -2 to 2.", "0.5"),
        "presence_penalty": KeyDescription("Penalty of tokens that occurred, -2 to 2.", "0.5"),
        "seed": KeyDescription("Seed, for providers that take one.", "7"),
        "stop": KeyDescription("Texts at which the answer ends, at most 8.", "['END']"),
    },
    agent_block.CompactionBlock: {
        "enabled": KeyDescription("Summarise when the window is nearly full.", "true"),
        "target_percentage": KeyDescription(
            "Length of the summary, percent of what it replaces, 10 to 50; default 10.", "20"
        ),
        "keep_last_n": KeyDescription("Newest messages that are kept as they are; default 4.", "6"),
        "keep_first": KeyDescription("Keep the first message as it is; default true.", "false"),
        "autocompact_at_pct": KeyDescription(
            "Fill of the window at which it happens, percent, 50 to 95; default 80.", "75"
        ),
        "model": KeyDescription(
            "Model that summarises: an alias, or a model of the agent's provider; empty = the agent's.", "fast"
        ),
        "memory_flush": KeyDescription("Write to memory before summarising.", "true"),
    },
    agent_block.CoreBlockDeclaration: {
        "label": KeyDescription("Name of the block in the prompt; its key is `core/<label>`.", "persona"),
        "scope": KeyDescription("Scope of memory it lies in; empty = agent.", "user"),
        "limit_bytes": KeyDescription("Most bytes; 0 = those of every value.", "2000"),
        "read_only": KeyDescription("The agent may not change it.", "true"),
    },
    agent_block.ChannelAccess: {
        "publish": KeyDescription("Channels it may publish to.", "[alerts]"),
        "subscribe": KeyDescription("Channels it may read.", "[orders]"),
    },
    agent_block.InterruptionOverrides: {
        "enabled": KeyDescription("It may ask; default: when it lists the tool Interruption.", "true"),
        "kinds": KeyDescription("Kinds of questions; empty = question.", "[question, approval]"),
        "max_pending": KeyDescription("Most open questions of a run; 0 = 10.", "3"),
    },
    model.ProviderBlock: {
        "driver": KeyDescription("Protocol of the provider.", "openai"),
        "dialect": KeyDescription("Dialect of the driver; only the one of the driver is accepted.", "openai-chat"),
        "base_url": KeyDescription("Address; empty = the vendor's.", "https://llm.example.com/v1"),
        "api_key_env": KeyDescription("Name of the environment variable with the key.", "GATEWAY_API_KEY"),
        "max_concurrent": KeyDescription("Most calls at a time; 0 = LOOMLOG_MODEL_CALLS_PER_PROVIDER.", "16"),
        "options": KeyDescription("Options of the driver, listed under Providers.", "{header_timeout_ms: 30000}"),
        "capabilities": KeyDescription(
            "What the provider can, where it differs from the driver.", "{supports_vision: false}"
        ),
    },
    model.CapabilityOverrides: {
        "native_prompt_cache": KeyDescription("It takes cache marks.", "false"),
        "parallel_tool_calls": KeyDescription("A model may call several tools in a turn.", "false"),
        "streaming": KeyDescription("It streams its answers.", "false"),
        "max_context_tokens": KeyDescription("Window, in tokens.", "32768"),
        "supports_thinking": KeyDescription("Its models think.", "false"),
        "supports_vision": KeyDescription("Its models see images.", "false"),
        "supports_effort": KeyDescription("Its models take an effort.", "false"),
    },
    agent_block.Candidate: _CANDIDATE,
    model.UserTier: {
        "provider_priority": KeyDescription("Order of providers for users of this plan.", "[openai, anthropic]"),
        "tiers": KeyDescription("Candidates of each tier for them.", "{low: [{provider: openai, model: gpt-5-mini}]}"),
        "fallback_on_error": KeyDescription("Go on with the next candidate when a provider fails.", "true"),
        "max_fallback_attempts": KeyDescription("Most changes of provider in a call; 0 = 3.", "2"),
        "retry_attempts": KeyDescription("Attempts after the first one, for agents that set none.", "2"),
        "rate_limit_cooldown_ms": KeyDescription(
            "How long a provider is passed over after a 429, milliseconds.", "60000"
        ),
    },
    model.Concurrency: {
        "max_concurrent_runs": KeyDescription("Most runs at work in a runtime; others wait.", "200"),
        "max_queue_depth": KeyDescription("Most starts that wait; more get 429.", "1000"),
        "queue_timeout_ms": KeyDescription("Longest wait, milliseconds; then the start gets 429.", "10000"),
        "max_concurrent_runs_per_user": KeyDescription(
            "Most open runs of a user; 0 = no limit. More get 429 at once.", "5"
        ),
        "provider_queue_depth": KeyDescription(
            "Most calls that wait for a provider; default as of the process.", "500"
        ),
        "provider_queue_timeout_ms": KeyDescription("Longest wait for a provider, milliseconds.", "20000"),
    },
    model.Pricing: {
        "currency": KeyDescription("Currency of all prices, three letters.", "EUR"),
        "models": KeyDescription("Prices by `provider/model`.", '{"openai/gpt-5-mini": {input: 0.25, output: 2}}'),
    },
    model.ModelRates: {
        "input": KeyDescription("Price of a million input tokens.", "3"),
        "output": KeyDescription("Price of a million output tokens.", "15"),
        "cache_write": KeyDescription("Price of a million tokens written to the cache; default `input`.", "3.75"),
        "cache_read": KeyDescription("Price of a million tokens read from the cache; default `input`.", "0.3"),
    },
    model.VolumeBlock: {
        "path": KeyDescription("Folder; a relative one is below the folder of the file.", "./src"),
        "mode": KeyDescription("Read only, or read and write.", "rw"),
        "default": KeyDescription("Used by calls that name no volume, if their agent has it.", "true"),
        "dynamic_root": KeyDescription("Volumes made at run time lie in it; one volume at most.", "true"),
    },
    model.RemoteToolBlock: {
        "description": KeyDescription("What it does, for the model.", "Looks up an order by its number"),
        "input_schema": KeyDescription(
            "JSON Schema of the arguments.", "{type: object, properties: {order: {type: string}}, required: [order]}"
        ),
        "output_schema": KeyDescription(
            "JSON Schema of its results, an object at its top; one that does not meet it is an error for the model.",
            "{type: object, properties: {state: {type: string}}}",
        ),
        "effect": KeyDescription("What repeating a call does: decides what happens after a crash within it.", "read"),
        "timeout_seconds": KeyDescription("Longest wait for the result, 1 to 1800.", "30"),
        "topic": KeyDescription("Topic of the requests; empty = `loom.tool.requests`.", "orders.tools"),
    },
    mcp_block.McpServerBlock: {
        "transport": KeyDescription("A process of this machine (`stdio`), or an address.", "streamable-http"),
        "url": KeyDescription("Address of the server.", "https://mcp.example.com/mcp"),
        "headers": KeyDescription(
            "Headers of each request. `${run.user_bearer}`, `${run.credentials.NAME}`, `${run.tenant_id}` and "
            "`${run.root_run_id}` are of the run, `$cred:NAME` and `$ghapp:NAME` are stored credentials; a header with "
            "one that there is not is left out.",
            "{Authorization: 'Bearer ${run.credentials.crm}'}",
        ),
        "oauth": KeyDescription(
            "How tokens for it are had, where it does not say all of that: `loomlog mcp servers login NAME`.",
            "{client_id: loomlog, scopes: [crm.read]}",
        ),
        "description": KeyDescription("What it is for.", "Customers and orders"),
        "command": KeyDescription("Program of a stdio server.", "npx"),
        "args": KeyDescription("Its arguments.", "[-y, some-server]"),
        "env": KeyDescription(
            "Its environment, besides PATH, HOME and the like; never secrets of users.", "{API_KEY: '${API_KEY}'}"
        ),
        "pool_size": KeyDescription("Processes of a stdio server for each tenant, 1 to 16.", "2"),
        "tools": KeyDescription("Tools of the server that agents may use; empty = all.", "[search, read]"),
        "trust_annotations": KeyDescription(
            "The server's hints say which tools only read or may be repeated after a crash.", "true"
        ),
        "effects": KeyDescription("What repeating a call does, by tool; it comes before the hints.", "{search: read}"),
        "timeout_seconds": KeyDescription("Longest time of a call, 1 to 1800.", "60"),
        "question_timeout_seconds": KeyDescription(
            "How long a question of the server to the user waits for a person, up to a week; 0 = it is cancelled.",
            "600",
        ),
        "discovered_tools": KeyDescription("Set by the server; files leave it out.", "[]"),
    },
    mcp_block.McpOAuthBlock: {
        "grant": KeyDescription("A person grants access, or the client alone.", "client_credentials"),
        "client_id": KeyDescription("Client at the authorization server; empty = one is registered.", "loomlog"),
        "client_secret": KeyDescription(
            "Its secret: a reference to a stored credential, or in files a variable.", "$cred:crm-client"
        ),
        "scopes": KeyDescription("Scopes to ask for; empty = those that the server names.", "[crm.read]"),
    },
    local_api_block.LocalApiBlock: {
        "spec": KeyDescription(
            "OpenAPI file (3.0 or 3.1, YAML or JSON); relative to the folder of this file.", "openapi.yaml"
        ),
        "base_url": KeyDescription(
            "Address of the API; empty = the first of the file's servers. It may be a private one.",
            "http://localhost:3000",
        ),
        "tool_name_prefix": KeyDescription("Beginning of the names of its tools.", "shop_"),
        "headers": KeyDescription(
            "Headers of each request; references are those of `mcp_servers`.",
            "{Authorization: 'Bearer ${run.credentials.shop}'}",
        ),
    },
    model.SkillBlock: {
        "description": KeyDescription("What it is for.", "Working with PDF files"),
        "tools": KeyDescription("Tools that it needs.", "[Read]"),
        "body": KeyDescription("The instructions.", "Read the file first."),
        "files": KeyDescription("Files that the skill reads, path to text.", "{forms/tax.md: ...}"),
    },
    model.InterruptionBlock: {
        "backend": KeyDescription("Where questions are shown.", "webui"),
        "default_timeout_ms": KeyDescription(
            "How long a question waits when the agent says nothing, milliseconds.", "600000"
        ),
        "max_timeout_ms": KeyDescription("Longest wait that an agent may ask for, milliseconds.", "3600000"),
        "max_pending_per_run": KeyDescription("Most open questions of a run.", "5"),
        "heartbeat_interval_ms": KeyDescription("No effect: nothing is polled here.", "30000"),
    },
    model.PrincipalBlock: {
        "tenant": KeyDescription("Tenant whose data the holder sees.", "acme"),
        "subject": KeyDescription("Name of the holder, in the audit.", "ci-bot"),
        "scopes": KeyDescription("What the holder may do.", "['runs:create', 'runs:read']"),
        "token_env": KeyDescription("Name of the environment variable with the token.", "LOOMLOG_CI_TOKEN"),
    },
    issuer_block.IssuerBlock: {
        "issuer": KeyDescription("Address of the provider, as the claim `iss` has it.", "https://login.example.com"),
        "audience": KeyDescription(
            "Values of the claim `aud` that mean this installation; one of them is needed.",
            "[loomlog, 'https://loomlog.example.com/v1/_mcp']",
        ),
        "jwks_url": KeyDescription(
            "Address of the provider's keys; empty = what `<issuer>/.well-known/openid-configuration` names.",
            "https://login.example.com/keys",
        ),
        "algorithms": KeyDescription("Signatures that are accepted.", "[RS256]"),
        "tenant": KeyDescription("Tenant of everybody whom this provider knows.", "acme"),
        "tenant_claim": KeyDescription("Claim with the tenant, instead of `tenant`.", "organization"),
        "tenants": KeyDescription("Tenants that the claim may name; empty = any.", "[acme, globex]"),
        "subject_claim": KeyDescription(
            "Claim with the name of the person or service. `email` counts only where `email_verified` is true.",
            "preferred_username",
        ),
        "scopes_claim": KeyDescription(
            "Claim with scopes, as a list or with spaces between; unknown ones and `substrate:admin` count for "
            "nothing. Empty: none.",
            "scope",
        ),
        "groups_claim": KeyDescription("Claim with the groups; dots lead into nested claims.", "realm_access.roles"),
        "groups": KeyDescription(
            "What the members of a group may do: administrator, operator (of the tenant), tenant (runs and channels), "
            "isolated (their own runs). The highest of several counts.",
            "{platform: operator, staff: tenant}",
        ),
        "default_access": KeyDescription("What those in none of the groups may do; absent: nothing.", "isolated"),
        "title": KeyDescription("What the button of the sign-in page says; empty = the name.", "Example Ltd."),
        "client_id": KeyDescription("Client id of the web page at the provider; empty: no sign-in there.", "loomlog"),
        "client_secret_env": KeyDescription(
            "Variable with the secret of that client; absent: a public client, with PKCE alone.",
            "LOOMLOG_LOGIN_SECRET",
        ),
        "device_client_id": KeyDescription(
            "Client id of the command line, a public client with the device code flow; empty: no `loomlog login`.",
            "loomlog-cli",
        ),
        "login_scopes": KeyDescription("Scopes that a sign-in asks for.", "[openid, profile, groups]"),
        "session_minutes": KeyDescription("How long a sign-in to the page lasts.", "60"),
    },
    credential_block.CredentialStoreBlock: {
        "type": KeyDescription("A folder, HashiCorp Vault (key-value engine 2) or AWS Secrets Manager.", "vault"),
        "tenants": KeyDescription("Tenants whose credentials may name values in it; * = all.", "[acme]"),
        "prefix": KeyDescription(
            "What paths and names of secrets begin with; `{tenant}` is the tenant's name, and needed where several "
            "tenants may name values.",
            "loomlog/{tenant}/",
        ),
        "cache_seconds": KeyDescription("Seconds for which a value is used without asking the store again.", "30"),
        "directory": KeyDescription(
            "Type file: the folder; `prefix` is a folder in it. A file has at most 16 KiB.", "/run/secrets/loomlog"
        ),
        "url": KeyDescription(
            "Type vault: its address. Type aws: another address of the service, such as that of a VPC.",
            "https://vault.example.com:8200",
        ),
        "mount": KeyDescription("Type vault: where the engine is mounted.", "secret"),
        "namespace": KeyDescription("Type vault: the namespace; empty: none.", "teams/platform"),
        "token_env": KeyDescription("Type vault: variable with the token.", "VAULT_TOKEN"),
        "token_file": KeyDescription(
            "Type vault: file with the token, read for each request, instead of the variable.", "/run/vault/token"
        ),
        "region": KeyDescription("Type aws: the region.", "eu-central-1"),
        "access_key_id_env": KeyDescription("Type aws: variable with the id of the access key.", "AWS_ACCESS_KEY_ID"),
        "secret_access_key_env": KeyDescription("Type aws: variable with the access key.", "AWS_SECRET_ACCESS_KEY"),
        "session_token_env": KeyDescription(
            "Type aws: variable with the token of a session; may be empty.", "AWS_SESSION_TOKEN"
        ),
    },
    model.HooksBlock: {
        "permit_host_widen": KeyDescription("Whose hooks may allow further hosts for a call.", "{owners: [acme]}"),
    },
    model.PermitHostWiden: {
        "owners": KeyDescription("Owners, as `tenant:owner` or `owner`.", "['acme:security']"),
    },
    model.ContextPluginBlock: {
        "name": KeyDescription("The plugin.", "redact"),
        "enabled": KeyDescription("Use it.", "false"),
        "redact_tool_input": KeyDescription("Mask the arguments of tool calls too.", "true"),
    },
    memory_block.MemoryBlock: {
        "embedder": KeyDescription(
            "Model that makes vectors of texts; without one, words alone are searched.", "{provider: openai}"
        ),
        "entries": KeyDescription(
            "Entries that are set at the start, unless their key is there.",
            "[{scope: tenant, key: house/rules, value: Be brief.}]",
        ),
        "consolidation": KeyDescription("How facts of chats are brought together.", "{verify_writes: true}"),
    },
    memory_block.EmbedderBlock: {
        "provider": KeyDescription("API of the embedder; anthropic means voyage.", "openai"),
        "model": KeyDescription(
            "Model; empty = the provider's default, which ollama has not.", "text-embedding-3-small"
        ),
        "base_url": KeyDescription(
            "Address of a server with the same API; empty = the vendor's.", "https://llm.example.com/v1"
        ),
        "api_key_env": KeyDescription(
            "Name of the environment variable with the key; default the vendor's, for the vendor's address.",
            "OPENAI_API_KEY",
        ),
        "dimensions": KeyDescription("Numbers of a vector, at most 4000; 0 = the model's own.", "1536"),
        "timeout_ms": KeyDescription("Longest wait, milliseconds; default LOOMLOG_MEMORY_EMBED_TIMEOUT_MS.", "10000"),
        "batch_size": KeyDescription("Texts of one call; default LOOMLOG_MEMORY_EMBED_BATCH_SIZE.", "64"),
    },
    memory_block.MemoryEntryBlock: {
        "scope": KeyDescription("Scope of the entry.", "agent"),
        "scope_id": KeyDescription("Name of the agent or id of the user; none for tenant.", "reviewer"),
        "key": KeyDescription("Key, at most 512 characters.", "core/persona"),
        "value": KeyDescription("Any JSON value.", "{tone: friendly}"),
        "embed": KeyDescription("It is found by meaning too.", "true"),
    },
    memory_block.ConsolidationBlock: {
        "merge_threshold": KeyDescription("Similarity from which two facts are one, up to 1.", "0.95"),
        "related_threshold": KeyDescription(
            "Similarity from which two facts are related, below merge_threshold.", "0.85"
        ),
        "verify_writes": KeyDescription("A judge compares each new fact with its chat.", "true"),
        "detect_conflicts": KeyDescription("Related facts that contradict each other are reported.", "true"),
    },
    memory_block.MemoryBackendBlock: {
        "kind": KeyDescription("Memory of this installation, or of another one.", "remote"),
        "config": KeyDescription("Address of the other one.", "{base_url: 'https://memory.example.com'}"),
        "tenancy_strategy": KeyDescription(
            "How it tells tenants apart; none: it serves the tenant `default` alone.",
            "{kind: shared_key_with_prefix, prefix_pattern: '{tenant_id}/'}",
        ),
        "fallback_on_error": KeyDescription(
            "Memory to use while it does not answer; none: the call fails.", "inprocess"
        ),
        "health_check_interval_seconds": KeyDescription(
            "Time for which it is left alone after it did not answer; 0: each call asks it.", "30"
        ),
    },
    memory_block.MemoryBackendConfig: {
        "base_url": KeyDescription("Address of its API.", "https://memory.example.com"),
        "api_version": KeyDescription("Version of its API; empty = v1.", "v1"),
        "api_key_env": KeyDescription("Name of the environment variable with the token.", "LOOMLOG_TEAM_MEMORY_TOKEN"),
    },
    memory_block.MemoryTenancy: {
        "kind": KeyDescription("A token for each tenant, or one token and a prefix of the keys.", "key_per_tenant"),
        "env_pattern": KeyDescription(
            "Name of the variable with a tenant's token; holds {tenant_id}.", "'LOOMLOG_MEMORY_TOKEN_{tenant_id}'"
        ),
        "prefix_pattern": KeyDescription("Prefix of a tenant's keys; holds {tenant_id}.", "'{tenant_id}/'"),
    },
    memory_block.ChangeSubscriptionBlock: {
        "callback_url": KeyDescription("Address that changes are sent to.", "https://app.example.com/memory"),
        "secret_env": KeyDescription(
            "Name of the environment variable with the key that signs them.", "LOOMLOG_CHANGES_SECRET"
        ),
        "tenant_id": KeyDescription("Tenant whose changes are sent; empty = all.", "acme"),
        "scope": KeyDescription("Scope whose changes are sent; empty = all.", "user"),
        "kinds": KeyDescription(
            "Types of changes; memory and document stand for all of theirs; empty = all.", "[memory]"
        ),
        "allow_private_host": KeyDescription("The address may be a private one.", "true"),
        "disabled": KeyDescription("Nothing is sent.", "true"),
    },
    channel_block.ChannelBlock: {
        "scope": KeyDescription(
            "Whose messages they are: one queue for each `agent`, `user` or `tenant`, or `global`: one for all.",
            "user",
        ),
        "semantic": KeyDescription("For people: `queue`, `topic` or `broadcast`.", "queue"),
        "description": KeyDescription("What the channel is for.", "Findings to be reviewed"),
        "default_ttl": KeyDescription(
            "How long messages are kept that name no time of their own: seconds, or 1h30m; 0 = for ever.", "7d"
        ),
        "max_messages": KeyDescription(
            "Messages that a queue keeps; another one drops the oldest; 0 = any number.", "1000"
        ),
        "publisher": KeyDescription(
            "With `system` only the runtime and administrators publish. With `any` requests of all tenants publish "
            "to a global channel; without it only those of administrators do.",
            "system",
        ),
        "period": KeyDescription(
            "Time between two messages of the system (global channels with publisher: system): seconds, or 1h30m.",
            "1h",
        ),
    },
    schedule_block.ScheduleBlock: {
        "agent": KeyDescription("Agent that is started.", "reporter"),
        "prompt": KeyDescription(
            "The request, as `segments` of POST /v1/runs.",
            "[{role: user, content: [{type: trusted-text, text: Report.}]}]",
        ),
        "schedule": KeyDescription(
            "Five fields of cron (`0 9 * * 1-5`), a name such as @hourly, or @every with a duration.", "'0 9 * * 1-5'"
        ),
        "user_tier_schedules": KeyDescription(
            "Instead of `schedule`: the times by the plan of the user (user_tier); without a user it is a template, "
            "which is forked for each user.",
            "{free: '@daily', gold: '@hourly'}",
        ),
        "timezone": KeyDescription("IANA zone of the five fields; empty = UTC.", "Europe/Berlin"),
        "enabled": KeyDescription("Whether it fires; off in files, on for one that was made at run time.", "true"),
        "overlap": KeyDescription(
            "While a run of it works: `skip` an instant, `queue_one`, `cancel` the run, or `allow` both.", "queue_one"
        ),
        "catch_up_max": KeyDescription(
            "Instants that passed while no runtime was there: 1 = all become one run, 0 = none, N = the latest N in "
            "order.",
            "3",
        ),
        "jitter_ms": KeyDescription(
            "Each instant is put off by up to this many milliseconds, always the same for one instant.", "30000"
        ),
        "max_fires": KeyDescription("Runs after which it is retired; 0 = no limit.", "10"),
        "user_id": KeyDescription("User on whose behalf its runs work.", "ada"),
        "user_tier": KeyDescription("Plan of that user.", "gold"),
        "required_credentials": KeyDescription(
            "Credentials without which a fire fails; only user_credentials counts.", "[github]"
        ),
        "user_credentials": KeyDescription(
            "Stored credentials of its runs, read when it fires; a fire without one of them fails.",
            "{github: '$cred:github'}",
        ),
        "user_credentials_from_env": KeyDescription(
            "Credentials of its runs, from the runtime's environment; LOOMLOG_SCHEDULER_ENV_ALLOWLIST or the block "
            "secrets lists the names.",
            "{github: GITHUB_TOKEN}",
        ),
        "on_complete": KeyDescription(
            "What happens when a run has ended.", "[{kind: channel.publish, channel: reports}]"
        ),
        "metadata": KeyDescription("Trusted data of its runs.", "{team: red}"),
        "tenant_id": KeyDescription("Tenant of its runs; empty = default.", "acme"),
        "operator_key_restricted": KeyDescription("Its runs do not use the operator's keys of providers.", "true"),
        "isolated": KeyDescription("Its author sees only what is its own.", "true"),
    },
    schedule_block.PromptSegment: {
        "role": KeyDescription("Speaker: `system` or `user`.", "user"),
        "content": KeyDescription("Its texts.", "[{type: trusted-text, text: Report.}]"),
    },
    schedule_block.PromptBlock: {
        "type": KeyDescription("Trust: `trusted-text` or `untrusted-block`.", "trusted-text"),
        "text": KeyDescription("The text.", "Report."),
        "kind": KeyDescription("Where an untrusted text comes from.", "web_content"),
        "cacheable": KeyDescription("A provider may cache the prompt up to here.", "true"),
    },
    webhook_block.WebhookBlock: {
        "enabled": KeyDescription("Whether it takes requests; one that does not looks like none.", "false"),
        "delivery": KeyDescription("What is done: `spawn` starts a run, `channel` publishes the body.", "channel"),
        "agent": KeyDescription("Agent that is started.", "triage"),
        "channel": KeyDescription("Channel that the body is published to.", "issues"),
        "user_tier": KeyDescription("Plan of the runs.", "gold"),
        "auth": KeyDescription("Proof that a request must carry.", "{kind: hmac, signing_secret_env: LOOMLOG_HOOK}"),
        "rate_limit": KeyDescription("Most deliveries, exact over all processes.", "{requests_per_minute: 600}"),
        "body_size_limit_bytes": KeyDescription("Largest body; 0 = 1048576, which is the most.", "65536"),
        "user_credentials": KeyDescription(
            "Stored credentials of the runs; a delivery without one of them is refused.",
            "{github: '$cred:github'}",
        ),
        "user_credentials_from_env": KeyDescription(
            "Credentials of the runs, from the runtime's environment. Of a webhook made at run time "
            "LOOMLOG_WEBHOOKS_ENV_ALLOWLIST or the block secrets lists the names.",
            "{github: GITHUB_TOKEN}",
        ),
        "metadata": KeyDescription("Trusted data of the runs.", "{team: red}"),
        "tenant_id": KeyDescription("Tenant of the runs; empty = default.", "acme"),
        "payload_mapping": KeyDescription(
            "What is taken from the body: goal, user_id, run_metadata.<name>, user_credentials.<name>, each a path or "
            "a text. Without a goal the whole body is it.",
            "{goal: $.issue.title, user_id: '$.sender.login'}",
        ),
        "sync_response": KeyDescription(
            "Whether ?sync=true waits for the end of the run.", "{enabled: true, timeout_ms: 20000}"
        ),
        "on_complete": KeyDescription(
            "What happens when a run has ended.", "[{kind: channel.publish, channel: reports}]"
        ),
        "operator_key_restricted": KeyDescription("Its runs do not use the operator's keys of providers.", "true"),
        "isolated": KeyDescription("Its author sees only what is its own.", "true"),
    },
    webhook_block.WebhookAuth: {
        "kind": KeyDescription(
            "Proof: `hmac` a signature, `bearer` a token, `none` if LOOMLOG_WEBHOOKS_ALLOW_UNAUTHENTICATED is on.",
            "hmac",
        ),
        "algorithm": KeyDescription("Only `sha256`.", "sha256"),
        "header": KeyDescription(
            "Header of the signature or token; empty = X-Loomcycle-Signature, X-Hub-Signature-256 or those of Standard "
            "Webhooks; of a token Authorization.",
            "X-Gitlab-Token",
        ),
        "signing_secret_env": KeyDescription(
            "Environment name of the secret; while it is rotated the variable has both, with a space between.",
            "LOOMLOG_GITHUB_SECRET",
        ),
        "bearer_token_env": KeyDescription("Environment name of the token, as above.", "LOOMLOG_GITLAB_TOKEN"),
        "delivery_id_header": KeyDescription(
            "Header with the id of a delivery, which is taken once, though no hmac covers it; empty = the webhook-id "
            "that was signed, else a hash of the body.",
            "X-GitHub-Delivery",
        ),
    },
    trigger_block.CompletionHook: {
        "kind": KeyDescription(
            "A message (`channel.publish`), an entry of memory (`memory.set`), a signed request (`http`), or a "
            "call of a tool of an MCP server (`mcp.call`).",
            "channel.publish",
        ),
        "on": KeyDescription("Ends of the run after which it is carried out.", "any"),
        "channel": KeyDescription("Channel of `channel.publish`; needed there.", "reports"),
        "server": KeyDescription("Server of `mcp.call`.", "crm"),
        "tool": KeyDescription("Tool of `mcp.call`.", "add_note"),
        "args": KeyDescription("Arguments of `mcp.call`.", "{title: Report}"),
        "scope": KeyDescription("Scope of `memory.set`: agent, user or tenant; needed there.", "user"),
        "key": KeyDescription("Key of `memory.set`; needed there.", "last_report"),
        "url": KeyDescription(
            "Address of `http`, at most 2000 characters; needed there.", "https://crm.example.com/runs"
        ),
        "secret_env": KeyDescription(
            "Environment name of the secret that signs the request; without one it is not signed.",
            "CALLBACK_SECRET_CRM",
        ),
        "payload": KeyDescription(
            "What is sent or kept, at most 64 KiB as JSON; {{run.final_text}}, {{run.result}}, {{run.id}} and "
            "{{run.status}} are replaced in its texts. A request without one has the status, the final text and the "
            "record, if the agent has an output schema.",
            "{text: '{{run.final_text}}'}",
        ),
    },
    secret_block.SecretBlock: {
        "tenants": KeyDescription("Tenants whose definitions and runs may name the variable; `*` = all.", "[acme]"),
        "uses": KeyDescription(
            "For what: `webhook` proves requests, `webhook_credentials` and `schedule_credentials` go with runs, "
            "`callback` signs the http hooks of on_complete, `memory_backend` is a backend's key, "
            "`credential` is a stored credential (`env:NAME`).",
            "[callback]",
        ),
        "hosts": KeyDescription(
            "Hosts that a callback or a memory backend may have, in lower case; needed for these two.",
            "[crm.example.com]",
        ),
    },
    webhook_block.WebhookRateLimit: {
        "requests_per_minute": KeyDescription("Deliveries a minute; 0 = 60.", "600"),
        "burst": KeyDescription("Deliveries at once; 0 = 10.", "50"),
    },
    webhook_block.WebhookSyncResponse: {
        "enabled": KeyDescription("Whether a sender may wait.", "true"),
        "timeout_ms": KeyDescription("How long, 1 to 60000 milliseconds; empty = 30000.", "20000"),
    },
}
