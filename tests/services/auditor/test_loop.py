import asyncio
import dataclasses
from collections.abc import Mapping
from contextlib import asynccontextmanager

import pytest

from loomlog.connectors.crypto.signatures import SigningKey, generate_key
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.kafka.memory_log import MemoryLog, MemoryTail
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.records import replace
from loomlog.services.auditor.loop import Auditor
from loomlog.services.auditor.settings import CHECKPOINTS_TOPIC, EVENTS_TOPIC, AuditorSettings
from loomlog.services.core.audit.checkpoints import read_signed
from tests.projections.stories import a3x2
from tests.services.core.audit.written import KEY, START_MS, Log
from tests.waiting import until

PATIENCE_S = 30.0


class MemoryLogConnection:
    """The log in memory; `away` makes the next connections fail."""

    def __init__(self, log: MemoryLog) -> None:
        self.ranges = self.appender = log
        self.log = log
        self.away = 0
        self.connections = 0

    async def connect(self) -> "MemoryLogConnection":
        self.connections += 1
        if self.away:
            self.away -= 1
            raise Transient("the broker is away", kind="unavailable")
        return self

    async def open_tail(self, topic: str, starts: Mapping[int, int]) -> MemoryTail:
        return self.log.tail(topic, starts)

    async def close(self) -> None:
        """The log stays."""


def settings(key: SigningKey = KEY, *trusted: SigningKey, **changes: object) -> AuditorSettings:
    options = AuditorSettings(
        kafka=KafkaOptions(bootstrap="k.test:1"),
        key=key,
        trusted={trusted_key.key_id: trusted_key.public for trusted_key in (key, *trusted)},
        every_records=10,
        every_s=0.01,
        poll_timeout_s=0.01,
    )
    return dataclasses.replace(options, **changes)  # type: ignore[arg-type]


def written(runs: int, *, partition: int = 0) -> tuple[MemoryLog, Log]:
    """A log of two partitions, with runs in one of them."""
    source = Log()
    source.claim()
    for number in range(runs):
        source.add(f"r_{number}", *a3x2(f"r_{number}"))
    log = MemoryLog({EVENTS_TOPIC: 2, CHECKPOINTS_TOPIC: 2})
    grow(log, source, partition=partition)
    return log, source


def grow(log: MemoryLog, source: Log, *, partition: int = 0) -> None:
    written_records = len(log.records[EVENTS_TOPIC, partition])
    for record in source.records[written_records:]:
        log.clock_ms = record.timestamp
        log.put(EVENTS_TOPIC, partition, [ProducerRecord(key=record.key, value=record.value, headers=record.headers)])


@asynccontextmanager
async def running(log: MemoryLog, options: AuditorSettings, connection: MemoryLogConnection | None = None):
    connection = connection or MemoryLogConnection(log)
    auditor = Auditor(options, connect=connection.connect, codec=local_codec(), clock_ms=lambda: START_MS)
    stop = asyncio.Event()
    task = asyncio.create_task(auditor.run(stop))
    try:
        yield auditor
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await task


def checkpoints(log: MemoryLog, partition: int = 0):
    return [read_signed(r.value, r.offset, local_codec()).checkpoint for r in log.records[CHECKPOINTS_TOPIC, partition]]


def covered(log: MemoryLog, partition: int = 0) -> int:
    return max((c.next_offset for c in checkpoints(log, partition)), default=0)


async def test_existing_and_new_records_are_signed():
    log, source = written(4)
    async with running(log, settings()) as auditor:
        await until(lambda: covered(log) == 49)
        source.add("r_new", *a3x2("r_new"))
        grow(log, source)
        await until(lambda: covered(log) == 61)
    signed = checkpoints(log)
    assert auditor.signed == len(signed)
    assert [c.first_offset for c in signed] == [0, *(c.next_offset for c in signed[:-1])]
    assert all(c.records <= 10 for c in signed)
    assert all(r.key == b"0" and not r.headers for r in log.records[CHECKPOINTS_TOPIC, 0])
    assert checkpoints(log, 1) == [], "it has no records, so nothing is signed"


async def test_a_restarted_auditor_resumes_after_its_last_checkpoint():
    log, source = written(2)
    async with running(log, settings()):
        await until(lambda: covered(log) == 25)
    before = len(checkpoints(log))
    source.add("r_new", *a3x2("r_new"))
    grow(log, source)
    async with running(log, settings()):
        await until(lambda: covered(log) == 37)
    signed = checkpoints(log)
    assert signed[before].first_offset == 25
    assert signed[before].start_chain == signed[before - 1].chain


