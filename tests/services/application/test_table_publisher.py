"""Posting on a small topic: what is answered has been acknowledged, and what has not is said."""

import asyncio

import pytest

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import LogAppender
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import ModelMarked
from loomlog.services.application import limits
from loomlog.services.application.errors import RequestRefused
from loomlog.services.application.table_publisher import TablePublisher
from loomlog.services.core.availability import AvailabilityTable
from loomlog.services.stream.global_tables.global_table import GlobalTable
from loomlog.services.stream.global_tables.providers import PROVIDERS

TOPIC = "loom.provider.events"
CODEC = local_codec()
STALLED = ModelMarked(provider="p", model="m", mark="stalled", at_ms=1)


def posting(log: LogAppender) -> tuple[TablePublisher, GlobalTable[AvailabilityTable]]:
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    return TablePublisher(board, log, CODEC), board


async def test_the_place_is_told_when_our_own_board_has_the_record() -> None:
    log = MemoryLog({TOPIC: 1})
    post, board = posting(log)
    following = asyncio.create_task(board.follow(log.tail(TOPIC, {0: 0})))
    assert await post.publish_and_wait(STALLED, status_route="GET /v1/_state") == "loom.provider.events/0:0"
    assert board.table.status("p", "m").is_stalled
    following.cancel()


class Fails:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def append(self, *_: object) -> int:
        raise self.error


@pytest.mark.parametrize("error", [TimeoutError(), UnknownOutcome("no broker")])
async def test_a_log_that_does_not_acknowledge_is_said_and_where_to_look(error: Exception) -> None:
    post, _ = posting(Fails(error))
    with pytest.raises(RequestRefused) as info:
        await post.publish_and_wait(STALLED, status_route="GET /v1/_state")
    assert (info.value.code, info.value.details) == ("log_unavailable", {"outcome": "unknown"})
    assert "GET /v1/_state tells what is so" in info.value.message


async def test_a_log_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PUBLISH_WAIT_S", 0.001)

    class Silent:
        async def append(self, *_: object) -> int:
            return await asyncio.get_running_loop().create_future()

    post, _ = posting(Silent())
    with pytest.raises(RequestRefused):
        await post.publish(STALLED, unknown_message="it did not answer")
