import json
from dataclasses import fields
from typing import Any

import pytest

from loomlog.connectors.configuration.memory_block import (
    ChangeSubscriptionBlock,
    ConsolidationBlock,
    EmbedderBlock,
    MemoryBackendBlock,
    MemoryBackendConfig,
    MemoryBlock,
    MemoryEntryBlock,
    MemoryTenancy,
)
from tests.connectors.configuration.conftest import Folder

FULL = """\
memory:
  embedder:
    provider: openai
    model: text-embedding-3-small
    base_url: https://llm.example/v1
    api_key_env: LOOMLOG_EMBED
    dimensions: 256
    timeout_ms: 1000
    batch_size: 7
  entries:
    - {scope: agent, scope_id: a, key: core/persona, value: {tone: [mild, 0.5, 7, null, false]}, embed: yes}
    - {scope: tenant, key: rules, value: Be brief.}
  consolidation: {merge_threshold: 1, related_threshold: 0, verify_writes: on, detect_conflicts: true}
memory_backends:
  here: {kind: inprocess}
  peer:
    kind: remote
    config: {base_url: "https://memory.example", api_version: v1, api_key_env: LOOMLOG_PEER}
    tenancy_strategy: {kind: key_per_tenant, env_pattern: "LOOMLOG_PEER_{tenant_id}", prefix_pattern: x}
    fallback_on_error: inprocess
    health_check_interval_seconds: 30
change_subscriptions:
  app:
    callback_url: https://app.example/memory
    secret_env: LOOMLOG_CHANGES_SECRET
    tenant_id: acme
    scope: user
    kinds: [memory, document, document.chunk.updated]
    allow_private_host: true
    disabled: true
agents:
  a:
    provider: mock
    model: m
    tools: [Memory]
    system_prompt: "{{memory:core_blocks}}"
    memory_scopes: [agent, user, tenant]
    memory_quota_bytes: 1
    sql_scopes: [agent, user, run, tenant]
    sql_quota_bytes: 1
    memory_backend: peer
    memory_consolidation: true
    core_blocks: [{label: persona, scope: tenant, limit_bytes: 1, read_only: true}]
    inherit_core_blocks: true
    memory_inject_max_tokens: 1
    memory_protocol: true
    memory_index_max_bytes: 1
    memory_roots: suppress
"""
ENVIRON = {
    "LOOMLOG_EMBED": "embed-value-1",
    "LOOMLOG_PEER": "peer-value-1",
    "LOOMLOG_PEER_acme": "acme-value-1",
    "LOOMLOG_CHANGES_SECRET": "changes-value-1",
}


def test_every_key_arrives_without_a_warning_and_its_secrets_are_masked(folder: Folder):
    loaded = folder.load(FULL, ENVIRON)
    assert loaded.warnings == ()
    assert loaded.secrets == ENVIRON
    configuration = loaded.configuration
    assert configuration.memory == MemoryBlock(
        embedder=EmbedderBlock(
            provider="openai",
            model="text-embedding-3-small",
            base_url="https://llm.example/v1",
            api_key_env="LOOMLOG_EMBED",
            dimensions=256,
            timeout_ms=1000,
            batch_size=7,
        ),
        entries=(
            MemoryEntryBlock(
                scope="agent",
                scope_id="a",
                key="core/persona",
                value={"tone": ["mild", 0.5, 7, None, False]},
                embed=True,
            ),
            MemoryEntryBlock(scope="tenant", key="rules", value="Be brief."),
        ),
        consolidation=ConsolidationBlock(
            merge_threshold=1, related_threshold=0, verify_writes=True, detect_conflicts=True
        ),
    )
    assert [json.loads(entry.json_text) for entry in configuration.memory.entries] == [
        {"tone": ["mild", 0.5, 7, None, False]},
        "Be brief.",
    ]
    assert configuration.memory_backends == {
        "here": MemoryBackendBlock(kind="inprocess"),
        "peer": MemoryBackendBlock(
            kind="remote",
            config=MemoryBackendConfig(base_url="https://memory.example", api_version="v1", api_key_env="LOOMLOG_PEER"),
            tenancy_strategy=MemoryTenancy(
                kind="key_per_tenant", env_pattern="LOOMLOG_PEER_{tenant_id}", prefix_pattern="x"
            ),
            fallback_on_error="inprocess",
            health_check_interval_seconds=30,
        ),
    }
    assert configuration.change_subscriptions == {
        "app": ChangeSubscriptionBlock(
            callback_url="https://app.example/memory",
            secret_env="LOOMLOG_CHANGES_SECRET",
            tenant_id="acme",
            scope="user",
            kinds=("memory", "document", "document.chunk.updated"),
            allow_private_host=True,
            disabled=True,
        )
    }


def test_the_key_of_an_embedder_is_masked_though_no_file_names_it(folder: Folder):
    environ = {"VOYAGE_API_KEY": "voyage-value-1"}
    assert folder.load("memory: {embedder: {provider: voyage}}", environ).secrets == environ
    assert folder.load("memory: {}", environ).secrets == {}


