import pytest

from tests.connectors.configuration.conftest import Folder

PIN = "provider: mock, model: m"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            "memory_scopes: [user, run]",
            "memory_scopes[1]: 'run' is not usable: expected 'agent', 'user' or 'tenant'",
        ),
        (
            "sql_scopes: usr",
            "sql_scopes[0]: 'usr' is not usable: expected 'agent', 'user', 'run' or 'tenant'; did you mean user?",
        ),
        (
            "memory_backend: pear",
            "memory_backend: there is no backend pear in memory_backends; leave it out for the memory here; did you "
            "mean peer?",
        ),
        (
            "core_blocks: [{label: a b}]",
            "core_blocks[0].label: 'a b' is not usable: expected 1 to 64 letters, digits, _ and -",
        ),
        (
            f"core_blocks: [{{label: {'a' * 65}}}]",
            f"core_blocks[0].label: '{'a' * 58}… is not usable: expected 1 to 64 letters, digits, _ and -",
        ),
        (
            "core_blocks: [{label: a, scope: run}]",
            "core_blocks[0].scope: 'run' is not usable: expected 'agent', 'user', 'tenant' or ''",
        ),
        (
            "core_blocks: [{label: a}, {label: b}, {label: a, scope: user}]",
            "core_blocks[2].label: an earlier block is called a already",
        ),
        (
            "core_blocks: [{label: a, limit_bytes: 262145}]",
            "core_blocks[0].limit_bytes: 262145 is not usable: expected less than or equal to 262144",
        ),
        ("core_blocks: [{scope: user}]", "core_blocks[0].label is missing"),
        (
            "memory_quota_bytes: 1099511627777",
            "memory_quota_bytes: 1099511627777 is not usable: expected less than or equal to 1099511627776",
        ),
        ("memory_protocol: please", "memory_protocol: 'please' is not usable: expected true or false"),
        (
            "memory_roots: lasy",
            "memory_roots: 'lasy' is not usable: expected 'lazy', 'force' or 'suppress'; did you mean lazy?",
        ),
        (
            "memory_inject_max_tokens: -1",
            "memory_inject_max_tokens: -1 is not usable: expected greater than or equal to 0",
        ),
    ],
)
def test_a_wrong_key_of_an_agent_is_refused_with_what_was_expected(folder: Folder, keys: str, problem: str):
    text = f"memory_backends: {{peer: {{kind: inprocess}}}}\nagents:\n  a: {{{PIN}, {keys}}}\n"
    assert folder.problems(text) == [f"loomlog.yaml:3: agents.a.{problem}"]


@pytest.mark.parametrize(
    ("bands", "problem"),
    [
        ("merge_threshold: 0.8", "is 0.85: expected less than merge_threshold (0.8)"),
        ("{related_threshold: 0.95}", "is 0.95: expected less than merge_threshold (0.95)"),
        ("{merge_threshold: 0, related_threshold: 0}", "is 0: expected less than merge_threshold (0)"),
    ],
)
def test_related_facts_are_less_alike_than_the_same_fact(folder: Folder, bands: str, problem: str):
    block = bands if bands.startswith("{") else f"{{{bands}}}"
    (line,) = folder.problems(f"agents: {{}}\nmemory: {{consolidation: {block}}}\n")
    assert line == f"loomlog.yaml:2: memory.consolidation.related_threshold: {problem}"


def test_entries_need_the_owner_of_their_scope_and_a_key_of_their_own(folder: Folder):
    text = """\
    memory:
      entries:
        - {scope: tenant, scope_id: acme, key: a, value: 1}
        - {scope: agent, key: a, value: 1}
        - {scope: user, scope_id: ann, key: a, value: 1}
        - {scope: user, scope_id: bob, key: a, value: 1}
        - {scope: user, scope_id: ann, key: a, value: 2}
        - {scope: user, scope_id: "a\\nb", key: a, value: 2}
    """
    assert folder.problems(text) == [
        "loomlog.yaml:3: memory.entries[0].scope_id: the scope tenant has no id; leave it out",
        "loomlog.yaml:4: memory.entries[1].scope_id: expected the name of the agent, 1 to 256 characters",
        "loomlog.yaml:7: memory.entries[4].key: memory.entries[2] sets this key of the same scope already",
        "loomlog.yaml:8: memory.entries[5].scope_id: expected the id of the user, 1 to 256 characters",
    ]


