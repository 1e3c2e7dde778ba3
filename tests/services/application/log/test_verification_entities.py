"""Events of entities and of runs, signed into one topic of checkpoints, verified each by its own."""

import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord, ProducerRecord
from loomlog.schemas.codec import digest, local_codec
from loomlog.schemas.generated.counter_events import CounterIncremented
from loomlog.schemas.records import replace
from loomlog.services.application.log.verification import LogReaders, unsigned_since_ms, verify_partition
from loomlog.services.application.log.verifier import VerificationRequest, events_task
from loomlog.services.auditor.loop import Auditor
from loomlog.services.auditor.settings import CHECKPOINTS_TOPIC, ENTITY_TOPIC, EVENTS_TOPIC, entity_settings
from loomlog.services.core.audit import history
from loomlog.services.core.audit.checkpoints import read_signed
from loomlog.services.core.audit.findings import FindingKind
from loomlog.services.core.audit.verify import VerificationReport
from tests.projections.stories import a3x2
from tests.services.auditor.test_loop import MemoryLogConnection, running, settings
from tests.services.core.audit.written import KEY, START_MS, Log, flipped, violations
from tests.services.stream.entities.world import TOPICS, EntityWorld
from tests.waiting import until

Records = list[ConsumerRecord]
HITS = "counter:acme/hits"
RUNS = settings(every_records=5, siblings=frozenset({ENTITY_TOPIC}))
ENTITIES = entity_settings(RUNS)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def entity_records() -> Records:
    """What the owner of a partition wrote about two counters."""
    world = EntityWorld(partitions=1)
    try:
        process = await world.process()
        for number in range(6):
            await world.ask(process, world.increment("hits", f"h{number}"))
            await world.ask(process, world.increment("misses", f"m{number}", number + 1))
        await world.ask(process, world.increment("hits", "refused", 0))
        return list(world.log.records[TOPICS.events, 0])
    finally:
        await world.close()


def log_of(entity_records: Sequence[ConsumerRecord], runs: int = 2) -> MemoryLog:
    """A log with these events of entities and some runs, nothing signed."""
    source = Log()
    source.claim()
    for number in range(runs):
        source.add(f"r_{number}", *a3x2(f"r_{number}"))
    log = MemoryLog({EVENTS_TOPIC: 1, ENTITY_TOPIC: 1, CHECKPOINTS_TOPIC: 1})
    for topic, records in ((EVENTS_TOPIC, source.records), (ENTITY_TOPIC, entity_records)):
        for record in records:
            log.clock_ms = record.timestamp
            log.put(topic, 0, [ProducerRecord(key=record.key, value=record.value, headers=tuple(record.headers))])
    return log


@asynccontextmanager
async def auditing(log: MemoryLog) -> AsyncIterator[tuple[Auditor, Auditor]]:
    """An auditor of both topics, as its process is."""
    async with running(log, RUNS) as of_runs, running(log, ENTITIES) as of_entities:
        yield of_runs, of_entities


def covered(log: MemoryLog, topic: str) -> int:
    signed = [read_signed(r.value, r.offset, local_codec()).checkpoint for r in log.records[CHECKPOINTS_TOPIC, 0]]
    return max((one.next_offset for one in signed if one.topic == topic), default=0)


async def signed(log: MemoryLog) -> MemoryLog:
    """The log, when everything in it is signed."""
    async with auditing(log) as auditors:
        for topic in (EVENTS_TOPIC, ENTITY_TOPIC):
            await until(lambda: covered(log, topic) == len(log.records[topic, 0]))  # noqa: B023 (waited for here)
        assert not any(auditor.refused for auditor in auditors)
    return log


async def verified(log: MemoryLog, topic: str, request: VerificationRequest | None = None) -> VerificationReport:
    task = events_task(request or VerificationRequest(), {KEY.key_id: KEY.public}, topic)
    return await verify_partition(LogReaders(log, log, local_codec()), task, 0, now_ms=START_MS)


