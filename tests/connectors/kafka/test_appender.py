import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions
from loomlog.connectors.kafka import appender as module
from loomlog.connectors.protocols import ProducerRecord
from tests.connectors.kafka.cluster import DUPLICATE, LOST, MESSAGE_TOO_LARGE, NOT_LEADER, OUT_OF_ORDER, Cluster

OPTIONS = KafkaOptions(bootstrap="broker:9092", compression="none")


def records(*values: bytes) -> list[ProducerRecord]:
    return [ProducerRecord(key=b"k", value=value, headers=(("h", b"1"),)) for value in values]


@asynccontextmanager
async def over(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KafkaAppender]:
    async def connect(*_: Any) -> Cluster:
        return cluster

    monkeypatch.setattr(module, "connect", connect)
    monkeypatch.setattr(module, "RETRY_BACKOFF_MS", 1)
    appender = KafkaAppender(OPTIONS)
    await appender.start()
    async with asyncio.timeout(30):
        yield appender
    monkeypatch.setattr(module, "METADATA_WAIT_S", 0.01)
    await appender.close()


async def test_what_is_appended_in_one_turn_leaves_in_one_request_to_each_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({0: 1, 1: 1, 2: 2})
    cluster.answer = lambda node, batches: {where: (0, 10 * where[1]) for where in batches}
    async with over(cluster, monkeypatch) as appender:
        offsets = await asyncio.gather(*(appender.append("t", p, records(b"a", b"b")) for p in (0, 1, 2)))
    assert offsets == [0, 10, 20]
    assert {node: sorted(batches) for node, batches in cluster.requests} == {1: [("t", 0), ("t", 1)], 2: [("t", 2)]}
    assert len(cluster.requests) == 2


async def test_batches_of_a_partition_go_one_after_the_other_under_their_sequence_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({0: 1, 1: 1})
    async with over(cluster, monkeypatch) as appender:
        await asyncio.gather(
            appender.append("t", 0, records(b"a", b"b")),
            appender.append("t", 0, records(b"c")),
            appender.append("t", 1, records(b"d")),
        )
        await appender.append("t", 0, records(b"e"))
    sent = [(batch.sequence, batch.values) for _, batches in cluster.requests for batch in batches.values()]
    assert sent == [(0, [b"a", b"b"]), (0, [b"d"]), (2, [b"c"]), (3, [b"e"])]


