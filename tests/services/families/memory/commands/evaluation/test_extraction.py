import json

import pytest

from loomlog.services.families.memory.commands.evaluation.extraction import (
    Extraction,
    compare,
    read_answer,
    says,
    summarize,
    total,
)
from tests.services.families.memory.commands.evaluation.corpora import chat, fact

CHAT = chat(
    "c1",
    "Hello, this is Ada.",
    "I live in Porto.",
    "My badge is B-4100, and I start at 9:15.",
    "I am tired.",
    abilities=("", "plain", "joined", "noise"),
)
HOME = fact("home", "Ada lives in Porto.", answer="Porto", chat="c1", message=1, fact_class="identity")
BADGE = fact("badge", "Ada has badge B-4100.", answer="B-4100", chat="c1", message=2)
HOURS = fact("hours", "Ada starts at 9:15.", answer="9:15", chat="c1", message=2)


def extracted(text: str, message: int = 1, **more) -> dict:
    return {"class": "identity", "subject": "Ada", "fact": text, "message": message, "quote": "", **more}


def read(*facts) -> Extraction:
    return read_answer(json.dumps({"facts": list(facts)}), CHAT)


def test_facts_are_those_of_the_json_in_the_answer():
    answer = (
        f"Here you are:\n```json\n{json.dumps({'facts': [extracted('Ada lives in Porto.', quote='in Porto')]})}\n```"
    )
    (one,) = read_answer(answer, CHAT).facts
    assert (one.text, one.message, one.has_quote) == ("Ada lives in Porto.", 1, True)
    assert read(extracted("x", quote="in Ghent")).facts[0].has_quote is False


@pytest.mark.parametrize("answer", ["", "ok", "{", '{"facts": 5}', "[1]", "{}", "{" * 10_000 + "}"])
def test_an_answer_without_facts_is_a_problem(answer):
    assert read_answer(answer, CHAT).problem


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        {"fact": 5},
        {"class": "rumour"},
        {"message": 4},
        {"message": -1},
        {"message": "1"},
        {"message": True},
        {"subject": ""},
        {"fact": "x" * 1_001},
    ],
)
def test_a_fact_that_the_consolidator_would_refuse_is_invalid(wrong):
    one = extracted("Ada lives in Porto.") | wrong if isinstance(wrong, dict) else wrong
    assert read(one, extracted("Ada lives in Porto.")).invalid == 1


def test_at_most_25_facts_of_an_answer_are_read():
    assert len(read(*[extracted("x")] * 30).facts) == 25


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The user lives in Porto", True),
        ("Porto is the home", True),
        ("The user lives in Ghent", False),
    ],
)
def test_a_fact_is_recognised_by_its_value(text, expected):
    assert says(read(extracted(text)).facts[0], HOME) is expected


def test_a_fact_has_to_be_about_what_it_is_about_and_numbers_may_be_written_differently():
    budget = fact("b", "x", answer="12,500", about="Heron")
    assert says(read(extracted("Heron may spend 12500 euros")).facts[0], budget)
    assert not says(read(extracted("Basalt may spend 12,500 euros")).facts[0], budget)
    seat = fact("s", "x", answer="an aisle seat")
    assert says(read(extracted("wants aisle seats")).facts[0], seat)


def test_precision_and_recall_are_counted_for_each_ability():
    answer = read(
        extracted("Ada lives in Porto."),
        extracted("Ada has B-4100", 2),
        extracted("Ada is tired", 3),
        extracted("The name is Ada", 0),
        extracted("Ada lives in Porto, again", 1),
    )
    result = compare(CHAT, [HOME, BADGE, HOURS], answer)
    assert [match.fact and match.fact.id for match in result.matches] == ["home", "badge", None, None, None]
    assert result.missed == (HOURS,)
    figures = summarize([result])
    assert set(figures) == {"plain", "joined", "noise"}, "who is speaking counts neither way"
    assert (figures["plain"].precision, figures["plain"].recall) == (0.5, 1.0)
    assert (figures["joined"].precision, figures["joined"].recall) == (1.0, 0.5)
    assert (figures["noise"].precision, figures["noise"].recall) == (0.0, None)
    everything = total(figures.values())
    assert (everything.facts, everything.extracted, everything.right) == (3, 4, 2)


def test_nothing_extracted_has_no_precision():
    figures = summarize([compare(CHAT, [HOME], Extraction(problem="x"))])
    assert (figures["plain"].precision, figures["plain"].recall) == (None, 0.0)
