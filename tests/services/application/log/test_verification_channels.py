"""Events of channels, signed beside those of runs, when their retention has deleted the first of them."""

import dataclasses
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord, ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.records import replace
from loomlog.services.application.log.verification import LogReaders, verify_partition
from loomlog.services.application.log.verifier import VerificationRequest, events_task
from loomlog.services.auditor.settings import CHANNEL_TOPIC, CHECKPOINTS_TOPIC, EVENTS_TOPICS, channel_settings
from loomlog.services.core.audit.checkpoints import read_signed
from loomlog.services.core.audit.findings import FindingKind
from loomlog.services.core.audit.verify import VerificationReport
from tests.services.auditor.test_loop import running, settings
from tests.services.core.audit.written import KEY, START_MS, flipped
from tests.services.stream.entities.two_sets import CHANNELS, TwoSets
from tests.waiting import until

EVERY = 4
RECORDS = 20
CHANNEL = channel_settings(settings(every_records=EVERY, siblings=EVENTS_TOPICS - {CHANNEL_TOPIC}))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def records() -> AsyncIterator[list[ConsumerRecord]]:
    """What the owner of a partition of channels wrote."""
    world = TwoSets()
    try:
        process = await world.owner()
        for number in range(RECORDS - 1):
            await world.ask(process, world.increment(f"q{number % 3}", f"c{number}"))
        yield list(world.log.records[CHANNELS.events, 0])
    finally:
        await world.close()


def append(log: MemoryLog, *records: ConsumerRecord) -> None:
    for record in records:
        log.put(CHANNEL_TOPIC, 0, [ProducerRecord(key=record.key, value=record.value, headers=tuple(record.headers))])


def checkpoints(log: MemoryLog) -> list[tuple[int, int]]:
    """The range of each checkpoint."""
    signed = [read_signed(one.value, one.offset, local_codec()).checkpoint for one in log.records[CHECKPOINTS_TOPIC, 0]]
    return [(one.first_offset, one.next_offset) for one in signed]


async def signed(log: MemoryLog) -> None:
    """Run an auditor until it has signed everything."""
    async with running(log, CHANNEL) as auditor:
        end = len(log.records[CHANNEL_TOPIC, 0])
        await until(lambda: auditor.refused or (checkpoints(log) and checkpoints(log)[-1][1] == end))
        assert not auditor.refused


async def a_log(records: list[ConsumerRecord], count: int = RECORDS) -> MemoryLog:
    log = MemoryLog({CHANNEL_TOPIC: 1, CHECKPOINTS_TOPIC: 1})
    append(log, *records[:count])
    await signed(log)
    return log


async def verified(log: MemoryLog, topic: str = CHANNEL_TOPIC) -> VerificationReport:
    task = events_task(VerificationRequest(), {KEY.key_id: KEY.public}, topic)
    return await verify_partition(LogReaders(log, log, local_codec()), task, 0, now_ms=START_MS)


@pytest.mark.parametrize("first", [0, 1, EVERY, EVERY + 1, 2 * EVERY, RECORDS - 1, RECORDS])
async def test_what_is_left_is_verified_and_what_is_deleted_is_told(records: list[ConsumerRecord], first: int) -> None:
    log = await a_log(records)
    log.delete_before(CHANNEL_TOPIC, 0, first)
    report = await verified(log)
    assert (report.is_clean, report.findings) == (True, ())
    whole = [end - begin for begin, end in checkpoints(log) if begin >= first]
    assert (report.deleted_before, report.signed_records) == (first, sum(whole))


async def test_a_change_of_what_is_left_is_found(records: list[ConsumerRecord]) -> None:
    log = await a_log(records)
    log.delete_before(CHANNEL_TOPIC, 0, EVERY)
    changed = log.records[CHANNEL_TOPIC, 0][EVERY + 2]
    value = flipped(changed.value or b"", len(changed.value or b"") - 1)
    log.records[CHANNEL_TOPIC, 0][EVERY + 2] = replace(changed, value=value)
    report = await verified(log)
    assert not report.is_clean
    assert {(one.kind, one.offset) for one in report.findings if one.kind is FindingKind.EDITED} == {
        (FindingKind.EDITED, EVERY + 2)
    }


async def test_the_end_of_a_log_whose_beginning_is_deleted_may_not_be_missing(records: list[ConsumerRecord]) -> None:
    log = await a_log(records)
    log.delete_before(CHANNEL_TOPIC, 0, EVERY)
    del log.records[CHANNEL_TOPIC, 0][-2:]
    report = await verified(log)
    assert [one.kind for one in report.findings] == [FindingKind.TRUNCATED]


@pytest.mark.parametrize("first", [EVERY, RECORDS - 5, RECORDS - 1, RECORDS - 4])
async def test_an_auditor_goes_on_after_what_it_signed_is_deleted(records: list[ConsumerRecord], first: int) -> None:
    log = await a_log(records, RECORDS - 4)
    log.delete_before(CHANNEL_TOPIC, 0, first)
    append(log, *records[RECORDS - 4 :])
    await signed(log)
    report = await verified(log)
    assert report.is_clean, report.findings
    assert report.covered == RECORDS


async def test_only_this_topic_may_lose_its_first_records(records: list[ConsumerRecord]) -> None:
    log = await a_log(records)
    log.delete_before(CHANNEL_TOPIC, 0, EVERY)
    task = events_task(VerificationRequest(), {KEY.key_id: KEY.public}, CHANNEL_TOPIC)
    kept = dataclasses.replace(task, is_log_kept=True)
    report = await verify_partition(LogReaders(log, log, local_codec()), kept, 0, now_ms=START_MS)
    assert sum(one.count for one in report.findings if one.kind is FindingKind.REMOVED) == EVERY
    log.delete_before(CHANNEL_TOPIC, 0, RECORDS)
    async with running(log, dataclasses.replace(CHANNEL, is_log_kept=True)) as auditor:
        await until(lambda: "it was signed from" in auditor.refused.get(0, ""))
    for topic in EVENTS_TOPICS:
        assert events_task(VerificationRequest(), {}, topic).is_log_kept == (topic != CHANNEL_TOPIC)
