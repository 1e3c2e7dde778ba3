import dataclasses
from pathlib import Path

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord
from loomlog.connectors.storage.blobs import FileBlobs, MemoryBlobs
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import replace
from loomlog.services.application.log.verification import (
    LogReaders,
    RunRange,
    VerificationTask,
    unsigned_since_ms,
    verify_partition,
)
from loomlog.services.core.audit.findings import FindingKind
from tests.projections.stories import a3x2, completed, replied, requested, started
from tests.services.core.audit.test_verify import story
from tests.services.core.audit.written import CHECKPOINTS, KEY, PARTITION, START_MS, TOPIC, flipped, violations
from tests.services.core.audit.written import Log as Written


def stored(written: Written) -> MemoryLog:
    log = MemoryLog({TOPIC: 4, CHECKPOINTS: 4})
    for topic, records in ((TOPIC, written.records), (CHECKPOINTS, written.checkpoints)):
        log.records[topic, PARTITION] = [
            ConsumerRecord(topic, PARTITION, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records
        ]
    return log


def task(**changes: object) -> VerificationTask:
    made = VerificationTask(
        topic=TOPIC,
        records_topic=TOPIC,
        checkpoints_topic=CHECKPOINTS,
        keys={KEY.key_id: KEY.public},
        blobs=None,
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


async def verified(log: MemoryLog, *, place: RunRange | None = None, **changes: object):
    reading = LogReaders(log, log, local_codec())
    return await verify_partition(reading, task(**changes), PARTITION, now_ms=START_MS, run_range=place)


def change(log: MemoryLog, offset: int) -> None:
    records = log.records[TOPIC, PARTITION]
    value = records[offset].value or b""
    records[offset] = replace(records[offset], value=flipped(value, len(value) - 1))


async def test_a_partition_and_its_checkpoints_are_read_side_by_side():
    report = await verified(stored(story()))
    assert report.is_clean
    assert (report.records, report.signed_records, report.covered) == (34, 30, 30)


async def test_the_oldest_record_behind_the_newest_checkpoint_is_known():
    log = stored(story())
    records = log.records[TOPIC, PARTITION]
    reading = LogReaders(log, log, local_codec())
    assert await unsigned_since_ms(reading, task(), PARTITION) == records[30].timestamp
    log.records[CHECKPOINTS, PARTITION] = []
    assert await unsigned_since_ms(reading, task(), PARTITION) == records[0].timestamp
    log.records[TOPIC, PARTITION] = []
    assert await unsigned_since_ms(reading, task(), PARTITION) is None


async def test_since_begins_at_the_checkpoint_that_was_signed_then():
    written = story()
    log = stored(written)
    third = written.checkpoints[2].timestamp
    change(log, 3)
    assert not (await verified(log)).is_clean
    report = await verified(log, since_ms=third)
    assert report.is_clean, report.findings
    assert (report.first_offset, report.records) == (24, 10)
    change(log, 25)
    assert violations(await verified(log, since_ms=third)) == [(FindingKind.EDITED, 25, "r_b", 5)]


async def test_since_after_the_last_checkpoint_still_verifies_the_tail_nobody_signed():
    written = story()
    report = await verified(stored(written), since_ms=written.clock_ms + 1)
    assert (report.first_offset, report.records, report.unsigned) == (28, 6, 4)


async def test_a_run_is_verified_with_the_checkpoints_that_cover_it():
    log = stored(story())
    report = await verified(log, run_id="r_c", place=RunRange(12, 23))
    assert report.is_clean
    assert (report.first_offset, report.records) == (12, 12)
    assert report.watched is not None
    assert (report.watched.first_seq, report.watched.seq, report.watched.ended) == (1, 12, True)
    change(log, 3)
    assert (await verified(log, run_id="r_c", place=RunRange(12, 23))).is_clean
    assert (await verified(log, run_id="r_c")).is_clean, "another run's damage does not concern it"
    change(log, 13)
    for place in (RunRange(12, 23), None):
        assert violations(await verified(log, run_id="r_c", place=place)) == [(FindingKind.EDITED, 13, "r_c", 2)]


async def test_an_open_run_is_verified_to_the_end_of_the_log():
    log = stored(story())
    report = await verified(log, run_id="r_d", place=RunRange(29, -1))
    assert report.is_clean
    assert (report.first_offset, report.next_offset) == (28, 34)
    del log.records[TOPIC, PARTITION][29:]
    cut = await verified(log, run_id="r_d")
    assert [kind for kind, *_ in violations(cut)] == [FindingKind.TRUNCATED]


@pytest.mark.parametrize("place", [RunRange(24, 27), RunRange(12, 15), RunRange(29, -1), RunRange(0, 3)])
async def test_an_index_that_is_wrong_costs_time_and_no_truth(place: RunRange):
    report = await verified(stored(story()), run_id="r_c", place=place)
    assert report.watched is not None
    assert (report.watched.first_offset, report.watched.last_offset, report.watched.seq) == (12, 23, 12)
    assert report.is_clean


async def test_a_copy_in_another_topic_is_verified_against_the_same_checkpoints():
    log = stored(story())
    log.records["copy", PARTITION] = log.records[TOPIC, PARTITION][:20]
    report = await verified(log, records_topic="copy")
    assert [(f.kind, f.offset, f.count, f.topic) for f in report.findings if f.kind.is_violation] == [
        (FindingKind.TRUNCATED, 20, 10, TOPIC)
    ]


async def blobs_named(folder: Path) -> tuple[MemoryLog, FileBlobs, list[BlobRef]]:
    blobs = FileBlobs(folder)
    refs = [await blobs.put(text.encode() * 100) for text in ("one", "two", "three")]
    written = Written()
    written.claim()
    for number, ref in enumerate(refs):
        name = f"r_{number}"
        written.add(name, started(name), requested(1), replied(1, "", text_blob=ref), completed())
    written.sign()
    return stored(written), blobs, refs


async def test_a_missing_and_a_damaged_blob_are_named_with_the_event_that_names_them(tmp_path):
    log, blobs, refs = await blobs_named(tmp_path)
    assert (await verified(log, blobs=blobs)).is_clean
    blobs.blob_path(refs[0].sha256).unlink()
    blobs.blob_path(refs[2].sha256).write_bytes(b"other")
    assert violations(await verified(log, blobs=blobs)) == [
        (FindingKind.MISSING_BLOB, 3, "r_0", 3),
        (FindingKind.DAMAGED_BLOB, 11, "r_2", 3),
    ]
    assert (await verified(log)).is_clean, "nobody asked for blobs"


async def test_a_blob_of_another_size_than_the_event_says_is_damaged():
    blobs = MemoryBlobs()
    ref = await blobs.put(b"some text")
    written = Written()
    written.claim()
    written.add("r_a", started("r_a"), requested(1), replied(1, "", text_blob=replace(ref, size_bytes=8)))
    written.add("r_b", *a3x2("r_b"))
    report = await verified(stored(written), blobs=blobs)
    assert violations(report) == [(FindingKind.DAMAGED_BLOB, 3, "r_a", 3)]
