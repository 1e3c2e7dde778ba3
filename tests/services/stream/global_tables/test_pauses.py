import asyncio
import contextlib

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import PauseSet
from loomlog.services.stream.global_tables.pauses import PauseGlobalTable

TOPIC = "control"
CODEC = local_codec()
WAIT_S = 30.0


def put(log: MemoryLog, *changes: PauseSet) -> int:
    return log.put(TOPIC, 0, [ProducerRecord(key=None, value=CODEC.encode(change)) for change in changes])


def all_of_it(*, paused: bool = True) -> PauseSet:
    return PauseSet(scope="all", tenant="", agent="", paused=paused)


async def test_a_board_knows_everything_that_was_said_before_it() -> None:
    log = MemoryLog({TOPIC: 1})
    put(log, all_of_it(), all_of_it(paused=False), PauseSet(scope="tenant", tenant="acme", agent="", paused=True))
    board = PauseGlobalTable(CODEC, TOPIC)
    await board.catch_up(log)
    assert (board.next_offset, list(board.table.entries)) == (3, [("tenant", "acme", "")])


async def test_a_board_of_an_empty_topic_holds_nothing() -> None:
    board = PauseGlobalTable(CODEC, TOPIC)
    await board.catch_up(MemoryLog({TOPIC: 1}))
    assert board.table.entries == {}


async def test_a_board_follows_and_tells_each_change_once() -> None:
    log = MemoryLog({TOPIC: 1})
    options: list[int] = []
    board = PauseGlobalTable(CODEC, TOPIC)
    board.changed = lambda: options.append(len(board.table.entries))
    put(log, all_of_it())
    await board.catch_up(log)
    following = asyncio.create_task(board.follow(log.tail(TOPIC, {0: 0})))
    assert await board.wait(0, put(log, all_of_it(paused=False)), timeout_s=WAIT_S) == 0
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    assert options == [1, 0]


async def test_waiting_for_what_does_not_come_is_bounded() -> None:
    assert await PauseGlobalTable(CODEC, TOPIC).wait(0, 3, timeout_s=0.01) == 4


async def test_a_record_that_nobody_can_read_does_not_hide_the_others() -> None:
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, 0, [ProducerRecord(key=None, value=b"junk")])
    put(log, PauseSet(scope="galaxy", tenant="", agent="", paused=True), all_of_it())
    board = PauseGlobalTable(CODEC, TOPIC)
    await board.catch_up(log)
    assert board.table.has_entry("all", "", "")
    assert board.next_offset == 3
