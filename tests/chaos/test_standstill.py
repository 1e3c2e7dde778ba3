import asyncio

import pytest

from tests.chaos import standstill
from tests.chaos.evidence import Strike
from tests.chaos.standstill import LONGEST_GAP_S, MACHINE, watch


async def test_a_gap_between_two_beats_is_noted_as_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "BEAT_S", 0.0)
    moments = [0.0, 0.5, 0.5 + LONGEST_GAP_S, 207.0, 207.5]
    looked = asyncio.Event()
    strikes: list[Strike] = []

    def clock_s() -> float:
        if len(moments) == 1:
            looked.set()
            return moments[0]
        return moments.pop(0)

    watching = asyncio.create_task(watch(strikes, clock_s=clock_s))
    async with asyncio.timeout(30):
        await looked.wait()
    watching.cancel()
    assert strikes == [Strike(target=MACHINE, process="", at_s=0.5 + LONGEST_GAP_S, back_s=207.0)]
