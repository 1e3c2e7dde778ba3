"""Providers for which only runs have a key: who may go there, and that nobody else touches them."""

from collections.abc import Collection
from pathlib import Path

import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import ProcessConfiguration, load
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.generated.stream_records import ModelMarked, ProbeRequested, ProviderProbed
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.families.process_start import check_tiers_of_runtime
from loomlog.services.runtime.models.availability import ModelTraits
from loomlog.services.runtime.models.routing import Routing, model_traits
from tests.services.core.run.given import NOW, erred
from tests.services.families.identity.stored import Stored
from tests.services.runtime.content.test_run_credentials import Store
from tests.services.runtime.models.test_availability import Replica, state
from tests.services.runtime.models.test_provider_keys import NAME, REPLY, THEIRS, asking, working
from tests.services.stream.given import CODEC

TEXT = """\
providers:
  mock: { driver: mock, options: { enabled: true } }
  gateway: { driver: openai, base_url: "http://127.0.0.1:9/v1", api_key_env: GATEWAY_KEY }
provider_priority: [anthropic, openai, mock]
user_tiers: { default: { fallback_on_error: true } }
models:
  newest: { provider: anthropic, model_pattern: "a-*" }
tiers:
  low: [{provider: anthropic, model: a-1}, {provider: openai, model: o-1}, {provider: mock, model: m-1}]
agents:
  tiered: { tier: low }
  pinned: { provider: gateway, model: g-1 }
  pattern: { model: newest }
  summing: { tier: low, compaction: { enabled: true, model: large } }
"""
SECRET = {"LOOMLOG_SECRET_KEY": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}
OPERATORS = {"OPENAI_API_KEY": "sk-of-the-operator"}


def loaded(folder: Path, text: str = TEXT, environ: dict[str, str] = SECRET) -> ProcessConfiguration:
    (folder / "loomlog.yaml").write_text(text, encoding="utf-8")
    return load(environ, working_directory=folder, paths=[])


def routing(folder: Path, text: str = TEXT, environ: dict[str, str] = SECRET, **operators: str) -> Routing:
    return Routing(
        loaded(folder, text, environ),
        OPERATORS | operators,
        codec=CODEC,
        appender=MemoryLog({"providers": 1}),
        clock_ms=lambda: NOW,
        name="one",
        topic="providers",
    )


@pytest.fixture
def made(tmp_path: Path) -> Routing:
    return routing(tmp_path)


def resolved(
    made: Routing, agent: str, *credentials: str, restricted: bool = False
) -> AgentDefinition | CommandRefusal:
    return made.definitions.resolve(
        agent, tenant="t", user_tier="", credentials=credentials, operator_key_restricted=restricted
    )


def places(found: AgentDefinition | CommandRefusal) -> list[str]:
    assert isinstance(found, AgentDefinition), found
    return [choice.provider for choice in found.candidates] or [found.provider]


def refused(found: AgentDefinition | CommandRefusal) -> CommandRefusal:
    assert isinstance(found, CommandRefusal)
    return found


# --- at the start ----------------------------------------------------------------------------------------------------


def test_a_run_that_brings_the_key_has_the_provider_among_its_candidates_in_their_order(made: Routing) -> None:
    assert places(resolved(made, "tiered", "ANTHROPIC_API_KEY", "git")) == ["anthropic", "openai", "mock"]
    assert places(resolved(made, "tiered", "git")) == ["openai", "mock"], "and no other run"
    assert places(resolved(made, "tiered")) == ["openai", "mock"]


def test_a_pinned_model_needs_the_key_and_the_refusal_names_the_credential(made: Routing) -> None:
    assert places(resolved(made, "pinned", "GATEWAY_KEY")) == ["gateway"]
    without = refused(resolved(made, "pinned", "ANTHROPIC_API_KEY"))
    assert without.code == "pin_unavailable"
    assert without.message.endswith("send a key of yours with the request, as the credential GATEWAY_KEY")