def test_an_entry_is_not_larger_than_other_values(folder: Folder):
    text = "memory: {entries: [{scope: tenant, key: k, value: ääää}]}"
    assert folder.warnings(text, {"LOOMLOG_MEMORY_MAX_VALUE_BYTES": "10"}) == []
    assert folder.problems(text, {"LOOMCYCLE_MEMORY_MAX_VALUE_BYTES": "9"}) == [
        "loomlog.yaml:1: memory.entries[0].value: has 10 bytes as JSON; at most 9 are taken "
        "(LOOMLOG_MEMORY_MAX_VALUE_BYTES)"
    ]


@pytest.mark.parametrize(
    ("text", "environ", "warning"),
    [
        (
            f"agents: {{a: {{{PIN}, tools: [Read, Memory]}}}}",
            {},
            "agents.a.tools[1]: Memory refuses every call, because memory_scopes and sql_scopes are empty",
        ),
        (
            f"agents: {{a: {{{PIN}, memory_consolidation: {{enabled: true, merge_threshold: 0.9}}}}}}",
            {},
            "agents.a.memory_consolidation: only `enabled` is read here; thresholds are those of memory.consolidation, "
            "for all agents",
        ),
        (
            "memory: {embedder: {provider: openai}}",
            {"LOOMLOG_EMBEDDER_STUB": "1"},
            "memory.embedder.provider: LOOMLOG_EMBEDDER_STUB is set, so the embedder is stub and not openai",
        ),
        (
            "memory: {entries: [{scope: tenant, key: k, value: 1, embed: true}]}",
            {},
            "memory.entries[0].embed: there is no memory.embedder, so the entry is not found by meaning",
        ),
        (
            "change_subscriptions: {a: {callback_url: 'https://a.example', secret_env: S}}",
            {"LOOMLOG_MEMORY_CHANGES_ENABLED": "0"},
            "change_subscriptions.a: sends nothing, because LOOMLOG_MEMORY_CHANGES_ENABLED is 0",
        ),
        (
            f"agents: {{a: {{{PIN}, tools: [Memory], sql_scopes: [run]}}}}",
            {"LOOMLOG_SQLMEM_ENABLED": "0"},
            "agents.a.sql_scopes: has no effect, because LOOMLOG_SQLMEM_ENABLED is 0",
        ),
    ],
)
def test_what_has_no_effect_is_reported(folder: Folder, text: str, environ: dict[str, str], warning: str):
    assert folder.warnings(text, environ) == [f"loomlog.yaml:1: {warning}"]


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        (f"agents: {{a: {{{PIN}, tools: [Memory], memory_scopes: user}}}}", {}),
        (f"agents: {{a: {{{PIN}, tools: [Memory], sql_scopes: user}}}}", {}),
        (f"agents: {{a: {{{PIN}, memory_consolidation: {{enabled: true}}}}}}", {}),
        ("memory: {embedder: {provider: stub}}", {"LOOMCYCLE_EMBEDDER_STUB": "1"}),
        (
            "memory: {entries: [{scope: tenant, key: k, value: 1, embed: true}]}",
            {"LOOMLOG_EMBEDDER_STUB": "1"},
        ),
        (
            "change_subscriptions: {a: {callback_url: 'https://a.example', secret_env: S, disabled: true}}",
            {"LOOMLOG_MEMORY_CHANGES_ENABLED": "0"},
        ),
    ],
)
def test_what_has_an_effect_is_not_reported(folder: Folder, text: str, environ: dict[str, str]):
    assert folder.warnings(text, environ) == []
