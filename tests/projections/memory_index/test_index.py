"""The index of memory against Postgres: words, vectors, removal, erasure, other sets of embeddings."""

import asyncio
import math

import pytest

from loomlog.connectors.embedders.stub import StubEmbedder
from loomlog.projections.memory_index.embedding import EmbedderRefused
from loomlog.projections.memory_index.reads import Filter, IndexMissing, MemoryIndex
from loomlog.projections.memory_index.tables import FACT as FACT_KIND
from loomlog.projections.memory_index.tables import NOTE, empty_index, prepare_index
from loomlog.projections.memory_index.tokens import LexemeHasher
from loomlog.projections.memory_index.vectors import vector_literal
from loomlog.schemas.generated.memory_events import EntriesExpired, EntrySuperseded, ScopeDropped
from loomlog.schemas.generated.values import MemorySource
from tests.projections.memory_index.world import AT_MS, FACT, SCOPE, World, entry_deleted, entry_set

OTHER = "memory:other/user/ann"
STUB = StubEmbedder()


async def near(world: World, text: str, **more) -> list[tuple[str, float]]:
    active = next(one for one in await world.store.sets() if one.is_active)
    vector = vector_literal((await StubEmbedder(dimensions=active.dimension).embed([text]))[0], active.dimension)
    hits = await world.index.find_near(vector, active, Filter(SCOPE, now_ms=AT_MS, **more), 51)
    return [(hit.key, round(hit.score, 3)) for hit in hits]


# --- words -------------------------------------------------------------------------------------------------------


async def test_an_entry_has_the_words_of_its_key_its_value_and_its_embed_text(world):
    await world.write(
        entry_set("pet/cat", {"name": "Mimi", "ages": [3, 7.5]}),
        entry_set("city", "likes Lisbon", embed_text="portuguese capital"),
        entry_set("number", 42),
        entry_set("nothing", None),
    )
    for query, key in {
        "cats": "pet/cat",
        "MIMI": "pet/cat",
        "7.5": "pet/cat",
        "name": "pet/cat",
        "lisbon": "city",
        "capitals": "city",
        "42": "number",
        "nothing": "nothing",
    }.items():
        assert await world.words(query) == [key], query
    assert await world.words("unknown") == []
    assert await world.words("…") == []


async def test_rare_words_weigh_more_and_short_entries_come_first(world):
    await world.write(
        *[entry_set(f"filler{n}", "the user likes tea in the morning") for n in range(30)],
        entry_set("rare", "the user likes kayaks"),
        entry_set("long", "kayaks " + "and many other things were said on that long day " * 5),
    )
    assert (await world.words("what kayaks likes the user"))[:2] == ["rare", "long"]


async def test_scopes_and_tenants_never_meet(world):
    await world.write(entry_set("a", "kayak"))
    await world.write(entry_set("b", "kayak"), scope=OTHER)
    assert await world.words("kayak") == ["a"]
    assert await world.words("kayak", scope=OTHER) == ["b"]
    result = await world.connection.execute(
        f"SELECT count(DISTINCT lexeme), count(*) FROM {world.schemas.schema}.entries, unnest(lexemes) lexeme"
    )
    distinct, rows = await result.fetchone()
    assert distinct == rows == 4


async def test_words_are_filtered_by_prefix_kind_and_expiry(world):
    await world.write(
        entry_set("a/1", "kayak", expires_at_ms=AT_MS + 1),
        entry_set("b/1", "kayak", provenance=FACT),
        entry_set("doc.chunk:1", "kayak", provenance=FACT),
    )
    assert sorted(await world.words("kayak")) == ["a/1", "b/1", "doc.chunk:1"]
    assert await world.words("kayak", prefix="a/") == ["a/1"]
    assert await world.words("kayak", kinds=[FACT_KIND]) == ["b/1"]
    assert await world.words("kayak", kinds=[NOTE]) == ["a/1"]
    assert sorted(await world.words("kayak", now_ms=AT_MS + 1)) == ["b/1", "doc.chunk:1"]


