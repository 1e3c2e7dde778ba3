"""Overlays that together set every field of every kind."""

from collections.abc import Mapping
from typing import Any

CRON = "*/5 8-17/2 1,15 jan-mar mon-5"
HOOKS = [
    {"kind": "channel.publish", "channel": "done", "payload": {"a": None}},
    {"kind": "http", "on": "any", "url": "https://a.example/x", "secret_env": "A_SECRET", "payload": [1, {}]},
    {"kind": "memory.set", "scope": "user", "key": "k", "payload": {}},
]
AGENT = {
    "description": "d <b>&amp;</b>",
    "provider": "mock",
    "model": "m",
    "effort": "high",
    "providers": ["mock"],
    "models": {
        "middle": [{"provider": "mock", "model": "m", "effort": "low"}],
        "low": [{"provider": "mock", "model_pattern": "m-*"}],
    },
    "system_prompt": "You are\r\nbrief.\u2028 \n",
    "system_prompt_base": "You are",
    "tools": ["Read", "mcp__files__*"],
    "volumes": ["work"],
    "max_tokens": 1,
    "max_iterations": 2,
    "unbounded_iterations": True,
    "run_timeout_seconds": 4,
    "retry_attempts": 0,
    "sampling": {
        "temperature": 0,
        "top_p": 0.7,
        "top_k": 1,
        "frequency_penalty": -2,
        "presence_penalty": 1e-7,
        "seed": 0,
        "stop": ["x"],
    },
    "unknown_outcome": "ask",
    "disable_context": True,
    "code_body": "return 1 < 2\r\n",
    "skills": ["+doc/*", "-x"],
    "max_concurrent_children": 4,
    "compaction": {
        "enabled": False,
        "target_percentage": 10,
        "keep_last_n": 0,
        "keep_first": True,
        "autocompact_at_pct": 80,
        "model": "m",
        "memory_flush": False,
    },
    "search_providers": ["brave"],
    "memory_scopes": ["agent"],
    "memory_quota_bytes": 1,
    "sql_scopes": ["run"],
    "sql_quota_bytes": 1,
    "memory_backend": "m",
    "core_blocks": [{"label": "l", "scope": "agent", "limit_bytes": 1, "read_only": True}, {"label": "m"}],
    "inherit_core_blocks": True,
    "memory_inject_max_tokens": 1,
    "inject_tool_guide": True,
    "internal": True,
    "memory_protocol": True,
    "memory_consolidation": True,
    "memory_index_max_bytes": 1,
    "memory_roots": "lazy",
    "channels": {"publish": ["a"], "subscribe": ["b"]},
    "agent_def_scopes": ["any"],
    "schedule_def_scopes": ["any"],
    "a2a_server_card_def_scopes": ["any"],
    "a2a_agent_def_scopes": ["any"],
    "volume_def_scopes": ["any"],
    "evaluation_scopes": ["submit_any"],
    "history_scope": ["self"],
    "interruption": {"enabled": True, "kinds": ["question"], "max_pending": 10},
}
TIERED = {"tier": "middle", "system_prompt": "s", "compaction": {"keep_first": False}}
TYPED = {
    "provider": "mock",
    "model": "m",
    "output_schema": {"type": "object", "properties": {"total": {"type": "number", "minimum": 0.5}}},
    "output_retries": 1,
    "approvals": {"rules": [{"name": "no-shell", "tools": ["Bash"], "then": "deny"}]},
}
SKILL = {"body": "Do it.\n", "description": "d", "tools": ["Read"], "files": {"forms/tax.md": "T", "a.txt": "A"}}
TEAM = {
    "entry": "work",
    "max_iterations": 3,
    "states": [
        {
            "state": "work",
            "handler": {
                "kind": "parallel",
                "agents": ["a", "b"],
                "wait": "at_least:2",
                "consolidator": "c",
                "input_template": "<{{x}}>",
                "timeout_ms": 5,
            },
        },
        {"state": "check", "handler": {"kind": "agent", "agent": "a"}},
        {"state": "end", "handler": {"kind": "terminal"}},
    ],
    "transitions": [
        {"from": "work", "to": "check", "on": "success"},
        {"from": "check", "to": "work", "on": "pushback:again"},
        {"from": "check", "to": "end", "on": "conditional:ok"},
    ],
    "colors": {"states": {"end": "pink"}, "transitions": {"success": "#2f9e44"}},
}
MCP_SERVER = {
    "question_timeout_seconds": 600,
    "oauth": {"grant": "authorization_code", "client_id": "loomlog", "client_secret": "$cred:crm", "scopes": ["read"]},
    "transport": "streamable-http",
    "url": "https://tools.example:8443/mcp?x=1&y=2",
    "headers": {"X-B": "$cred:b", "X-A": "${run.user_id}"},
    "description": "d",
    "pool_size": 2,
    "tools": ["search"],
    "trust_annotations": True,
    "effects": {"search": "read"},
    "timeout_seconds": 60,
}
SCHEDULE = {
    "agent": "team/soaker",
    "prompt": [
        {"role": "system", "content": [{"type": "trusted-text", "text": "tick", "cacheable": True}]},
        {"role": "user", "content": [{"type": "untrusted-block", "text": "t", "kind": "web_content"}]},
    ],
    "schedule": CRON,
    "timezone": "Europe/Berlin",
    "enabled": False,
    "catch_up_max": 3,
    "overlap": "queue_one",
    "jitter_ms": 500,
    "max_fires": 2,
    "user_id": "u",
    "user_tier": "gold",
    "required_credentials": ["github"],
    "user_credentials": {"github": "$cred:gh"},
    "user_credentials_from_env": {"slack": "LOOMLOG_SLACK"},
    "on_complete": HOOKS,
    "metadata": {"a": [1, None]},
}
TEMPLATE = {"agent": "soaker", "user_tier_schedules": {"free": "@daily", "gold": "@every 1h30m"}}
WEBHOOK: dict[str, Any] = {
    "enabled": True,
    "delivery": "spawn",
    "agent": "soaker",
    "auth": {
        "kind": "hmac",
        "algorithm": "sha256",
        "header": "X-Hub-Signature-256",
        "signing_secret_env": "LOOMLOG_HOOK",
        "delivery_id_header": "X-Delivery-Id",
    },
    "rate_limit": {"requests_per_minute": 600, "burst": 50},
    "body_size_limit_bytes": 1000,
    "user_credentials": {"github": "$cred:gh"},
    "user_credentials_from_env": {"slack": "LOOMLOG_SLACK"},
    "metadata": {"a": 1},
    "payload_mapping": {"goal": "$.issue.labels[0]", "user_credentials.x": "$.token", "run_metadata.k": "text"},
    "sync_response": {"enabled": True, "timeout_ms": 60000},
    "on_complete": HOOKS,
}
CHANNEL = {"delivery": "channel", "channel": "in", "auth": {"kind": "bearer", "bearer_token_env": "LOOMLOG_HOOK"}}
MEMORY_BACKEND = {
    "kind": "remote",
    "config": {"base_url": "https://memory.example", "api_version": "2", "api_key_env": "LOOMLOG_MEMORY"},
    "tenancy_strategy": {
        "kind": "shared_key_with_prefix",
        "env_pattern": "LOOMLOG_{tenant_id}",
        "prefix_pattern": "{tenant_id}/",
    },
    "fallback_on_error": "inprocess",
    "health_check_interval_seconds": 30,
}
DOCUMENT_SOURCE = {
    "config": {"base_url": "https://docs.example", "api_key_env": "LOOMLOG_DOCS"},
    "tenancy_strategy": {"kind": "key_per_tenant", "env_pattern": "LOOMLOG_DOCS_{tenant_id}"},
}
A2A_AGENT = {
    "endpoint": "https://peer.example/rpc",
    "binding": "jsonrpc",
    "auth": {"scheme": "http", "bearer_credential_ref": "peer"},
    "expected_skills": [{"id": "sum", "required": True}],
    "verify_signed_card": True,
}
A2A_CARD = {
    "name": "us",
    "description": "d",
    "provider": {"organization": "o", "url": "https://us.example"},
    "capabilities": {"streaming": True, "push_notifications": True, "extended_agent_card": True},
    "exposed_agents": [
        {
            "agent_name": "soaker",
            "skill_id": "s",
            "skill_name": "n",
            "description": "d",
            "tags": ["t"],
            "input_modes": ["text/plain"],
            "output_modes": ["text/plain"],
        }
    ],
    "security_schemes": [{"kind": "http", "scheme": "bearer"}],
    "sign_with_key_env": "LOOMLOG_KEY",
}
OVERLAYS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "agent": (AGENT, TIERED, TYPED),
    "skill": (SKILL,),
    "team": (TEAM,),
    "mcpserver": (MCP_SERVER,),
    "schedule": (SCHEDULE, TEMPLATE),
    "webhook": (WEBHOOK, CHANNEL),
    "memorybackend": (MEMORY_BACKEND,),
    "documentsource": (DOCUMENT_SOURCE,),
    "a2aagent": (A2A_AGENT, {"agent_card_url": "https://peer.example/card.json"}),
    "a2aservercard": (A2A_CARD,),
}
