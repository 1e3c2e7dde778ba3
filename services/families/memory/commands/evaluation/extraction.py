"""How well the facts of an answer are those of a chat: precision and recall for each ability. Pure.

An extracted fact is one of the chat's if it has the words of its value and of what it is about; each fact counts once.
It is counted with the ability of the message it names. Facts of messages without an ability, such as who is speaking,
count neither way.

Before: live.py. After: corpus.py.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loomlog.schemas.records import Value
from loomlog.services.families.memory.commands.evaluation.corpus import Chat, Fact
from loomlog.services.families.memory.commands.evaluation.words import stems

FACTS_MAX = 25
"""Facts of one answer that the consolidator reads."""
CLASSES = ("preference", "fact", "decision", "identity", "constraint")
SUBJECT_CHARACTERS_MAX, FACT_CHARACTERS_MAX = 120, 1_000
ARTICLES = frozenset({"a", "an", "the", "my", "of", "in", "on"})


class ExtractedFact(Value, frozen=True, kw_only=True):
    """A fact of an answer."""

    fact_class: str
    subject: str
    text: str
    message: int
    has_quote: bool
    """The quote is in the message, word for word."""


class Extraction(Value, frozen=True, kw_only=True):
    """The facts of an answer that can be used; `invalid`: how many others it has. `problem`: it cannot be read."""

    facts: tuple[ExtractedFact, ...] = ()
    invalid: int = 0
    problem: str = ""


class Match(Value, frozen=True, kw_only=True):
    """An extracted fact and the fact that it is, None for none."""

    extracted: ExtractedFact
    fact: Fact | None
    ability: str


class AbilityFigures(Value, frozen=True, kw_only=True):
    """Figures of one ability. Precision without extracted facts and recall without facts are None."""

    facts: int = 0
    """Facts that are there."""
    extracted: int = 0
    right: int = 0

    @property
    def precision(self) -> float | None:
        return self.right / self.extracted if self.extracted else None

    @property
    def recall(self) -> float | None:
        return self.right / self.facts if self.facts else None

    def to_json(self) -> dict[str, Any]:
        return {
            "facts": self.facts,
            "extracted": self.extracted,
            "right": self.right,
            "precision": None if self.precision is None else round(self.precision, 4),
            "recall": None if self.recall is None else round(self.recall, 4),
        }


class ChatResult(Value, frozen=True, kw_only=True):
    """What was extracted of a chat. `missed`: facts that were not."""

    chat: Chat
    extraction: Extraction
    matches: tuple[Match, ...]
    missed: tuple[Fact, ...]


def read_answer(text: str, chat: Chat) -> Extraction:
    """Return the facts of an answer as the consolidator reads it: the JSON object in it, and the facts of it that are
    complete.
    """
    value = parse_object(text)
    facts = value.get("facts") if value is not None else None
    if not isinstance(facts, list):
        return Extraction(problem="the answer is no JSON object with facts")
    usable = [fact for one in facts[:FACTS_MAX] if (fact := _usable(one, chat)) is not None]
    return Extraction(facts=tuple(usable), invalid=len(facts[:FACTS_MAX]) - len(usable))


def parse_object(text: str) -> Mapping[str, Any] | None:
    """Return the JSON object that a text has from its first to its last brace; None without one."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return None
    try:
        value = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def compare(chat: Chat, facts: Sequence[Fact], extraction: Extraction) -> ChatResult:
    """Return which facts of a chat were extracted."""
    rest = list(facts)
    matches = []
    for extracted in extraction.facts:
        fact = next((one for one in _nearest(rest, extracted.message) if says(extracted, one)), None)
        if fact is not None:
            rest.remove(fact)
        ability = chat.messages[extracted.message if fact is None else fact.message].ability
        matches.append(Match(extracted=extracted, fact=fact, ability=ability))
    return ChatResult(chat=chat, extraction=extraction, matches=tuple(matches), missed=tuple(rest))


def says(extracted: ExtractedFact, fact: Fact) -> bool:
    """Whether an extracted fact has the words of a fact's value and of what it is about."""
    needed = stems(f"{fact.answer or fact.text} {fact.about}") - ARTICLES
    return needed <= stems(f"{extracted.subject} {extracted.text}")


def summarize(results: Iterable[ChatResult]) -> dict[str, AbilityFigures]:
    """Return the figures of each ability that the chats have."""
    figures: dict[str, AbilityFigures] = {}

    def add(ability: str, *, facts: int = 0, extracted: int = 0, right: int = 0) -> None:
        if ability:
            so_far = figures.get(ability, AbilityFigures())
            figures[ability] = AbilityFigures(
                facts=so_far.facts + facts, extracted=so_far.extracted + extracted, right=so_far.right + right
            )

    for result in results:
        for message in result.chat.messages:
            add(message.ability)
        for match in result.matches:
            add(match.ability, facts=match.fact is not None, extracted=1, right=match.fact is not None)
        for fact in result.missed:
            add(result.chat.messages[fact.message].ability, facts=1)
    return figures


def total(figures: Iterable[AbilityFigures]) -> AbilityFigures:
    """Return the figures of all abilities together."""
    kept = list(figures)
    return AbilityFigures(
        facts=sum(one.facts for one in kept),
        extracted=sum(one.extracted for one in kept),
        right=sum(one.right for one in kept),
    )


def _usable(value: Any, chat: Chat) -> ExtractedFact | None:
    if not isinstance(value, dict) or value.get("class") not in CLASSES:
        return None
    number = value.get("message")
    subject, text = _text(value, "subject", SUBJECT_CHARACTERS_MAX), _text(value, "fact", FACT_CHARACTERS_MAX)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(chat.messages):
        return None
    if not subject or not text:
        return None
    quote = value.get("quote")
    return ExtractedFact(
        fact_class=value["class"],
        subject=subject,
        text=text,
        message=number,
        has_quote=isinstance(quote, str) and bool(quote) and quote in chat.messages[number].text,
    )


def _text(value: Mapping[str, Any], name: str, most: int) -> str:
    text = value.get(name)
    return " ".join(text.split()) if isinstance(text, str) and len(text) <= most else ""


def _nearest(facts: Sequence[Fact], message: int) -> list[Fact]:
    """Return the facts, those of the message first."""
    return sorted(facts, key=lambda fact: fact.message != message)
