"""The example of a microservice that writes and reads memory over the log, against a broker and an owner of scopes."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.kafka import KafkaAppender
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.memory_commands import DeleteEntry, SetEntry
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource
from loomlog.services.families.memory import FAMILY
from loomlog.services.stream.family import Topics
from tests.examples.owned import owner, printed

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "memory_service"
TENANT = "acme"


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
        out, errors = await printed(
            FOLDER / "memory_service.py",
            self.folder,
            *("--once", "--tenant", TENANT, "--bootstrap", self.kafka),
            *("--commands", self.topics.commands, "--events", self.topics.events),
        )
        return sorted(out.splitlines()), errors


@pytest.fixture
async def site(kafka: str, topic_prefix: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with owner(kafka, topic_prefix, "entity", FAMILY) as (topics, appender):
        yield Site(kafka, topics, appender, tmp_path)


async def test_facts_are_told_once_and_the_copy_has_what_others_remember(site: Site) -> None:
    site.customers(ada={"version": 1, "facts": {"plan": "pro", "seats": 12}}, eve={"version": 1, "facts": {}})
    told, errors = await site.program()
    assert (told, errors) == (['ada: crm/plan = "pro" (by crm)', "ada: crm/seats = 12 (by crm)"], "")
    assert site.copy()["memory"] == {"ada": {"crm/plan": "pro", "crm/seats": 12}}

    envelope = CommandEnvelope(command_id="a", tenant=TENANT, subject="eve")
    source = MemorySource(origin="agent_explicit", run_id="r_1", agent="helper", user_id="eve")
    await site.append(
        SetEntry(envelope=envelope, scope="user", scope_id="eve", key="tea", value='"green"', source=source)
    )
    envelope = CommandEnvelope(command_id="b", tenant=TENANT, subject="support")
    await site.append(DeleteEntry(envelope=envelope, scope="user", scope_id="ada", key="crm/seats"))
    site.customers(ada={"version": 2, "facts": {"plan": "free"}}, eve={"version": 2, "facts": {"plan": "pro"}})
    told, _ = await site.program()
    assert told == [
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
    told, errors = await site.program()
    assert (told, "refused, memory_value_too_large: value: it has 70002 bytes" in errors) == ([], True)
    assert site.copy()["memory"] == {"ada": {}}


def test_the_file_of_customers_has_the_form_of_the_program() -> None:
    (known,) = json.loads((FOLDER / "customers.json").read_text()).values()
    assert known.keys() == {"version", "facts"}
