"""Search, recall and administration over an index in Postgres; the rows of entries are in memory."""

import asyncio
import itertools

import orjson
import pytest
from msgspec import to_builtins

from loomlog.connectors.embedders.stub import StubEmbedder
from loomlog.projections.memory_index.reads import Filter, MemoryIndex
from loomlog.services.core.operation_input import parse_operation
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.memory.api import SEARCH, MemoryRecall
from loomlog.services.families.memory.author import Author, Grants, Scope
from loomlog.services.families.memory.index_administration import IndexAdministration
from loomlog.services.families.memory.ranking import Rank
from loomlog.services.families.memory.search import MemoryFinder, MemorySearcher
from loomlog.services.families.memory.search_request import LEXICAL, SEMANTIC, SearchRequest
from tests.projections.memory_index.world import AT_MS, FACT, SCOPE, World, entry_deleted, entry_set

STUB = StubEmbedder()
ANN = Scope("acme", "user", "ann")
TOPIC = "loom.entity.events"


class Reads:
    """The part of EntityReads that search uses."""

    topic, partitions = TOPIC, 1

    def __init__(self, world: World) -> None:
        self.world = world

    async def load_items(self, family, tenant, kind, ids, *, positions=()):
        assert (family, kind) == ("memory", "entry")
        return [row for row in self.world.rows.values() if row.tenant == tenant and row.id in ids]


def author(*positions: str) -> Author:
    return Author(
        tenant="acme", subject="op", command_id="c", issued_at_ms=0, grants=Grants(), positions=tuple(positions)
    )


@pytest.fixture
def make(world):
    def make(*embedders, **more) -> MemorySearcher:
        return MemorySearcher(world.index, Reads(world), **({"clock_ms": lambda: AT_MS, "embedders": embedders} | more))

    return make


@pytest.fixture
async def filled(world) -> World:
    await world.write(
        entry_set("trip", "a kayak trip on the river", embed=True),
        entry_set("boat", {"text": "the user owns a red kayak", "metadata": {"sure": True}}, 2, provenance=FACT),
        entry_set("tea", "green tea in the morning", 3, embed=True),
        entry_set("note", "kayak rental costs 20", 4),
    )
    await world.embed(STUB)
    return world


async def test_the_model_of_a_vector_is_told_for_the_revision_that_it_is_of(filled):
    store = await filled.index.vectors()
    assert store is not None
    models = await store.models(SCOPE, {"trip": 1, "tea": 2, "note": 4, "none": 1})
    assert {key: (of.provider, of.model, of.dimension) for key, of in models.items()} == {
        "trip": (STUB.provider, STUB.model, STUB.dimension)
    }
    assert await store.models("memory:acme/user/another", {"trip": 1}) == {}


async def told(answer):
    """The JSON of an answer."""
    return to_builtins(await answer)


async def search(searcher: MemorySearcher, **fields):
    return await told(MemoryFinder(searcher).search(ANN, parse_operation(SEARCH, fields), author()))


async def found(searcher: MemorySearcher, query: str, **more) -> list[str]:
    return [hit.key for hit in (await searcher.search(ANN, SearchRequest(query=query, **more))).hits]


async def test_a_search_answers_with_values_scores_and_the_places_in_both_rankings(filled, make):
    answer = await search(make(STUB), query="a kayak trip on the river", top_k=2)
    assert {name: answer[name] for name in answer if name != "entries"} == {
        "query_embedding_dim": 256,
        "truncated": True,
    }
    first, second = answer["entries"]
    assert first == {
        "key": "trip",
        "kind": "note",
        "value": "a kayak trip on the river",
        "score": pytest.approx(1.0, abs=0.001),
        "rank_score": 1.0,
        "ranks": {"lexical": 1, "semantic": 1},
        "embedded_with": {"provider": "stub", "model": "stub"},
        "expires_at": None,
    }
    assert second["key"] == "boat"
    assert 0 < second["score"] < 1


async def test_an_entry_without_a_vector_is_a_hit_by_its_words(filled, make):
    answer = await search(make(STUB), query="rental costs")
    hit = answer["entries"][0]
    assert (hit["key"], hit["score"], hit["embedded_with"]) == ("note", 0.0, None)
    assert hit["ranks"] == {"lexical": 1, "semantic": None}


async def test_the_score_of_a_hit_by_words_is_its_cosine_too(world, make):
    await world.write(*[entry_set(f"k{n}", f"kayak {n}", embed=True) for n in range(60)])
    await world.write(entry_set("far", "kayak kayak kayak alpha beta gamma delta epsilon zeta eta theta", embed=True))
    await world.embed(STUB)
    result = await make(STUB).search(ANN, SearchRequest(query="alpha kayak", top_k=50))
    assert all(hit.score is not None for hit in result.hits)