@pytest.mark.parametrize(
    "removal",
    [
        entry_deleted("a"),
        EntrySuperseded(
            scope="user",
            scope_id="ann",
            key="a",
            revision=2,
            previous_revision=1,
            source=MemorySource(origin="operator"),
        ),
        EntriesExpired(scope="user", scope_id="ann", keys=["a", "never"], revision=2, usage_bytes=0, usage_keys=0),
        ScopeDropped(
            scope="user",
            scope_id="ann",
            keys=["a"],
            more=False,
            revision=2,
            dropped_keys=1,
            dropped_bytes=1,
            source=MemorySource(origin="operator"),
        ),
    ],
    ids=lambda event: type(event).__name__,
)
async def test_a_removed_key_leaves_nothing(world, removal):
    await world.write(entry_set("a", "kayak", embed=True), entry_set("b", "kayak", embed=True))
    await world.embed(STUB)
    await world.index.count_accesses({(SCOPE, "a"): 1}, AT_MS)
    await world.write(removal)
    assert await world.words("kayak") == ["b"]
    assert [key for key, _ in await near(world, "kayak")] == ["b"]
    schema, kept = world.schemas.schema, world.schemas.kept
    for table in (f"{schema}.entries", f"{schema}.vectors", f"{kept}.access", f"{schema}.pending"):
        assert await world.count(f"{table} WHERE key = 'a'") == 0, table


async def test_the_last_event_of_a_key_decides_within_and_across_batches(world):
    await world.write(entry_set("a", "kayak"), entry_deleted("a"), entry_set("a", "canoe", 3))
    assert await world.words("kayak") == []
    await world.write(entry_set("a", "dinghy", 4), entry_set("b", "canoe", 5))
    await world.write(entry_set("a", "dinghy", 4), entry_set("b", "canoe", 5))
    assert (await world.words("dinghy"), await world.words("canoe")) == (["a"], ["b"])


async def test_everyday_words_of_a_large_scope_are_found_by_pairs(world, monkeypatch):
    monkeypatch.setattr("loomlog.projections.memory_index.reads.CANDIDATES_MAX", 60)
    entries = [entry_set(f"k{n}", f"tea {'milk' if n % 40 == 0 else 'coffee'} {n}") for n in range(3_000)]
    await world.write(*entries)
    assert {key for key in await world.words("tea milk") if int(key[1:]) % 40 == 0}
    assert await world.words("tea")
    assert await world.words("tea coffee 2999") == ["k2999"]


async def test_a_text_that_cannot_be_read_has_no_row_and_is_counted(world):
    await world.write(entry_set("a", "kayak"))

    async def erased(text, tenant):
        return None if "secret" in text else text

    world.decrypt = erased
    await world.write(entry_set("a", "secret", 2), entry_set("b", "canoe", embed_text="secret"))
    assert await world.count(f"{world.schemas.schema}.entries") == 0


async def test_an_index_of_another_secret_is_made_again_and_not_read(world):
    await world.write(entry_set("a", "kayak", embed=True))
    await world.embed(STUB)
    stranger = MemoryIndex(world.pool, world.prefix, hasher=LexemeHasher(b"other"))
    with pytest.raises(IndexMissing, match="LOOMLOG_SECRET_KEY"):
        await stranger.find_words("kayak", Filter(SCOPE), 10)
    await prepare_index(world.connection, LexemeHasher(b"other").check, world.prefix)
    assert await world.count(f"{world.schemas.schema}.entries") == 0
    assert await world.count(f"{world.schemas.kept}.embeddings") == 0
    assert await stranger.find_words("kayak", Filter(SCOPE), 10) == []


async def test_without_tables_there_is_no_index(world):
    nowhere = MemoryIndex(world.pool, f"{world.prefix}_nowhere", hasher=world.hasher)
    with pytest.raises(IndexMissing, match="no projector"):
        await nowhere.find_words("kayak", Filter(SCOPE), 10)


# --- vectors -----------------------------------------------------------------------------------------------------


