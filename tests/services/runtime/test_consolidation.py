"""From a chat to a fact: a runtime and a projector over a real broker and Postgres; the consolidator is the preset's.

The extractor is a script. Ada says one thing, which becomes a fact; the facts of Bob are more than his memory takes, so
his watermark stays.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
import yaml

from loomlog.connectors.configuration.load import load
from loomlog.connectors.configuration.presets import load_presets
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.consolidation_events import PendingAcked, PendingBanked, TargetAdvanced, TargetLeased
from loomlog.schemas.generated.database_events import SqlChanged, SqlDropped
from loomlog.schemas.generated.memory_events import EntrySet
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import (
    ContextCompacted,
    ModelReplied,
    RunCompleted,
    RunFailed,
    RunRefused,
    RunStarted,
)
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import partition_key
from loomlog.schemas.reader import TermReader
from loomlog.services.families.consolidation import limits
from loomlog.services.projector import main as projector
from loomlog.services.projector import memory_indexing
from loomlog.services.projector.settings import ProjectorSettings
from loomlog.services.runtime import main
from loomlog.services.runtime import topics as runtime_topics
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.stream.family import Topics
from tests.services.runtime.names import names_under
from tests.services.runtime.test_process import stopped
from tests.waiting import until

pytestmark = pytest.mark.integration

EXTRACTOR = """
function run(input) {
  const { messages } = JSON.parse(input.prompt);
  const at = messages.findIndex((one) => one.role === "user" && one.text.includes("tea"));
  if (at < 0) return JSON.stringify({ facts: [] });
  if (!messages[at].text.includes("everything")) {
    return JSON.stringify({ facts: [
      { class: "preference", subject: "Ada's tea", fact: "Ada likes green tea.", message: at, quote: "green tea" },
    ] });
  }
  const facts = [];
  for (let n = 0; n < 10; n++) {
    facts.push({ class: "fact", subject: "thing " + n, fact: n + " is " + "long ".repeat(150), message: at });
  }
  return JSON.stringify({ facts });
}
"""
CALLS = """
function run(input) {
  return JSON.stringify(JSON.parse(input.prompt).map(({ op, ...fields }) => Memory[op](fields)));
}
"""
LONG = "and so on " * 100
MEMORY_BYTES = 3_000
WITHIN_S = 60.0


def configuration() -> dict[str, Any]:
    """The consolidator of the preset with an extractor that needs no model, an agent that talks, and one that calls."""
    consolidator = yaml.safe_load(load_presets()["memory"].content)["agents"]["memory/consolidator"]
    return {
        "providers": {
            "mock": {"driver": "mock", "options": {"enabled": True, "latency_ms": 0, "latency_jitter_ms": 0}}
        },
        "agents": {
            "memory/consolidator": consolidator,
            "memory/extractor": {"internal": True, "provider": "code-js", "code_body": EXTRACTOR},
            "talker": {
                "provider": "mock",
                "model": "mock-generic",
                "tools": [],
                "memory_scopes": ["user"],
                "compaction": {"keep_last_n": 2, "memory_flush": True},
            },
            "stranger": {"provider": "mock", "model": "mock-generic", "tools": []},
            "caller": {
                "provider": "code-js",
                "tools": ["Memory"],
                "memory_scopes": ["user"],
                "sql_scopes": ["run"],
                "code_body": CALLS,
            },
        },
    }


class Installation:
    """The log of a runtime and a projector that run."""

    def __init__(self, appender: KafkaAppender, ranges: KafkaRanges, prefix: str, partitions: int) -> None:
        self._appender, self._ranges, self._partitions = appender, ranges, partitions
        self._runs, self._entities = Topics.of("run", prefix), Topics.of("entity", prefix)
        self._readers: dict[tuple[str, int], TermReader] = {}
        self.events: list[tuple[str, int, Any]] = []
        """Aggregate, seq and record, as they were read."""

    async def start(self, agent: str, prompt: str = "", user_id: str = "ada", *, after: str = "", **more: Any) -> str:
        """Start a run; one `after` another is in its session and its partition."""
        run_id = f"r_{uuid.uuid4().hex}"
        if after:
            run_id, more["session_id"] = f"{after}-{len(self.events)}", f"s_{after.removeprefix('r_')}"
        envelope = CommandEnvelope(command_id=run_id, tenant="default", subject="someone", issued_at_ms=clock_ms())
        start = StartRun(envelope=envelope, agent=agent, prompt=prompt, user_id=user_id, run_id=run_id, **more)
        key = partition_key(run_id).encode()
        command = ProducerRecord(key=key, value=local_codec().encode(start))
        await self._appender.append(self._runs.commands, partition_of(key, self._partitions), [command])
        return run_id

    async def read(self) -> None:
        for topic in (self._runs.events, self._entities.events):
            for partition in range(self._partitions):
                reader = self._readers.setdefault((topic, partition), TermReader(codec=local_codec()))
                end = await self._ranges.end_offset(topic, partition)
                if end <= reader.next_offset:
                    continue
                async with await self._ranges.read(topic, partition, reader.next_offset, end) as chunks:
                    async for chunk in chunks:
                        for record in chunk:
                            event = reader.read(record.offset, record.value)
                            if event is not None:
                                decoded = event.decode()
                                assert decoded.envelope is not None
                                self.events.append((event.aggregate, decoded.envelope.seq, decoded.record))

    def of(self, kind: type[Any], aggregate: str = "") -> list[Any]:
        return [event for name, _, event in self.events if isinstance(event, kind) and aggregate in ("", name)]

    async def until(self, kind: type[Any], aggregate: str, count: int = 1) -> list[Any]:
        """The events of a kind in an aggregate, once there are so many."""

        async def are_there() -> bool:
            await self.read()
            failed = self.of(RunFailed) + self.of(RunRefused)
            assert not failed, failed
            return len(self.of(kind, aggregate)) >= count

        await until(are_there, within_s=WITHIN_S)
        return self.of(kind, aggregate)

    async def ended(self, run_id: str) -> str:
        """The last answer of a run that completes."""
        await self.until(RunCompleted, run_id)
        return str(self.of(ModelReplied, run_id)[-1].text)

    async def call(self, *calls: dict[str, Any], user_id: str = "ada") -> list[Any]:
        """Results of calls of Memory."""
        text = await self.ended(await self.start("caller", json.dumps(calls), user_id))
        return [json.loads(one) if isinstance(one, str) else one for one in json.loads(text)]

    async def report(self, target: str) -> dict[str, Any]:
        """The report of the first pass over a target."""
        lease = (await self.until(TargetLeased, target))[0]
        report: dict[str, Any] = json.loads(await self.ended(lease.owner))
        return report


@pytest_asyncio.fixture
async def database(postgres: str) -> AsyncIterator[str]:
    """A database of its own: a runtime reads the read models under their usual names."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    yield psycopg.conninfo.make_conninfo(postgres, dbname=name)
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as connection:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest_asyncio.fixture
async def here(
    kafka: str,
    database: str,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> AsyncIterator[Installation]:
    caplog.set_level("INFO")
    partitions = 2
    await apply(kafka, prefix=topic_prefix, partitions=partitions)
    for name, topic in names_under(topic_prefix).items():
        monkeypatch.setattr(runtime_topics, name, topic)
    monkeypatch.setattr(memory_indexing, "KEYS_TOPIC", f"{topic_prefix}.subject.keys")
    monkeypatch.setattr(limits, "START_DELAY_MS", 500)
    (tmp_path / "loomlog.yaml").write_text(yaml.safe_dump(configuration()))
    environ = {
        "LOOMLOG_HOME": str(tmp_path / "home"),
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_POSTGRES": database,
        "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
        "LOOMLOG_CODE_AGENTS_ENABLED": "1",
        "LOOMLOG_MEMORY_MAX_SCOPE_BYTES": str(MEMORY_BYTES),
    }
    loaded = load(environ, working_directory=tmp_path)
    options = KafkaOptions(bootstrap=kafka)
    projecting = ProjectorSettings(
        kafka=options,
        postgres=PostgresOptions(dsn=database),
        owner="tests",
        topic=f"{topic_prefix}.run.events",
        entity_topic=f"{topic_prefix}.entity.events",
    )
    tables = asyncio.create_task(projector._run(loaded.settings, projecting, rebuild=False))
    await asyncio.sleep(0)
    process = asyncio.create_task(main.run(loaded))
    appender, ranges = KafkaAppender(options), KafkaRanges(options)
    await appender.start()
    await ranges.start()
    try:
        await until(lambda: process.done() or tables.done() or "is up" in caplog.text)
        yield Installation(appender, ranges, topic_prefix, partitions)
    finally:
        await stopped(process, is_up="is up" in caplog.text)
        tables.cancel()
        await asyncio.wait([tables])
        await appender.close()
        await ranges.close()


async def test_a_chat_becomes_a_fact_and_only_what_is_written_moves_the_watermark(here: Installation) -> None:
    chat = await here.start("talker", "I like 🍵 green tea")
    too_much = await here.start("talker", "Here is everything about tea", "bob")
    await here.ended(chat)
    await here.ended(too_much)

    target, scope = "consolidation:default/user/ada", "memory:default/user/ada"
    (advanced,) = await here.until(TargetAdvanced, target)
    (fact,) = here.of(EntrySet, scope)
    assert fact.key == "memory/preference/ada-s-tea"
    assert json.loads(fact.value) == {"memory": "Ada likes green tea.", "subject": "Ada's tea"}
    session = f"s_{chat.removeprefix('r_')}"
    provenance = fact.provenance
    assert (provenance.fact_class, provenance.origin) == ("preference", "consolidator")
    assert (provenance.source_session_id, provenance.source_run_id) == (session, chat)
    (span,) = provenance.spans
    (started,) = [seq for name, seq, event in here.events if name == chat and isinstance(event, RunStarted)]
    assert (span.run_id, span.seq, span.start, span.end) == (chat, started, 9, 18), "characters of what was said"
    assert advanced.watermark_session_id == session
    order = [event for _, _, event in here.events if event is fact or event is advanced]
    assert order == [fact, advanced]
    report = await here.report(target)
    assert (report["chats"], report["facts"], report.get("stopped"), report["skipped"]) == (1, 1, None, [])

    ((recalled,),) = [one["facts"] for one in await here.call({"op": "recall", "query": "which tea?"})]
    assert (recalled["id"], recalled["memory"]) == (fact.key, "Ada likes green tea.")
    assert recalled["metadata"]["source_run_id"] == chat

    target, scope = "consolidation:default/user/bob", "memory:default/user/bob"
    report = await here.report(target)
    assert "memory_quota_exceeded" in report["stopped"]
    assert (report["chats"], report["facts"], len(here.of(EntrySet, scope))) == (0, 3, 3), "what was written stays"
    # It is tried again by itself, and what is known is not written twice.
    first, *_, second = [lease.owner for lease in await here.until(TargetLeased, target, count=3)][:3]
    assert first != second
    again = json.loads(await here.ended(second))
    assert (again["known"], again["facts"]) == (3, 0)
    assert "memory_quota_exceeded" in again["stopped"]
    assert not here.of(TargetAdvanced, target)


async def test_the_database_of_a_run_is_gone_with_the_run(here: Installation) -> None:
    results = await here.call(
        {"op": "sql_exec", "statement": "CREATE TABLE t(v)"}, {"op": "sql_query", "statement": "SELECT * FROM t"}
    )
    assert results[1]["columns"] == ["v"]
    (run_id,) = [name for name, _, event in here.events if isinstance(event, RunStarted)]
    await here.until(SqlDropped, f"database:default/run/{run_id}")
    assert here.of(SqlChanged)


async def test_dialogue_that_a_compaction_leaves_out_is_learnt_with_its_place(here: Installation) -> None:
    chats = [await here.start("stranger", f"So long a task. {LONG}", "eve")]
    await here.ended(chats[0])
    for text in ("I like green tea", "and now?", "and then?"):
        chats.append(await here.start("stranger", f"{text} {LONG}", "eve", after=chats[0]))
        await here.ended(chats[-1])
    seed = await here.start("talker", "", "eve", after=chats[0], seed="compact")
    await here.until(RunCompleted, seed)
    target = "consolidation:default/user/eve"
    (banked,) = await here.until(PendingBanked, target)
    (compacted,) = here.of(ContextCompacted, seed)
    assert compacted.memory_banked.pending_id == banked.pending_id
    assert (banked.origin, banked.source.run_id) == ("compaction", seed)
    messages = json.loads(banked.payload)["messages"]
    assert len(messages) == compacted.memory_banked.messages
    assert "green tea" in messages[1]["content"], "behind the answer to the task, which itself stays"
    for message in messages:
        (event,) = [one for name, seq, one in here.events if (name, seq) == (message["run_id"], message["seq"])]
        assert isinstance(event, RunStarted if message["role"] == "user" else ModelReplied)
    (fact,) = await here.until(EntrySet, "memory:default/user/eve")
    assert (fact.provenance.origin, fact.provenance.pending_id) == ("compaction", banked.pending_id)
    (span,) = fact.provenance.spans
    assert (span.run_id, span.start, span.end) == (chats[1], 7, 16)
    await here.until(PendingAcked, target)
