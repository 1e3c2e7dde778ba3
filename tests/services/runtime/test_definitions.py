"""Agents of the configuration as what runs are pinned to."""

from pathlib import Path

import pytest

from connectors.blobs import MemoryBlobs
from connectors.configuration import Agent, Configuration, Unresolved, load, resolve_agent
from connectors.configuration.model import ProviderBlock
from schemas.values import AgentDefinition, VolumeGrant
from services.core.run.limits import RETRY_ATTEMPTS_MAX
from services.core.run.orders import Refusal
from services.runtime import definitions as definitions_module
from services.runtime.definitions import ConfiguredDefinitions, refusal, stored_scripts
from services.runtime.payloads import INLINE_TEXT_BYTES

TEXT = """\
provider_priority: [mock, openai]
user_tiers:
  default: {retry_attempts: 1}
  gold: {retry_attempts: 9}
tiers:
  low: [{provider: mock, model: small}]
volumes:
  source: {path: /src, default: true}
  out: {path: /out, mode: rw}
agents:
  helper:
    provider: mock
    model: m-1
    system_prompt: Be kind.
    tools: [Read, Bash]
    max_tokens: 99
    max_iterations: 7
    volumes: [source, out]
  tiered: {tier: low}
  elsewhere: {provider: openai, model: o-1}
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    (tmp_path / "loomlog.yaml").write_text(TEXT, encoding="utf-8")
    return load({}, working_directory=tmp_path, paths=[]).configuration


def test_an_agent_is_resolved_to_all_a_run_is_pinned_to(configuration: Configuration) -> None:
    found = ConfiguredDefinitions(configuration, ["mock"]).resolve("helper", tenant="t", user_tier="")
    assert isinstance(found, AgentDefinition)
    assert (found.name, found.provider, found.model, found.system_prompt) == ("helper", "mock", "m-1", "Be kind.")
    assert (found.max_tokens, found.max_iterations, found.retry_attempts) == (99, 7, 1)
    assert {"Read", "Bash"} <= set(found.tools)
    assert len(found.sha256) == 64
    assert found.volumes == (
        VolumeGrant(name="source", mode="ro", is_default=True),
        VolumeGrant(name="out", mode="rw", is_default=False),
    )


def test_the_plan_of_the_user_counts_and_retries_stay_within_their_bound(configuration: Configuration) -> None:
    definitions = ConfiguredDefinitions(configuration, ["mock"])
    found = definitions.resolve("helper", tenant="t", user_tier="gold")
    assert isinstance(found, AgentDefinition)
    assert found.retry_attempts == RETRY_ATTEMPTS_MAX
    again = definitions.resolve("helper", tenant="t", user_tier="")
    assert isinstance(again, AgentDefinition)
    assert again.retry_attempts == 1


@pytest.mark.parametrize(
    ("agent", "code"), [("nobody", "unknown_agent"), ("elsewhere", "pin_unavailable"), ("tiered", "tier_unavailable")]
)
def test_what_cannot_run_is_refused_with_a_code_and_a_reason(
    configuration: Configuration, agent: str, code: str
) -> None:
    usable = [] if agent == "tiered" else ["mock"]
    found = ConfiguredDefinitions(configuration, usable).resolve(agent, tenant="t", user_tier="")
    assert isinstance(found, Refusal)
    assert found.code == code
    assert found.message


def test_a_configuration_that_makes_no_sense_is_a_bad_request_to_the_caller() -> None:
    found = refusal(Unresolved(reason_code="invalid_argument", message="give both"))
    assert found == Refusal(code="bad_request", message="give both")


def test_a_resolved_agent_is_kept_and_refusals_are_not(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[str] = []
    resolve = resolve_agent

    def counted(configuration: Configuration, name: str, **more: object) -> object:
        resolved.append(name)
        return resolve(configuration, name, **more)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(definitions_module, "resolve_agent", counted)
    monkeypatch.setattr(definitions_module, "KEPT", 2)
    definitions = ConfiguredDefinitions(configuration, ["mock"])
    for number in range(5):
        definitions.resolve(f"made up {number}", tenant="t", user_tier="")
    resolved.clear()
    first = definitions.resolve("helper", tenant="t", user_tier="")
    assert definitions.resolve("helper", tenant="t", user_tier="") is first
    assert resolved == ["helper"]


async def test_code_agents_are_pinned_to_their_script_without_a_bound_of_turns_and_with_a_time_limit() -> None:
    short, long = "function run() {}", "function run() {} //" + "x" * INLINE_TEXT_BYTES
    agents = {
        "short": Agent(provider="code-js", code_body=short, max_iterations=3),
        "long": Agent(provider="code-js", code_body=long, run_timeout_seconds=7),
        "model": Agent(provider="mock", model="m"),
    }
    providers = {name: ProviderBlock(driver=name) for name in ("code-js", "mock")}
    configuration = Configuration(agents=agents, providers=providers)
    blobs = MemoryBlobs()
    definitions = ConfiguredDefinitions(
        configuration,
        ["code-js", "mock"],
        unbounded=["code-js"],
        time_limits_s={"code-js": 120},
        scripts=await stored_scripts(configuration, blobs),
    )
    found = {name: definitions.resolve(name, tenant="t", user_tier="") for name in agents}
    assert all(isinstance(one, AgentDefinition) for one in found.values())
    pinned = {name: one for name, one in found.items() if isinstance(one, AgentDefinition)}
    assert (pinned["short"].code_body, pinned["short"].code_blob) == (short, None)
    assert pinned["long"].code_body == ""
    assert pinned["long"].code_blob is not None
    assert (await blobs.get(pinned["long"].code_blob)).decode() == long
    assert [one.unbounded_iterations for one in pinned.values()] == [True, True, False]
    assert [one.run_timeout_s for one in pinned.values()] == [120, 7, 0]