def test_who_may_not_use_the_operators_keys_hears_of_every_key_that_would_do(made: Routing, tmp_path: Path) -> None:
    assert places(resolved(made, "tiered", restricted=True)) == ["mock"]
    assert places(resolved(made, "tiered", "ANTHROPIC_API_KEY", restricted=True)) == ["anthropic", "mock"]
    assert places(resolved(made, "pinned", "GATEWAY_KEY", restricted=True)) == ["gateway"]
    keyed_only = routing(tmp_path, TEXT.replace(", {provider: mock, model: m-1}", ""))
    refusal = refused(resolved(keyed_only, "tiered", restricted=True))
    assert refusal.code == "operator_key_restricted"
    assert refusal.message.endswith("as the credential ANTHROPIC_API_KEY or OPENAI_API_KEY")


def test_a_key_that_came_is_not_asked_for_again(tmp_path: Path) -> None:
    text = TEXT.replace("mock, model: m-1", "gateway, model: g-1").replace("openai, mock]", "openai, gateway]")
    made = routing(tmp_path, text, GATEWAY_KEY="sk-of-the-operator")
    made.global_table.apply_locally(ModelMarked(provider="openai", model="o-1", mark="stalled", at_ms=NOW))
    assert places(resolved(made, "tiered", "OPENAI_API_KEY"))[0] == "gateway"
    refusal = refused(resolved(made, "tiered", "OPENAI_API_KEY", restricted=True))
    assert refusal.code == "operator_key_restricted"
    assert refusal.message.endswith("as the credential ANTHROPIC_API_KEY or GATEWAY_KEY")


def test_a_run_that_may_use_the_operators_key_is_not_asked_for_one_of_its_own(tmp_path: Path) -> None:
    made = routing(
        tmp_path, TEXT.replace("[{provider: anthropic, model: a-1}, ", "[").replace("openai, mock]", "openai]")
    )
    made.global_table.apply_locally(
        ModelMarked(provider="openai", model="o-1", mark="rate_limited", until_ms=NOW + 1_000, at_ms=NOW)
    )
    refusal = refused(resolved(made, "tiered"))
    assert (refusal.code, "credential" in refusal.message) == ("tier_unavailable", False)


def test_without_a_key_of_the_operators_a_restricted_run_lacks_a_key_and_no_right(made: Routing) -> None:
    refusal = refused(resolved(made, "pinned", restricted=True))
    assert refusal.code == "pin_unavailable"
    assert refusal.message.endswith("as the credential GATEWAY_KEY")


def test_without_a_secret_key_no_run_brings_anything_so_nothing_is_as_if_it_did(tmp_path: Path) -> None:
    made = routing(tmp_path, environ={})
    assert sorted(made.models) == ["mock", "ollama-local", "openai"]
    assert places(resolved(made, "tiered", "ANTHROPIC_API_KEY")) == ["openai", "mock"]
    assert "credential" not in refused(resolved(made, "pinned")).message


def test_a_summary_by_an_alias_goes_there_only_with_the_key(tmp_path: Path) -> None:
    text = TEXT.replace("models:\n", "models:\n  large: { provider: anthropic, model: a-9 }\n")
    made = routing(tmp_path, text)

    def summaries(*credentials: str) -> str:
        actual = resolved(made, "summing", *credentials)
        assert isinstance(actual, AgentDefinition)
        assert actual.compaction is not None
        return actual.compaction.provider

    assert (summaries("ANTHROPIC_API_KEY"), summaries()) == ("anthropic", "")


# --- what is known of them -------------------------------------------------------------------------------------------


def test_they_are_never_probed_or_asked_for_a_list(made: Routing) -> None:
    assert "anthropic" in made.models
    assert sorted(made.prober.due_probes(NOW)[1]) == ["mock", "ollama-local", "openai"]
    made.global_table.apply_locally(ProbeRequested(request_id="p1", at_ms=NOW))
    request, asked = made.prober.due_probes(NOW)
    assert (request, sorted(asked)) == ("p1", ["mock", "ollama-local", "openai"])
    assert made.unlisted_providers() == ()


