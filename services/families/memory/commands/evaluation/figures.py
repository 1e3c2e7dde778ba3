"""Figures of rankings: recall@5, mean reciprocal rank, and wrong answers.

    recall@5       share of a question's facts among the first five hits
    MRR            1 / place of the first of its facts, 0 if it is not among the hits
    wrong          the first hit is of another subject or outdated, or there is one for a question without an answer
    characters     of the first five hits: what reading them costs

A hit counts as an answer if its cosine reaches the threshold, as in recall; where vectors take no part each hit does.

Before: offline.py. After: ranking.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loomlog.schemas.records import Value
from loomlog.services.families.memory.commands.evaluation.corpus import QUESTION_TYPES, Question
from loomlog.services.families.memory.commands.evaluation.ranking import HYBRID, LEXICAL, VECTOR, Ranked

RECALL_AT = 5
TOLERANCE = 1e-9
"""Differences of sums in another order."""


class Outcome(Value, frozen=True, kw_only=True):
    """What a mode makes of a question."""

    type: str
    is_answerable: bool
    recall: float = 0.0
    reciprocal_rank: float = 0.0
    is_wrong: bool = False
    is_outdated: bool = False
    """The first hit answered the question once."""
    has_answer: bool = False
    """There is a hit that counts as an answer."""
    characters: int = 0
    score: float | None = None
    """Cosine of the first hit."""


class Figures(Value, frozen=True, kw_only=True):
    """Figures of some questions; recall and MRR are of those that have an answer, None without one."""

    questions: int
    recall: float | None
    mrr: float | None
    wrong: int
    outdated: int
    unanswered: int
    """Questions with an answer for which there is no hit that counts."""
    characters: float

    def to_json(self) -> dict[str, Any]:
        return {
            "questions": self.questions,
            "recall_at_5": _rounded(self.recall),
            "mrr": _rounded(self.mrr),
            "wrong": self.wrong,
            "outdated": self.outdated,
            "unanswered": self.unanswered,
            "characters": round(self.characters),
        }


def outcome(question: Question, hits: Sequence[Ranked], threshold: float) -> Outcome:
    """Return what a ranking makes of a question."""
    first_score = hits[0].score if hits else None
    counted = [hit for hit in hits if threshold <= 0 or hit.score is None or hit.score >= threshold]
    keys = [hit.document.key for hit in counted]
    answers = {*question.answers}
    places = [place for place, key in enumerate(keys, 1) if key in answers]
    most = min(len(answers), RECALL_AT)
    return Outcome(
        type=question.type,
        is_answerable=bool(answers),
        recall=len([place for place in places if place <= RECALL_AT]) / most if most else 0.0,
        reciprocal_rank=1 / places[0] if places else 0.0,
        is_wrong=bool(keys) and keys[0] not in answers,
        is_outdated=bool(keys) and keys[0] in question.outdated,
        has_answer=bool(keys),
        characters=sum(hit.document.characters for hit in counted[:RECALL_AT]),
        score=first_score,
    )


def summarize(outcomes: Sequence[Outcome]) -> Figures:
    """Return the figures of some questions."""
    answerable = [one for one in outcomes if one.is_answerable]
    return Figures(
        questions=len(outcomes),
        recall=_mean(one.recall for one in answerable),
        mrr=_mean(one.reciprocal_rank for one in answerable),
        wrong=sum(one.is_wrong for one in outcomes),
        outdated=sum(one.is_outdated for one in outcomes),
        unanswered=sum(not one.has_answer for one in answerable),
        characters=_mean(one.characters for one in outcomes) or 0.0,
    )


def by_type(outcomes: Sequence[Outcome]) -> dict[str, Figures]:
    """Return the figures of each type of question, the known types first."""
    names = dict.fromkeys([*QUESTION_TYPES, *(one.type for one in outcomes)])
    groups = {name: [one for one in outcomes if one.type == name] for name in names}
    return {name: summarize(group) for name, group in groups.items() if group}


def best_threshold(outcomes: Sequence[Outcome]) -> tuple[float, int] | None:
    """Return the cosine from which a first hit should count, and how many questions then go wrong: answered with
    another fact, answered without there being one, or left without the right answer. None without cosines.
    """
    scored = [(one.score, one) for one in outcomes if one.score is not None]
    if not scored:
        return None
    # From the highest cosine down: so far nothing is answered, so each question that has an answer goes wrong.
    mistakes = sum(one.is_answerable for _, one in scored)
    best, threshold = mistakes, 1.0
    for score, one in sorted(scored, key=lambda pair: -pair[0]):
        if one.is_answerable:
            mistakes -= one.reciprocal_rank == 1.0
        else:
            mistakes += 1
        if mistakes < best:
            best, threshold = mistakes, score
    return threshold, best


def hybrid_losses(figures: Mapping[str, Figures]) -> list[str]:
    """Return where hybrid is below one of its halves, as sentences."""
    losses = []
    for name, label in (("recall", "recall@5"), ("mrr", "MRR")):
        hybrid = getattr(figures[HYBRID], name) or 0.0
        for half in (LEXICAL, VECTOR):
            value = getattr(figures[half], name) or 0.0
            if hybrid < value - TOLERANCE:
                losses.append(f"hybrid has a lower {label} than {half}: {hybrid:.3f} < {value:.3f}")
    return losses


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
