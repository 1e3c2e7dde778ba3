import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.redpanda.topics import ExistingTopic, load_topics
from loomlog.schemas.codec import local_codec
from loomlog.services.application.health import health_checks as module
from loomlog.services.application.log.access import LogAccess
from loomlog.services.core.check import FAIL, OFF, OK, WARN, Check
from tests.services.application.log.memory_access import memory_access
from tests.services.application.log.test_audits import log_with_signatures
from tests.services.application.log.test_dead_letters import letter
from tests.services.application.world import World, world


def whole_log() -> MemoryLog:
    """A log with all topics."""
    return MemoryLog({topic.name: topic.partitions for topic in load_topics()})


async def checked(made: World) -> dict[str, Check]:
    return {check.name: check for check in await made.layer.health.checks()}


async def test_an_installation_that_is_well_is_well_in_every_part() -> None:
    async with world(log_access=memory_access(whole_log())) as made:
        actual = await checked(made)
    assert list(actual) == [
        "broker",
        "postgres",
        "topics",
        "audit",
        "dead letters",
        "replicas",
        "files",
        "read models",
        "runs",
    ]
    unwell = {name: check for name, check in actual.items() if check.state != OK and name != "read models"}
    assert list(unwell) == ["audit"]
    assert (unwell["audit"].state, "nothing is signed" in unwell["audit"].text) == (OFF, True)


async def test_dead_letters_that_wait_for_somebody_are_told() -> None:
    log = whole_log()
    log.put("loom.dead-letter", 0, [ProducerRecord(key=b"p", value=local_codec().encode(letter()))])
    async with world(log_access=memory_access(log)) as made:
        check = (await checked(made))["dead letters"]
    assert (check.state, check.text) == (WARN, "1 dead letter open")
    assert "acknowledge" in check.remedy


async def test_topics_that_are_missing_are_named() -> None:
    log = whole_log()
    del log._partitions["loom.dead-letter"]
    async with world(log_access=memory_access(log)) as made:
        check = (await checked(made))["topics"]
    assert (check.state, check.text) == (FAIL, "1 difference")
    assert "loom.dead-letter: create it" in check.remedy


async def test_records_that_nobody_signs_are_noticed() -> None:
    async with world(log_access=memory_access(log_with_signatures())) as made:
        check = (await checked(made))["audit"]
    assert (check.state, "have not been signed for" in check.text) == (FAIL, True)


def away(access: LogAccess) -> LogAccess:
    async def topics(names: Sequence[str]) -> Mapping[str, ExistingTopic]:
        raise Transient("the broker is away", kind="unavailable")

    class AwayRanges(MemoryLog):
        async def end_offset(self, topic: str, partition: int) -> int:
            await asyncio.Event().wait()
            return 0

    return replace(access, ranges=AwayRanges({}), existing_topics=topics)


async def test_a_part_that_does_not_answer_is_a_line_and_the_others_are_still_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHECK_WAIT_S", 0.02)
    async with world(log_access=away(memory_access(whole_log()))) as made:
        actual = await checked(made)
    assert (actual["broker"].state, actual["broker"].text) == (FAIL, "no answer within 0.02 s")
    assert (actual["topics"].state, actual["topics"].remedy) == (FAIL, "the broker is away")
    assert actual["postgres"].state == OK


async def test_a_database_that_is_away_is_told() -> None:
    async with world(log_access=memory_access(whole_log())) as made:
        made.postgres_is_away = True
        actual = await checked(made)
    assert (actual["postgres"].state, actual["read models"].state) == (FAIL, FAIL)
    assert actual["broker"].state == OK


async def test_a_report_is_shared_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(log_access=memory_access(whole_log())) as made:
        first = await made.layer.health.checks()
        assert await made.layer.health.checks() is first
        monkeypatch.setattr(module, "SHARED_S", 0.0)
        assert await made.layer.health.checks() is not first
