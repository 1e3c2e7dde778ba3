from dataclasses import FrozenInstanceError

import pytest

from loomlog.connectors.configuration.model import Configuration, validate


def test_nothing_is_a_configuration_with_all_defaults():
    configuration, mistakes = validate({})
    assert mistakes == []
    assert configuration == Configuration()
    assert configuration.provider_priority == ("ollama-local", "deepseek", "openai", "anthropic", "ollama")


def test_what_comes_out_is_plain_and_cannot_be_changed():
    configuration, _ = validate({"agents": {"a": {"tools": ("Read",), "sampling": {"stop": "x"}}}})
    assert configuration is not None
    agent = configuration.agents["a"]
    assert agent.tools == ("Read",)
    assert agent.sampling is not None
    assert agent.sampling.stop == ("x",)
    with pytest.raises(FrozenInstanceError):
        agent.max_tokens = 3  # type: ignore[misc]  # that is what is tried


@pytest.mark.parametrize(
    ("agent", "path", "expected"),
    [
        ({"max_tokens": "5"}, "max_tokens", "expected a whole number"),
        ({"max_tokens": True}, "max_tokens", "expected a whole number"),
        ({"max_tokens": -1}, "max_tokens", "expected greater than or equal to 0"),
        ({"model": 5}, "model", "expected text (in quotes when it looks like a number)"),
        ({"unbounded_iterations": 1}, "unbounded_iterations", "expected true or false"),
        ({"volumes": 5}, "volumes", "expected a list"),
        ({"sampling": {"temperature": "warm"}}, "sampling.temperature", "expected a number"),
        ({"sampling": {"temperature": 2.5}}, "sampling.temperature", "expected less than or equal to 2"),
        ({"sampling": {"stop": tuple("abcdefghi")}}, "sampling.stop", "expected at most 8 items"),
        (
            {"compaction": {"target_percentage": 51}},
            "compaction.target_percentage",
            "expected less than or equal to 50",
        ),
        ({"effort": "huge"}, "effort", "expected 'low', 'medium' or 'high'"),
    ],
)
def test_a_wrong_value_is_told_what_was_expected(agent: dict[str, object], path: str, expected: str):
    configuration, (mistake,) = validate({"agents": {"a": agent}})
    assert configuration is None
    assert ".".join(str(step) for step in mistake.path) == f"agents.a.{path}"
    assert mistake.expected == expected


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("Off", False), (True, True)])
def test_switches_take_the_words_of_older_yaml(word: object, value: bool):
    configuration, _ = validate({"agents": {"a": {"disable_context": word}}})
    assert configuration is not None
    assert configuration.agents["a"].disable_context is value
