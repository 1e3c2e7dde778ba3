import pytest

from loomlog.connectors.configuration.findings import (
    ConfigurationError,
    ConfigurationFinding,
    did_you_mean,
    format_value,
    join_words,
)


def test_a_finding_reads_like_a_compiler_message():
    assert str(ConfigurationFinding(message="odd", file="a.yaml", line=3)) == "a.yaml:3: odd"
    assert str(ConfigurationFinding(message="odd", file="a.yaml")) == "a.yaml: odd"
    assert str(ConfigurationFinding(message="odd")) == "odd"


def test_a_problem_has_one_line_for_each_mistake_and_repeats_none():
    problem = ConfigurationError(
        [ConfigurationFinding(message="a"), ConfigurationFinding(message="b"), ConfigurationFinding(message="a")]
    )
    assert str(problem) == "a\nb"
    assert [p.message for p in problem.findings] == ["a", "b"]


def test_a_problem_without_a_mistake_is_a_bug():
    with pytest.raises(AssertionError):
        ConfigurationError([])


def test_the_nearest_word_is_offered_and_a_far_one_is_not():
    assert did_you_mean("sytem_prompt", ["tools", "system_prompt"]) == "; did you mean system_prompt?"
    assert did_you_mean("colour", ["tools"]) == ""


def test_a_shown_value_is_short_and_collections_are_not_spelt_out():
    assert format_value({"a": 1}) == "a mapping"
    assert format_value((1, 2)) == "a list"
    assert format_value("x" * 500).endswith("…")
    assert len(format_value("x" * 500)) == 60
    assert format_value(12) == "12"


def test_words_are_listed_as_people_list_them():
    assert [join_words(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
