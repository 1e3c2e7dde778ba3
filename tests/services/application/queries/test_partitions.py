"""Owners, take-overs and cursors of the partitions."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.projections.engine.cursors import CursorRow
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import RunParked
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import Envelope
from loomlog.services.application import limits
from loomlog.services.application.queries import log_pages
from loomlog.services.application.queries import partitions as module
from loomlog.services.application.queries.partitions import FollowedTopic, PartitionOwnership, Partitions
from tests.services.application.world import ADMIN_CALLER, declined

TOPIC = "loom.run.events"
CODEC = local_codec()
AT_MS = 1_780_000_000_000


class Cursors:
    """Read models of which only the cursors are asked for."""

    def __init__(self, *rows: CursorRow) -> None:
        self.rows = rows

    async def progress(self) -> Any:
        return {"cursors": self.rows, "statuses": [], "problems": 0}


class Cluster:
    """A log of two partitions, and what a process knows of their terms."""

    def __init__(self, *cursors: CursorRow) -> None:
        self.log = MemoryLog({TOPIC: 2})
        self.terms = {0: -1, 1: -1}
        self.reads = 0
        topic = FollowedTopic(
            name="runs",
            topic=TOPIC,
            partitions=(0, 1),
            term=self.terms.__getitem__,
            end_offset=lambda partition: len(self.log.records[TOPIC, partition]),
        )
        self.partitions = Partitions([topic], Cursors(*cursors), self, CODEC)  # type: ignore[arg-type]  # what is used of them

    def claim(
        self,
        owner: str,
        *,
        partition: int = 0,
        at_ms: int = AT_MS,
        reason: str = "assigned",
        seen: int | None = None,
    ) -> int:
        """A Claim by an owner that had seen that term; None: the one in force."""
        term = self.terms[partition] if seen is None else seen
        envelope = Envelope(term=term, seq=0, aggregate="", tenant="", at_ms=at_ms, prev=bytes(16))
        value = CODEC.encode_event(envelope, Claim(owner=owner, reason=reason, lifeline="127.0.0.1:9/abc"))
        self.terms[partition] = self.log.put(TOPIC, partition, [ProducerRecord(key=b"claim", value=value)])
        return self.terms[partition]

    def append(self, count: int, *, partition: int = 0) -> None:
        self.log.put(TOPIC, partition, [ProducerRecord(key=b"k", value=b"x")] * count)

    async def list(self, takeovers: int = 3) -> Sequence[PartitionOwnership]:
        (topic,) = (await self.partitions.list(ADMIN_CALLER, takeovers=takeovers))["topics"]
        assert (topic["name"], topic["topic"]) == ("runs", TOPIC)
        return topic["partitions"]

    async def read(self, topic: str, partition: int, start: int, end: int) -> Any:
        assert end <= start + 2, "one Claim at a time, and the record before it"
        self.reads += 1
        return await self.log.read(topic, partition, start, end)

    async def beginning_offset(self, topic: str, partition: int) -> int:
        return await self.log.beginning_offset(topic, partition)


def cursor(partition: int, next_offset: int) -> CursorRow:
    return CursorRow(TOPIC, partition, next_offset, 0, 1, "projector-1", None)


async def test_a_partition_has_its_owner_since_its_claim_and_the_cursor_of_its_projector() -> None:
    cluster = Cluster(cursor(0, 4))
    cluster.append(2)
    cluster.claim("runtime-1", reason="standby")
    cluster.append(3)
    first, second = await cluster.list()
    assert first == {
        "partition": 0,
        "term": 2,
        "owner": "runtime-1",
        "since": "2026-05-28T20:26:40.000Z",
        "reason": "standby",
        "takeovers": [
            {
                "term": 2,
                "owner": "runtime-1",
                "reason": "standby",
                "liveness_address": "127.0.0.1:9/abc",
                "at": "2026-05-28T20:26:40.000Z",
            }
        ],
        "has_more": False,
        "end_offset": 6,
        "next_offset": 4,
        "lag": 2,
        "projector": "projector-1",
    }
    assert (second["term"], second["owner"], second["takeovers"], second["projector"]) == (None, None, [], None)


async def test_take_overs_are_newest_first_and_one_read_each() -> None:
    cluster = Cluster()
    for number in range(5):
        cluster.claim(f"runtime-{number}", at_ms=AT_MS + number)
        cluster.append(100)
    first, _ = await cluster.list(3)
    assert [one["owner"] for one in first["takeovers"]] == ["runtime-4", "runtime-3", "runtime-2"]
    assert (first["term"], first["has_more"], cluster.reads) == (404, True, 3)
    first, _ = await cluster.list(50)
    assert [one["term"] for one in first["takeovers"]] == [404, 303, 202, 101, 0]
    assert (first["has_more"], cluster.reads) == (False, 5)


@pytest.mark.parametrize("events", [0, 3])
async def test_an_owner_whose_successor_had_not_read_its_claim_is_listed(events: int) -> None:
    cluster = Cluster()
    cluster.claim("runtime-1")
    cluster.claim("runtime-2")
    for _ in range(events):
        envelope = Envelope(term=1, seq=1, aggregate="r_1", tenant="t", at_ms=0, prev=bytes(16))
        event = CODEC.encode_event(envelope, RunParked(since_turn=1))
        cluster.log.put(TOPIC, 0, [ProducerRecord(key=b"k", value=event)])
    cluster.claim("runtime-3", seen=-1)
    first, _ = await cluster.list()
    assert [one["owner"] for one in first["takeovers"]] == ["runtime-3", "runtime-2", "runtime-1"]


async def test_a_stale_record_before_a_claim_does_not_hide_the_owner_in_between() -> None:
    cluster = Cluster()
    cluster.claim("runtime-1")
    cluster.claim("runtime-2")
    envelope = Envelope(term=0, seq=1, aggregate="r_1", tenant="t", at_ms=0, prev=bytes(16))
    stale = CODEC.encode_event(envelope, RunParked(since_turn=1))
    cluster.log.put(TOPIC, 0, [ProducerRecord(key=b"k", value=stale)])
    cluster.claim("runtime-3")
    first, _ = await cluster.list()
    assert [one["owner"] for one in first["takeovers"]] == ["runtime-3", "runtime-2", "runtime-1"]


async def test_a_claim_is_read_once_by_all_requests() -> None:
    cluster = Cluster()
    cluster.claim("runtime-1")
    await asyncio.gather(*(cluster.list() for _ in range(5)))
    assert cluster.reads == 1
    cluster.claim("runtime-2")
    assert [one["owner"] for one in (await cluster.list())[0]["takeovers"]] == ["runtime-2", "runtime-1"]
    assert cluster.reads == 2


async def test_a_claim_that_is_deleted_with_the_beginning_of_the_log_has_no_owner() -> None:
    cluster = Cluster()
    cluster.claim("runtime-1")
    cluster.claim("runtime-2")
    cluster.append(5)
    cluster.log.delete_before(TOPIC, 0, 1)
    first, _ = await cluster.list()
    assert ([one["owner"] for one in first["takeovers"]], first["has_more"]) == (["runtime-2"], False)
    cluster = Cluster()
    cluster.claim("runtime-1")
    cluster.append(5)
    cluster.log.delete_before(TOPIC, 0, 3)
    first, _ = await cluster.list()
    assert (first["term"], first["owner"], first["has_more"]) == (0, None, False)


async def test_one_request_reads_a_bounded_number_of_claims_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "READS_MAX", 3)
    cluster = Cluster()
    for partition in (0, 1):
        for number in range(3):
            cluster.claim(f"runtime-{number}", partition=partition)
    first, second = await cluster.list(3)
    assert (len(first["takeovers"]), len(second["takeovers"])) == (2, 1)
    assert (first["has_more"], second["has_more"]) == (True, True)
    first, second = await cluster.list(3)
    assert (len(first["takeovers"]), len(second["takeovers"])) == (3, 3)


async def test_a_broker_that_is_away_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.claim("runtime-1")

    async def away(topic: str, partition: int) -> int:
        raise Transient("no broker", kind="unavailable")

    monkeypatch.setattr(cluster, "beginning_offset", away)
    assert (await declined(cluster.partitions.list(ADMIN_CALLER))).code == "log_unavailable"


async def test_a_broker_that_hangs_is_waited_for_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pages, "READ_WAIT_S", 0.02)
    monkeypatch.setattr(limits, "EVENTS_WAITING_MAX", 2)
    cluster = Cluster()
    cluster.claim("runtime-1")

    async def hang(topic: str, partition: int) -> int:
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(cluster, "beginning_offset", hang)
    calls = [cluster.partitions.list(ADMIN_CALLER) for _ in range(3)]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(one, "code", type(one).__name__) for one in ended] == [
        "log_unavailable",
        "log_unavailable",
        "ShareExhausted",
    ]