async def test_while_a_broker_owes_an_answer_it_gets_no_other_request(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({0: 1, 1: 1, 2: 2})
    cluster.held = asyncio.Event()
    async with over(cluster, monkeypatch) as appender, asyncio.TaskGroup() as group:
        group.create_task(appender.append("t", 0, records(b"a")))
        while not cluster.requests:
            await asyncio.sleep(0)
        group.create_task(appender.append("t", 1, records(b"b")))
        group.create_task(appender.append("t", 2, records(b"c")))
        while len(cluster.requests) < 2:
            await asyncio.sleep(0)
        assert [node for node, _ in cluster.requests] == [1, 2]
        cluster.held.set()
    assert [node for node, _ in cluster.requests] == [1, 2, 1]


async def test_a_lost_answer_is_asked_for_again_with_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({0: 1})

    def answer(node: int, batches: Mapping[tuple[str, int], Any]) -> Mapping[tuple[str, int], tuple[int, int]]:
        if len(cluster.requests) < 3:
            raise LOST
        return {("t", 0): (0, 7)}

    cluster.answer = answer
    async with over(cluster, monkeypatch) as appender:
        assert await appender.append("t", 0, records(b"a")) == 7
    assert len({batches["t", 0].data for _, batches in cluster.requests}) == 1
    assert (len(cluster.requests), cluster.producer_ids) == (3, 1)
    assert cluster.updates > 0


async def test_an_append_follows_the_leader_and_what_others_were_told_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({0: 1, 1: 1})

    def answer(node: int, batches: Mapping[tuple[str, int], Any]) -> Mapping[tuple[str, int], tuple[int, int]]:
        cluster.leaders[0] = 2
        return {where: (NOT_LEADER, -1) if (where[1], node) == (0, 1) else (0, 5) for where in batches}

    cluster.answer = answer
    async with over(cluster, monkeypatch) as appender:
        assert await asyncio.gather(*(appender.append("t", p, records(b"a")) for p in (0, 1))) == [5, 5]
    assert [(node, list(batches)) for node, batches in cluster.requests] == [
        (1, [("t", 0), ("t", 1)]),
        (2, [("t", 0)]),
    ]


async def test_a_partition_without_a_leader_waits_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({0: -1, 1: 1})
    async with over(cluster, monkeypatch) as appender:
        waiting = asyncio.create_task(appender.append("t", 0, records(b"a")))
        assert await appender.append("t", 1, records(b"b")) == 100
        assert not waiting.done()
        cluster.leaders[0] = 1
        assert await waiting == 100


@pytest.mark.parametrize("code", [MESSAGE_TOO_LARGE, OUT_OF_ORDER])
async def test_after_a_refusal_the_next_appends_go_under_a_new_identity(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster({0: 1, 1: 1})
    cluster.answer = lambda node, batches: {
        where: (code, -1) if batch.values == [b"bad"] else (0, 9) for where, batch in batches.items()
    }
    async with over(cluster, monkeypatch) as appender:
        await appender.append("t", 0, records(b"a"))
        with pytest.raises(UnknownOutcome, match="t/0 refused them"):
            await appender.append("t", 0, records(b"bad"))
        assert await asyncio.gather(*(appender.append("t", p, records(b"b")) for p in (0, 1))) == [9, 9]
    last = cluster.requests[-1][1]
    assert {(batch.producer_id, batch.sequence) for batch in last.values()} == {(2, 0)}


async def test_what_was_sent_under_a_lost_identity_is_unknown_and_what_was_not_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({0: 1, 1: 1})

    def answer(node: int, batches: Mapping[tuple[str, int], Any]) -> Mapping[tuple[str, int], tuple[int, int]]:
        if len(cluster.requests) == 1:
            return {("t", 0): (OUT_OF_ORDER, -1), ("t", 1): (NOT_LEADER, -1)}
        return dict.fromkeys(batches, (0, 3))

    cluster.answer = answer
    async with over(cluster, monkeypatch) as appender:
        first, second, third = await asyncio.gather(
            appender.append("t", 0, records(b"a")),
            appender.append("t", 1, records(b"b")),
            appender.append("t", 1, records(b"c")),
            return_exceptions=True,
        )
    assert isinstance(first, UnknownOutcome)
    assert isinstance(second, UnknownOutcome)
    assert third == 3


async def test_an_append_that_the_broker_has_and_cannot_place_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({0: 1})
    cluster.answer = lambda node, batches: dict.fromkeys(batches, (DUPLICATE, -1))
    async with over(cluster, monkeypatch) as appender:
        with pytest.raises(UnknownOutcome, match="has them already"):
            await appender.append("t", 0, records(b"a"))
        cluster.answer = lambda node, batches: dict.fromkeys(batches, (0, 4))
        assert await appender.append("t", 0, records(b"b")) == 4
    assert cluster.requests[-1][1]["t", 0].sequence == 1


async def test_a_caller_that_stops_waiting_does_not_withdraw_what_it_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({0: 1})
    cluster.held = asyncio.Event()
    async with over(cluster, monkeypatch) as appender:
        first = asyncio.create_task(appender.append("t", 0, records(b"a")))
        second = asyncio.create_task(appender.append("t", 0, records(b"b")))
        while not cluster.requests:
            await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        cluster.held.set()
        await appender.append("t", 0, records(b"c"))
    assert [batches["t", 0].values for _, batches in cluster.requests] == [[b"a"], [b"b"], [b"c"]]


async def test_a_closed_appender_tells_those_who_wait_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({0: 1})
    cluster.held = asyncio.Event()
    async with over(cluster, monkeypatch) as appender:
        waiting = asyncio.create_task(appender.append("t", 0, records(b"a")))
        while not cluster.requests:
            await asyncio.sleep(0)
    with pytest.raises(UnknownOutcome, match="closed before the broker answered"):
        await waiting
    assert cluster.closed


async def test_a_bug_in_reading_an_answer_reaches_who_waits_and_the_next_append_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({0: 1})

    def answer(node: int, batches: Mapping[tuple[str, int], Any]) -> Mapping[tuple[str, int], tuple[int, int]]:
        raise AttributeError("no such field")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    cluster.answer = answer
    async with over(cluster, monkeypatch) as appender:
        with pytest.raises(UnknownOutcome, match="no such field"):
            await appender.append("t", 0, records(b"a"))
        cluster.answer = lambda node, batches: dict.fromkeys(batches, (0, 2))
        assert await appender.append("t", 0, records(b"b")) == 2
    assert cluster.requests[-1][1]["t", 0].producer_id == 2


async def test_more_than_a_batch_holds_is_refused_before_anything_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({0: 1})
    async with over(cluster, monkeypatch) as appender:
        with pytest.raises(ValueError, match="2 records for t/0 do not fit"):
            await appender.append("t", 0, records(b"x" * 500_000, b"y" * 500_000))
        with pytest.raises(ValueError, match="none with the number 4"):
            await appender.append("t", 4, records(b"a"))
    assert cluster.requests == []
