from pathlib import Path

import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import load
from loomlog.connectors.configuration.unsupported_keys import UNSUPPORTED_AGENT_KEYS
from tests.connectors.configuration.conftest import Folder

ROOT = Path(__file__).parents[3]


def test_the_example_of_the_issue_names_file_line_and_nearest_key(folder: Folder):
    text = "agents:\n  reviewer:\n    provider: mock\n    model: mock-generic\n    sytem_prompt: Review.\n"
    assert folder.problems(text) == [
        "loomlog.yaml:5: agents.reviewer.sytem_prompt is not a known key; did you mean system_prompt?"
    ]


def test_all_mistakes_of_form_of_all_files_are_reported_in_their_order(folder: Folder):
    folder.write("agents:\n  a: {tier: mid, max_tokens: many}\n  b: 5\nb: 1\n", "1.yaml")
    folder.write(
        "volumes:\n  v: {mode: rx}\n  v: {}\npricing: {models: {a/b: {input: 0.0000001, output: x}}}\n", "2.yaml"
    )
    assert folder.problems(None, {}, "1.yaml", "2.yaml") == [
        "1.yaml:2: agents.a.tier: 'mid' is not usable: expected 'low', 'middle' or 'high'; did you mean middle?",
        "1.yaml:2: agents.a.max_tokens: 'many' is not usable: expected a whole number",
        "1.yaml:3: agents.b: 5 is not usable: expected a mapping",
        "1.yaml:4: b is not a known key",
        "2.yaml:2: volumes.v.path is missing",
        "2.yaml:2: volumes.v.mode: 'rx' is not usable: expected 'ro' or 'rw'",
        "2.yaml:3: the key v is here for the second time; the first is in line 2",
        "2.yaml:4: pricing.models.a/b.input: 1E-7 is not usable: expected at most six digits after the point",
        "2.yaml:4: pricing.models.a/b.output: 'x' is not usable: expected a number",
    ]


def test_an_unknown_key_does_not_hide_what_does_not_fit_together(folder: Folder):
    text = "agents:\n  a: {provider: mock, model: m, volumes: [sorce], tols: []}\nvolumes: {source: {path: x}}\n"
    assert folder.problems(text) == [
        "loomlog.yaml:2: agents.a.tols is not a known key; did you mean tools?",
        "loomlog.yaml:2: agents.a.volumes[0]: there is no volume sorce; did you mean source?",
    ]


def test_a_list_is_not_also_called_short_when_its_items_are_wrong(folder: Folder):
    block = "principals: {{a: {{tenant: t, subject: s, scopes: [{0}], token_env: LOOMLOG_T}}}}"
    (line,) = folder.problems(block.format("substrate:amdin"))
    assert line.endswith("did you mean substrate:admin?")
    (line,) = folder.problems(block.format(""))
    assert line == "loomlog.yaml:1: principals.a.scopes: a list is not usable: expected at least one item"


def test_a_value_in_the_place_of_a_name_is_not_repeated(folder: Folder):
    for text in (
        "providers: {x: {driver: openai, api_key_env: sk-verysecret}}",
        "principals: {a: {tenant: t, subject: s, scopes: [runs:read], token_env: sk-verysecret}}",
    ):
        (line,) = folder.problems(text)
        assert "never its value" in line
        assert "sk-verysecret" not in line


def test_blocks_of_later_versions_are_accepted_with_one_warning_each(folder: Folder):
    text = """\
    webhooks:
      hook: {delivery: channel, channel: x, auth: {kind: hmac, signing_secret_env: LOOMCYCLE_HOOK_SECRET}}
    cache: {}
    search_priority: [brave]
    mcp_servers: {x: {transport: http, url: "http://a/${LOOMLOG_PART}", headers: {A: "Bearer ${LOOMLOG_BEARER}"}}}
    document_sources: {p: {tenancy_strategy: {env_pattern: "LOOMLOG_KEY_{tenant_id}"}}}
    interruption:
    """
    environ = {"LOOMCYCLE_HOOK_SECRET": "x" * 20, "LOOMLOG_PART": "p", "LOOMLOG_BEARER": "b", "LOOMLOG_KEY_ACME": "k"}
    loaded = folder.load(text, environ)
    assert [str(warning) for warning in loaded.warnings] == [
        "loomlog.yaml:3: cache is ignored: provider response cache is not in this version",
        "loomlog.yaml:4: search_priority is ignored: web search is not in this version",
        "loomlog.yaml:6: document_sources is ignored: documents is not in this version",
    ]
    assert loaded.secrets == {"LOOMCYCLE_HOOK_SECRET": "x" * 20}


