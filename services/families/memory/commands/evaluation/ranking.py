"""Rankings of a corpus in this process, with the rules of the product and without Postgres.

Lexemes, their choice, BM25, fusion, ranking and copies are the functions that searches use. Three things differ from a
search: frequencies of words are counted instead of estimated from 500 entries, vectors are compared exactly, and no
entry has been found before (frequency_weight has no effect).

    lexical, vector, hybrid   the facts, as entries of a scope
    whole chat                each chat is one document, ranked as hybrid ranks facts

Before: offline.py. After: projections/memory_index, services/families/memory/ranking.py.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from operator import mul
from typing import NamedTuple

import orjson

from loomlog.projections.memory_index.scoring import TERMS_MAX, ScopeSample, bm25, rarest, select_lexemes
from loomlog.projections.memory_index.texts import EMBED_CHARACTERS_MAX, entry_lexemes
from loomlog.projections.memory_index.tokens import LexemeHasher, count_lexemes
from loomlog.projections.memory_index.vectors import Embedder
from loomlog.services.families.memory.commands.evaluation.corpus import Chat, Corpus, Fact, Question
from loomlog.services.families.memory.ranking import RankFacts, ranked, without_copies
from loomlog.services.families.memory.search import FETCH_FACTOR, FETCH_MAX
from loomlog.services.families.memory.search_request import SearchRequest
from loomlog.services.families.memory.slug import fact_key

LEXICAL, VECTOR, HYBRID, WHOLE_CHAT = "lexical", "vector", "hybrid", "whole chat"
MODES = (LEXICAL, VECTOR, HYBRID, WHOLE_CHAT)
SCOPE = "evaluation"
HASHER = LexemeHasher(b"")


class Document(NamedTuple):
    """Something that can be found."""

    key: str
    counts: Mapping[int, int]
    """How often each lexeme is in it."""
    vector: Sequence[float]
    characters: int
    at_ms: int


class Query(NamedTuple):
    """A question with its vector."""

    question: Question
    vector: Sequence[float]


class Ranked(NamedTuple):
    """A document in its place."""

    document: Document
    score: float | None
    """Cosine to the question; None: vectors take no part."""


class DocumentIndex:
    """Documents of one scope."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = {one.key: one for one in documents}
        self._mean_length = sum(sum(one.counts.values()) for one in documents) / max(len(documents), 1) or 1.0
        self._postings: dict[int, list[str]] = {}
        self._cosines_of: dict[str, dict[str, float]] = {}
        for one in documents:
            for lexeme in one.counts:
                self._postings.setdefault(lexeme, []).append(one.key)

    def rank(self, query: Query, mode: str, request: SearchRequest) -> list[Ranked]:
        """Return what a search in a mode finds, the best first, at most `top_k`."""
        fetch = min(FETCH_FACTOR * request.top_k, FETCH_MAX)
        cosines = {} if mode == LEXICAL else self._cosines(query)
        near = sorted(cosines, key=lambda key: (-cosines[key], key))[:fetch]
        words = [] if mode == VECTOR else self.find_words(query.question.text)[:fetch]
        now_ms = max((one.at_ms for one in self._documents.values()), default=0)
        hits = ranked(
            words,
            near,
            {key: RankFacts(self._documents[key].at_ms, 0) for key in (*words, *near)},
            request.rank,
            rankings=1 if mode in (LEXICAL, VECTOR) else 2,
            now_ms=now_ms,
        )
        if request.dedup.enabled and cosines:
            similar = [
                (first.key, second.key)
                for first, second in combinations(hits, 2)
                if cosine(self._documents[first.key].vector, self._documents[second.key].vector)
                >= request.dedup.threshold
            ]
            hits, _ = without_copies(hits, similar, request.dedup.mode)
        return [Ranked(self._documents[hit.key], cosines.get(hit.key)) for hit in hits[: request.top_k]]

    def find_words(self, text: str) -> list[str]:
        """Return the keys of documents with words of a text, the best first."""
        scores = self.score_words(text)
        return sorted(scores, key=lambda key: (-scores[key], key))

    def score_words(self, text: str) -> dict[str, float]:
        """Return the scores of the documents with words of a text, by key."""
        terms = list(HASHER.numbers(SCOPE, dict(list(count_lexemes(text).items())[:TERMS_MAX])))
        if not terms or not self._documents:
            return {}
        count = len(self._documents)
        frequencies = {term: len(self._postings.get(term, ())) for term in terms}
        selection = select_lexemes(terms, ScopeSample(count, count, self._mean_length, frequencies))
        keys = {key for term in selection.any_of for key in self._postings.get(term, ())}
        for first, second in selection.pairs:
            keys |= {*self._postings.get(first, ())} & {*self._postings.get(second, ())}
        if not keys:
            keys = {*self._postings.get(rarest(selection), ())}
        return {key: bm25(self._documents[key].counts, selection.telling, self._mean_length) for key in keys}

    def _cosines(self, query: Query) -> dict[str, float]:
        if query.question.id not in self._cosines_of:
            cosines = {one.key: cosine(one.vector, query.vector) for one in self._documents.values()}
            self._cosines_of[query.question.id] = cosines
        return self._cosines_of[query.question.id]


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the cosine of two vectors of length 1."""
    return float(sum(map(mul, a, b)))


async def fact_documents(facts: Sequence[Fact], embedder: Embedder) -> list[Document]:
    """Return the entries that a consolidation of these facts leaves, by the ids of the facts."""
    retired = {fact_id for fact in facts for fact_id in fact.replaces}
    kept = [fact for fact in facts if fact.id not in retired]
    vectors = await embedder.embed([fact.text for fact in kept])
    return [
        _document(fact.id, _lexemes(fact), vector, fact.text, fact.at_ms)
        for fact, vector in zip(kept, vectors, strict=True)
    ]


def _lexemes(fact: Fact) -> Mapping[str, int]:
    value = orjson.dumps({"memory": fact.text, "subject": fact.subject}).decode()
    return entry_lexemes(fact_key(fact.fact_class, fact.subject), value, fact.text)


async def chat_documents(chats: Sequence[Chat], embedder: Embedder) -> list[Document]:
    """Return one document for each chat."""
    vectors = await embedder.embed([chat.text[:EMBED_CHARACTERS_MAX] for chat in chats])
    return [
        _document(chat.id, count_lexemes(chat.text), vector, chat.text, chat.at_ms)
        for chat, vector in zip(chats, vectors, strict=True)
    ]


def _document(key: str, counts: Mapping[str, int], vector: Sequence[float], text: str, at_ms: int) -> Document:
    return Document(key, HASHER.numbers(SCOPE, counts), vector, len(text), at_ms)


async def queries(questions: Sequence[Question], embedder: Embedder) -> list[Query]:
    """Return the questions with their vectors."""
    vectors = await embedder.embed([question.text for question in questions])
    return [Query(question, vector) for question, vector in zip(questions, vectors, strict=True)]


def of_chats(question: Question, corpus: Corpus) -> Question:
    """Return a question whose answers are the chats of the facts that answer it. A chat that says the newest value is
    not outdated, whatever else it says.
    """
    chats = {fact.id: fact.chat for fact in corpus.facts}
    answers = dict.fromkeys(chats[one] for one in question.answers if chats[one])
    outdated = dict.fromkeys(chats[one] for one in question.outdated if chats[one] not in answers)
    return Question(
        id=question.id, type=question.type, text=question.text, answers=tuple(answers), outdated=tuple(outdated)
    )