def test_the_full_file_sets_every_key_to_something_else_than_its_default(folder: Folder):
    configuration = folder.load(FULL, ENVIRON).configuration
    peer, agent = configuration.memory_backends["peer"], configuration.agents["a"]
    blocks: list[Any] = [configuration.memory, configuration.memory.embedder, configuration.memory.entries[0]]
    blocks += [configuration.memory.consolidation, peer, peer.config, peer.tenancy_strategy, agent.core_blocks[0]]
    blocks.append(configuration.change_subscriptions["app"])
    for block in blocks:
        unset = [entry.name for entry in fields(block) if getattr(block, entry.name) == entry.default]
        assert unset == [], type(block)
    for name in ("memory", "sql", "core_blocks", "inherit"):
        for entry in fields(agent):
            assert not entry.name.startswith(name) or getattr(agent, entry.name) != entry.default, entry.name


def test_what_a_file_does_not_say_is_the_default(folder: Folder):
    configuration = folder.load("agents: {}\nmemory: {consolidation: }\nmemory_backends: \n").configuration
    assert configuration.memory == MemoryBlock()
    assert (configuration.memory_backends, configuration.change_subscriptions) == ({}, {})
    bands = configuration.memory.consolidation
    assert (bands.merge_threshold, bands.related_threshold) == (0.95, 0.85)
    assert (bands.verify_writes, bands.detect_conflicts, configuration.memory.embedder) == (False, False, None)


@pytest.mark.parametrize(
    ("kinds", "change_type", "passes"),
    [
        ((), "memory.set", True),
        (("memory",), "memory.set", True),
        (("document",), "memory.set", False),
        (("memory.delete",), "memory.set", False),
        (("document", "memory.set"), "memory.set", True),
        (("document",), "document.chunk.updated", True),
    ],
)
def test_a_kind_lets_its_types_pass(kinds: tuple[Any, ...], change_type: str, passes: bool):
    block = ChangeSubscriptionBlock(callback_url="https://a.example", secret_env="S", kinds=kinds)
    assert block.accepts(tenant="acme", scope="user", change_type=change_type) is passes


@pytest.mark.parametrize(("key", "value", "passes"), [("tenant_id", "acme", True), ("tenant_id", "globex", False)])
def test_a_tenant_and_a_scope_let_their_changes_pass(key: str, value: str, passes: bool):
    block = ChangeSubscriptionBlock(callback_url="https://a.example", secret_env="S", **{key: value})
    assert block.accepts(tenant="acme", scope="user", change_type="memory.set") is passes
    scoped = ChangeSubscriptionBlock(callback_url="https://a.example", secret_env="S", scope="agent")
    assert not scoped.accepts(tenant="acme", scope="user", change_type="memory.set")
    assert scoped.accepts(tenant="acme", scope="agent", change_type="memory.set")


