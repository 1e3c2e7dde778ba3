"""The indexer of memory against Postgres, with the log in memory and the rows of the real projection."""

import asyncio

import pytest

from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys, key_encryption_key_id
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.embedders.stub import StubEmbedder
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.process import sessions
from loomlog.projections.memory_index import embedding
from loomlog.projections.memory_index.reads import Filter, IndexMissing, open_index
from loomlog.projections.memory_index.tables import index_schema
from loomlog.projections.memory_index.tokens import index_key
from loomlog.schemas.codec import local_codec
from loomlog.services.families.entity_folds import entity_folds
from loomlog.services.families.memory import FAMILY
from loomlog.services.projector import family_tail
from loomlog.services.projector.memory_indexer import MemoryIndexer, readable_by
from loomlog.services.projector.settings import ProjectorSettings
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from tests.projections.memory_index.world import SCOPE, entry_deleted, entry_set
from tests.projections.stories import Partition
from tests.waiting import until

TOPIC = "loom.entity.events"
KEYS_TOPIC = "loom.subject.keys"
SECRET = SecretKey(keys=(b"s" * 32,))


class Stage:
    """A log with one partition, and indexers of it."""

    def __init__(self, options, connecting, prefix, project_entities) -> None:
        self.options, self.connecting, self.prefix = options, connecting, prefix
        self.log = MemoryLog({TOPIC: 1, KEYS_TOPIC: 1})
        self.partition = Partition()
        self.partition.claim()
        self.stop = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.connections: list = []
        self._project = project_entities

    async def publish(self, *events, scope: str = SCOPE) -> None:
        """Append events, and project them into the rows of entities."""
        self.partition.add(scope, *events, tenant="acme")
        self.log.put(TOPIC, 0, self.partition.outgoing(len(self.log.records[TOPIC, 0])))
        await self._project(self.partition, folds=entity_folds([FAMILY]))

    def start(self, **more) -> MemoryIndexer:
        async def connect():
            self.connections.append(await self.connecting())
            return self.connections[-1]

        async def open_tail(starts):
            return self.log.tail(TOPIC, starts)

        async def count_partitions():
            return 1

        settings = ProjectorSettings(
            kafka=KafkaOptions(bootstrap="nowhere:1"),
            postgres=self.options,
            owner="tests",
            prefix=self.prefix,
            secret=SECRET,
        )
        indexer = MemoryIndexer(
            settings,
            **{
                "connect": connect,
                "open_tail": open_tail,
                "count_partitions": count_partitions,
                "poll_timeout_s": 0.02,
                "embedder": StubEmbedder(),
            }
            | more,
        )
        self.tasks.append(asyncio.create_task(indexer.run(self.stop)))
        return indexer

    async def end(self) -> None:
        self.stop.set()
        await asyncio.gather(*self.tasks)


@pytest.fixture
async def stage(options, connecting, prefix, project_entities, monkeypatch):
    monkeypatch.setattr(family_tail, "STANDBY_POLL_S", 0.02)
    monkeypatch.setattr(sessions, "FIRST_S", 0.01)
    monkeypatch.setattr(embedding, "RETRY_FIRST_S", 0.02)
    monkeypatch.setattr(embedding, "REFUSED_REST_S", 0.03)
    monkeypatch.setattr(embedding, "IDLE_S", 0.05)
    stage = Stage(options, connecting, prefix, project_entities)
    yield stage
    await stage.end()


@pytest.fixture
async def index(options, prefix):
    index = await open_index(options, index_key(SECRET), prefix=prefix, max_connections=2)
    yield index
    await index.close()


async def words(index, query: str) -> list[str]:
    return [hit.key for hit in await index.find_words(query, Filter(SCOPE), 10)]


async def state(index, key: str, revision: int) -> str:
    return await (await index.vectors()).state(SCOPE, key, revision)


async def test_entries_get_lexemes_then_vectors_and_go_when_they_are_deleted(stage, index):
    indexer = stage.start()
    await stage.publish(entry_set("a", "kayak trips", embed=True), entry_set("b", "tea", 2))
    await until(lambda: indexer.tail.metrics["events"] == 2)
    assert await words(index, "kayak") == ["a"]
    await until(lambda: indexer.metrics["embedded"] == 1)
    assert await state(index, "a", 1) == "embedded"
    await stage.publish(entry_deleted("a", 3))
    await until(lambda: indexer.tail.metrics["events"] == 3)
    assert (await words(index, "kayak"), await state(index, "a", 1)) == ([], "none")
    assert await index.wait(TOPIC, 0, 3, timeout_s=0) == 0


