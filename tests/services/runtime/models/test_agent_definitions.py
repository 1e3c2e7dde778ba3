"""Agents of the configuration as what runs are pinned to."""

from pathlib import Path
from typing import Any, cast

import pytest

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.load import load
from loomlog.connectors.configuration.model import Configuration, ProviderBlock
from loomlog.connectors.configuration.resolve import UnresolvedAgent, resolve_agent
from loomlog.connectors.protocols import VolumeBinding
from loomlog.schemas.generated.stream_records import ModelMarked, ProviderProbed
from loomlog.schemas.generated.values import AgentDefinition, AgentGrants, ModelChoice, VolumeGrant
from loomlog.services.core.availability import AvailabilityTable
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.core.run.limits import RETRY_ATTEMPTS_MAX
from loomlog.services.core.run.subagents.children import INHERITED_VOLUMES
from loomlog.services.runtime.models import agent_definitions as definitions_module
from loomlog.services.runtime.models.agent_definitions import AgentDefinitions, to_refusal

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
    actual = AgentDefinitions(configuration, ["mock"]).resolve("helper", tenant="t", user_tier="")
    assert isinstance(actual, AgentDefinition)
    assert (actual.name, actual.provider, actual.model, actual.system_prompt) == ("helper", "mock", "m-1", "Be kind.")
    assert (actual.max_tokens, actual.max_iterations, actual.retry_attempts) == (99, 7, 1)
    assert {"Read", "Bash"} <= set(actual.tools)
    assert len(actual.sha256) == 64
    assert actual.volumes == (
        VolumeGrant(name="source", mode="ro", is_default=True),
        VolumeGrant(name="out", mode="rw", is_default=False),
    )


def test_what_an_agent_may_use_is_pinned_and_a_default_takes_no_space(tmp_path: Path) -> None:
    (tmp_path / "loomlog.yaml").write_text(
        "user_tiers: {default: {max_fallback_attempts: 3}, gold: {max_fallback_attempts: 4}}\n"
        "agents: {helper: {provider: mock, model: m, skills: [tidy], max_concurrent_children: 4}}\n"
    )
    known = AgentDefinitions(load({}, working_directory=tmp_path, paths=[]).configuration, ["mock"])
    plain = known.resolve("helper", tenant="t", user_tier="")
    gold = known.resolve("helper", tenant="t", user_tier="gold")
    assert isinstance(plain, AgentDefinition)
    assert isinstance(gold, AgentDefinition)
    assert plain.grants == AgentGrants(skills=("tidy",))
    assert (plain.max_concurrent_children, plain.rate_limit_cooldown_ms) == (0, 0)
    assert (plain.max_fallback_attempts, gold.max_fallback_attempts) == (0, 4)


def test_the_plan_of_the_user_counts_and_retries_stay_within_their_bound(configuration: Configuration) -> None:
    definitions = AgentDefinitions(configuration, ["mock"])
    actual = definitions.resolve("helper", tenant="t", user_tier="gold")
    assert isinstance(actual, AgentDefinition)
    assert actual.retry_attempts == RETRY_ATTEMPTS_MAX
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
    actual = AgentDefinitions(configuration, usable).resolve(agent, tenant="t", user_tier="")
    assert isinstance(actual, CommandRefusal)
    assert actual.code == code
    assert actual.message


def test_a_configuration_that_makes_no_sense_is_a_bad_request_to_the_caller() -> None:
    refusal = to_refusal(UnresolvedAgent(reason_code="invalid_argument", message="give both"))
    assert refusal == CommandRefusal(code="bad_request", message="give both")