def test_an_unknown_name_in_the_environment_stops_the_start_but_a_referenced_one_does_not(folder: Folder):
    text = "principals: {a: {tenant: t, subject: s, scopes: [runs:read], token_env: LOOMLOG_TEAM}}"
    assert folder.warnings(text, {"LOOMLOG_TEAM": "x"}) == []
    (line,) = folder.problems("agents: {}", {"LOOMLOG_TEAM": "x"})
    assert line.startswith("LOOMLOG_TEAM is not a setting")


def test_volume_paths_start_at_the_file_that_says_them(folder: Folder):
    folder.write(
        "volumes: {here: {path: data}, up: {path: ../x}, abs: {path: /srv/x}, home: {path: ~/y}}", "conf/a.yaml"
    )
    folder.write("volumes: {here: {mode: rw}}", "b.yaml")
    volumes = folder.load(None, {"HOME": "/home/ann"}, "conf/a.yaml", "b.yaml").configuration.volumes
    assert volumes["here"].path == str(folder.path / "conf" / "data")
    assert volumes["here"].mode == "rw"
    assert volumes["up"].path == str(folder.path / "x")
    assert volumes["abs"].path == "/srv/x"
    assert volumes["home"].path == "/home/ann/y"


def test_a_prompt_may_be_in_a_file_beside_the_one_that_says_so(folder: Folder):
    folder.write("Review.\n", "conf/prompts/review.md")
    folder.write("agents: {a: {provider: mock, model: m, system_prompt_file: prompts/review.md}}", "conf/a.yaml")
    assert folder.load(None, {}, "conf/a.yaml").configuration.agents["a"].system_prompt == "Review.\n"


@pytest.mark.parametrize(
    ("agent", "content", "words"),
    [
        ("system_prompt_file: p.md", None, "p.md cannot be read: No such file"),
        ("system_prompt_file: p.md", b"\xff", "p.md is not UTF-8"),
        ("system_prompt_file: p.md", b"x" * 131_073, "it has 131073 bytes"),
        ("system_prompt_file: p.md, system_prompt: y", b"x", "give one of them"),
    ],
)
def test_a_prompt_file_that_cannot_be_used_is_an_error(folder: Folder, agent: str, content: bytes | None, words: str):
    if content is not None:
        (folder.path / "p.md").write_bytes(content)
    (line,) = folder.problems(f"agents:\n  a: {{provider: mock, model: m, {agent}}}\n")
    assert line.startswith("loomlog.yaml:2: agents.a.system_prompt_file")
    assert words in line


def test_secrets_are_known_by_name_and_never_shown(folder: Folder):
    text = """\
    providers: {mine: {driver: openai, api_key_env: MY_KEY}}
    principals: {a: {tenant: t, subject: s, scopes: [runs:read], token_env: LOOMLOG_TEAM}}
    """
    environ = {
        "MY_KEY": "key-value-1",
        "LOOMLOG_TEAM": "team-value-1",
        "LOOMCYCLE_AUTH_TOKEN": "auth-value-1",
        "LOOMLOG_BASH_ALLOWED_CREDS": "NPM_TOKEN",
        "NPM_TOKEN": "npm-value-1",
        "OPENAI_API_KEY": "short",
        "LOOMLOG_LOG_LEVEL": "warning",
    }
    loaded = folder.load(text, environ)
    names = {"MY_KEY", "LOOMLOG_TEAM", "LOOMCYCLE_AUTH_TOKEN", "NPM_TOKEN"}
    assert loaded.secrets == {name: environ[name] for name in names}
    assert "-value-1" not in repr(loaded)