async def test_two_auditors_at_once_sign_equal_chains():
    log, source = written(1)
    other = generate_key()
    async with running(log, settings(KEY, other)) as one, running(log, settings(other, KEY)) as two:
        for number in range(20):
            source.add(f"r_x{number}", *a3x2(f"r_x{number}"))
            grow(log, source)
            await until(lambda: covered(log) > 12 * number)  # noqa: B023 (waited for inside of the loop)
        await until(lambda: covered(log) == 253)
        assert not one.refused
        assert not two.refused
    chains: dict[int, bytes] = {}
    for checkpoint in checkpoints(log):
        assert chains.setdefault(checkpoint.next_offset, checkpoint.chain) == checkpoint.chain


async def test_a_changed_partition_is_no_longer_signed_and_others_are(caplog):
    log, source = written(2)
    async with running(log, settings()):
        await until(lambda: covered(log) == 25)
    last = checkpoints(log)[-1].first_offset
    records = log.records[EVENTS_TOPIC, 0]
    records[last] = replace(records[last], timestamp=1)
    source.add("r_new", *a3x2("r_new"))
    grow(log, source)
    grow(log, source, partition=1)
    async with running(log, settings()) as auditor:
        await until(lambda: covered(log, 1) == 37)
        await until(lambda: auditor.refused)
    assert set(auditor.refused) == {0}
    assert covered(log) == 25
    errors = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert errors
    assert "NOT SIGNING loom.run.events/0" in errors[0]
    assert "loomlog audit verify --partition 0" in errors[0]


@pytest.mark.parametrize("while_running", [False, True])
async def test_a_truncated_partition_is_no_longer_signed(while_running: bool):
    log, _ = written(2)
    async with running(log, settings()) as auditor:
        await until(lambda: covered(log) == 25)
        if while_running:
            del log.records[EVENTS_TOPIC, 0][20:]
            await until(lambda: auditor.refused)
            assert "cut off" in auditor.refused[0]
    if not while_running:
        del log.records[EVENTS_TOPIC, 0][20:]
        async with running(log, settings()) as again:
            await until(lambda: again.refused)
            assert "the log ends at offset 20, but it was signed up to 25" in again.refused[0]


async def test_a_checkpoint_with_a_wrong_signature_stops_the_signing():
    log, _ = written(2)
    async with running(log, settings()):
        await until(lambda: covered(log) == 25)
    stored = log.records[CHECKPOINTS_TOPIC, 0]
    value = stored[0].value or b""
    stored[0] = replace(stored[0], value=value[:-1] + bytes([value[-1] ^ 1]))
    async with running(log, settings()) as auditor:
        await until(lambda: auditor.refused)
    assert "the checkpoint at offset 0 has a wrong signature" in auditor.refused[0]


async def test_a_new_key_names_the_old_one_and_needs_it_listed():
    log, source = written(2)
    async with running(log, settings()):
        await until(lambda: covered(log) == 25)
    new = generate_key()
    source.add("r_new", *a3x2("r_new"))
    grow(log, source)
    async with running(log, settings(new)) as auditor:
        await until(lambda: auditor.refused)
    assert KEY.key_id in auditor.refused[0]
    before = len(checkpoints(log))
    async with running(log, settings(new, KEY)):
        await until(lambda: covered(log) == 37)
    first = checkpoints(log)[before]
    assert (first.key_id, first.previous_key_id) == (new.key_id, KEY.key_id)


async def test_an_append_with_an_unknown_outcome_is_harmless():
    log, source = written(2)
    log.lose_acks = 2
    async with running(log, settings()) as auditor:
        await until(lambda: covered(log) == 25)
        source.add("r_new", *a3x2("r_new"))
        grow(log, source)
        await until(lambda: covered(log) == 37)
        assert not auditor.refused
    signed = checkpoints(log)
    assert [c.first_offset for c in signed] == [0, *(c.next_offset for c in signed[:-1])]


async def test_a_broker_that_is_away_is_waited_for_and_missing_topics_too():
    log, _ = written(1)
    connection = MemoryLogConnection(log)
    connection.away = 2
    async with running(log, settings(), connection):
        await until(lambda: covered(log) == 13)
    assert connection.connections == 3
    empty = MemoryLogConnection(MemoryLog({EVENTS_TOPIC: 2}))
    async with running(empty.log, settings(), empty):
        await until(lambda: empty.connections >= 2)


def test_secrets_are_not_shown():
    options = settings()
    raw = options.key.key.private_bytes_raw()
    assert raw.hex() not in repr(options)
    assert repr(raw)[2:-1] not in repr(options)
