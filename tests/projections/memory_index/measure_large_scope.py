"""Figures of one large scope: `pytest -s tests/projections/memory_index/measure_large_scope.py`; ENTRIES=200000.

Prints how fast entries get lexemes and vectors, how long the HNSW index takes, its recall against an exact scan, and
the times of searches by words, by meaning and by both.
"""

import os
import random
import statistics
import time

from loomlog.connectors.embedders.stub import StubEmbedder
from loomlog.projections.memory_index.reads import Filter
from loomlog.projections.memory_index.vectors import vector_literal
from loomlog.services.families.memory.author import Scope
from loomlog.services.families.memory.search import MemorySearch
from loomlog.services.families.memory.search_fields import SearchRequest
from tests.projections.memory_index.test_search import Reads
from tests.projections.memory_index.world import AT_MS, SCOPE, entry_set

ENTRIES = int(os.environ.get("ENTRIES", "200000"))
SEARCHES = 300
STUB = StubEmbedder()
PEOPLE = [
    f"{first}{last}" for first in ("an", "bo", "chi", "di", "el", "fa", "gu") for last in ("na", "ris", "ara", "ko")
]
VERBS = ["likes", "repaired", "bought", "lost", "sold", "painted", "forgot", "visited", "photographed", "described"]
THINGS = [
    f"{kind} {thing}"
    for kind in ("red", "old", "small", "broken", "wooden", "electric")
    for thing in ("kayak", "violin", "bicycle", "telescope", "lamp", "camera", "table", "clock", "radio", "tent")
]
PLACES = [f"{place}{number}" for place in ("street", "village", "harbour", "station", "garden") for number in range(60)]


def sentence(random_: random.Random) -> str:
    return (
        f"the user {random_.choice(PEOPLE)} {random_.choice(VERBS)} the {random_.choice(THINGS)} at "
        f"{random_.choice(PLACES)} in week {random_.randrange(53)} and was {random_.choice(VERBS)} "
        f"by {random_.choice(PEOPLE)}"
    )


def show(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    print(
        f"{name}: p50 {statistics.median(ordered) * 1e3:.1f} ms, p99 {ordered[int(len(ordered) * 0.99)] * 1e3:.1f} ms"
    )


async def timed(of, queries) -> list[float]:
    times = []
    for query in queries:
        began = time.perf_counter()
        await of(query)
        times.append(time.perf_counter() - began)
    return times


async def test_figures(world) -> None:
    source = random.Random(7)
    began = time.perf_counter()
    for start in range(0, ENTRIES, 5_000):
        some = [entry_set(f"k{start + n}", sentence(source), 1, embed=True) for n in range(5_000)]
        await world.write(*some)
    print(f"\nlexemes: {ENTRIES / (time.perf_counter() - began):.0f} entries/s")
    began = time.perf_counter()
    work = world.embedder(STUB)
    target = await work.target()
    while entries := await world.store.due(2**62, 512):
        await work.embed(entries, target)
    print(f"vectors: {ENTRIES / (time.perf_counter() - began):.0f} entries/s")
    await world.store.activate(target)
    await world.connection.execute(f"VACUUM ANALYZE {world.schemas.schema}.entries, {world.schemas.schema}.vectors")
    queries = [sentence(source) for _ in range(SEARCHES)]
    vectors = [vector_literal(one, 256) for one in await STUB.embed(queries)]
    where = Filter(SCOPE, now_ms=AT_MS)
    exact = [await world.index.find_near(vector, target, where, 10) for vector in vectors[:100]]
    show("exact", await timed(lambda vector: world.index.find_near(vector, target, where, 40), vectors[:50]))
    began = time.perf_counter()
    print(await world.store.build_indexes(), f"{time.perf_counter() - began:.0f} s")
    near = [await world.index.find_near(vector, target, where, 40) for vector in vectors[:100]]
    hits = sum(len({hit.key for hit in a} & {hit.key for hit in b[:10]}) for a, b in zip(exact, near, strict=True))
    print(f"recall@10: {hits / sum(map(len, exact)):.3f}")
    show("semantic", await timed(lambda vector: world.index.find_near(vector, target, where, 40), vectors))
    show("lexical, sentences", await timed(lambda query: world.index.find_words(query, where, 40), queries))
    common = ["the user", "the", "user likes", "the user was at the week in and by", "repaired and painted"] * 20
    show("lexical, everyday words", await timed(lambda query: world.index.find_words(query, where, 40), common))
    show(
        "lexical, rare words",
        await timed(lambda query: world.index.find_words(query, where, 40), ["harbour7 annax"] * 50),
    )
    search = MemorySearch(world.index, Reads(world), clock_ms=lambda: AT_MS, embedders=[STUB])
    world.rows = {place: world.rows[place] for place in list(world.rows)[:1]}
    show(
        "hybrid without rows",
        await timed(lambda query: search.search(Scope("acme", "user", "ann"), SearchRequest(query=query)), queries),
    )
