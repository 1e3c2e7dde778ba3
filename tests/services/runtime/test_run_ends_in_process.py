"""The end of a run in a runtime process over a real broker and Postgres: a message, an entry, a signed request."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from itertools import product
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
import yaml

from loomlog.connectors.configuration.load import load
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.callback_events import CallbackDelivered
from loomlog.schemas.generated.channel_events import MessagePublished
from loomlog.schemas.generated.memory_events import EntrySet
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import CommandEnvelope, RunOptions
from loomlog.schemas.ids import partition_key
from loomlog.schemas.reader import TermReader
from loomlog.services.core.families import TOPIC_SETS
from loomlog.services.runtime import main
from loomlog.services.runtime import topics as runtime_topics
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.stream.family import Topics
from tests.connectors.tools.web_server import Server, page, running
from tests.services.runtime.names import names_under
from tests.services.runtime.test_process import stopped
from tests.waiting import until

pytestmark = pytest.mark.integration

CONFIGURATION = {
    "providers": {"mock": {"driver": "mock", "options": {"enabled": True, "latency_ms": 0, "latency_jitter_ms": 0}}},
    "agents": {"talker": {"provider": "mock", "model": "mock-generic", "tools": []}},
    "channels": {"done": {"scope": "user"}},
    "secrets": {"CALLBACK_SECRET_TEST": {"tenants": ["*"], "uses": ["callback"], "hosts": ["127.0.0.1"]}},
}
PARTITIONS = 2
RUN = "r_one"


@pytest_asyncio.fixture
async def database(postgres: str) -> AsyncIterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    yield psycopg.conninfo.make_conninfo(postgres, dbname=name)
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as connection:
        await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def events_of(ranges: KafkaRanges, topics: Sequence[str]) -> list[object]:
    """The accepted events of these topics."""
    events = []
    for topic, partition in product(topics, range(PARTITIONS)):
        reader = TermReader(codec=local_codec())
        end = await ranges.end_offset(topic, partition)
        async with await ranges.read(topic, partition, 0, end) as chunks:
            async for chunk in chunks:
                read = [reader.read(record.offset, record.value) for record in chunk]
                events += [event.decode().record for event in read if event is not None]
    return events


async def start(appender: KafkaAppender, topic: str, server: Server) -> None:
    hooks = (
        {"kind": "channel.publish", "channel": "done", "payload": "{{run.status}}", "source": {"schedule_name": "n"}},
        {"kind": "memory.set", "scope": "user", "key": "last", "payload": "{{run.id}}"},
        {"kind": "http", "url": f"http://127.0.0.1:{server.port}/x", "secret_env": "CALLBACK_SECRET_TEST"},
        {"kind": "channel.publish", "channel": "unknown"},
    )
    command = StartRun(
        envelope=CommandEnvelope(command_id=RUN, tenant="default", subject="app", issued_at_ms=clock_ms()),
        agent="talker",
        prompt="Hello",
        run_id=RUN,
        user_id="ada",
        options=RunOptions(on_complete=tuple(map(json.dumps, hooks))),
    )
    key = partition_key(RUN).encode()
    record = ProducerRecord(key=key, value=local_codec().encode(command))
    await appender.append(topic, partition_of(key, PARTITIONS), [record])


async def test_all_hooks_of_a_run_are_carried_out(
    kafka: str,
    database: str,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    await apply(kafka, prefix=topic_prefix, partitions=PARTITIONS)
    for name, topic in names_under(topic_prefix).items():
        monkeypatch.setattr(runtime_topics, name, topic)
    (tmp_path / "loomlog.yaml").write_text(yaml.safe_dump(CONFIGURATION))
    environ = {
        "LOOMLOG_HOME": str(tmp_path / "home"),
        "CALLBACK_SECRET_TEST": "whsec_c2VjcmV0",
        "LOOMLOG_KAFKA": kafka,
        "LOOMLOG_POSTGRES": database,
        "LOOMLOG_CONFIG_FILES": str(tmp_path / "loomlog.yaml"),
        "LOOMLOG_HTTP_PRIVATE_HOST_ALLOWLIST": "127.0.0.1",
    }
    process = asyncio.create_task(main.run(load(environ, working_directory=tmp_path)))
    options = KafkaOptions(bootstrap=kafka)
    appender, ranges = KafkaAppender(options), KafkaRanges(options)
    await appender.start()
    await ranges.start()
    topics = [Topics.of(name, topic_prefix).events for name in TOPIC_SETS]
    try:
        async with running() as server:
            server.answers["/x"] = page("ok")
            await until(lambda: process.done() or "is up" in caplog.text)
            await start(appender, Topics.of("run", topic_prefix).commands, server)

            async def are_done() -> bool:
                kinds = set(map(type, await events_of(ranges, topics)))
                return {CallbackDelivered, MessagePublished, EntrySet} <= kinds and f"{RUN}:end:3" in caplog.text

            await until(are_done, within_s=30)
        events = await events_of(ranges, topics)
        (message,) = [one for one in events if isinstance(one, MessagePublished)]
        (entry,) = [one for one in events if isinstance(one, EntrySet)]
    finally:
        await stopped(process, is_up="is up" in caplog.text)
        await appender.close()
        await ranges.close()
    common = {"run_id": RUN, "agent_id": "a_one"}
    assert (message.scope, message.scope_id, message.publisher) == ("user", "ada", "ada")
    assert json.loads(message.value) == {"schedule_name": "n", **common, "payload": "completed"}
    assert json.loads(entry.value) == {**common, "payload": RUN}
    assert len(server.requests) == 1
    assert server.header("webhook-id") == f"{RUN}:end:2"
    assert (server.header("webhook-signature") or "").startswith("v1,")
    body = json.loads(server.requests[0].rpartition("\r\n\r\n")[2])
    assert body.items() >= common.items()
    assert body["payload"]["status"] == "completed"
    assert f"{RUN}:end:3 is not carried out: channel.publish: there is no channel 'unknown'" in caplog.text
