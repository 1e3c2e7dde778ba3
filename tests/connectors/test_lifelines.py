"""Lifelines over real loopback sockets: death, release, false alarms, and those nobody ever met."""

import asyncio
import socket

import pytest

from connectors import lifelines
from connectors.lifelines import Lifeline, until_gone

WAIT_S = 10.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifelines, "PAUSE_S", 0.01)
    monkeypatch.setattr(lifelines, "FIRST_PAUSE_S", 0.001)


async def opened(life: str, port: int = 0) -> Lifeline:
    line = Lifeline(f"127.0.0.1:{port}", life)
    await line.open()
    return line


def port_of(line: Lifeline) -> int:
    return int(line.name.partition("/")[0].rpartition(":")[2])


async def held(line: Lifeline, by: int = 1) -> None:
    """Until it has so many holders that were greeted."""
    async with asyncio.timeout(WAIT_S):
        while len(line._held) < by:
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)


def broken(line: Lifeline) -> None:
    """What a holder sees when the connection breaks, the process living on."""
    for transport in list(line._held):
        transport.abort()


async def test_the_name_tells_the_address_and_the_life() -> None:
    line = await opened("one")
    assert line.name == f"127.0.0.1:{port_of(line)}/one"
    assert port_of(line) > 0
    await line.close()


async def test_a_process_that_is_gone_without_a_word_has_died() -> None:
    line = await opened("one")
    holder = asyncio.create_task(until_gone(line.name))
    await held(line)
    await line.close()
    async with asyncio.timeout(WAIT_S):
        assert await holder


async def test_a_process_that_let_go_has_not_died() -> None:
    line = await opened("one")
    holder = asyncio.create_task(until_gone(line.name))
    await held(line)
    line.release()
    await line.close()
    async with asyncio.timeout(WAIT_S):
        assert not await holder


async def test_a_broken_connection_is_no_dead_process() -> None:
    line = await opened("one")
    holder = asyncio.create_task(until_gone(line.name))
    for _ in range(3):
        await held(line)
        broken(line)
    await held(line)
    assert not holder.done()
    await line.close()
    async with asyncio.timeout(WAIT_S):
        assert await holder


async def test_another_life_at_the_same_port_means_that_the_first_is_dead() -> None:
    line = await opened("one")
    holder = asyncio.create_task(until_gone(line.name))
    await held(line)
    line._stop_listening()
    second = await opened("two", port_of(line))
    broken(line)
    async with asyncio.timeout(WAIT_S):
        assert await holder
    await second.close()


async def test_who_was_never_greeted_takes_a_refusal_for_no_death() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        name = f"127.0.0.1:{free.getsockname()[1]}/one"
        holder = asyncio.create_task(until_gone(name))
        done, _ = await asyncio.wait([holder], timeout=0.2)
        assert not done
    line = await opened("another", int(name.partition("/")[0].rpartition(":")[2]))
    await held(line)
    await line.close()
    done, _ = await asyncio.wait([holder], timeout=0.2)
    assert not done
    holder.cancel()


async def test_a_name_that_makes_no_sense_is_never_dead() -> None:
    for name in ("nonsense", "127.0.0.1/one", "127.0.0.1:port/one", "127.0.0.1:80/", "/"):
        holder = asyncio.create_task(until_gone(name))
        done, _ = await asyncio.wait([holder], timeout=0.02)
        assert not done, name
        holder.cancel()


async def test_holders_beyond_the_bound_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifelines, "MAX_HELD", 2)
    line = await opened("one")
    holders = [asyncio.create_task(until_gone(line.name)) for _ in range(4)]
    await held(line, by=2)
    assert len(line._held) == 2
    for holder in holders:
        holder.cancel()
    await line.close()


async def test_an_address_that_is_taken_is_named_with_its_setting() -> None:
    line = await opened("one")
    with pytest.raises(OSError, match="LOOMLOG_STANDBY_ADDR"):
        await opened("two", port_of(line))
    await line.close()