async def test_facts_and_entries_that_ask_for_it_get_vectors(world):
    await world.write(
        entry_set("plain", "kayak trips"),
        entry_set("asked", "kayak trips", embed=True),
        entry_set("fact", "kayak trips on the river", provenance=FACT),
        entry_set("other text", "x", embed=True, embed_text="kayak trips"),
        entry_set("empty", "", embed=True),
    )
    assert await world.store.state(SCOPE, "asked", 1) == "pending"
    assert await world.store.state(SCOPE, "plain", 1) == await world.store.state(SCOPE, "empty", 1) == "none"
    outcome = await world.embed(STUB)
    assert sorted(one.key for one in outcome.embedded) == ["asked", "fact", "other text"]
    hits = dict(await near(world, "kayak trips"))
    assert hits["asked"] == hits["other text"] == 1.0
    assert 0.3 < hits["fact"] < 1.0
    assert await world.store.state(SCOPE, "asked", 1) == "embedded"
    assert await world.store.state(SCOPE, "asked", 2) == "none"
    assert dict(await near(world, "kayak trips", kinds=[FACT_KIND])) == {"fact": hits["fact"]}
    assert dict(await near(world, "kayak trips", prefix="ask")) == {"asked": 1.0}


async def test_another_value_has_another_vector_and_the_same_text_none_anew(world):
    await world.write(entry_set("a", "kayak trips", embed=True))
    await world.embed(STUB)
    await world.write(entry_set("a", "chess clubs", 2, embed=True))
    assert await near(world, "kayak trips") == []
    await world.embed(STUB)
    assert dict(await near(world, "chess clubs")) == {"a": 1.0}
    await world.write(entry_set("a", "kayak trips", 3, embed=True), entry_set("b", "kayak trips", embed=True))
    assert dict(await near(world, "kayak trips")) == {"a": 1.0, "b": 1.0}
    assert await world.count(f"{world.schemas.schema}.pending") == 0


async def test_a_rebuild_takes_vectors_from_the_cache(world):
    await world.write(entry_set("a", "kayak trips", embed=True))
    await world.embed(STUB)
    await empty_index(world.connection, world.schemas)
    assert await near(world, "kayak trips") == []
    await world.write(entry_set("a", "kayak trips", embed=True))
    assert dict(await near(world, "kayak trips")) == {"a": 1.0}
    assert await world.count(f"{world.schemas.schema}.pending") == 0


async def test_another_model_fills_its_set_while_the_old_one_answers(world):
    await world.write(entry_set("a", "kayak trips", embed=True))
    await world.embed(STUB)
    wide = StubEmbedder(model="wide", dimensions=384)
    work = world.embedder(wide)
    target = await work.target()
    assert not target.is_active
    assert not await world.store.activate(target)
    assert dict(await near(world, "kayak trips")) == {"a": 1.0}
    outcome = await work.embed(await world.store.due(2**62, 10), target)
    assert [one.key for one in outcome.embedded] == ["a"]
    assert await world.store.activate(target)
    assert [(one.model, one.is_active) for one in await world.store.sets()] == [("stub", False), ("wide", True)]
    assert dict(await near(world, "kayak trips")) == {"a": 1.0}
    total, stale = await world.store.stale(SCOPE, 10)
    assert (total, stale) == (2, [("a", 1)])
    assert await world.store.purge(SCOPE, stale) == 1
    assert await world.count(f"{world.schemas.kept}.embeddings") == 1


async def test_an_entry_that_changed_while_it_was_embedded_gets_no_old_vector(world):
    await world.write(entry_set("a", "kayak trips", embed=True))
    work = world.embedder(STUB)
    target = await work.target()
    due = await world.store.due(2**62, 10)
    await world.write(entry_set("a", "chess clubs", 2, embed=True), with_rows=False)
    outcome = await work.embed(due, target)
    assert (outcome.embedded, [one.key for one in outcome.empty]) == ([], ["a"])
    await world.store.forget(outcome.empty)
    assert [one.revision for one in await world.store.due(2**62, 10)] == [2]


