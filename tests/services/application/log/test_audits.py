import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import LogRange
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.codec import local_codec
from loomlog.schemas.records import replace
from loomlog.services.application.log import audits as module
from loomlog.services.application.log import verification
from loomlog.services.application.log.audits import AuditVerifications, VerificationStream
from loomlog.services.application.log.verifier import LogSources, LogVerifier, VerificationRequest
from loomlog.services.application.streaming.run_stream import ENDED
from loomlog.services.application.streaming.subscription import STOPPING
from tests.services.application.log.test_verification import change, stored
from tests.services.application.owner import WAIT_S
from tests.services.application.world import declined, until
from tests.services.core.audit.test_verify import story
from tests.services.core.audit.written import CHECKPOINTS, KEY, PARTITION, TOPIC

OTHERS = {"loom.entity.events": 4, "loom.channel.events": 4}
NO_BLOBS = VerificationRequest(follow_blobs=False)


class SlowLog(MemoryLog):
    """A log whose records can be read only once it is `released`."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__({TOPIC: 4, CHECKPOINTS: 4} | OTHERS)
        self.records = log.records
        self.released = asyncio.Event()

    async def read(self, topic: str, partition: int, start: int, end: int) -> Any:
        await self.released.wait()
        return await super().read(topic, partition, start, end)


def log_with_signatures() -> MemoryLog:
    log = stored(story())
    log._partitions |= OTHERS
    return log


def verifier_of(log: MemoryLog, *, trusted: bool = True) -> LogVerifier:
    @asynccontextmanager
    async def open_ranges() -> AsyncIterator[MemoryLog]:
        yield log

    async def find_run(run_id: str) -> None:
        return None

    return LogVerifier(
        LogSources(
            open_ranges=open_ranges,
            count_partitions=log.partitions,
            find_run=find_run,
            codec=local_codec(),
            keys={KEY.key_id: KEY.public} if trusted else {},
            blobs=MemoryBlobs(),
            place="memory",
        )
    )


async def frames_of(stream: VerificationStream) -> list[dict[str, Any]]:
    """All frames of a stream, until its end."""
    frames: list[dict[str, Any]] = []
    async with asyncio.timeout(WAIT_S):
        while (chunks := await stream.next()) is not None:
            frames += [orjson.loads(chunk.data) for chunk in chunks]
    return frames


async def test_a_verification_ends_with_its_result() -> None:
    audits = AuditVerifications(verifier_of(log_with_signatures()))
    stream = audits.verify(NO_BLOBS)
    result = (await frames_of(stream))[-1]
    assert stream.end_reason == ENDED
    assert (result["type"], result["clean"], result["records"]) == ("result", True, 34)
    assert len(result["partitions"]) == 12
    signed = next(one for one in result["partitions"] if one["signed_records"])
    assert (signed["topic"], signed["partition"], signed["newest_checkpoint"]["next_offset"]) == (TOPIC, PARTITION, 30)


async def test_a_changed_record_is_in_the_result() -> None:
    log = log_with_signatures()
    change(log, 9)
    result = (await frames_of(AuditVerifications(verifier_of(log)).verify(NO_BLOBS)))[-1]
    assert (result["clean"], result["violations"]) == (False, 1)
    violation = next(finding for one in result["partitions"] for finding in one["findings"] if finding["violation"])
    assert (violation["kind"], violation["offset"]) == ("edited", 9)


async def test_progress_is_told_before_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "YIELD_EVERY", 5)
    monkeypatch.setattr(module, "PROGRESS_EVERY_S", 0)
    request = replace_request(partition=PARTITION, run_id="", entities_only=False)
    frames = await frames_of(AuditVerifications(verifier_of(log_with_signatures())).verify(request))
    told = [frame for frame in frames if frame["type"] == "progress" and frame["topic"] == TOPIC]
    assert told, frames
    assert told[0]["end_offset"] == 34
    assert [frame["records"] for frame in told] == sorted(frame["records"] for frame in told)


def replace_request(**changes: Any) -> VerificationRequest:
    return VerificationRequest(follow_blobs=False, **changes)


async def test_others_go_on_while_records_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "YIELD_EVERY", 5)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await verifier_of(log_with_signatures()).verify(replace_request(partition=PARTITION))
    counting.cancel()
    assert turns >= 34 // 5


async def test_one_verification_runs_at_a_time_and_its_end_makes_room() -> None:
    log = SlowLog(log_with_signatures())
    audits = AuditVerifications(verifier_of(log))
    first = audits.verify(NO_BLOBS)
    with pytest.raises(module.Refused, match="a verification is running"):
        audits.verify(NO_BLOBS)
    first.close()
    await until(lambda: not first.is_running)
    assert await first.next() is None
    log.released.set()
    assert (await frames_of(audits.verify(NO_BLOBS)))[-1]["clean"]


async def test_a_process_that_stops_ends_it() -> None:
    audits = AuditVerifications(verifier_of(SlowLog(log_with_signatures())))
    stream = audits.verify(NO_BLOBS)
    audits.stop()
    assert await stream.next() is None
    assert stream.end_reason == STOPPING


async def test_why_there_is_no_result_is_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    audits = AuditVerifications(verifier_of(log_with_signatures()))
    unknown = await frames_of(audits.verify(replace_request(run_id="r_nothing")))
    assert (unknown[-1]["type"], unknown[-1]["code"]) == ("error", "not_found")
    monkeypatch.setattr(module, "VERIFICATION_MAX_S", 0.01)
    slow = AuditVerifications(verifier_of(SlowLog(log_with_signatures())))
    late = await frames_of(slow.verify(NO_BLOBS))
    assert late[-1]["code"] == "request_timeout"


class AwayLog(MemoryLog):
    """A broker that does not answer."""

    async def end_offset(self, topic: str, partition: int) -> int:
        raise Transient("away", kind="unavailable")

    async def read(self, topic: str, partition: int, start: int, end: int) -> LogRange | Any:
        raise Transient("away", kind="unavailable")


async def test_a_broker_that_is_away_is_told() -> None:
    log = AwayLog({TOPIC: 4, CHECKPOINTS: 4} | OTHERS)
    audits = AuditVerifications(verifier_of(log))
    assert (await frames_of(audits.verify(NO_BLOBS)))[-1]["code"] == "log_unavailable"
    assert (await declined(audits.checkpoints())).code == "log_unavailable"


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": "r_1", "partition": 1},
        {"run_id": "r_1", "since_ms": 1},
        {"run_id": "r_1", "entities_only": True},
        {"entities_only": True, "channels_only": True},
    ],
)
async def test_what_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(module.Refused) as caught:
        AuditVerifications(verifier_of(log_with_signatures())).verify(replace_request(**changes))
    assert caught.value.code == "bad_request"


async def test_the_newest_checkpoints_are_listed_with_what_their_signature_is_worth() -> None:
    log = log_with_signatures()
    (newest,) = (await AuditVerifications(verifier_of(log)).checkpoints())["checkpoints"]
    assert (newest["topic"], newest["partition"], newest["next_offset"]) == (TOPIC, PARTITION, 30)
    assert (newest["signature"], newest["unsigned"], newest["key_id"]) == ("valid", 4, KEY.key_id)
    listed = (await AuditVerifications(verifier_of(log, trusted=False)).checkpoints(limit=9))["checkpoints"]
    assert [one["signature"] for one in listed] == ["unknown_key"] * 4
    assert [one["next_offset"] for one in listed] == sorted((one["next_offset"] for one in listed), reverse=True)
    last = log.records[CHECKPOINTS, PARTITION][-1]
    value = last.value or b""
    log.records[CHECKPOINTS, PARTITION][-1] = replace(last, value=value[:-1] + bytes([value[-1] ^ 1]))
    (forged,) = (await AuditVerifications(verifier_of(log)).checkpoints())["checkpoints"]
    assert forged["signature"] == "invalid"
