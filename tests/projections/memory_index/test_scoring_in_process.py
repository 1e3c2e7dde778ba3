"""The ranking by words of `loomlog memory-eval` is that of the index."""

import pytest
from msgspec.structs import replace

from loomlog.projections.memory_index.reads import Filter
from loomlog.services.families.memory.commands.evaluation.generator import generate
from loomlog.services.families.memory.commands.evaluation.ranking import DocumentIndex, fact_documents
from loomlog.services.families.memory.commands.evaluation.stand_in import StandInEmbedder
from loomlog.services.families.memory.slug import fact_key
from tests.projections.memory_index.world import AT_MS, SCOPE, World, entry_set

FACTS = 300
LIMIT = 40


async def test_scores_of_facts_are_those_of_the_index(world: World) -> None:
    corpus = generate(1)
    facts = {fact_key(one.fact_class, one.subject): one for one in corpus.facts[:FACTS]}
    await world.write(
        *(
            entry_set(key, {"memory": one.text, "subject": one.subject}, embed_text=one.text)
            for key, one in facts.items()
        )
    )
    named = [replace(one, id=key, replaces=()) for key, one in facts.items()]
    index = DocumentIndex(await fact_documents(named, StandInEmbedder(8)))
    for question in corpus.questions[::9]:
        hits = await world.index.find_words(question.text, Filter(SCOPE, now_ms=AT_MS), LIMIT)
        scores = index.score_words(question.text)
        indexed = {hit.key: float(hit.score) for hit in hits}
        assert indexed == pytest.approx({key: scores[key] for key in indexed})
        assert list(indexed.values()) == pytest.approx(sorted(scores.values(), reverse=True)[:LIMIT])