async def test_a_failing_embedder_leaves_lexemes_and_is_tried_again(stage, index):
    class Failing(StubEmbedder):
        replies = 0

        async def embed(self, texts):
            self.replies += 1
            if self.replies <= 2:
                raise ConnectionError("429")
            return await super().embed(texts)

    indexer = stage.start(embedder=Failing())
    await stage.publish(entry_set("a", "kayak trips", embed=True))
    await until(lambda: indexer.metrics["embed_failures"] >= 1 and indexer.metrics["events"] == 1)
    assert await words(index, "kayak") == ["a"]
    await until(lambda: indexer.metrics["embedded"] == 1)
    assert indexer.metrics["state"] == "following"


async def test_a_text_that_always_fails_holds_up_no_other(stage, index):
    class Failing(StubEmbedder):
        async def embed(self, texts):
            if any("poison" in text for text in texts):
                raise ConnectionError("500")
            return await super().embed(texts)

    indexer = stage.start(embedder=Failing())
    entries = [entry_set(f"k{n}", "poison" if n == 3 else f"kayak {n}", n + 1, embed=True) for n in range(10)]
    await stage.publish(*entries)
    await until(lambda: indexer.metrics["embedded"] == 9)
    assert await state(index, "k3", 4) == "pending"


async def test_an_embedder_that_hangs_does_not_hold_up_the_end(stage, index):
    class Hanging(StubEmbedder):
        async def embed(self, texts):
            await asyncio.sleep(600)

    indexer = stage.start(embedder=Hanging())
    await stage.publish(entry_set("a", "kayak trips", embed=True))
    await until(lambda: indexer.tail.metrics["events"] == 1)
    async with asyncio.timeout(30):
        await stage.end()


async def test_vectors_of_too_many_dimensions_end_nothing(stage, index, caplog):
    indexer = stage.start(embedder=StubEmbedder(dimensions=4_001))
    await stage.publish(entry_set("a", "kayak trips", embed=True))
    await until(lambda: indexer.metrics["embed_failures"] >= 1 and indexer.metrics["events"] == 1)
    assert "at most 4000" in caplog.text
    assert await words(index, "kayak") == ["a"]
    assert not stage.tasks[0].done()


async def test_without_an_embedder_entries_wait_for_one(stage, index):
    indexer = stage.start(embedder=None)
    await stage.publish(entry_set("a", "kayak trips", embed=True))
    await until(lambda: indexer.tail.metrics["events"] == 1)
    assert await state(index, "a", 1) == "pending"
    await stage.end()
    stage.stop.clear()
    indexer = stage.start()
    await until(lambda: indexer.metrics["embedded"] == 1)


async def test_of_two_indexers_one_goes_on_when_the_other_loses_postgres(stage, index, connection):
    stage.start(), stage.start()
    await stage.publish(entry_set("a", "kayak trips", embed=True))
    await until(lambda: _is_state(index, "a", 1, "embedded"))
    for one in stage.connections:
        await connection.execute("SELECT pg_terminate_backend(%s)", (one.info.backend_pid,))
    await stage.publish(entry_set("b", "chess clubs", 2, embed=True))
    await until(lambda: _is_state(index, "b", 2, "embedded"))
    assert (await words(index, "kayak"), await words(index, "chess")) == (["a"], ["b"])


async def _is_state(index, key: str, revision: int, expected: str) -> bool:
    try:
        return await state(index, key, revision) == expected
    except (IndexMissing, Transient):
        return False


async def test_encrypted_entries_are_indexed_and_erased_ones_are_not(stage, index, connection):
    kek = b"k" * 32
    name = key_encryption_key_id(kek)
    keys = SubjectKeys(
        local_codec(),
        stage.log,
        stage.log,
        KeyEncryptionKeys(current=name, keys={name: kek}),
        topic=KEYS_TOPIC,
        clock_ms=lambda: 1,
    )
    token = (await keys.cipher_for("acme", "ann")).text('"kayak trips"')
    gone = (await keys.cipher_for("acme", "bob")).text('"chess clubs"')
    await keys.erase("acme", "bob", erasure_id="e_1", reason="asked", by="op")
    indexer = stage.start(decrypt=readable_by(keys))
    await stage.publish(
        entry_set("a", "", value=token, embed=True),
        entry_set("b", "", 2, value=gone, embed=True),
        entry_set("c", "", 3, value="lenc1.00000000000000000000." + "x" * 60),
    )
    await until(lambda: indexer.metrics["embedded"] == 1)
    assert (await words(index, "kayak"), await words(index, "chess")) == (["a"], [])
    assert indexer.metrics["unreadable"] == 2
    schema = index_schema(stage.prefix)
    result = await connection.execute(f"SELECT array_agg(e::text) FROM {schema}.entries e")
    assert "kayak" not in str(await result.fetchone())
    (key_id,) = (key.key_id for key in keys.table.keys_of("acme", "ann"))
    assert await index.erase_subject("acme", "", [key_id]) == {"entries": 1, "vectors": 1, "embeddings": 1}
