import asyncio
import contextlib
from collections.abc import AsyncIterator

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import ClientHostAlive, ModelMarked, ProviderProbed
from loomlog.services.core.availability import AvailabilityTable
from loomlog.services.stream.global_tables.global_table import GlobalTable
from loomlog.services.stream.global_tables.providers import PROVIDERS

TOPIC = "providers"
CODEC = local_codec()
WAIT_S = 30.0
STALLED = ModelMarked(provider="p", model="m", mark="stalled", at_ms=1)
OTHER = ClientHostAlive(host="h", at_ms=1)
RECOVERED = ModelMarked(provider="p", model="m", mark="recovered", at_ms=2)


def put(log: MemoryLog, *records: ModelMarked | ProviderProbed | ClientHostAlive) -> int:
    return log.put(TOPIC, 0, [ProducerRecord(key=None, value=CODEC.encode(record)) for record in records])


@contextlib.asynccontextmanager
async def following(log: MemoryLog, board: GlobalTable[AvailabilityTable]) -> AsyncIterator[None]:
    await board.catch_up(log)
    task = asyncio.create_task(board.follow(log.tail(TOPIC, {0: 0})))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_board_knows_what_was_said_before_it_and_follows() -> None:
    log = MemoryLog({TOPIC: 1})
    put(log, STALLED)
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    async with following(log, board):
        assert board.table.status("p", "m").is_stalled
        assert await board.wait(0, put(log, RECOVERED), timeout_s=WAIT_S) == 0
        assert not board.table.status("p", "m").is_stalled


async def test_a_record_of_something_else_does_not_hide_the_others() -> None:
    log = MemoryLog({TOPIC: 1})
    put(log, OTHER, ModelMarked(provider="p", model="m", mark="odd"))
    put(log, STALLED)
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    await board.catch_up(log)
    assert (board.next_offset, list(board.table.statuses)) == (3, [("p", "m")])


async def test_what_was_noted_here_gives_way_to_the_order_of_the_log() -> None:
    log = MemoryLog({TOPIC: 1})
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    put(log, STALLED)
    board.apply_locally(RECOVERED)
    board.apply_locally(STALLED)
    put(log, RECOVERED)
    await board.catch_up(log)
    assert not board.table.status("p", "m").is_stalled


async def test_only_what_changes_the_matrix_is_told() -> None:
    log, options = MemoryLog({TOPIC: 1}), []
    board = GlobalTable(CODEC, TOPIC, PROVIDERS)
    board.changed = lambda: options.append(len(board.table.statuses))
    put(log, RECOVERED)
    await board.catch_up(log)
    put(log, STALLED)
    await board.catch_up(log)
    assert options == [1]