async def test_both_are_signed_into_one_topic_and_clean(entity_records: Records) -> None:
    log = await signed(log_of(entity_records))
    for topic in (EVENTS_TOPIC, ENTITY_TOPIC):
        report = await verified(log, topic)
        assert report.is_clean, report.findings
        assert (report.topic, report.signed_records) == (topic, len(log.records[topic, 0]))
    assert not {r.key for r in log.records[CHECKPOINTS_TOPIC, 0]} - {b"0"}


async def test_a_restarted_auditor_goes_on_after_its_own_checkpoints_of_each_topic(entity_records: Records) -> None:
    log = await signed(log_of(entity_records[:6]))
    for record in entity_records[6:]:
        log.put(ENTITY_TOPIC, 0, [ProducerRecord(key=record.key, value=record.value, headers=tuple(record.headers))])
    await signed(log)
    for topic in (EVENTS_TOPIC, ENTITY_TOPIC):
        assert (await verified(log, topic)).is_clean


async def test_an_event_of_an_entity_that_was_changed_is_found_and_names_its_aggregate(
    entity_records: Records,
) -> None:
    log = await signed(log_of(entity_records))
    records = log.records[ENTITY_TOPIC, 0]
    for offset, record in enumerate(records):
        value = record.value or b""
        for changed in (
            replace(record, value=flipped(value, len(value) - 1)),
            replace(record, timestamp=record.timestamp + 1),
            replace(record, key=b"acme/others"),
        ):
            records[offset] = changed
            found = violations(await verified(log, ENTITY_TOPIC))
            assert (FindingKind.EDITED, offset) in [one[:2] for one in found], offset
        records[offset] = record
    records[3] = replace(records[3], timestamp=1)
    [(_, _, aggregate, seq)] = violations(await verified(log, ENTITY_TOPIC))
    assert (aggregate, seq) == (HITS, 2)
    assert (await verified(log, EVENTS_TOPIC)).is_clean, "runs are as they were signed"


async def test_a_history_that_was_made_anew_with_a_fitting_chain_is_found(entity_records: Records) -> None:
    """What somebody does who may write the log: other numbers, and every hash behind them made to fit."""
    codec = local_codec()
    log = await signed(log_of(entity_records))
    records, tail = log.records[ENTITY_TOPIC, 0], bytes(16)
    for at, record in enumerate(records):
        decoded = codec.decode(record.value or b"")
        if decoded.envelope is None or decoded.envelope.aggregate != HITS:
            continue
        event = decoded.record
        if isinstance(event, CounterIncremented):
            event = replace(event, value=event.value + 1)
        value = codec.encode_event(replace(decoded.envelope, prev=tail), event)
        records[at], tail = replace(record, value=value), digest(value)
    assert {kind for kind, *_ in violations(await verified(log, ENTITY_TOPIC))} == {FindingKind.EDITED}
    unsigned = MemoryLog({EVENTS_TOPIC: 1, ENTITY_TOPIC: 1, CHECKPOINTS_TOPIC: 1})
    unsigned.records[ENTITY_TOPIC, 0] = records
    assert (await verified(unsigned, ENTITY_TOPIC)).is_clean, "the hash chain alone says nothing"


async def test_removed_inserted_and_cut_off_events_are_found(entity_records: Records) -> None:
    log = await signed(log_of(entity_records))
    records = [*log.records[ENTITY_TOPIC, 0]]
    for kind, changed in (
        (FindingKind.REMOVED, [*records[:4], *records[5:]]),
        (FindingKind.INSERTED, [*records[:5], *records[4:]]),
        (FindingKind.TRUNCATED, records[:-2]),
    ):
        log.records[ENTITY_TOPIC, 0] = [replace(record, offset=at) for at, record in enumerate(changed)]
        assert kind in {one[0] for one in violations(await verified(log, ENTITY_TOPIC))}, kind


