import pytest

from loomlog.services.cli.errors import UsageError
from loomlog.services.families.memory.commands.evaluation.baseline import (
    compare,
    read_baselines,
    updated,
    write_baselines,
)

OLD = {"plain": {"precision": 0.9, "recall": 0.8}, "noise": {"precision": 0.5, "recall": None}}


def test_figures_may_fall_a_little_and_not_more(tmp_path):
    write_baselines(tmp_path / "b.json", updated({}, "extractor", "aa", "model", OLD))
    known = read_baselines(tmp_path / "b.json")
    assert compare(known, "extractor", "aa", "model", OLD) == ("", [])
    now = {"plain": {"precision": 0.86, "recall": 0.7}, "noise": {"precision": 0.9}}
    assert compare(known, "extractor", "aa", "model", now) == ("", ["plain: recall fell from 0.80 to 0.70"])


def test_another_prompt_is_compared_with_the_newest_and_said_loudly():
    known = {"extractor": {hash_: {"model": {"at": at, "figures": OLD}} for hash_, at in (("aa", "2"), ("bb", "1"))}}
    comparison = compare(known, "extractor", "cc", "model", {"plain": {"recall": 0.1}})
    assert comparison.warning == "THE PROMPT IS ANOTHER ONE than that of the baseline: cc instead of aa of 2"
    assert comparison.losses == ["plain: recall fell from 0.80 to 0.10"]


@pytest.mark.parametrize(("kind", "subject"), [("judge", "model"), ("extractor", "another")])
def test_without_a_baseline_it_says_so(kind, subject):
    known = updated({}, "extractor", "aa", "model", OLD)
    comparison = compare(known, kind, "aa", subject, OLD)
    assert comparison.warning.startswith("THERE IS NO BASELINE")
    assert comparison.losses == []


def test_an_update_keeps_what_else_is_there():
    known = updated(updated({}, "extractor", "aa", "model", OLD), "judge", "dd", "model", OLD)
    again = updated(known, "extractor", "aa", "other", OLD)
    assert again["judge"] == known["judge"]
    assert set(again["extractor"]["aa"]) == {"model", "other"}


@pytest.mark.parametrize("text", ["[]", '{"extractor": {"aa": {"model": 5}}}', "{", '{"extractor": 5}', "5"])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(UsageError):
        read_baselines(tmp_path / "b.json")
