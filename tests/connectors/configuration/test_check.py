import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import load
from loomlog.connectors.configuration.memory_block import PROMPT_PLACEHOLDERS
from tests.connectors.configuration.conftest import Folder

PIN = "provider: mock, model: m"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agents: {a: {provider: mock}}", "agents.a.provider: provider mock comes without a model; give both"),
        ("agents: {a: {model: m}}", "agents.a.model: model m comes without a provider and is not an alias in `models`"),
        (
            "agents: {a: {}}",
            "agents.a: names no model; give provider and model, a model alias, or a tier, or set defaults",
        ),
        (f"agents: {{a: {{tier: low, {PIN}}}}}", "agents.a.tier: comes with a pinned model"),
        ("agents: {a: {provider: mok, model: m}}", "agents.a.provider: there is no provider mok; did you mean mock?"),
        ("agents: {a: {tier: low}}", "agents.a.tier: tier low has no candidates"),
        (
            "tiers: {low: [{provider: mock, model: m}]}\nprovider_priority: [openai]\nagents: {a: {tier: low}}",
            "agents.a.tier: tier low resolves to nothing: its candidates are at mock, the provider order is openai",
        ),
        (
            "tiers: {low: [{provider: mock, model: m}]}\nuser_tiers: {default: {provider_priority: [openai]}}\n"
            "agents: {a: {tier: low, providers: [mock]}}",
            "agents.a.tier: none of the agent's providers is in the provider_priority of the user tier",
        ),
        (f"agents: {{a: {{{PIN}, providers: [opena]}}}}", "agents.a.providers[0]: there is no provider opena"),
        (f"agents: {{a: {{{PIN}, volumes: [v]}}}}", "agents.a.volumes[0]: there is no volume v"),
        (f"agents: {{a: {{{PIN}, tools: [Read, Raed]}}}}", "agents.a.tools[1]: Raed is not a tool"),
        (f"agents: {{a: {{{PIN}, tools: ['Q*']}}}}", "agents.a.tools[0]: Q* matches no tool"),
        (f"agents: {{a: {{{PIN}, tools: ['*ead']}}}}", "agents.a.tools[0]: *ead is not a tool"),
        ("tiers: {low: [{provider: mock}]}", "tiers.low[0]: a candidate has a provider and either model"),
        ("tiers: {low: [{model: x}]}", "tiers.low[0]: model x comes without a provider and is not an alias"),
        ("tiers: {low: [{provider: x, model: m}]}", "tiers.low[0].provider: there is no provider x"),
        ("models: {q: {provider: x, model: m}}", "models.q.provider: there is no provider x"),
        ("models: {q: {provider: mock}}", "models.q: an alias has either model or model_pattern"),
        ("models: {q: {provider: mock, model: m, model_pattern: 'm*'}}", "models.q: an alias has either model or"),
        ("defaults: {provider: mock}", "defaults: provider mock comes without a model"),
        ("user_tiers: {gold: {}}", "user_tiers: needs a tier named default"),
        (
            "user_tiers: {default: {provider_priority: [x]}}",
            "user_tiers.default.provider_priority[0]: there is no provider",
        ),
        ("provider_priority: [mock, x]", "provider_priority[1]: there is no provider x"),
        (
            "volumes: {a: {path: a, default: true}, b: {path: b, default: true}}",
            "volumes.b.default: only one volume may be",
        ),
        (
            "volumes: {a: {path: a, dynamic_root: true}, b: {path: b, dynamic_root: true}}",
            "volumes.b.dynamic_root: volumes made at run time lie in one folder; a is it already",
        ),
        ("pricing: {models: {gpt: {input: 1, output: 1}}}", 'pricing.models.gpt: expected "provider/model" as the key'),
        ("providers: {x: {driver: openai, dialect: ollama-chat}}", "providers.x.dialect: the driver openai speaks"),
        ("providers: {x: {driver: openai, base_url: a.example}}", "providers.x.base_url: expected a URL"),
        (
            "providers: {x: {driver: openai, api_key_env: LOOMLOG_AUTH_TOKEN}}",
            "providers.x.api_key_env: LOOMLOG_AUTH_TOKEN is",
        ),
        (
            "principals: {a: {tenant: t, subject: s, scopes: [runs:read], token_env: LOOMCYCLE_PG_DSN}}",
            "principals.a.token_env: LOOMCYCLE_PG_DSN is a secret of the installation",
        ),
        (
            "principals: {a: {tenant: t, subject: s, scopes: [runs:read], token_env: HOME}}",
            "principals.a.token_env: expected a name that begins with LOOMLOG_ or LOOMCYCLE_, got HOME",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(folder: Folder, text: str, expected: str):
    (line,) = folder.problems(text)
    place, _, message = line.partition(": ")
    assert place.startswith("loomlog.yaml:")
    assert message.startswith(expected)


def test_two_principals_need_two_tokens(folder: Folder):
    row = "{tenant: t, subject: s, scopes: [runs:read], token_env: LOOMLOG_T}"
    (line,) = folder.problems(f"principals:\n  a: {row}\n  b: {row}\n")
    assert line == (
        "loomlog.yaml:3: principals.b.token_env: LOOMLOG_T is the token of a already; each principal needs its own"
    )


def test_models_are_found_in_all_the_places_they_may_be(folder: Folder):
    text = """\
    defaults: {provider: mock, model: m}
    models: {quick: {provider: mock, model_pattern: "m-*"}}
    provider_priority: [mock]
    tiers: {low: [{provider: mock, model: m}], middle: [{model: quick, effort: low}]}
    agents:
      by-default: {}
      by-alias: {model: quick}
      by-pin: {provider: mock, model: m}
      by-tier: {tier: low}
      by-alias-in-a-tier: {tier: middle}
      by-own-models: {tier: high, models: {high: [{provider: mock, model: m}]}}
    """
    assert folder.warnings(text) == []


def test_an_alias_may_be_the_default_model(folder: Folder):
    text = "models: {quick: {provider: mock, model: m}}\ndefaults: {model: quick}\nagents: {a: {}}"
    assert folder.warnings(text) == []


def test_tools_of_later_versions_are_accepted_with_one_warning(folder: Folder):
    text = f"""\
    agents:
      a: {{{PIN}, tools: [Read]}}
      b: {{{PIN}, tools: [Document, Path, mcp__x__y, "client:z"]}}
      c: {{{PIN}, tools: [Document, "*", "mcp__*", "a2a__*", "Web*", "Bash*"]}}
    """
    (line,) = folder.warnings(text)
    assert line == (
        "loomlog.yaml:3: Document, Path and a2a__* are granted to agents but not in this "
        "version (agent-to-agent peers, documents, paths); agents run without"
    )


def test_keys_of_later_versions_are_accepted_with_one_warning_each(folder: Folder):
    text = f"""
agents:
  a: {{{PIN}, history_scope: [user], system_prompt_base: x, search_providers: []}}
  b: {{{PIN}, history_scope: [self]}}
"""
    assert folder.warnings(text) == [
        "loomlog.yaml:3: agents.a.history_scope: has no effect in this version (history); the same for b",
        "loomlog.yaml:3: agents.a.system_prompt_base: has no effect in this version (shared prompts)",
    ]


def test_a_volume_that_may_be_made_at_run_time_is_a_warning(folder: Folder):
    text = f"agents: {{a: {{{PIN}, volumes: [notes]}}}}\nvolumes: {{nodes: {{path: v, dynamic_root: true}}}}\n"
    assert folder.warnings(text) == [
        "loomlog.yaml:1: agents.a.volumes[0]: there is no volume notes here; it has to be made at run time; did you "
        "mean nodes?"
    ]


@pytest.mark.parametrize("tool", ["client:z", "client__z", "client:*", "client:browser_*", "client*"])
def test_tools_that_clients_name_themselves_are_granted_unseen(folder: Folder, tool: str):
    assert folder.warnings(f'agents: {{a: {{{PIN}, tools: ["{tool}"]}}}}') == []


@pytest.mark.parametrize("tool", ["client:", "client:a.b", "client:*a", "client__", f"client:{'a' * 57}"])
def test_a_name_that_no_client_can_give_is_refused(folder: Folder, tool: str):
    (line,) = folder.problems(f'agents: {{a: {{{PIN}, tools: ["{tool}"]}}}}')
    assert "is no tool that a client can offer" in line


API = """{"openapi": "3.1.0", "servers": [{"url": "http://shop.example"}],
"paths": {"/orders": {"get": {"operationId": "list"}, "put": {"parameters": [{"$ref": "other.yaml#/a"}]}}}}"""


def test_tools_of_an_openapi_file_are_granted_by_name(folder: Folder):
    folder.write(API, "api.json")
    block = "local_api: {{spec: api.json, tool_name_prefix: crm_}}\nagents: {{a: {{{0}, tools: [{1}]}}}}"
    (line,) = folder.warnings(block.format(PIN, "crm_list"))
    assert "left out: PUT /orders: other.yaml#/a is out of the document" in line
    assert len(folder.warnings(block.format(PIN, "'crm_*'"))) == 1
    (line,) = folder.problems(block.format(PIN, "crm_lst"))
    assert "crm_lst is not a tool" in line
    assert "did you mean crm_list?" in line


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("{base_url: 'http://a'}", "spec is missing"),
        ("{spec: none.yaml}", "none.yaml cannot be read"),
        ("{spec: api.json, base_url: 'ftp://a'}", "expected an address"),
        ("{spec: api.json, base_url: 'http://a?b=c'}", "without a query"),
        ("{spec: api.json, tool_name_prefix: mcp__}", "mcp__list is the name of another tool"),
        ("{spec: api.json, tool_name_prefix: 'a b'}", "tool_name_prefix"),
    ],
)
def test_an_openapi_file_that_gives_no_tools_is_refused(folder: Folder, block: str, said: str):
    folder.write(API, "api.json")
    assert any(said in line for line in folder.problems(f"local_api: {block}"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("providers: {x: {driver: openai, options: {header_timeot_ms: 5}}}", "did you mean header_timeout_ms?"),
        (
            "providers: {x: {driver: anthropic_oauth_dev}}\n"
            "agents: {a: {provider: x, model: m}, b: {provider: x, model: m}}",
            "anthropic_oauth_dev of x (Anthropic by OAuth) is not in",
        ),
        (
            "providers: {x: {driver: anthropic_oauth_dev}}\ntiers: {low: [{provider: x, model: m}]}",
            "tiers.low[0].provider: the driver anthropic_oauth_dev of x",
        ),
        ("pricing: {models: {opena/x: {input: 1, output: 1}}}", "did you mean openai?"),
        ("agents: {a: {code: greeter}}", "it cannot run without LOOMLOG_CODE_AGENTS_ENABLED=1"),
        ("agents: {a: {provider: code-js}}", "it cannot run without LOOMLOG_CODE_AGENTS_ENABLED=1"),
    ],
)
def test_what_has_no_effect_is_said(folder: Folder, text: str, words: str):
    (line,) = folder.warnings(text)
    assert words in line