async def test_an_entry_waits_for_its_row(world):
    await world.write(entry_set("a", "kayak trips", embed=True), with_rows=False)
    outcome = await world.embed(STUB)
    assert [one.key for one in outcome.later] == ["a"]
    await world.store.delay(outcome.later, AT_MS)
    assert await world.store.due(AT_MS + 49, 10) == []
    assert len(await world.store.due(AT_MS + 50, 10)) == 1


class Broken(StubEmbedder):
    """Spoils the vectors of texts with the word `bad`."""

    def __init__(self, spoil) -> None:
        super().__init__()
        self.spoil = spoil

    async def embed(self, texts):
        vectors = await super().embed(texts)
        return [self.spoil(vector) if "bad" in text else vector for text, vector in zip(texts, vectors, strict=True)]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda vector: [math.nan, *vector[1:]],
        lambda vector: [math.inf, *vector[1:]],
        lambda vector: vector[:-1],
        lambda vector: [0.0] * len(vector),
        lambda vector: ["x"] * len(vector),
        lambda vector: [1e308] * len(vector),
    ],
    ids=["nan", "infinite", "short", "zeros", "words", "overflow"],
)
async def test_a_bad_vector_fails_its_entry_only(world, spoil):
    await world.write(
        entry_set("a", "kayak trips", embed=True),
        entry_set("b", "bad trips", embed=True),
        entry_set("c", "chess clubs", embed=True),
    )
    outcome = await world.embed(Broken(spoil))
    assert (sorted(one.key for one in outcome.embedded), [one.key for one in outcome.failed]) == (["a", "c"], ["b"])
    for _ in range(5):
        assert await world.store.state(SCOPE, "b", 1) == "pending"
        await world.store.postpone(outcome.failed, AT_MS)
    assert await world.store.state(SCOPE, "b", 1) == "failed"
    assert await world.store.due(2**62, 10) == []
    assert sorted(await world.words("trips")) == ["a", "b"]


async def test_a_batch_of_the_wrong_length_fails_no_entry_that_works_alone(world):
    class Short(StubEmbedder):
        async def embed(self, texts):
            vectors = await super().embed(texts)
            return vectors if len(texts) == 1 else vectors[:-1]

    await world.write(entry_set("a", "kayak trips", embed=True), entry_set("b", "chess clubs", embed=True))
    assert len((await world.embed(Short())).embedded) == 2


async def test_a_failure_that_passes_blames_no_entry(world, monkeypatch):
    class Busy(StubEmbedder):
        async def embed(self, texts):
            raise ConnectionError("429")

    class Hanging(StubEmbedder):
        async def embed(self, texts):
            await asyncio.sleep(60)

    monkeypatch.setattr("loomlog.projections.memory_index.embedding.CALL_S", 0.01)
    await world.write(entry_set("a", "kayak trips", embed=True))
    for embedder in (Busy(), Hanging()):
        with pytest.raises(EmbedderRefused) as refused:
            await world.embed(embedder)
        assert refused.value.is_temporary
    assert len(await world.store.due(2**62, 10)) == 1


async def test_a_scope_with_many_vectors_gets_an_index_and_loses_it(world, monkeypatch):
    monkeypatch.setattr("loomlog.projections.memory_index.vectors.EXACT_MAX", 20)
    await world.write(*[entry_set(f"k{n}", f"river {n} trip {n * 7}", embed=True) for n in range(30)])
    await world.embed(STUB)
    exact = await near(world, "river 7 trip")
    assert len(await world.store.build_indexes()) == 1
    assert await world.store.build_indexes() == []
    assert {key for key, _ in (await near(world, "river 7 trip"))[:5]} == {key for key, _ in exact[:5]}
    await world.connection.execute("SET enable_seqscan = off")
    await world.write(*[entry_deleted(f"k{n}") for n in range(25)])
    assert "dropped" in (await world.store.build_indexes())[0]