async def test_sources_prefix_and_top_k_limit_a_search(filled, make):
    searcher = make(STUB)
    assert await found(searcher, "kayak", sources=("facts",)) == ["boat"]
    assert sorted(await found(searcher, "kayak", sources=("notes",))) == ["note", "tea", "trip"]
    assert await found(searcher, "kayak", sources=("documents",)) == []
    assert await found(searcher, "kayak", prefix="bo") == ["boat"]
    assert len(await found(searcher, "kayak", top_k=1)) == 1
    answer = await search(searcher, query="kayak", sources=["facts"])
    assert answer["sources_applied"] is True


async def test_a_hit_whose_row_is_gone_expired_or_newer_is_left_out(filled, make):
    searcher = make()
    rows = filled.rows
    del rows[SCOPE, "trip"]
    changed = orjson.loads(rows[SCOPE, "boat"].document) | {"revision": 9}
    rows[SCOPE, "boat"] = rows[SCOPE, "boat"]._replace(document=orjson.dumps(changed).decode())
    assert await found(searcher, "kayak") == ["note"]
    expired = orjson.loads(rows[SCOPE, "note"].document) | {"expires_at_ms": AT_MS}
    rows[SCOPE, "note"] = rows[SCOPE, "note"]._replace(document=orjson.dumps(expired).decode())
    assert await found(searcher, "kayak") == []


async def test_copies_are_dropped_merged_or_marked(world, make):
    await world.write(*[entry_set(f"k{n}", "a kayak trip on the river", embed=True) for n in range(3)])
    await world.write(entry_set("other", "kayak rental", embed=True))
    await world.embed(STUB)

    async def answer(mode: str):
        return await search(make(STUB), query="kayak trip", dedup={"enabled": True, "mode": mode})

    dropped = await answer("drop")
    assert ([hit["key"] for hit in dropped["entries"]], dropped["dedup_dropped"]) == (["k0", "other"], 2)
    assert (await answer("merge"))["entries"][0]["merged"] == ["k1", "k2"]
    kept = await answer("keep")
    assert [hit.get("duplicate_of") for hit in kept["entries"] if hit["key"] != "other"] == [None, "k0", "k0"]


async def test_used_entries_rise_and_counters_are_written_in_batches(filled, make, monkeypatch):
    searcher = make()
    used = Rank(frequency_weight=1.0)
    for _ in range(3):
        assert await found(searcher, "rental") == ["note"]
    assert await filled.count(f"{filled.schemas.kept}.access") == 0
    await searcher.close()
    assert (await found(searcher, "kayak", rank=used))[0] == "note"
    monkeypatch.setattr("loomlog.services.families.memory.search.FLUSH_ACCESSES", 1)
    await found(searcher, "tea")
    await searcher.close()
    assert await filled.count(f"{filled.schemas.kept}.access WHERE key = 'tea'") == 1


async def test_recall_answers_with_facts_only(filled, make):
    finder = MemoryFinder(make(STUB))
    answer = await told(finder.recall(ANN, MemoryRecall(query="the user owns a red kayak"), author()))
    (fact,) = answer["facts"]
    assert {name: fact[name] for name in ("id", "memory", "metadata")} == {
        "id": "boat",
        "memory": "the user owns a red kayak",
        "metadata": {"class": "preference", "sure": True},
    }
    assert (await finder.recall(ANN, MemoryRecall(query="kayak", threshold=0.99), author())).facts == []


# --- without vectors ---------------------------------------------------------------------------------------------


async def test_without_an_embedder_words_answer_and_it_says_so(filled, make):
    result = await make().search(ANN, SearchRequest(query="kayak"))
    assert (result.hits[0].key, result.query_embedding_dim) == ("note", 0)
    assert result.rank_note == "found by words only: no embedder is configured"
    with pytest.raises(Refused) as refused:
        await make().search(ANN, SearchRequest(query="kayak", mode=SEMANTIC))
    assert refused.value.code == "embedder_not_configured"
    assert (await make(STUB).search(ANN, SearchRequest(query="kayak", mode=LEXICAL))).rank_note == ""


async def test_another_model_leaves_words_and_names_what_to_do(filled, make):
    other = StubEmbedder(model="other", dimensions=128)
    result = await make(other).search(ANN, SearchRequest(query="kayak"))
    assert "stub/stub (256)" in result.rank_note
    assert "reembed" in result.rank_note
    assert {hit.key for hit in result.hits} == {"trip", "boat", "note"}
    with pytest.raises(Refused, match="reembed") as refused:
        await make(other).search(ANN, SearchRequest(query="kayak", mode=SEMANTIC))
    assert refused.value.code == "dimension_mismatch"