ENTRY = "memory: {entries: [{scope: tenant, key: k, value: %s}]}"
APP = "change_subscriptions: {a: {callback_url: 'https://a.example', secret_env: S, %s}}"
BACKEND = "memory_backends: {b: {%s}}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("memory: {embedder: {model: m}}", "memory.embedder.provider is missing"),
        (
            "memory: {embedder: {provider: opena}}",
            "memory.embedder.provider: 'opena' is not usable: expected 'stub', 'openai', 'gemini', 'voyage', "
            "'anthropic', 'ollama' or 'ollama-local'; did you mean openai?",
        ),
        (
            "memory: {embedder: {provider: stub, dimensions: 4001}}",
            "memory.embedder.dimensions: 4001 is not usable: expected less than or equal to 4000",
        ),
        (
            "memory: {embedder: {provider: stub, timeout_ms: 0}}",
            "memory.embedder.timeout_ms: 0 is not usable: expected greater than or equal to 1",
        ),
        (
            "memory: {embedder: {provider: openai, base_url: llm.example}}",
            "memory.embedder.base_url: 'llm.example' is not usable: expected an address like https://example.com/path",
        ),
        (
            "memory: {embedder: {provider: openai, base_url: 'https://me:hunter2@llm.example'}}",
            "memory.embedder.base_url: this value is not usable: expected an address without user and password, "
            "which everyone could read",
        ),
        (
            "memory: {embedder: {provider: openai, api_key_env: sk-hunter2}}",
            "memory.embedder.api_key_env: this value is not usable: expected the NAME of an environment variable "
            "(capitals, digits and _), never its value",
        ),
        (
            "memory: {embedder: {provider: ollama-local}}",
            "memory.embedder: ollama-local has no default model; give one as model",
        ),
        ("memory: {embeder: {provider: stub}}", "memory.embeder is not a known key; did you mean embedder?"),
        (
            "memory: {consolidation: {merge_threshold: 1.1}}",
            "memory.consolidation.merge_threshold: 1.1 is not usable: expected less than or equal to 1",
        ),
        (
            "memory: {consolidation: {merge_threshold: '1'}}",
            "memory.consolidation.merge_threshold: '1' is not usable: expected a number",
        ),
        (
            "memory: {entries: [{scope: galaxy, key: k, value: 1}]}",
            "memory.entries[0].scope: 'galaxy' is not usable: expected 'agent', 'user' or 'tenant'",
        ),
        ("memory: {entries: [{scope: tenant, key: k}]}", "memory.entries[0].value is missing"),
        (
            "memory: {entries: [{scope: tenant, key: '', value: 1}]}",
            "memory.entries[0].key: '' is not usable: expected 1 to 512 characters that can be printed",
        ),
        (
            'memory: {entries: [{scope: tenant, key: "a\\x01", value: 1}]}',
            "memory.entries[0].key: 'a\\x01' is not usable: expected 1 to 512 characters that can be printed",
        ),
        (
            f"memory: {{entries: [{{scope: tenant, key: {'k' * 513}, value: 1}}]}}",
            f"memory.entries[0].key: '{'k' * 58}… is not usable: expected 1 to 512 characters that can be printed",
        ),
        (
            ENTRY % "[1e400]",
            "memory.entries[0].value: a list is not usable: expected a finite number of at most 1.8e308",
        ),
        (
            ENTRY % '"a\\0b"',
            "this text cannot be used: it has the character U+0000, which no text may have",
        ),
        (BACKEND % "kind: cloud", "memory_backends.b.kind: 'cloud' is not usable: expected 'inprocess' or 'remote'"),
        (BACKEND % "kind: remote", "memory_backends.b.config.base_url: needs an address (for kind remote)"),
        (
            BACKEND % "kind: remote, config: {base_url: 'ftp://a'}",
            "memory_backends.b.config.base_url: 'ftp://a' is not usable: expected an address like "
            "https://example.com/path",
        ),
        (
            BACKEND % "kind: inprocess, tenancy_strategy: {kind: key_per_tenant, env_pattern: LOOMLOG_X}",
            "memory_backends.b.tenancy_strategy.env_pattern: expected a pattern with {tenant_id}",
        ),
        (
            BACKEND % "kind: inprocess, tenancy_strategy: {kind: key_per_tenant, env_pattern: 'LOOMLOG_{tenant_id}'}",
            "memory_backends.b.tenancy_strategy.env_pattern: expected a longer pattern: some tenant's name would make "
            "it a secret of the installation",
        ),
        (
            BACKEND % "kind: inprocess, tenancy_strategy: {kind: shared_key_with_prefix}",
            "memory_backends.b.tenancy_strategy.prefix_pattern: expected a pattern with {tenant_id}",
        ),
        (
            BACKEND % "kind: inprocess, fallback_on_error: peer",
            "memory_backends.b.fallback_on_error: 'peer' is not usable: expected 'inprocess'",
        ),
        (
            "memory_backends: {'a b': {kind: inprocess}}",
            "memory_backends.a b is not a usable name: expected at most 128 characters: letters, digits, _ and -, "
            "with / between parts",
        ),
        (
            APP % "scope: run",
            "change_subscriptions.a.scope: 'run' is not usable: expected 'agent', 'user', 'tenant' or ''",
        ),
        (
            APP % "tenant_id: a b",
            "change_subscriptions.a.tenant_id: 'a b' is not usable: expected at most 64 letters, digits, _ and -",
        ),
        ("change_subscriptions: {a: {secret_env: S}}", "change_subscriptions.a.callback_url is missing"),
        (
            "change_subscriptions: {a: {callback_url: 'https://a.example'}}",
            "change_subscriptions.a.secret_env is missing",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_place_and_what_was_expected(folder: Folder, text: str, problem: str):
    assert folder.problems(f"agents: {{}}\n{text}\n") == [f"loomlog.yaml:2: {problem}"]


def test_an_unknown_kind_of_change_is_refused_with_the_nearest_one(folder: Folder):
    (line,) = folder.problems(f"agents: {{}}\n{APP % 'kinds: [memory, memory.sets]'}\n")
    assert line.startswith(
        "loomlog.yaml:2: change_subscriptions.a.kinds[1]: 'memory.sets' is not usable: expected 'memory'"
    )
    assert line.endswith("; did you mean memory.set?")


@pytest.mark.parametrize("setting", ["LOOMLOG_AUTH_TOKEN", "LOOMCYCLE_SECRET_KEY", "LOOMLOG_POSTGRES"])
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("memory: {embedder: {provider: openai, api_key_env: NAME}}", "memory.embedder.api_key_env"),
        (
            "memory_backends: {b: {kind: remote, config: {base_url: 'https://a.example', api_key_env: NAME}}}",
            "memory_backends.b.config.api_key_env",
        ),
        (
            "change_subscriptions: {a: {callback_url: 'https://a.example', secret_env: NAME}}",
            "change_subscriptions.a.secret_env",
        ),
    ],
)
def test_a_secret_of_the_installation_goes_nowhere(folder: Folder, text: str, path: str, setting: str):
    (line,) = folder.problems(f"agents: {{}}\n{text.replace('NAME', setting)}\n")
    assert line.startswith(f"loomlog.yaml:2: {path}: {setting} is a secret of the installation")
