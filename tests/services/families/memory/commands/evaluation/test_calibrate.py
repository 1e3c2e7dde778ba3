import json

import orjson
import pytest

from loomlog.services.families.memory.commands.evaluation.bands import (
    ONE,
    RELATED,
    UNRELATED,
    distribution,
    effects,
    problems,
    suggest,
)
from loomlog.services.families.memory.commands.evaluation.pairs import cluster_pairs, labelled_pairs

APART = {ONE: [0.9, 0.92, 0.97], RELATED: [0.5, 0.6, 0.7], UNRELATED: [0.0, 0.1, 0.2]}


def test_thresholds_of_bands_that_are_apart_separate_them():
    merge, related = suggest(APART)
    assert 0.7 < merge <= 0.9
    assert 0.2 < related < merge
    assert problems(effects(APART, merge, related)) == []


def test_a_merge_threshold_is_above_what_is_different_even_if_nothing_reaches_it():
    bands = {ONE: [0.5, 0.6], RELATED: [0.99, 0.7], UNRELATED: [0.1, 0.2]}
    merge, related = suggest(bands)
    assert (merge, related) == (1.0, 0.21)
    assert suggest({ONE: [1.0], RELATED: [1.0], UNRELATED: [1.0]})[0] == 1.0
    merge, related = suggest({ONE: [-0.5], RELATED: [-0.6], UNRELATED: [-0.7]})
    assert 0 < related < merge


def test_one_in_a_hundred_may_be_merged_wrongly():
    bands = {ONE: [0.9] * 10, RELATED: [*[0.5] * 150, 0.95], UNRELATED: [0.1] * 49}
    assert suggest(bands)[0] == 0.51
    assert effects(bands, 0.51, 0.3).wrongly_merged == 0.005


@pytest.mark.parametrize(
    ("merge", "related", "problem"),
    [
        (0.55, 0.3, "merge_threshold 0.55 is too low: 33%"),
        (0.99, 0.98, "related_threshold 0.98 is too high: only 0%"),
        (0.95, 0.05, "related_threshold 0.05 is too low: 67%"),
    ],
)
def test_thresholds_that_do_not_separate_are_named(merge, related, problem):
    (sentence,) = problems(effects(APART, merge, related))
    assert sentence.startswith(problem)


def test_a_distribution_has_its_ends_and_its_middle():
    one = distribution([0.3, 0.1, 0.2])
    assert one.to_json() == {"pairs": 3, "min": 0.1, "p5": 0.1, "p50": 0.2, "p95": 0.3, "max": 0.3}


def test_the_stub_is_calibrated_and_the_configured_thresholds_are_checked(command, folder):
    result = command("memory-calibrate", "--embedder", "stub", "--output", "report.json")
    assert result.exit_code == 0, result.output
    report = orjson.loads((folder / "report.json").read_bytes())
    bands = report["bands"]
    assert bands["one"]["p50"] > bands["related"]["p50"] > bands["unrelated"]["p50"]
    suggested = report["suggested"]
    assert suggested["problems"] == []
    assert (report["configured"]["merge"], report["configured"]["related"]) == (0.95, 0.85)
    assert command("memory-calibrate", "--embedder", "stub", "--check").exit_code == 1
    (folder / "loomlog.yaml").write_text(
        "memory:\n  embedder: { provider: stub }\n  consolidation:\n"
        f"    merge_threshold: {suggested['merge']}\n    related_threshold: {suggested['related']}\n"
    )
    checked = command("memory-calibrate", "--check", "--json")
    assert checked.exit_code == 0, checked.output
    assert orjson.loads(checked.stdout)["configured"]["problems"] == []


def test_clusters_are_another_dataset(command):
    result = command("memory-calibrate", "--embedder", "stub", "--dataset", "cluster")
    assert result.exit_code == 0
    assert "merge_threshold" in result.stdout
    labels = {one.label for one in cluster_pairs(1)}
    assert labels == {"same", "newer", "other", "far"}
    assert cluster_pairs(1) == cluster_pairs(1)
    assert labelled_pairs(1) != labelled_pairs(2)


PAIRS = [
    {"a": "Ada lives in Porto", "b": "Ada's home is Porto", "label": "same"},
    {"a": "Ada lives in Porto", "b": "Ben lives in Porto", "label": "other"},
    {"a": "Ada lives in Porto", "b": "The budget is small", "label": "far"},
]


@pytest.mark.parametrize(
    ("lines", "code", "problem"),
    [
        (PAIRS, 0, "merge_threshold"),
        (PAIRS[:2], 2, "there is no pair that is unrelated"),
        ([*PAIRS, {"a": "x", "b": "y", "label": "twins"}], 2, 'pairs.jsonl:4: "label" must be one of same, newer'),
        ([{"a": "x", "label": "same"}], 2, 'pairs.jsonl:1: "b" must be a text'),
        ([{"a": "x", "b": "y", "label": "same", "c": 1}], 2, '"c" is unknown'),
    ],
)
def test_pairs_of_a_file(command, folder, lines, code, problem):
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = command("memory-calibrate", "--embedder", "stub", "--dataset", "pairs.jsonl")
    assert (result.exit_code, problem in result.output) == (code, True), result.output


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        ((), 1, "has no embedder: set memory.embedder"),
        (("--embedder", "best"), 2, "expected auto or stub"),
        (("--embedder", "stub", "--dataset", "nowhere"), 4, "there is no file nowhere"),
        (("--embedder", "stub", "--config", "nowhere"), 4, "there is no file nowhere"),
    ],
)
def test_what_cannot_be_used_is_refused(command, arguments, code, problem):
    result = command("memory-calibrate", *arguments)
    assert (result.exit_code, problem in result.output) == (code, True), result.output


def test_an_embedder_that_fails_ends_the_command(command, folder):
    (folder / "loomlog.yaml").write_text(
        "memory: { embedder: { provider: openai, model: m, base_url: 'http://127.0.0.1:9/v1', timeout_ms: 200 } }\n"
    )
    result = command("memory-calibrate")
    assert result.exit_code == 1
    assert "openai/m: " in result.output
