"""The books are signed like the events of runs: whoever changes them and makes their whole chain anew is found out."""

from collections.abc import Callable, Sequence

import pytest
import pytest_asyncio

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord, ProducerRecord
from loomlog.schemas.codec import digest, local_codec
from loomlog.schemas.generated.budget_events import LimitSet
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.records import replace
from loomlog.services.application.log.verification import LogReaders, verify_partition
from loomlog.services.application.log.verifier import VerificationRequest, events_task
from loomlog.services.auditor.settings import CHECKPOINTS_TOPIC, ENTITY_TOPIC, entity_settings
from loomlog.services.core.audit.findings import FindingKind
from loomlog.services.core.audit.verify import VerificationReport
from tests.services.auditor.test_loop import running, settings, written
from tests.services.auditor.test_loop import until as until_so
from tests.services.core.audit.written import KEY, START_MS, flipped, violations
from tests.services.runtime.budget_world import BUDGETS, BudgetWorld
from tests.waiting import until

Records = list[ConsumerRecord]
EVERY = 5
"""Records of a checkpoint here, so that there are several."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def signed() -> tuple[Records, Records]:
    """The books of a run that spent something under two limits, and what the auditor signed about them."""
    world = BudgetWorld()
    async with world.owner_of_the_books("books"), world.runtime("a") as (_, books):
        await world.limit(books, hard_tokens=100_000)
        await world.limit(books, tenant="globex", hard_tokens=1)
        world.start("r_one")
        await until(lambda: world.ends().total() == 1)
    log = copied(world.log.records[BUDGETS.events, 0], [])
    end = len(log.records[ENTITY_TOPIC, 0])
    async with running(log, entity_settings(settings(every_records=EVERY))) as auditor:
        await until_so(lambda: auditor.refused or covered(log) == end)
        assert not auditor.refused
    assert end > EVERY
    return log.records[ENTITY_TOPIC, 0], log.records[CHECKPOINTS_TOPIC, 0]


def copied(records: Sequence[ConsumerRecord], checkpoints: Sequence[ConsumerRecord]) -> MemoryLog:
    """A log with these, their offsets dense."""
    log = MemoryLog({ENTITY_TOPIC: 1, CHECKPOINTS_TOPIC: 1})
    for topic, found in ((ENTITY_TOPIC, records), (CHECKPOINTS_TOPIC, checkpoints)):
        for record in found:
            log.clock_ms = record.timestamp
            log.put(topic, 0, [ProducerRecord(key=record.key, value=record.value, headers=record.headers)])
    return log


def covered(log: MemoryLog) -> int:
    return max(
        (local_codec().decode(r.value or b"").record.next_offset for r in log.records[CHECKPOINTS_TOPIC, 0]),
        default=0,
    )


async def verified(records: Sequence[ConsumerRecord], checkpoints: Sequence[ConsumerRecord]) -> VerificationReport:
    log = copied(records, checkpoints)
    task = events_task(VerificationRequest(), {KEY.key_id: KEY.public}, ENTITY_TOPIC)
    return await verify_partition(LogReaders(log, log, local_codec()), task, 0, now_ms=START_MS)


def forged(records: Sequence[ConsumerRecord], change: Callable[[LimitSet], LimitSet]) -> Records:
    """The books with other limits, and every hash behind them made to fit: what somebody does who may write the log."""
    codec, made, tail = local_codec(), [], bytes(16)
    for record in records:
        decoded = codec.decode(record.value or b"")
        if isinstance(decoded.record, Claim):
            made.append(record)
            continue
        assert decoded.envelope is not None
        event = change(decoded.record) if isinstance(decoded.record, LimitSet) else decoded.record
        value = codec.encode_event(replace(decoded.envelope, prev=tail), event)
        made.append(replace(record, value=value))
        tail = digest(value)
    return made


async def test_books_as_they_were_written_are_clean_and_all_signed(signed: tuple[Records, Records]) -> None:
    report = await verified(*signed)
    assert report.is_clean, report.findings
    assert (report.topic, report.records, report.signed_records) == (ENTITY_TOPIC, len(signed[0]), len(signed[0]))
    assert len(signed[1]) > 1


async def test_a_flipped_byte_of_any_record_is_found_also_of_the_claim_and_the_last_one(
    signed: tuple[Records, Records],
) -> None:
    records, checkpoints = signed
    for offset, record in enumerate(records):
        value = record.value or b""
        changed = [*records]
        changed[offset] = replace(record, value=flipped(value, len(value) - 1))
        found = violations(await verified(changed, checkpoints))
        assert (FindingKind.EDITED, offset) in [one[:2] for one in found], offset
        changed[offset] = replace(record, timestamp=record.timestamp + 1)
        assert [one[:2] for one in violations(await verified(changed, checkpoints))] == [(FindingKind.EDITED, offset)]


async def test_a_chain_that_was_made_anew_from_the_first_event_on_is_found(signed: tuple[Records, Records]) -> None:
    records, checkpoints = signed
    assert [r.value for r in forged(records, lambda limit: limit)] == [r.value for r in records]
    other = forged(records, lambda limit: replace(limit, hard_tokens=10**9))
    first = next(at for at, (a, b) in enumerate(zip(records, other, strict=True)) if a.value != b.value)
    assert (await verified(other, [])).is_clean, "the hash chain alone says nothing"
    report = await verified(other, checkpoints)
    assert [one[:2] for one in violations(report)] == [
        (FindingKind.EDITED, at) for at in range(first, len(records)) if other[at].value != records[at].value
    ]


async def test_what_was_removed_inserted_or_moved_is_found(signed: tuple[Records, Records]) -> None:
    records, checkpoints = signed
    for at in range(len(records) - 1):
        kinds = {kind for kind, *_ in violations(await verified([*records[:at], *records[at + 1 :]], checkpoints))}
        assert FindingKind.REMOVED in kinds, at
        kinds = {kind for kind, *_ in violations(await verified([*records[: at + 1], *records[at:]], checkpoints))}
        assert FindingKind.INSERTED in kinds, at
        moved = [*records[:at], records[at + 1], records[at], *records[at + 2 :]]
        assert not (await verified(moved, checkpoints)).is_clean, at


async def test_books_that_were_cut_off_say_from_where_on(signed: tuple[Records, Records]) -> None:
    records, checkpoints = signed
    for kept in range(len(records)):
        report = await verified(records[:kept], checkpoints)
        [cut] = [finding for finding in report.findings if finding.kind.is_violation]
        assert (cut.kind, cut.offset, cut.count) == (FindingKind.TRUNCATED, kept, len(records) - kept)


async def test_what_was_signed_about_runs_does_not_count_for_the_books(signed: tuple[Records, Records]) -> None:
    log, _ = written(1)
    async with running(log, settings()):
        await until_so(lambda: log.records["loom.audit.checkpoints", 0])
    report = await verified(signed[0], log.records["loom.audit.checkpoints", 0])
    assert report.signed_records == 0
    assert violations(report) == []


async def test_changed_books_are_not_signed_any_more_and_the_auditor_says_what_to_do(
    signed: tuple[Records, Records], caplog: pytest.LogCaptureFixture
) -> None:
    records, checkpoints = signed
    log = copied(forged(records, lambda limit: replace(limit, hard_tokens=7)), checkpoints)
    async with running(log, entity_settings(settings())) as auditor:
        await until_so(lambda: auditor.refused)
    [said] = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert "NOT SIGNING loom.entity.events/0" in said
    assert "`loomlog audit verify --entities --partition 0`" in said
