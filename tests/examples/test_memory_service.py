"""The example of a microservice that writes and reads memory over the log, against a broker and an owner of scopes."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.memory_commands import DeleteEntry, SetEntry
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource
from loomlog.services.families.memory import FAMILY
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.cold import ColdAggregate, HandledCommand
from loomlog.services.stream.entities.hosting import HostedEntities, build_entity_parts
from loomlog.services.stream.family import Topics
from loomlog.services.stream.host import Host
from loomlog.services.stream.ownership.membership import FixedMembership

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "memory_service"
PROGRAM_S = 30.0
TENANT = "acme"


class NoRows:
    """No aggregate is at rest: all are in the memory of the one owner (protocol ColdRows)."""

    async def next_offset(self, partition: int) -> int:
        return 0

    async def load(self, partition: int, aggregates: Sequence[str]) -> tuple[int, Mapping[str, ColdAggregate]]:
        return 0, {}

    async def find_command(self, partition: int, aggregate: str, command_id: str) -> tuple[int, HandledCommand | None]:
        return 0, None

    async def due_timers(self, partition: int, before_ms: int, limit: int) -> Sequence[tuple[str, int]]:
        return ()


class Site:
    """A broker with topics of our own, and an owner of the scopes in them."""

    def __init__(self, kafka: str, topics: Topics, appender: KafkaAppender, folder: Path) -> None:
        self.kafka = kafka
        self.topics = topics
        self.folder = folder
        self._appender = appender

    def customers(self, **customers: Any) -> None:
        (self.folder / "customers.json").write_text(json.dumps(customers))

    def copy(self) -> Any:
        return json.loads((self.folder / "memory.json").read_text())

    async def append(self, command: SetEntry | DeleteEntry) -> None:
        """Append a command as another sender does."""
        key = f"{TENANT}/user/{command.scope_id}".encode()
        partition = partition_of(key, await self._appender.partitions(self.topics.commands))
        record = ProducerRecord(key=key, value=local_codec().encode(command))
        await self._appender.append(self.topics.commands, partition, [record])

    async def program(self) -> tuple[list[str], str]:
        """Run the program until every fact has an answer; return what it prints, sorted, and its errors."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(FOLDER / "memory_service.py"), "--once", "--tenant", TENANT),
            *("--bootstrap", self.kafka, "--commands", self.topics.commands, "--events", self.topics.events),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # The program stands alone: it imports the client and nothing of this tree.
            env={name: os.environ[name] for name in ("PATH", "PYTHONPATH")},
            cwd=self.folder,
        )
        try:
            async with asyncio.timeout(PROGRAM_S):
                out, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, errors.decode()
        return sorted(out.decode().splitlines()), errors.decode()


@pytest.fixture
async def site(kafka: str, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Site]:
    await apply(kafka, prefix=topic_prefix)
    topics, options = Topics.of("entity", topic_prefix), KafkaOptions(bootstrap=kafka)
    async with AsyncExitStack() as stack:
        appender, ranges = KafkaAppender(options), KafkaRanges(options)
        for client in (appender, ranges):
            await client.start()
            stack.push_async_callback(client.close)
        partitions = await appender.partitions(topics.commands)
        commands = KafkaTail(options, topics.commands, dict.fromkeys(range(partitions), 0))
        await commands.start()
        stack.push_async_callback(commands.close)
        commands.pause(range(partitions))
        codec, rows = local_codec(), NoRows()
        parts = build_entity_parts(
            (FAMILY,), codec, appender=appender, ranges=ranges, partitions=partitions, topics=topics, rows=rows
        )
        entities = HostedEntities(
            parts,
            codec,
            appender=appender,
            ranges=ranges,
            commands=commands,
            dead_letters=DeadLetters(codec, appender, topic=topics.dead_letters, service="test", clock_ms=clock_ms),
            rows=rows,
            run_topics=Topics.of("run", topic_prefix),
            clock_ms=clock_ms,
            name="memory",
        )
        host = Host(entities.topic_set, membership=FixedMembership(frozenset(range(partitions))))
        entities.attach(host)
        owning = asyncio.create_task(host.run())
        try:
            yield Site(kafka, topics, appender, tmp_path)
        finally:
            owning.cancel()
            await asyncio.wait([owning])


async def test_facts_are_told_once_and_the_copy_has_what_others_remember(site: Site) -> None:
    site.customers(ada={"version": 1, "facts": {"plan": "pro", "seats": 12}}, eve={"version": 1, "facts": {}})
    printed, errors = await site.program()
    assert (printed, errors) == (['ada: crm/plan = "pro" (by crm)', "ada: crm/seats = 12 (by crm)"], "")
    assert site.copy()["memory"] == {"ada": {"crm/plan": "pro", "crm/seats": 12}}

    envelope = CommandEnvelope(command_id="a", tenant=TENANT, subject="eve")
    source = MemorySource(origin="agent_explicit", run_id="r_1", agent="helper", user_id="eve")
    await site.append(
        SetEntry(envelope=envelope, scope="user", scope_id="eve", key="tea", value='"green"', source=source)
    )
    envelope = CommandEnvelope(command_id="b", tenant=TENANT, subject="support")
    await site.append(DeleteEntry(envelope=envelope, scope="user", scope_id="ada", key="crm/seats"))
    site.customers(ada={"version": 2, "facts": {"plan": "free"}}, eve={"version": 2, "facts": {"plan": "pro"}})
    printed, _ = await site.program()
    assert printed == [
        'ada: crm/plan = "free" (by crm)',
        "ada: crm/seats is gone",
        'eve: crm/plan = "pro" (by crm)',
        'eve: tea = "green" (by helper in r_1)',
    ]
    assert site.copy()["memory"] == {"ada": {"crm/plan": "free"}, "eve": {"crm/plan": "pro", "tea": "green"}}


async def test_after_a_crash_facts_that_were_told_change_nothing(site: Site) -> None:
    site.customers(ada={"version": 1, "facts": {"plan": "pro"}})
    before, _ = await site.program()
    # As if it had died between sending and saving.
    (site.folder / "memory.json").unlink()
    site.customers(ada={"version": 1, "facts": {"plan": "pro", "seats": 3}})
    after, _ = await site.program()
    # The first version of the plan is in the log once, though it was sent twice.
    assert after == [*before, "ada: crm/seats = 3 (by crm)"]


async def test_a_fact_that_is_refused_says_why(site: Site) -> None:
    site.customers(ada={"version": 1, "facts": {"notes": "x" * 70_000}})
    printed, errors = await site.program()
    assert (printed, "refused, memory_value_too_large: value: it has 70002 bytes" in errors) == ([], True)
    assert site.copy()["memory"] == {"ada": {}}


def test_the_file_of_customers_has_the_form_of_the_program() -> None:
    (known,) = json.loads((FOLDER / "customers.json").read_text()).values()
    assert known.keys() == {"version", "facts"}