def test_the_example_in_the_repository_loads_without_a_word():
    loaded = load({}, working_directory=ROOT)
    assert [path.name for path in loaded.files] == ["loomlog.yaml"]
    assert loaded.warnings == ()
    assert load({"LOOMLOG_CONFIG_STRICT": "1"}, working_directory=ROOT).configuration == loaded.configuration


def test_everything_the_reference_knows_about_an_agent_is_accepted(folder: Folder):
    text = """\
    volumes: {work: {path: /w}}
    memory_backends: {m: {kind: inprocess}}
    agents:
      team/all_keys-1:
        description: d
        tier: middle
        effort: high
        providers: [mock]
        models: {middle: [{provider: mock, model: m, effort: low}]}
        system_prompt: s
        system_prompt_base: b
        tools: [Read, Glob]
        skills: ["+doc/*", -x]
        max_tokens: 1
        max_iterations: 2
        unbounded_iterations: yes
        max_concurrent_children: 3
        run_timeout_seconds: 4
        sampling: {temperature: 1, top_p: 0.5, top_k: 1, frequency_penalty: -2, presence_penalty: 2, seed: 7, stop: [x]}
        compaction: {enabled: true, target_percentage: 10, keep_last_n: 4, keep_first: true, model: m}
        volumes: [work]
        search_providers: [brave]
        memory_scopes: [agent, user]
        memory_quota_bytes: 1
        sql_scopes: [run]
        sql_quota_bytes: 1
        memory_backend: m
        core_blocks: [{label: l, scope: user, limit_bytes: 1, read_only: true}]
        inherit_core_blocks: true
        memory_inject_max_tokens: 1
        inject_tool_guide: true
        internal: true
        memory_protocol: true
        memory_consolidation: true
        memory_index_max_bytes: 1
        memory_roots: lazy
        channels: {publish: [a], subscribe: [b]}
        agent_def_scopes: [any]
        skill_def_scopes: [any]
        schedule_def_scopes: [any]
        a2a_server_card_def_scopes: [any]
        a2a_agent_def_scopes: [any]
        volume_def_scopes: [any]
        evaluation_scopes: [submit_any]
        history_scope: self
        disable_context: false
        interruption: {enabled: true, kinds: [question], max_pending: 1}
        retry_attempts: 0
    """
    loaded = folder.load(text)
    warned = [str(warning).split(": ")[1] for warning in loaded.warnings]
    assert sorted(warned) == [f"agents.team/all_keys-1.{key}" for key in UNSUPPORTED_AGENT_KEYS]
    agent = loaded.configuration.agents["team/all_keys-1"]
    assert agent.history_scope == ("self",)
    assert agent.unbounded_iterations is True
    assert agent.retry_attempts == 0


@pytest.mark.parametrize("name", ["a b", "a//b", "/a", "a/", "a/../b", "a*", "ä", "x" * 129])
def test_an_agent_name_that_could_be_mistaken_for_something_else_is_refused(folder: Folder, name: str):
    (line,) = folder.problems(f'agents:\n  "{name}": {{provider: mock, model: m}}\n')
    assert line.startswith("loomlog.yaml:2:")
    assert "is not a usable name" in line


def test_a_problem_is_one_exception_with_all_of_it(folder: Folder):
    folder.write("a: 1\nb: 2\n")
    with pytest.raises(ConfigurationError) as caught:
        folder.load()
    assert str(caught.value) == "loomlog.yaml:1: a is not a known key\nloomlog.yaml:2: b is not a known key"


@pytest.mark.parametrize("name", ["LOOMLOG_HELP_ROOT", "LOOMCYCLE_HELP_ROOT"])
def test_help_topics_of_the_operator_are_checked_at_the_start(folder: Folder, name: str):
    folder.write("---\n", "help/oncall.md")
    (line,) = folder.problems("agents: {}", {name: "help"})
    assert line.endswith("help/oncall.md is not usable: the header begins with --- and has no line --- at its end")
    (line,) = folder.problems("agents: {}", {name: "elsewhere"})
    assert line.endswith("elsewhere does not exist (LOOMLOG_HELP_ROOT)")
    folder.write("Call us.", "help/oncall.md")
    assert folder.warnings("agents: {}", {name: "help"}) == []
