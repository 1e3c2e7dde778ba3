import pytest

from loomlog.services.families.memory.commands.evaluation.figures import (
    Outcome,
    best_threshold,
    by_type,
    hybrid_losses,
    outcome,
    summarize,
)
from loomlog.services.families.memory.commands.evaluation.ranking import Document, Ranked
from tests.services.families.memory.commands.evaluation.corpora import question


def hits(*keys: str, scores: tuple[float | None, ...] = ()) -> list[Ranked]:
    scores = scores or tuple(0.9 - 0.1 * place for place in range(len(keys)))
    return [Ranked(Document(key, {}, (), 10, 0), score) for key, score in zip(keys, scores, strict=True)]


def test_recall_counts_the_first_five_and_the_rank_is_that_of_the_first_answer():
    one = outcome(question("q", "b", "f", "g"), hits("a", "b", "c", "d", "e", "f"), 0.0)
    assert (one.recall, one.reciprocal_rank, one.characters) == (pytest.approx(1 / 3), 0.5, 50)
    assert (one.is_wrong, one.is_outdated, one.has_answer) == (True, False, True)
    assert outcome(question("q", "a"), hits("a"), 0.0).is_wrong is False


def test_more_answers_than_five_can_all_be_recalled():
    keys = "abcdefgh"
    assert outcome(question("q", *keys), hits(*keys), 0.0).recall == 1.0


def test_an_outdated_first_hit_is_wrong():
    one = outcome(question("q", "new", outdated=("old",)), hits("old", "new"), 0.0)
    assert (one.is_wrong, one.is_outdated) == (True, True)


def test_a_question_without_an_answer_goes_wrong_when_a_hit_counts():
    asked = question("q", kind="abstention")
    assert outcome(asked, hits("a"), 0.0).is_wrong
    assert not outcome(asked, [], 0.0).is_wrong
    assert not outcome(asked, hits("a", scores=(0.3,)), 0.5).is_wrong
    assert outcome(asked, hits("a", scores=(None,)), 0.5).is_wrong, "without vectors there is no threshold"


def test_hits_below_the_threshold_are_no_answers():
    one = outcome(question("q", "b"), hits("a", "b", scores=(0.2, 0.6)), 0.5)
    assert (one.recall, one.reciprocal_rank, one.is_wrong, one.score) == (1.0, 1.0, False, 0.2)
    nothing = summarize([outcome(question("q", "b"), hits("b", scores=(0.2,)), 0.5)])
    assert (nothing.unanswered, nothing.recall, nothing.wrong) == (1, 0.0, 0)


def test_figures_are_of_all_questions_and_of_each_type():
    outcomes = [
        outcome(question("q", "a"), hits("a"), 0.0),
        outcome(question("q", "a"), hits("b", "a"), 0.0),
        outcome(question("q", kind="abstention"), hits("b"), 0.0),
    ]
    figures = summarize(outcomes)
    assert (figures.recall, figures.mrr, figures.wrong, figures.questions) == (1.0, 0.75, 2, 3)
    assert {name: one.questions for name, one in by_type(outcomes).items()} == {"single": 2, "abstention": 1}
    assert by_type(outcomes)["abstention"].recall is None
    assert summarize([]).to_json()["mrr"] is None


def test_the_best_threshold_keeps_answers_and_drops_the_rest():
    def one(score: float | None, *, rank: float = 0.0, is_answerable: bool = True) -> Outcome:
        return Outcome(type="x", is_answerable=is_answerable, reciprocal_rank=rank, score=score)

    outcomes = [one(0.8, rank=1.0), one(0.7, rank=1.0), one(0.5, is_answerable=False), one(0.4, rank=0.5)]
    assert best_threshold(outcomes) == (0.7, 1)
    assert best_threshold([one(None, rank=1.0)]) is None
    assert best_threshold([one(0.9, is_answerable=False)]) == (1.0, 0)


def test_hybrid_must_not_be_below_a_half():
    good, bad = (
        summarize([outcome(question("q", "a"), hits("a"), 0.0)]),
        summarize([outcome(question("q", "a"), hits("b", "a"), 0.0)]),
    )
    assert hybrid_losses({"lexical": good, "vector": bad, "hybrid": good}) == []
    assert hybrid_losses({"lexical": bad, "vector": good, "hybrid": bad}) == [
        "hybrid has a lower MRR than vector: 0.500 < 1.000"
    ]