async def test_unsigned_events_have_the_key_and_headers_of_their_aggregate(entity_records: Records) -> None:
    log = log_of(entity_records)
    assert (await verified(log, ENTITY_TOPIC)).is_clean
    records = log.records[ENTITY_TOPIC, 0]
    records[3] = replace(records[3], key=b"acme/others")
    [found] = violations(await verified(log, ENTITY_TOPIC))
    assert found[:2] == (FindingKind.EDITED, 3)


async def test_a_checkpoint_that_claims_to_be_of_the_other_topic_hides_nothing(entity_records: Records) -> None:
    """Its topic is believed only after its signature: changed, it is missed where it was and damaged in both."""
    log = await signed(log_of(entity_records))
    stored = log.records[CHECKPOINTS_TOPIC, 0]
    at = next(r.offset for r in stored if EVENTS_TOPIC.encode() in (r.value or b""))
    value = stored[at].value or b""
    stored[at] = replace(stored[at], value=value.replace(b"loom.run.events", b"loom.tun.events"))
    for topic in (EVENTS_TOPIC, ENTITY_TOPIC):
        assert FindingKind.BAD_SIGNATURE in {one[0] for one in violations(await verified(log, topic))}
    async with auditing(log) as auditors:
        await until(lambda: all(auditor.refused for auditor in auditors))


async def test_without_the_sibling_a_checkpoint_of_another_topic_is_inserted(entity_records: Records) -> None:
    log = await signed(log_of(entity_records))
    readers = LogReaders(log, log, local_codec())
    task = events_task(VerificationRequest(), {KEY.key_id: KEY.public}, EVENTS_TOPIC)
    task = dataclasses.replace(task, siblings=frozenset())
    report = await verify_partition(readers, task, 0, now_ms=START_MS)
    assert {one[0] for one in violations(report)} == {FindingKind.INSERTED}


async def test_the_newest_checkpoints_of_a_quiet_topic_are_found_behind_those_of_a_busy_one(
    entity_records: Records,
) -> None:
    log = await signed(log_of(entity_records[:3]))
    for number in range(12):
        for record in entity_records[3 + number % 3 : 4 + number % 3]:
            log.put(ENTITY_TOPIC, 0, [ProducerRecord(key=record.key, value=record.value, headers=())])
        async with running(log, ENTITIES) as auditor:
            await until(lambda: covered(log, ENTITY_TOPIC) == len(log.records[ENTITY_TOPIC, 0]))
            assert not auditor.refused
    readers = LogReaders(log, log, local_codec())
    task = events_task(VerificationRequest(), {}, EVENTS_TOPIC)
    assert await unsigned_since_ms(readers, task, 0) is None
    report = await verified(log, EVENTS_TOPIC, VerificationRequest(newest_checkpoints=2))
    assert report.is_clean
    assert 0 < report.first_offset < report.covered == len(log.records[EVENTS_TOPIC, 0])


async def test_one_aggregate_is_verified_alone(entity_records: Records) -> None:
    log = await signed(log_of(entity_records))
    report = await verified(log, ENTITY_TOPIC, VerificationRequest(run_id=HITS))
    assert report.watched is not None
    assert (report.watched.seq, report.watched.ended, report.is_clean) == (7, False, True)


async def test_an_aggregate_that_is_forgotten_by_the_verifier_is_no_gap(
    entity_records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LIVE_MAX", 1)
    assert (await verified(await signed(log_of(entity_records)), ENTITY_TOPIC)).is_clean


async def test_a_topic_that_an_installation_need_not_have_is_waited_for_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def warnings() -> list[str]:
        records = [record for record in caplog.records if record.name == "loomlog.auditor"]
        return [record.getMessage() for record in records if record.levelname == "WARNING"]

    connection = MemoryLogConnection(log_of([]))
    async with running(connection.log, settings(events_topic="loom.gone.events", is_optional=True), connection):
        await until(lambda: connection.connections == 1)
    assert not warnings()
    async with running(connection.log, settings(events_topic="loom.gone.events")):
        await until(warnings)