async def test_the_former_embedder_answers_until_the_new_set_is_complete(filled, make):
    new = StubEmbedder(model="new", dimensions=128)
    searcher = make(new, STUB)
    await filled.embedder(new).target()
    result = await searcher.search(ANN, SearchRequest(query="kayak trip"))
    assert (result.query_embedding_dim, result.rank_note) == (256, "")
    await filled.embed(new)
    filled.index._sets = (0.0, [])
    result = await searcher.search(ANN, SearchRequest(query="kayak trip"))
    assert (result.query_embedding_dim, result.rank_note) == (128, "")


@pytest.mark.parametrize("reply", [[], [[float("nan")] * 256], [[0.5]], [[0.0] * 256]], ids=str)
async def test_a_bad_vector_of_the_query_leaves_words(filled, make, reply):
    class Bad(StubEmbedder):
        async def embed(self, texts):
            return reply

    result = await make(Bad()).search(ANN, SearchRequest(query="kayak"))
    assert {hit.key for hit in result.hits} == {"trip", "boat", "note"}
    assert result.rank_note.startswith("found by words only")


async def test_an_embedder_that_hangs_or_fails_leaves_words(filled, make, monkeypatch):
    class Hanging(StubEmbedder):
        async def embed(self, texts):
            await asyncio.sleep(60)

    class Failing(StubEmbedder):
        async def embed(self, texts):
            raise RuntimeError("stub 429")

    monkeypatch.setattr("loomlog.services.families.memory.search.QUERY_EMBED_S", 0.01)
    for embedder in (Hanging(), Failing()):
        result = await make(embedder).search(ANN, SearchRequest(query="kayak"))
        assert len(result.hits) == 3
        assert result.rank_note.startswith("found by words only")
    with pytest.raises(Unavailable, match="429"):
        await make(Failing()).search(ANN, SearchRequest(query="kayak", mode=SEMANTIC))


async def test_without_an_index_a_search_is_refused(world):
    nowhere = MemoryIndex(world.pool, f"{world.prefix}_nowhere", hasher=world.hasher)
    searcher = MemorySearcher(nowhere, Reads(world), clock_ms=lambda: AT_MS)
    with pytest.raises(Refused) as refused:
        await searcher.search(ANN, SearchRequest(query="kayak"))
    assert refused.value.code == "search_unavailable"


# --- positions and vectors of writes -----------------------------------------------------------------------------


async def test_a_search_waits_for_the_positions_of_its_caller(filled, make, monkeypatch):
    cursors = f"{filled.schemas.schema}.cursors"
    await filled.connection.execute(
        f"INSERT INTO {cursors} (topic, partition, next_offset, term, epoch, owner) VALUES ('{TOPIC}', 0, 5, 0, 1, 't')"
    )
    searcher = make()
    assert (await searcher.search(ANN, SearchRequest(query="kayak"), [f"{TOPIC}/0:4", "loom.run.events/0:99"])).hits
    waiting = asyncio.create_task(searcher.search(ANN, SearchRequest(query="kayak"), [f"{TOPIC}/0:5"]))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await filled.connection.execute(f"UPDATE {cursors} SET next_offset = 6")
    assert (await waiting).hits
    monkeypatch.setattr("loomlog.services.families.memory.search.WAIT_S", 0.05)
    with pytest.raises(Unavailable, match="offset 9 yet, 4 records"):
        await searcher.search(ANN, SearchRequest(query="kayak"), [f"{TOPIC}/0:9"])
    with pytest.raises(Unavailable, match="not a position"):
        await searcher.search(ANN, SearchRequest(query="kayak"), ["x"])


async def test_a_write_waits_for_its_vector(world, make, monkeypatch):
    monkeypatch.setattr("loomlog.services.families.memory.search.WAIT_S", 0.2)
    searcher = make(STUB)
    await world.connection.execute(
        f"INSERT INTO {world.schemas.schema}.cursors (topic, partition, next_offset, term, epoch, owner) "
        f"VALUES ('{TOPIC}', 0, 5, 0, 1, 't')"
    )
    await world.write(entry_set("a", "kayak", embed=True), entry_set("empty", "", embed=True))
    position = f"{TOPIC}/0:4"
    assert await make().wait_embedded(ANN, "a", 1, position) == (False, "embedder_not_configured")
    assert await searcher.wait_embedded(ANN, "a", 1, position) == (False, "pending")
    assert await searcher.wait_embedded(ANN, "a", 1, f"{TOPIC}/0:5") == (False, "pending")
    assert await searcher.wait_embedded(ANN, "empty", 1, position) == (False, "nothing_to_embed")
    monkeypatch.setattr("loomlog.services.families.memory.search.WAIT_S", 30.0)
    waiting = asyncio.create_task(searcher.wait_embedded(ANN, "a", 1, position))
    await asyncio.sleep(0.05)
    await world.embed(STUB)
    assert await waiting == (True, "")


