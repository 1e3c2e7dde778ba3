import json
import re
from pathlib import Path

import orjson
import pytest

from loomlog.services.families.memory.commands.evaluation import ranking

LINES = (
    {"chat": "c1", "messages": [{"role": "user", "text": "I live in Porto."}]},
    {"fact": "old", "text": "Ada lives in Porto.", "subject": "home", "chat": "c1"},
    {"fact": "boat", "text": "Ada paddles kayaks on the river.", "subject": "boat"},
    {"question": "q1", "text": "Where does Ada live?", "answers": ["old"]},
    {"question": "q2", "text": "Who paddles kayaks?", "answers": ["boat"]},
    {"question": "q3", "text": "Which car does Zed drive?"},
)


@pytest.fixture
def dataset(folder):
    path = folder / "facts.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)))
    return str(path)


def test_generated_chats_are_measured_and_hybrid_is_below_neither_half(command, folder):
    result = command("memory-eval", "--output", "report.json")
    assert result.exit_code == 0, result.output
    report = orjson.loads((folder / "report.json").read_bytes())
    assert list(report["modes"]) == ["lexical", "vector", "hybrid", "whole chat"]
    assert report["losses"] == []
    modes = report["modes"]
    assert modes["hybrid"]["recall_at_5"] > 0.85
    assert modes["hybrid"]["mrr"] > modes["whole chat"]["mrr"] + 0.1
    assert modes["hybrid"]["characters"] * 5 < modes["whole chat"]["characters"]
    assert modes["hybrid"]["by_type"].keys() == {"single", "several", "time", "updates", "abstention"}
    assert report["best_threshold"]["wrong"] <= modes["hybrid"]["wrong"]
    page = (Path(__file__).parents[6] / "docs" / "OPERATING.md").read_text()
    for line in result.stdout.splitlines()[2:6]:
        mode, recall, mrr, wrong, _, _, characters = re.split(r"  +", line)
        row = f"| {mode} | {recall} | {mrr} | {wrong} | {int(characters):,} |"
        assert row in page, "the figures of the page are those of seed 1"
    assert "abstention (60)" in result.stdout


def test_a_file_of_ones_own_is_measured(command, dataset):
    result = command("memory-eval", "--dataset", dataset, "--json")
    assert result.exit_code == 0, result.output
    report = orjson.loads(result.stdout)
    assert (report["facts"], report["chats"], report["modes"]["hybrid"]["mrr"]) == (2, 1, 1.0)
    assert report["modes"]["lexical"]["wrong"] == 0, "no fact has a word of the question about Zed"
    assert report["modes"]["vector"]["wrong"] == 1


def test_without_chats_there_is_no_mode_of_chats(command, folder):
    path = folder / "facts.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in LINES[2:] if line.get("question") != "q1"))
    report = orjson.loads(command("memory-eval", "--dataset", str(path), "--json").stdout)
    assert list(report["modes"]) == ["lexical", "vector", "hybrid"]


def test_a_worse_fusion_fails_the_gate(command, dataset, monkeypatch):
    real = ranking.ranked

    def backwards(*arguments, rankings, **more):
        hits = real(*arguments, rankings=rankings, **more)
        return hits[::-1] if rankings == 2 else hits

    monkeypatch.setattr(ranking, "ranked", backwards)
    result = command("memory-eval", "--dataset", dataset)
    assert result.exit_code == 1
    assert "hybrid has a lower MRR than lexical: 0.500 < 1.000." in result.stdout
    assert command("memory-eval", "--dataset", dataset, "--no-gate").exit_code == 0


def test_weights_and_threshold_come_from_a_file(command, dataset, folder):
    (folder / "rank.json").write_text('{"rank": {"recency_weight": 0.2}, "threshold": 0.99, "top_k": 3}')
    report = orjson.loads(command("memory-eval", "--dataset", dataset, "--rank-config", "rank.json", "--json").stdout)
    vector = report["modes"]["vector"]
    assert (report["threshold"], vector["wrong"], vector["unanswered"], vector["recall_at_5"]) == (0.99, 0, 2, 0.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "expected a JSON object with rank, dedup, top_k, threshold"),
        ('{"weights": {}}', "expected a JSON object with rank"),
        ('{"rank": {"recency": 1}}', "'rank.recency' is unknown; did you mean recency_weight?"),
        ('{"threshold": 2}', "threshold: expected a number from -1.0 to 1.0"),
        ("{", "rank.json is not JSON"),
    ],
)
def test_a_rank_config_that_cannot_be_used_is_refused(command, dataset, folder, text, problem):
    (folder / "rank.json").write_text(text)
    result = command("memory-eval", "--dataset", dataset, "--rank-config", "rank.json")
    assert result.exit_code == 2
    assert problem in result.output


def test_other_embedders_are_stub_and_that_of_the_configuration(command, dataset, folder):
    report = orjson.loads(command("memory-eval", "--dataset", dataset, "--embedder", "stub", "--json").stdout)
    assert report["embedder"] == {"provider": "stub", "model": "stub", "dimensions": 64}
    result = command("memory-eval", "--dataset", dataset, "--embedder", "auto")
    assert (result.exit_code, "has no embedder" in result.output) == (1, True)
    (folder / "loomlog.yaml").write_text("memory: { embedder: { provider: stub, dimensions: 32 } }\n")
    report = orjson.loads(command("memory-eval", "--dataset", dataset, "--embedder", "auto", "--json").stdout)
    assert report["embedder"]["dimensions"] == 32
    result = command("memory-eval", "--embedder", "best")
    assert (result.exit_code, "expected one of stand-in, stub, auto" in result.output) == (2, True)