async def test_vectors_of_4000_dimensions_are_stored_in_their_row_and_found(world):
    wide = StubEmbedder(dimensions=4_000)
    await world.write(entry_set("a", "kayak trips", embed=True), entry_set("b", "chess clubs", embed=True))
    await world.embed(wide)
    assert dict(await near(world, "kayak trips"))["a"] == 1.0
    with pytest.raises(EmbedderRefused, match="at most 4000"):
        await world.embed(StubEmbedder(model="wider", dimensions=4_001))


# --- details, counters, erasure ----------------------------------------------------------------------------------


async def test_details_have_the_cosine_and_the_accesses(world):
    await world.write(entry_set("a", "kayak trips", embed=True), entry_set("b", "kayak"), at_ms=AT_MS - 5)
    await world.embed(STUB)
    await world.index.count_accesses({(SCOPE, "a"): 2, (SCOPE, "b"): 1}, AT_MS)
    await world.index.count_accesses({(SCOPE, "a"): 3}, AT_MS)
    (active,) = await world.store.sets()
    vector = vector_literal((await STUB.embed(["kayak trips"]))[0], 256)
    details = await world.index.details(["a", "b", "c"], Filter(SCOPE, now_ms=AT_MS), vector, active)
    assert {key: (one.accesses, one.at_ms, one.score and round(one.score, 3)) for key, one in details.items()} == {
        "a": (5, AT_MS - 5, 1.0),
        "b": (1, AT_MS - 5, None),
    }
    assert (await world.index.details(["a"], Filter(SCOPE)))["a"].score is None


async def test_the_similar_ones_of_some_entries_are_paired(world):
    await world.write(
        entry_set("a", "kayak trips", embed=True),
        entry_set("b", "kayak trips", embed=True),
        entry_set("c", "chess clubs", embed=True),
        entry_set("d", "kayak trips", embed=True),
    )
    await world.embed(STUB)
    (active,) = await world.store.sets()
    assert await world.index.similar_pairs(["a", "b", "c"], active, SCOPE, 0.92) == [("a", "b")]


async def test_erasing_a_subject_removes_its_rows_vectors_and_cached_embeddings(world):
    await world.write(entry_set("a", "kayak trips", embed=True))
    await world.write(
        entry_set(
            "b", "chess clubs", embed=True, scope="agent", scope_id="x", source=MemorySource(origin="a", user_id="ann")
        ),
        entry_set("c", "bird songs", embed=True, scope="agent", scope_id="x"),
        scope="memory:acme/agent/x",
    )
    await world.write(entry_set("a", "kayak trips", embed=True), scope=OTHER)
    await world.embed(STUB)
    assert await world.index.count_subject("acme", "ann") == {"entries": 2, "vectors": 2, "embeddings": 2}
    assert await world.index.count_subject("other", "ann") == {"entries": 1, "vectors": 1, "embeddings": 1}
    assert await world.index.erase_subject("acme", "ann") == {"entries": 2, "vectors": 2, "embeddings": 2}
    assert await world.index.count_subject("acme", "ann") == {"entries": 0, "vectors": 0, "embeddings": 0}
    assert await world.index.count_subject("other", "ann") == {"entries": 1, "vectors": 1, "embeddings": 1}
    assert await world.index.erase_subject("acme", "ann") == {"entries": 0, "vectors": 0, "embeddings": 0}
    assert await world.words("chess", scope="memory:acme/agent/x") == []
    assert await world.words("bird", scope="memory:acme/agent/x") == ["c"]
    assert await world.words("kayak", scope=OTHER) == ["a"]


async def test_statistics_count_the_vectors_of_a_tenant(world):
    await world.write(entry_set("a", "kayak trips", embed=True), entry_set("b", "chess", embed=True))
    await world.write(entry_set("a", "kayak trips", embed=True), scope=OTHER)
    await world.embed(STUB)
    ((of, rows, size),) = await world.store.statistics("acme")
    assert (of.model, rows) == ("stub", 2)
    assert 2 * 512 <= size <= 2 * 540
    assert await world.store.statistics("nobody") == []
