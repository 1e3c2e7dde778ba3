"""Erasing a subject in the aggregates of other families: their content is under its keys, and is found by them."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.crypto.content_encryption import key_ids_in
from loomlog.schemas.generated.definition_commands import DefineVersion
from loomlog.schemas.generated.definition_events import DefVersionCreated
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import replace
from loomlog.services.application.admin import entity_references
from loomlog.services.application.admin.entity_references import EntityContent, EntityReferences, SearchedSubject
from loomlog.services.application.admin.erasure_json import report_json
from loomlog.services.application.resources import TOPICS as ALL_TOPICS
from loomlog.services.core.families import caller_of, no_sends
from loomlog.services.families.registry import all_families
from loomlog.services.stream.encryption.subject_keys import ERASED, SubjectKeys
from loomlog.services.stream.entities.content import encrypt_content
from tests.services.application.installation import Installation
from tests.services.application.world import ADMIN_CALLER
from tests.services.stream.encryption.test_subject_keys import TOPIC, keys_over
from tests.services.stream.entities.counters import FAMILY
from tests.services.stream.entities.world import CODEC, TOPICS, EntityWorld

NOTED: Any = dataclasses.replace(FAMILY, content_subject=caller_of, sends=no_sends)
"""Counters whose text `also` is content of the caller and is sent nowhere."""
WORDS = "the words of ivy"


class Encrypted:
    """An installation in which ivy and bob have said something in two counters."""

    def __init__(self, world: EntityWorld, made: Installation, keys: SubjectKeys) -> None:
        self.world, self.made, self.keys = world, made, keys
        self.layer = made.layer

    async def say(self, name: str, subject: str, text: str = WORDS) -> None:
        number = len(self.world.log.records[TOPICS.events, 0])
        command = self.world.increment(name, f"c{number}", also=text)
        command = replace(command, envelope=replace(command.envelope, subject=subject))
        await self.world.ask(self.world.processes[0], command)

    def stored(self) -> bytes:
        return b"".join(
            record.value or b"" for records in self.world.log.records.values() for record in records if records
        )


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Encrypted]:
    world = EntityWorld(partitions=1, families=(*all_families(), NOTED))
    world.log._partitions[TOPIC] = 1
    keys = keys_over(world.log)
    world.encrypt = encrypt_content(keys.cipher_for)
    await world.process()
    made = Installation(tmp_path, world, keys, await world.sender())  # type: ignore[arg-type]  # the log is what it uses
    await made.layer.publisher.open()
    events, previews = made.log.tail(ALL_TOPICS.events, {0: 0}), made.log.tail(ALL_TOPICS.previews, {0: 0})
    work = asyncio.create_task(made.layer.run(events, previews))
    encrypted = Encrypted(world, made, keys)
    for name, subject in (("one", "ivy"), ("one", "bob"), ("two", "ivy"), ("one", "ivy")):
        await encrypted.say(name, subject)
    try:
        yield encrypted
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        await world.close()


async def test_events_under_the_keys_of_a_subject_are_counted_and_nothing_is_stored_in_clear(here: Encrypted) -> None:
    report = await here.layer.erasure.report(ADMIN_CALLER, "acme", "ivy")
    assert report.findings.entities is not None
    assert (report.findings.entities.events, report.findings.entities.aggregates) == (3, 2)
    shown = report_json(report)
    assert shown["tier1_covered"]["counts"]["entity_events"] == 3
    assert shown["tier1_covered"]["counts"]["aggregates"] == 2
    assert shown["tier1_covered"]["total"] == 3
    assert any("loom.entity.commands" in note and "not examined" in note for note in shown["notes"])
    assert WORDS.encode() not in here.stored()
    other = await here.layer.erasure.report(ADMIN_CALLER, "acme", "bob")
    assert other.findings.entities is not None
    assert (other.findings.entities.events, other.findings.entities.aggregates) == (1, 1)


async def test_after_an_erasure_the_content_cannot_be_read_and_the_report_still_counts_it(here: Encrypted) -> None:
    token = here.world.events("two")[0].also
    assert here.keys.decrypt(token, "acme") == WORDS
    result = await here.layer.erasure.erase(ADMIN_CALLER, "acme", "ivy", reason="asked")
    assert key_ids_in(token) <= set(result.erasure.record.key_ids)
    assert here.keys.decrypt(token, "acme") == ERASED
    assert here.keys.decrypt(here.world.events("one")[1].also, "acme") == WORDS, "bob is not erased"
    after = await here.layer.erasure.report(ADMIN_CALLER, "acme", "ivy")
    assert after.findings.entities is not None
    assert after.findings.entities.events == 3
    assert all(key.erasure is not None for key in after.keys)


async def test_who_comes_back_has_a_fresh_key_which_shows(here: Encrypted) -> None:
    await here.layer.erasure.erase(ADMIN_CALLER, "acme", "ivy")
    await here.say("two", "ivy", "again")
    report = await here.layer.erasure.report(ADMIN_CALLER, "acme", "ivy")
    assert report.findings.entities is not None
    assert report.findings.entities.events == 4
    assert [key.erasure is None for key in report.keys] == [False, True]


async def test_a_search_that_was_cut_short_says_so(here: Encrypted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_references, "RECORDS_EXAMINED_MAX", 2)
    report = await here.layer.erasure.report(ADMIN_CALLER, "acme", "ivy")
    assert report.findings.truncated, "then a proof is none"


async def test_names_and_definitions_of_its_runs_are_counted_because_they_stay(here: Encrypted) -> None:
    world, tenant = here.world, "acme"
    envelope = CommandEnvelope(command_id="d1", tenant=tenant, subject="ivy", issued_at_ms=world.now)
    written = DefineVersion(
        envelope=envelope,
        kind="agent",
        name="helper",
        content='{"model":"m","provider":"p","system_prompt":"be kind"}',
        content_sha256="0" * 64,
        created_by_run_id="r_ivy",
    )
    answer = await world.ask(world.processes[0], written)
    assert isinstance(answer.events[0], DefVersionCreated), answer
    content = EntityContent(here.layer.resources.entities, world.log, CODEC)
    searched = SearchedSubject(tenant=tenant, user_id="ivy", key_ids=(), run_ids={"r_ivy"})
    found = await content.find_references(searched)
    assert (found.events, found.definitions, found.truncated) == (0, 1, False)
    assert found.named == 2, "who wrote and who promoted it"
    await here.say("three", "ivy")
    residue = report_json(await here.layer.erasure.report(ADMIN_CALLER, "acme", "ivy"))["tier3_residue"]
    assert residue["events_naming"] >= found.named
    assert residue["definitions"] == 0, "the run is none of hers that is known here"
    others = dataclasses.replace(searched, tenant="other", user_id="bob")
    assert await content.find_references(others) == EntityReferences()