def test_a_resolved_agent_is_kept_and_refusals_are_not(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[str] = []
    resolve = resolve_agent

    def counted(configuration: Configuration, name: str, **more: object) -> object:
        resolved.append(name)
        return resolve(configuration, name, **more)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(definitions_module, "resolve_agent", counted)
    monkeypatch.setattr(definitions_module, "CACHE_MAX", 2)
    definitions = AgentDefinitions(configuration, ["mock"])
    for number in range(5):
        definitions.resolve(f"made up {number}", tenant="t", user_tier="")
    resolved.clear()
    first = definitions.resolve("helper", tenant="t", user_tier="")
    assert definitions.resolve("helper", tenant="t", user_tier="") is first
    assert resolved == ["helper"]


# --- with what is known of the models --------------------------------------------------------------------------------

TIERED = """\
provider_priority: [mock, mock-stable]
user_tiers:
  default: {fallback_on_error: true, max_fallback_attempts: 4, rate_limit_cooldown_ms: 5000}
tiers:
  low: [{provider: mock, model: small, effort: low}, {provider: mock-stable, model: small}]
models:
  newest: {provider: mock, model_pattern: "small-*"}
agents:
  tiered: {tier: low}
  pinned: {provider: mock, model: small}
  pattern: {model: newest}
"""
NOW = 1_000


class Known:
    """What definitions are told, and a clock."""

    def __init__(self, folder: Path, **more: Any) -> None:
        (folder / "loomlog.yaml").write_text(TIERED, encoding="utf-8")
        configuration = load({}, working_directory=folder, paths=[]).configuration
        self.matrix = AvailabilityTable()
        self.now_ms = NOW
        self.definitions = AgentDefinitions(
            configuration,
            ["mock", "mock-stable"],
            availability_table=lambda: self.matrix,
            clock_ms=lambda: self.now_ms,
            **more,
        )

    def model(self, agent: str = "tiered") -> str:
        actual = self.definitions.resolve(agent, tenant="t", user_tier="")
        return actual.code if isinstance(actual, CommandRefusal) else f"{actual.provider}/{actual.model}"


@pytest.fixture
def known(tmp_path: Path) -> Known:
    return Known(tmp_path)


def test_a_run_starts_where_a_model_can_be_called(known: Known) -> None:
    assert known.model() == "mock/small"
    known.matrix = known.matrix.apply(ModelMarked(provider="mock", model="small", mark="stalled", at_ms=NOW))
    assert known.model() == "mock-stable/small"
    assert known.model("pinned") == "mock/small"
    known.matrix = known.matrix.apply(ModelMarked(provider="mock", model="small", mark="recovered", at_ms=NOW))
    assert known.model() == "mock/small"


def test_the_end_of_a_rate_limit_is_noticed_without_a_record(known: Known) -> None:
    mark = ModelMarked(provider="mock", model="small", mark="rate_limited", until_ms=NOW + 10, at_ms=NOW)
    known.matrix = known.matrix.apply(mark)
    assert known.model() == "mock-stable/small"
    known.now_ms = NOW + 9
    assert known.model() == "mock-stable/small"
    known.now_ms = NOW + 10
    assert known.model() == "mock/small"


def test_a_tier_of_which_nothing_can_be_called_is_unavailable(known: Known) -> None:
    for provider in ("mock", "mock-stable"):
        known.matrix = known.matrix.apply(ProviderProbed(provider=provider, reachable=False, at_ms=NOW))
    assert known.model() == "tier_unavailable"


def test_a_pattern_means_the_newest_that_is_listed_and_a_move_is_said(
    known: Known, caplog: pytest.LogCaptureFixture
) -> None:
    assert known.model("pattern") == "pin_unavailable"
    for models in (("small-1",), ("small-1", "small-2"), ("small-2",)):
        known.matrix = known.matrix.apply(ProviderProbed(provider="mock", reachable=True, models=models, at_ms=NOW))
        assert known.model("pattern") == f"mock/{models[-1]}"
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["mock/small-* means small-2 from now on, and meant small-1"]


def test_what_a_fallback_needs_is_pinned_with_the_run(tmp_path: Path) -> None:
    actual = Known(tmp_path, pins_after_success=True).definitions.resolve("tiered", tenant="t", user_tier="")
    assert isinstance(actual, AgentDefinition)
    assert actual.candidates == (
        ModelChoice(provider="mock", model="small", effort="low"),
        ModelChoice(provider="mock-stable", model="small"),
    )
    assert (actual.fallback_on_error, actual.max_fallback_attempts, actual.rate_limit_cooldown_ms) == (True, 4, 5_000)
    assert actual.pin_after_success


def test_a_pinned_model_has_no_candidates(known: Known) -> None:
    actual = known.definitions.resolve("pinned", tenant="t", user_tier="")
    assert isinstance(actual, AgentDefinition)
    assert actual.candidates == ()


def test_a_definition_is_kept_while_nothing_changes(known: Known) -> None:
    first = known.definitions.resolve("tiered", tenant="t", user_tier="")
    known.now_ms += 10**6
    assert known.definitions.resolve("tiered", tenant="t", user_tier="") is first


@pytest.mark.parametrize(
    ("model", "provider_and_model"),
    [("", ("", "")), ("small", ("", "small")), ("summaries", ("mock", "m-2")), ("away", ("", ""))],
)
def test_the_model_of_a_summary_is_an_alias_or_one_of_the_agents_provider(
    tmp_path: Path, model: str, provider_and_model: tuple[str, str]
) -> None:
    text = f"""
models:
  summaries: {{provider: mock, model: m-2}}
  away: {{provider: openai, model: o-1}}
agents:
  helper:
    provider: mock
    model: m-1
    compaction: {{enabled: true, keep_last_n: 2, model: "{model}"}}
"""
    (tmp_path / "loomlog.yaml").write_text(text, encoding="utf-8")
    loaded = load({}, working_directory=tmp_path, paths=[]).configuration
    actual = AgentDefinitions(loaded, {"mock"}).resolve("helper", tenant="t", user_tier="")
    assert isinstance(actual, AgentDefinition)
    assert actual.compaction is not None
    assert (actual.compaction.provider, actual.compaction.model) == provider_and_model
    assert (actual.compaction.enabled, actual.compaction.keep_last_n, actual.compaction.keep_first) == (True, 2, True)


def test_code_agents_are_pinned_to_their_script_without_a_bound_of_turns_and_with_a_time_limit() -> None:
    short, long = "function run() {}", "function run() {} //" + "x" * 100_000
    agents = {
        "short": AgentBlock(provider="code-js", code_body=short, max_iterations=3),
        "long": AgentBlock(provider="code-js", code_body=long, run_timeout_seconds=7),
        "model": AgentBlock(provider="mock", model="m"),
    }
    providers = {name: ProviderBlock(driver=name) for name in ("code-js", "mock")}
    configuration = Configuration(agents=agents, providers=providers)
    definitions = AgentDefinitions(
        configuration,
        ["code-js", "mock"],
        unbounded_providers=["code-js"],
        time_limits_s={"code-js": 120},
    )
    actual = {name: definitions.resolve(name, tenant="t", user_tier="") for name in agents}
    assert all(isinstance(one, AgentDefinition) for one in actual.values())
    pinned = {name: one for name, one in actual.items() if isinstance(one, AgentDefinition)}
    assert [one.code_body for one in pinned.values()] == [short, long, ""]
    assert [one.unbounded_iterations for one in pinned.values()] == [True, True, False]
    assert [one.run_timeout_s for one in pinned.values()] == [120, 7, 0]


# --- whoever may not use the operator's keys -------------------------------------------------------------------------

KEYED = """\
user_tiers: {default: {fallback_on_error: true}}
tiers:
  low: [{provider: openai, model: o-1}, {provider: anthropic, model: a-1}]
agents:
  tiered: {tier: low}
  pinned: {provider: openai, model: o-1}
  mocked: {provider: mock, model: m-1}
"""
KEY_NAMES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


@pytest.fixture
def keyed(tmp_path: Path) -> AgentDefinitions:
    (tmp_path / "loomlog.yaml").write_text(KEYED, encoding="utf-8")
    configuration = load({}, working_directory=tmp_path, paths=[]).configuration
    return AgentDefinitions(configuration, ["openai", "anthropic", "mock"], key_names=KEY_NAMES)


def places(found: AgentDefinition | CommandRefusal) -> list[str]:
    assert isinstance(found, AgentDefinition)
    return [choice.provider for choice in found.candidates] or [found.provider]


def restricted(definitions: AgentDefinitions, agent: str, *names: str) -> AgentDefinition | CommandRefusal:
    return definitions.resolve(agent, tenant="t", user_tier="", credentials=names, operator_key_restricted=True)


def test_only_providers_that_need_no_key_or_for_which_it_has_one_are_left(keyed: AgentDefinitions) -> None:
    def found(agent: str, *keys: str) -> list[str]:
        return places(restricted(keyed, agent, *keys))

    assert places(keyed.resolve("tiered", tenant="t", user_tier="")) == ["openai", "anthropic"]
    assert found("tiered", "ANTHROPIC_API_KEY") == ["anthropic"]
    assert found("tiered", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "git") == ["openai", "anthropic"]
    assert found("mocked") == ["mock"]
    assert places(keyed.resolve("tiered", tenant="t", user_tier="")) == ["openai", "anthropic"]


def test_providers_are_those_with_a_key_here_and_those_that_runs_may_bring_one_for(tmp_path: Path) -> None:
    configuration = load({}, working_directory=tmp_path, paths=[]).configuration
    definitions = AgentDefinitions(configuration, ["mock"], key_names={"openai": "OPENAI_API_KEY"})
    assert definitions.providers() == {"mock", "openai"}


def test_when_none_is_left_the_refusal_says_which_keys_would_do(keyed: AgentDefinitions) -> None:
    refused = restricted(keyed, "tiered", "git")
    assert isinstance(refused, CommandRefusal)
    assert refused.code == "operator_key_restricted"
    assert refused.message.endswith("as the credential OPENAI_API_KEY or ANTHROPIC_API_KEY")
    pinned = restricted(keyed, "pinned")
    assert isinstance(pinned, CommandRefusal)
    assert (pinned.code, pinned.message[-14:]) == ("operator_key_restricted", "OPENAI_API_KEY")


def test_what_is_wrong_anyway_is_said_first(keyed: AgentDefinitions) -> None:
    actual = restricted(keyed, "nobody")
    assert isinstance(actual, CommandRefusal)
    assert actual.code == "unknown_agent"


DESCRIBED = """\
agents:
  plain: {provider: mock, model: m-1, system_prompt: 'Be kind.', tools: [Read, Bash]}
  guided: {provider: mock, model: m-1, system_prompt: 'Be kind.', tools: [Read, Bash], inject_tool_guide: true}
  listing: {provider: mock, model: m-1, system_prompt: 'Use {{tool:Context.tools}}.', tools: [Read, Bash]}
"""


def describing(tmp_path: Path) -> AgentDefinitions:
    """Definitions whose placeholders become the names of the tools."""
    (tmp_path / "loomlog.yaml").write_text(DESCRIBED, encoding="utf-8")
    known = AgentDefinitions(load({}, working_directory=tmp_path, paths=[]).configuration, ["mock"])
    known.fill_prompt = lambda prompt, tools: prompt.replace("{{tool:Context.guide}}", "+".join(tools)).replace(
        "{{tool:Context.tools}}", "/".join(tools)
    )
    return known


def prompt_of(known: AgentDefinitions, agent: str, tools: tuple[str, ...] | None = None) -> str:
    actual = known.resolve(agent, tenant="t", user_tier="", tools=tools)
    assert isinstance(actual, AgentDefinition)
    assert {"Read", "Bash"} <= set(actual.tools)
    return actual.system_prompt


def test_a_prompt_describes_the_tools_of_the_run(tmp_path: Path) -> None:
    known = describing(tmp_path)
    assert prompt_of(known, "plain", ("Read",)) == "Be kind."
    assert prompt_of(known, "guided") == "Be kind.\n\nRead+Bash+Context"
    assert prompt_of(known, "listing") == "Use Read/Bash/Context."
    assert prompt_of(known, "listing", ("Re*",)) == "Use Read."
    assert prompt_of(known, "listing", ()) == "Use ."
    assert prompt_of(known, "listing") == "Use Read/Bash/Context."


def test_choices_of_tools_do_not_fill_the_cache(tmp_path: Path) -> None:
    known = describing(tmp_path)
    for number in range(20):
        prompt_of(known, "listing", ("Read", f"other_{number}"))
        prompt_of(known, "plain", (f"other_{number}",))
    assert len(known._cache) == 1


def test_the_guide_is_part_of_the_hash_of_the_definition(tmp_path: Path) -> None:
    (tmp_path / "loomlog.yaml").write_text(DESCRIBED, encoding="utf-8")
    hashes = set()
    for text in (DESCRIBED, DESCRIBED.replace("inject_tool_guide: true", "inject_tool_guide: false")):
        (tmp_path / "loomlog.yaml").write_text(text, encoding="utf-8")
        known = AgentDefinitions(load({}, working_directory=tmp_path, paths=[]).configuration, ["mock"])
        hashes.add(known.resolve("guided", tenant="t", user_tier="").sha256)  # type: ignore[union-attr]
    assert len(hashes) == 2


class MadeVolumes:
    """The volumes that were made at run time, by tenant and name, as a table of definitions has them."""

    def __init__(self) -> None:
        self.modes: dict[tuple[str, str], str] = {}

    def has_skills(self, tenant: str) -> bool:
        return False

    def has_volumes(self, tenant: str) -> bool:
        return bool(self.modes)

    def find(self, agent: str, tenant: str, def_id: str) -> None:
        return None

    def volume(self, tenant: str, name: str) -> VolumeBinding | None:
        mode = self.modes.get((tenant, name))
        return None if mode is None else VolumeBinding(name=name, path=f"/pool/{tenant}/{name}", mode=mode)


def test_volumes_are_those_that_there_are_for_the_tenant_now(tmp_path: Path) -> None:
    text = """\
agents:
  named: {provider: mock, model: m, volumes: [notes, work]}
  bare: {provider: mock, model: m}
volumes: {work: {path: /work, mode: rw, dynamic_root: true}}
"""
    (tmp_path / "loomlog.yaml").write_text(text, encoding="utf-8")
    definitions = AgentDefinitions(load({}, working_directory=tmp_path, paths=[]).configuration, ["mock"])
    made = MadeVolumes()
    definitions.versions = cast(Any, made)

    def volumes(agent: str, tenant: str = "acme", **more: Any) -> list[tuple[str, str]]:
        definition = definitions.resolve(agent, tenant=tenant, user_tier="", **more)
        assert isinstance(definition, AgentDefinition)
        return [(one.name, one.mode) for one in definition.volumes]

    assert volumes("named") == [("work", "rw")]
    assert volumes("bare") == []
    made.modes = {("acme", "notes"): "rw", ("acme", "default"): "ro", ("other", "work"): "ro"}
    assert volumes("named") == [("notes", "rw"), ("work", "rw")]
    assert volumes("bare") == [("default", "ro")]
    assert volumes("named", "other") == [("work", "rw")]
    assert volumes("bare", "other") == []
    assert volumes("bare", is_child=True) == [(one.name, one.mode) for one in INHERITED_VOLUMES]
    assert volumes("named", is_child=True) == [("notes", "rw"), ("work", "rw")]
    made.modes["acme", "notes"] = "ro"
    assert volumes("named") == [("notes", "ro"), ("work", "rw")]
    del made.modes["acme", "notes"]
    assert volumes("named") == [("work", "rw")]


def test_an_agent_without_volumes_has_the_one_named_default(tmp_path: Path) -> None:
    text = """\
agents:
  bare: {provider: mock, model: m}
  named: {provider: mock, model: m, volumes: [other]}
volumes: {default: {path: /work, mode: rw}, other: {path: /other, default: true}}
"""
    (tmp_path / "loomlog.yaml").write_text(text, encoding="utf-8")
    definitions = AgentDefinitions(load({}, working_directory=tmp_path, paths=[]).configuration, ["mock"])
    for agent, name in (("bare", "default"), ("named", "other")):
        definition = definitions.resolve(agent, tenant="t", user_tier="")
        assert isinstance(definition, AgentDefinition)
        assert [(one.name, one.is_default) for one in definition.volumes] == [(name, True)]
