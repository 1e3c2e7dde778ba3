import pytest

from loomlog.services.core.operation_input import parse_operation
from loomlog.services.families.memory.api import SEARCH
from loomlog.services.families.memory.commands.evaluation.corpus import Question
from loomlog.services.families.memory.commands.evaluation.ranking import (
    HYBRID,
    LEXICAL,
    MODES,
    VECTOR,
    DocumentIndex,
    fact_documents,
    of_chats,
    queries,
)
from loomlog.services.families.memory.commands.evaluation.stand_in import StandInEmbedder
from loomlog.services.families.memory.search_request import search_request
from tests.services.families.memory.commands.evaluation.corpora import TOWNS, fact, question

EMBEDDER = StandInEmbedder(256)


async def ranked(facts, text: str, mode: str, **fields) -> list[str]:
    index = DocumentIndex(await fact_documents(facts, EMBEDDER))
    (query,) = await queries([question(text)], EMBEDDER)
    return [
        hit.document.key
        for hit in index.rank(query, mode, search_request(parse_operation(SEARCH, {"query": "-", **fields})))
    ]


async def test_words_find_what_has_them_and_vectors_what_means_it():
    assert await ranked(TOWNS.facts, "Ada kayaks", LEXICAL) == ["boat", "old", "new"]
    assert (await ranked(TOWNS.facts, "residence of Ben", VECTOR))[0] == "ben"
    assert (await ranked(TOWNS.facts, "Ada's kayak", HYBRID))[0] == "boat"


async def test_a_misspelt_name_is_found_by_its_vector_only():
    assert await ranked(TOWNS.facts, "Tuurin", LEXICAL) == []
    assert (await ranked(TOWNS.facts, "Tuurin", VECTOR))[0] == "ben"
    assert (await ranked(TOWNS.facts, "Tuurin", HYBRID))[0] == "ben"


@pytest.mark.parametrize("mode", MODES[:3])
async def test_a_retired_fact_is_not_there(mode):
    facts = [*TOWNS.facts[:1], fact("newer", "Ada lives in Brno.", "Ada's home", replaces=("old",))]
    assert await ranked(facts, "Where does Ada live?", mode) == ["newer"]


async def test_recency_puts_the_newer_value_first():
    assert (await ranked(TOWNS.facts, "Ada lives in which town?", HYBRID))[0] == "old"
    rank = {"recency_weight": 1.0, "recency_half_life_hours": 24}
    assert (await ranked(TOWNS.facts, "Ada lives in which town?", HYBRID, rank=rank))[0] == "new"


async def test_top_k_limits_and_copies_are_dropped():
    facts = [*TOWNS.facts, fact("copy", "Ada lives in Porto.", "Ada's home town")]
    assert len(await ranked(facts, "Ada", HYBRID, top_k=2)) == 2
    with_copy = await ranked(facts, "Ada lives in Porto", HYBRID)
    without = await ranked(facts, "Ada lives in Porto", HYBRID, dedup={"enabled": True, "threshold": 0.99})
    assert {*with_copy} - {*without} == {with_copy[1]}
    assert {*with_copy[:2]} == {"old", "copy"}


async def test_no_documents_and_a_question_without_words_find_nothing():
    assert await ranked([], "Ada", HYBRID) == []
    assert await ranked(TOWNS.facts, "?!", LEXICAL) == []


def test_the_answers_among_chats_are_those_of_the_facts():
    asked = Question(id="q", type="updates", text="?", answers=("new", "ben"), outdated=("old",))
    of = of_chats(asked, TOWNS)
    assert (of.answers, of.outdated) == (("c2",), ("c1",))
    both = Question(id="q", type="updates", text="?", answers=("old", "new"), outdated=("old",))
    assert of_chats(both, TOWNS).outdated == ()


async def test_the_stand_in_knows_other_words_grammar_and_misspelt_ones():
    texts = ["beverage for Rosa", "drink for Rosa", "badge for Rosa", "bevreage for Rosa", "the of and", "", "zebra"]
    beverage, drink, badge, misspelt, grammar, empty, zebra = await EMBEDDER.embed(texts)

    def near(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    assert near(beverage, drink) > near(beverage, badge) + 0.1
    assert near(beverage, misspelt) > near(beverage, badge)
    assert near(beverage, grammar) < 0.3
    assert near(empty, empty) == pytest.approx(1)
    assert near(beverage, zebra) < 0.3
    assert EMBEDDER.dimension == len(beverage) == 256
