from pathlib import Path

import pytest

from loomlog.connectors.configuration.code_bodies import MAX_CODE_BYTES
from loomlog.connectors.configuration.providers import build_providers
from loomlog.connectors.configuration.resolve import ResolvedAgent, UnresolvedAgent, resolve_agent
from loomlog.connectors.models.catalog import build_model
from tests.connectors.configuration.conftest import Folder

ON = {"LOOMLOG_CODE_AGENTS_ENABLED": "1"}
SCRIPT = "function run(input) { return input.prompt }"
OF_A_FOLDER = "agents: {team/greeter: {provider: code-js}}"


def written(folder: Folder, name: str, text: str = SCRIPT, root: str = "agent_code") -> Path:
    return folder.write(text, f"{root}/{name}/index.js")


def resolved(
    folder: Folder, text: str, name: str, environ: dict[str, str] | None = None
) -> ResolvedAgent | UnresolvedAgent:
    configuration = folder.load(text, ON if environ is None else environ).configuration
    return resolve_agent(configuration, name, usable=["code-js", "mine"])


def agent(folder: Folder, text: str, name: str) -> ResolvedAgent:
    actual = resolved(folder, text, name)
    assert isinstance(actual, ResolvedAgent)
    return actual


def test_a_script_in_the_file_is_the_agents(folder: Folder):
    resolved_agent = agent(folder, f"agents: {{a: {{code_body: '{SCRIPT}', run_timeout_seconds: 9}}}}", "a")
    assert (resolved_agent.code_body, resolved_agent.provider, resolved_agent.model, resolved_agent.run_timeout_s) == (
        SCRIPT,
        "code-js",
        "code-js",
        9,
    )


def test_a_script_lies_in_the_folder_with_the_agents_name(folder: Folder):
    written(folder, "team/greeter")
    assert agent(folder, OF_A_FOLDER, "team/greeter").code_body == SCRIPT


def test_an_agent_may_name_another_folder(folder: Folder):
    written(folder, "shared")
    for name in ("a", "b"):
        assert agent(folder, "agents: {a: {code: shared}, b: {code: shared}}", name).code_body == SCRIPT


def test_the_operator_says_where_scripts_lie(folder: Folder):
    written(folder, "team/greeter", root="elsewhere")
    actual = resolved(folder, OF_A_FOLDER, "team/greeter", {**ON, "LOOMCYCLE_CODE_AGENTS_ROOT": "elsewhere"})
    assert isinstance(actual, ResolvedAgent)


def test_a_provider_of_ones_own_can_run_code(folder: Folder):
    text = f"providers: {{mine: {{driver: code-js}}}}\nagents: {{a: {{provider: mine, code_body: '{SCRIPT}'}}}}"
    assert agent(folder, text, "a").provider == "mine"


def test_another_script_is_another_definition(folder: Folder):
    one, other, none = (
        agent(folder, f"agents: {{a: {{provider: code-js, code_body: '{body}'}}}}", "a").definition_sha256
        for body in (SCRIPT, SCRIPT + " ", SCRIPT + "//")
    )
    assert len({one, other, none}) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OF_A_FOLDER, "agent_code/team/greeter/index.js cannot be read: No such file"),
        ("agents: {a: {code: ../secret}}", "is no folder of scripts"),
        ("agents: {a: {code: /etc}}", "is no folder of scripts"),
        ("agents: {a: {code: linked}}", "leads out of the folder of scripts"),
        ("agents: {a: {code: empty}}", "is empty"),
        ("agents: {a: {code: binary}}", "is not UTF-8"),
        ("agents: {a: {code: long}}", f"at most {MAX_CODE_BYTES} are taken"),
        ("agents: {a: {code: x, code_body: y}}", "give one of them"),
        ("agents: {a: {code_body: x, provider: mock, model: m}}", "its provider has to be one with the driver code-js"),
        ("agents: {a: {code_body: x, tier: low}}\ntiers: {low: [{provider: mock, model: m}]}", "it has no tier"),
    ],
)
def test_what_is_wrong_with_a_script_is_said_at_the_start(folder: Folder, text: str, words: str):
    folder.write(SCRIPT, "secret/index.js")
    written(folder, "empty", " \n")
    written(folder, "long", "x" * (MAX_CODE_BYTES + 1))
    written(folder, "binary").write_bytes(b"\xff\xfe")
    (folder.path / "agent_code" / "linked").symlink_to(folder.path / "secret")
    (line,) = folder.problems(text, ON)
    assert words in line
    assert "agents.a" in line or "agents.team/greeter" in line


def test_scripts_are_not_read_and_cannot_run_where_they_are_not_allowed(folder: Folder):
    actual = resolved(folder, OF_A_FOLDER, "team/greeter", {})
    assert isinstance(actual, ResolvedAgent)
    assert actual.code_body == ""
    (warning,) = folder.warnings(OF_A_FOLDER)
    assert "agents.team/greeter is a code agent; it cannot run without LOOMLOG_CODE_AGENTS_ENABLED=1" in warning
    loaded = folder.load(OF_A_FOLDER)
    provider = build_providers(loaded.configuration, loaded.settings, {})["code-js"]
    assert not provider.is_usable
    assert "LOOMLOG_CODE_AGENTS_ENABLED" in provider.unusable_reason


def test_the_driver_is_built_with_the_settings(folder: Folder):
    loaded = folder.load("", {**ON, "LOOMCYCLE_CODE_AGENTS_RUN_TIMEOUT_SECONDS": "7"})
    provider = build_providers(loaded.configuration, loaded.settings, {})["code-js"]
    assert provider.options == {"run_timeout_seconds": 7, "deterministic": False}
    model = build_model(provider)
    assert (model.capabilities.unbounded_iterations, model.capabilities.metadata_via_input) == (True, True)