def test_placeholders_of_tools_are_known_by_name(folder: Folder):
    agent = f"agents: {{{{a: {{{{{PIN}, system_prompt: '{{0}}'}}}}}}}}"
    assert folder.warnings(agent.format(r"{{tool:Context.guide}} {{tool:Context.tools}} \{{tool:anything}}")) == []
    (line,) = folder.problems(agent.format("{{tool:Context.guid}}"))
    assert line == (
        "loomlog.yaml:1: agents.a.system_prompt: {{tool:Context.guid}} is no placeholder; there are "
        "{{tool:Context.tools}}, {{tool:Context.guide}}, {{tool:Context.capabilities}}, and a backslash before one "
        "keeps it as text"
    )


def test_placeholders_of_memory_are_known_by_name(folder: Folder):
    agent = f"agents: {{{{a: {{{{{PIN}, system_prompt: '{{0}}'}}}}}}}}"
    known = " ".join(f"{{{{memory:{name}}}}}" for name in PROMPT_PLACEHOLDERS)
    (tenant, user) = folder.warnings(agent.format(known + r" \{{memory:anything}}"))
    assert tenant == (
        "loomlog.yaml:1: agents.a.system_prompt: {{memory:tenant_info}} stays empty, "
        "because memory_scopes has no tenant"
    )
    assert "{{memory:user_info}} stays empty" in user
    granted = agent.format(known).replace("system_prompt", "memory_scopes: [user, tenant], system_prompt")
    assert folder.warnings(granted) == []
    (line,) = folder.problems(agent.format("{{memory:user_info}} {{memory:userinfo}}"))
    assert line.startswith("loomlog.yaml:1: agents.a.system_prompt: {{memory:userinfo}} is no placeholder; there are ")
    assert known.replace(" ", ", ") in line


def test_the_default_order_of_providers_is_not_checked_against_a_file_without_them(folder: Folder):
    assert folder.warnings("agents: {}", {"LOOMLOG_NO_DEFAULT_PROVIDERS": "1"}) == []


def test_an_agent_may_list_the_tool_of_a_family(folder: Folder):
    text = f"agents: {{a: {{{PIN}, tools: [Counter]}}, b: {{{PIN}, tools: ['Coun*']}}}}"
    assert [line.partition(": ")[2] for line in folder.problems(text)] == [
        "agents.a.tools[0]: Counter is not a tool (a list of names, or of beginnings with * at the end); "
        "did you mean Context?",
        "agents.b.tools[0]: Coun* matches no tool",
    ]
    folder.write(text)
    loaded = load({}, working_directory=folder.path, family_tools=["Counter"])
    assert loaded.configuration.agents["a"].tools == ("Counter",)


def test_a_remote_tool_cannot_be_called_like_that_of_a_family(folder: Folder):
    folder.write("remote_tools: {Counter: {description: counts, input_schema: {type: object}}}")
    with pytest.raises(ConfigurationError, match="Counter is the name of another tool"):
        load({}, working_directory=folder.path, family_tools=["Counter"])
    load({}, working_directory=folder.path)