def test_a_pattern_means_nothing_there_even_if_they_were_listed_once(made: Routing) -> None:
    made.global_table.apply_locally(ProviderProbed(provider="anthropic", reachable=True, models=("a-2",), at_ms=NOW))
    assert refused(resolved(made, "pattern", "ANTHROPIC_API_KEY")).code == "pin_unavailable"


def test_what_was_known_of_them_before_shuts_them_for_nobody(made: Routing) -> None:
    made.global_table.apply_locally(ProviderProbed(provider="anthropic", reachable=False, models=("other",), at_ms=NOW))
    made.global_table.apply_locally(ModelMarked(provider="anthropic", model="a-1", mark="stalled", at_ms=NOW))
    assert places(resolved(made, "tiered", "ANTHROPIC_API_KEY"))[0] == "anthropic"


async def test_a_failure_there_is_told_to_nobody_and_neither_is_an_answer() -> None:
    log = MemoryLog({"providers": 1})
    one = Replica(
        log, "one", {"acme": ModelTraits(supports_vision=lambda model: True, api_key_env=NAME, has_key=False)}
    )
    one.availability.on_failure(state(), erred(state(), "unavailable", transient=True))
    assert not one.why_not()
    one.board.apply_locally(ModelMarked(provider="acme", model="large", mark="stalled", at_ms=1))
    one.availability.on_success("acme", "large")
    assert one.why_not() == "it is stalled"


# --- falling back ----------------------------------------------------------------------------------------------------

KEYED = {
    "acme": ModelTraits(supports_vision=lambda model: True, api_key_env="ACME_KEY"),
    "blind": ModelTraits(supports_vision=lambda model: True, api_key_env="BLIND_KEY", has_key=False),
    "deep": ModelTraits(supports_vision=lambda model: True, api_key_env="DEEP_KEY"),
}


def left(one: Replica, *credentials: str, restricted: bool = False) -> list[str]:
    failing = state()
    facts = replace(
        failing.facts,
        options=replace(failing.facts.options, credentials=credentials, operator_key_restricted=restricted),
    )
    here = replace(failing, facts=facts)
    actual = one.availability.on_failure(here, erred(here, "unavailable", transient=True))
    return [alternative.choice.provider for alternative in actual.alternatives]


def test_a_run_falls_back_there_with_its_key_only() -> None:
    one = Replica(MemoryLog({"providers": 1}), "one", KEYED)
    assert left(one) == ["deep"]
    assert left(one, "BLIND_KEY") == ["blind", "deep"]
    assert left(one, "BLIND_KEY", restricted=True) == ["blind"]
    one.board.apply_locally(ModelMarked(provider="blind", model="large", mark="stalled", at_ms=1))
    assert left(one, "BLIND_KEY") == ["blind", "deep"], "nobody would take such a mark back"


@pytest.mark.parametrize(
    ("scope", "scope_id", "counts"),
    [
        ("tenant", "", True),
        ("agent", "helper", True),
        ("user", "ada", True),
        ("user", "bob", False),
        ("agent", "another", False),
    ],
)
async def test_a_run_goes_and_falls_back_where_a_stored_credential_pays(
    scope: str, scope_id: str, counts: bool, tmp_path: Path
) -> None:
    stored = Stored(tenant="t")
    await stored.set("BLIND_KEY", "sk-stored", scope=scope, scope_id=scope_id)
    await stored.set("ANTHROPIC_API_KEY", "sk-stored", scope=scope, scope_id=scope_id.replace("helper", "tiered"))
    one = Replica(MemoryLog({"providers": 1}), "one", KEYED)
    one.availability.stored = stored.reader()
    failing = state()
    failing = replace(failing, facts=replace(failing.facts, user_id="ada"))
    order = erred(failing, "unavailable", transient=True)
    there = one.availability.on_failure(failing, order, tenant="t").alternatives
    assert [alternative.choice.provider for alternative in there] == (["blind"] if counts else []) + ["deep"]
    elsewhere = one.availability.on_failure(failing, order, tenant="another").alternatives
    assert [alternative.choice.provider for alternative in elsewhere] == ["deep"]
    made = routing(tmp_path)
    made.definitions.stored = stored.reader()
    agent = made.definitions.resolve("tiered", tenant="t", user_tier="", user_id="ada")
    assert places(agent) == (["anthropic"] if counts else []) + ["openai", "mock"]


