import pytest

from connectors.errors import UnknownOutcome
from connectors.memory_log import MemoryLog
from schemas.codec import local_codec
from services.runtime.start_paused import REASON, pause_everything
from services.stream.pauses import PauseBoard

TOPIC = "control"
CODEC = local_codec()


async def come_up(log: MemoryLog) -> PauseBoard:
    board = PauseBoard(CODEC, TOPIC)
    await board.catch_up(log)
    await pause_everything(board, log, log, CODEC, by="rt-1", at_ms=7)
    return board


async def test_everything_is_paused_with_who_and_why_before_anything_else() -> None:
    board = await come_up(MemoryLog({TOPIC: 1}))
    (held,) = board.table.holding("acme", "helper")
    assert (held.scope, held.reason, held.by) == ("all", REASON, "rt-1")


async def test_a_second_runtime_adds_nothing() -> None:
    log = MemoryLog({TOPIC: 1})
    await come_up(log)
    board = await come_up(log)
    assert len(log.records[TOPIC, 0]) == 1
    assert board.table.has("all", "", "")


async def test_without_an_acknowledgement_the_runtime_does_not_come_up() -> None:
    log = MemoryLog({TOPIC: 1})
    log.lose_acks = 1
    with pytest.raises(UnknownOutcome):
        await come_up(log)