# --- administration ----------------------------------------------------------------------------------------------


@pytest.fixture
def administration(world):
    return lambda embedder=STUB: IndexAdministration(world.index, Reads(world), embedder=embedder)


async def test_the_vectors_of_a_tenant_are_counted(filled, administration):
    answer = await told(administration().embed_stats("acme"))
    (model,) = answer["models"]
    assert (model["provider"], model["model"], model["dimension"], model["rows"]) == ("stub", "stub", 256, 3)
    assert answer["total_embedding_bytes"] == model["bytes"] > 3 * 512
    assert "notes" not in answer
    assert await told(administration().embed_stats("other")) == {
        "tenant": "other",
        "models": [],
        "total_embedding_bytes": 0,
    }


async def test_a_scope_is_embedded_again_for_another_model(filled, administration):
    new = StubEmbedder(model="new", dimensions=128)
    dry = await told(administration(new).reembed(ANN))
    assert dry == {
        "scope": "user",
        "scope_id": "ann",
        "dry_run": True,
        "rows_total": 3,
        "rows_to_reembed": 3,
        "current_embedder": {"provider": "stub", "model": "new", "dimension": 128},
        "sample_keys": ["boat", "tea", "trip"],
        "sample_keys_capped": False,
    }
    assert len(await filled.store.sets()) == 1
    real = await told(administration(new).reembed(ANN, dry_run=False))
    assert (real["rows_reembedded"], real["rows_failed"], "failed_keys" in real) == (3, 0, False)
    assert (await told(administration(new).reembed(ANN)))["rows_to_reembed"] == 0
    assert len((await told(administration(new).embed_stats("acme")))["notes"]) == 2


async def test_missing_vectors_are_made_and_stale_ones_removed(filled, administration):
    await filled.write(entry_set("late", "chess club", 5, embed=True), entry_set("lost", "x", 6, embed=True))
    del filled.rows[SCOPE, "lost"]
    dry = await told(administration().backfill(ANN))
    assert dry == {
        "scope": "user",
        "scope_id": "ann",
        "dry_run": True,
        "candidates": 2,
        "embedded": 0,
        "failed": 0,
        "skipped_empty": 0,
        "more": False,
    }
    real = await told(administration().backfill(ANN, dry_run=False))
    assert (real["embedded"], real["failed"]) == (1, 1)
    new = StubEmbedder(model="new", dimensions=128)
    await told(administration(new).reembed(ANN, dry_run=False))
    await filled.write(entry_deleted("lost", 7))
    assert await filled.store.activate((await filled.store.sets())[1])
    dry = await told(administration(new).purge_stale(ANN))
    assert (dry["scanned"], dry["stale"], dry["purged"], dry["truncated"]) == (8, 4, 0, False)
    assert (await told(administration(new).purge_stale(ANN, dry_run=False)))["purged"] == 4
    assert (await told(administration(new).purge_stale(ANN)))["scanned"] == 4


async def test_administration_needs_vectors_and_an_embedder(world, administration):
    nowhere = MemoryIndex(world.pool, f"{world.prefix}_nowhere", hasher=world.hasher)
    with pytest.raises(Refused) as refused:
        await IndexAdministration(nowhere, Reads(world), embedder=STUB).embed_stats("acme")
    assert refused.value.code == "vector_unsupported"
    with pytest.raises(Refused) as refused:
        await told(administration(None).reembed(ANN))
    assert refused.value.code == "embedder_not_configured"


async def test_hybrid_search_answers_what_either_half_answers(world, make):
    """Of generated questions, those answered among five by words or by meaning are answered by both together."""
    people = ["anna", "bruno", "chiara", "dmitri", "elena", "farid"]
    things = ["kayak", "violin", "bicycle", "telescope", "accordion", "sailboat", "microscope"]
    entries = [
        entry_set(f"{person}/{thing}", f"{person} repaired the {thing} in week {number}", number + 1, embed=True)
        for number, (person, thing) in enumerate(itertools.product(people, things))
    ]
    await world.write(*entries)
    await world.embed(STUB)
    hits = dict.fromkeys(("hybrid", LEXICAL, SEMANTIC), 0)
    searcher = make(STUB)
    for person, thing in itertools.product(people, things):
        query = f"when was the {thing} of {person} being repaired"
        for mode in hits:
            result = await searcher.search(ANN, SearchRequest(query=query, top_k=5, mode=mode))
            hits[mode] += f"{person}/{thing}" in [hit.key for hit in result.hits]
    assert hits["hybrid"] >= max(hits.values())
    assert hits["hybrid"] > 0.9 * len(entries)
    assert await world.index.find_words("repaired", Filter(SCOPE, now_ms=AT_MS), 5)