# --- limits of the operator's key ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "met",
    [
        ModelMarked(provider="openai", model="o-1", mark="rate_limited", until_ms=NOW + 1_000, at_ms=NOW),
        ProviderProbed(provider="openai", reachable=False, error="openai 401: no", key_refused=True, at_ms=NOW),
    ],
)
def test_what_the_operators_key_has_met_shuts_no_model_for_a_run_with_its_own(
    made: Routing, met: ModelMarked | ProviderProbed
) -> None:
    made.global_table.apply_locally(met)
    assert places(resolved(made, "tiered"))[0] == "mock"
    assert places(resolved(made, "tiered", "OPENAI_API_KEY"))[0] == "openai"


def test_a_fallback_passes_over_what_the_operators_key_has_met_unless_the_run_has_its_own() -> None:
    one = Replica(MemoryLog({"providers": 1}), "one", KEYED)
    limited = ModelMarked(provider="deep", model="large", mark="rate_limited", until_ms=NOW + 1_000, at_ms=NOW)
    one.board.apply_locally(limited)
    assert left(one) == []
    assert left(one, "DEEP_KEY") == ["deep"]


# --- at the call -----------------------------------------------------------------------------------------------------


async def test_a_call_there_is_made_with_the_key_of_the_run_and_never_without() -> None:
    work = working(REPLY, has_key=False)
    assert (await work.answered(asking(NAME))).credential_source == "run"
    assert [request.api_key for request in work.model.requests] == [THEIRS]
    gone = working(REPLY, has_key=False, store=Store({}))
    order = await gone.erred(asking(NAME))
    assert f"the credential {NAME} that came with the run has expired" in order.message
    assert (order.kind, order.transient, gone.model.requests) == ("refused", False, [])


# --- before anything is opened ---------------------------------------------------------------------------------------

ONLY_KEYED = "tiers: {low: [{provider: openai, model: m}]}\nagents: {a: {tier: low}}\n"


def test_a_tier_that_only_runs_have_keys_for_is_warned_of_where_they_can_bring_one(tmp_path: Path) -> None:
    (warning,) = check_tiers_of_runtime(loaded(tmp_path, ONLY_KEYED), {})
    assert warning.message.startswith("agents.a.tier: tier low resolves to nothing: openai/m is not usable")
    assert warning.message.endswith(
        "only runs that bring a key of their own can use it, as the credential OPENAI_API_KEY"
    )
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        check_tiers_of_runtime(loaded(tmp_path, ONLY_KEYED, {}), {})


@pytest.mark.parametrize(
    "text",
    [
        ONLY_KEYED.replace("model: m", 'model_pattern: "m-*"'),
        "providers: {openai: {base_url: disabled}}\n" + ONLY_KEYED,
    ],
    ids=["a pattern", "switched off"],
)
def test_what_no_key_helps_still_ends_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="tier low resolves to nothing"):
        check_tiers_of_runtime(loaded(tmp_path, text), {})


def test_a_fallback_knows_whether_the_operator_has_a_key(made: Routing) -> None:
    actual = {name: model_traits(provider).requires_run_key for name, provider in made.providers.items()}
    names: Collection[str] = [name for name, is_of_runs in actual.items() if is_of_runs]
    assert sorted(names) == ["anthropic", "deepseek", "gateway", "gemini", "ollama"]
    assert not actual["ollama-local"]
