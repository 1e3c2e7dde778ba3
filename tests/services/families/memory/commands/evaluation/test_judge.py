import json
from collections import Counter
from pathlib import Path

import orjson
import pytest

from loomlog.services.families.memory.commands.evaluation.judge import PAIRS_MAX, Judged, choose_pairs, read_verdicts
from loomlog.services.families.memory.commands.evaluation.pairs import INVENTED, LABELS, Pair, labelled_pairs
from tests.services.families.memory.commands.evaluation.corpora import asked_text, preset_prompt

JUDGE = ("memory-eval-judge", "--provider", "mock", "--model", "scripted", "--pairs", "20")
EXPECTED = {"same": "same", "newer": "replaces", "other": "different", "far": "different"}
BY_TEXTS = {(one.new, one.known, one.quote): one.label for one in labelled_pairs(1)}


def perfect(request) -> str:
    verdicts = []
    for one in json.loads(asked_text(request))["pairs"]:
        label = BY_TEXTS[one["new"], one["known"], one["quote"]]
        supported = label != INVENTED
        verdicts.append({"n": one["n"], "supported": supported, "relation": EXPECTED.get(label, "same")})
    return json.dumps({"verdicts": verdicts})


def test_a_perfect_judge_agrees_with_every_label_in_batches(command, scripted):
    model = scripted(perfect)
    report = orjson.loads(command(*JUDGE, "--batch", "6", "--json").stdout)
    assert report["labels"]["all"] == {"pairs": 20, "right": 20, "agreement": 1.0}
    assert set(report["labels"]) == {*LABELS, INVENTED, "all"}
    assert [len(json.loads(asked_text(one))["pairs"]) for one in model.requests] == [6, 6, 6, 2]
    assert model.requests[0].system[0].text == preset_prompt("memory/judge")


def test_a_judge_that_always_says_the_same_is_right_about_one_label(command, scripted):
    def lazy(request) -> str:
        pairs = json.loads(asked_text(request))["pairs"]
        return json.dumps({"verdicts": [{"n": one["n"], "supported": True, "relation": "same"} for one in pairs]})

    scripted(lazy)
    result = command(*JUDGE, "--show-facts", "--output", "report.json")
    assert result.exit_code == 0
    labels = orjson.loads(Path("report.json").read_bytes())["labels"]
    assert {name: one["agreement"] for name, one in labels.items()} == {
        "same": 1.0,
        "newer": 0.0,
        "other": 0.0,
        "far": 0.0,
        "invented": 0.0,
        "all": 0.2,
    }
    assert "invented, judged same:" in result.stdout


def test_a_baseline_fails_a_worse_judge(command, scripted):
    scripted(perfect)
    assert command(*JUDGE, "--baseline", "b.json", "--update-baseline").exit_code == 0
    scripted(lambda request: "no idea")
    result = command(*JUDGE, "--baseline", "b.json")
    assert result.exit_code == 1
    assert "newer: agreement fell from 1.00 to 0.00." in result.output
    assert "no verdict 4" in result.stdout


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ('{"verdicts": [{"n": 0, "supported": true, "relation": "same"}]}', "same"),
        ('{"verdicts": [{"n": 0, "supported": false, "relation": "same"}]}', "unsupported"),
        ('{"verdicts": [{"n": 0, "relation": "opposite"}]}', "no verdict"),
        ('{"verdicts": [{"n": 1, "relation": "same"}]}', "no verdict"),
        ('{"verdicts": [{"n": [], "relation": "same"}, 5]}', "no verdict"),
        ('{"verdicts": [{"n": 0, "relation": {}}]}', "no verdict"),
        ('{"verdicts": 5}', "no verdict"),
        ("", "no verdict"),
    ],
)
def test_a_verdict_is_read_as_the_consolidator_reads_it(answer, verdict):
    pair = Pair(new="a", known="b", label="same", quote="a")
    assert read_verdicts(answer, [pair]) == [Judged(pair=pair, verdict=verdict)]


def test_pairs_are_as_many_of_each_label():
    chosen = choose_pairs(50, 1)
    assert set(Counter(one.label for one in chosen).values()) == {10}
    assert chosen == choose_pairs(50, 1)
    assert len(choose_pairs(10_000, 1)) == PAIRS_MAX == len(labelled_pairs(1))


def test_labels_of_pairs_are_true():
    for one in labelled_pairs(1):
        assert one.new != one.known
        assert one.quote
