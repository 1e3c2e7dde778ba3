from loomlog.connectors.configuration.agent_block import AgentBlock, Candidate
from loomlog.connectors.configuration.model import Configuration, Defaults, ModelAlias, UserTier
from loomlog.connectors.configuration.routing import (
    Choice,
    RoutingFailure,
    resolve_candidate,
    resolve_choices,
    resolve_user_tier,
)


def test_without_any_model_there_is_a_dead_end_that_says_what_to_give():
    actual = resolve_choices(Configuration(), AgentBlock())
    assert isinstance(actual, RoutingFailure)
    assert actual.reason_code == "invalid_argument"
    assert "a tier" in actual.message


def test_the_defaults_stand_in_for_an_agent_that_names_nothing():
    configuration = Configuration(defaults=Defaults(provider="mock", model="m"))
    assert resolve_choices(configuration, AgentBlock()) == (Choice(provider="mock", model="m"),)


def test_a_pin_does_not_care_about_tiers_and_plans():
    configuration = Configuration(user_tiers={"default": UserTier(provider_priority=("openai",))})
    assert resolve_choices(configuration, AgentBlock(provider="mock", model="m")) == (
        Choice(provider="mock", model="m"),
    )


def test_the_effort_of_a_candidate_comes_before_that_of_its_alias():
    configuration = Configuration(models={"q": ModelAlias(provider="mock", model="m", effort="low")})
    assert resolve_candidate(configuration, Candidate(model="q")) == Choice(provider="mock", model="m", effort="low")
    assert resolve_candidate(configuration, Candidate(model="q", effort="high")) == Choice(
        provider="mock", model="m", effort="high"
    )


def test_a_provider_named_twice_in_an_order_is_tried_once():
    configuration = Configuration(
        tiers={"low": (Candidate(provider="mock", model="m"),)}, provider_priority=("mock", "openai", "mock")
    )
    assert resolve_choices(configuration, AgentBlock(tier="low")) == (Choice(provider="mock", model="m"),)


def test_an_empty_order_of_a_plan_is_that_of_the_file():
    configuration = Configuration(
        tiers={"low": (Candidate(provider="mock", model="m"),)},
        provider_priority=("mock",),
        user_tiers={"default": UserTier()},
    )
    assert resolve_choices(configuration, AgentBlock(tier="low")) == (Choice(provider="mock", model="m"),)


def test_an_agent_with_an_empty_list_for_its_tier_has_nothing():
    configuration = Configuration(tiers={"low": (Candidate(provider="mock", model="m"),)}, provider_priority=("mock",))
    actual = resolve_choices(configuration, AgentBlock(tier="low", models={"low": ()}))
    assert isinstance(actual, RoutingFailure)
    assert actual.reason_code == "tier_unavailable"


def test_the_plan_in_force_is_the_wanted_one_or_default_or_none():
    configuration = Configuration(user_tiers={"default": UserTier(), "gold": UserTier()})
    assert [resolve_user_tier(configuration, name) for name in ("gold", "", "x")] == ["gold", "default", "default"]
    assert resolve_user_tier(Configuration(), "gold") == ""
