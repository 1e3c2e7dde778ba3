"""Lifelines over real loopback sockets: death, release, false alarms, and those nobody ever met."""

import asyncio
import socket
from typing import Any

import pytest

from loomlog.connectors.process import liveness_sockets
from loomlog.connectors.process.liveness_sockets import LivenessServer, request_handover, wait_for_disconnect

WAIT_S = 30.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness_sockets, "RECONNECT_DELAY_S", 0.01)
    monkeypatch.setattr(liveness_sockets, "FIRST_RECONNECT_DELAY_S", 0.001)


async def opened(life: str, port: int = 0) -> LivenessServer:
    line = LivenessServer(f"127.0.0.1:{port}", life)
    await line.open()
    return line


def port_of(line: LivenessServer) -> int:
    return int(line.endpoint.partition("/")[0].rpartition(":")[2])


class Holder:
    """Somebody who holds the lifeline of that name; `task` is what it learns."""

    def __init__(self, name: str) -> None:
        self._met = asyncio.Semaphore(0)
        self.task = asyncio.create_task(wait_for_disconnect(name, self._met.release))

    async def met(self) -> None:
        """Until it was greeted, once more for each time this is asked."""
        async with asyncio.timeout(WAIT_S):
            await self._met.acquire()


class Looks:
    """Counts the connections, made or tried, that holders are done with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._over = asyncio.Semaphore(0)
        hold = liveness_sockets._read_last_line

        async def counted(*given: Any) -> bytes | None:
            try:
                return await hold(*given)
            finally:
                self._over.release()

        monkeypatch.setattr(liveness_sockets, "_read_last_line", counted)

    async def more(self, count: int) -> None:
        """Until so many more are over."""
        async with asyncio.timeout(WAIT_S):
            for _ in range(count):
                await self._over.acquire()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def broken(line: LivenessServer) -> None:
    """What a holder sees when the connection breaks, the process living on."""
    for transport in list(line._connections):
        transport.abort()


async def test_the_name_tells_the_address_and_the_life() -> None:
    line = await opened("one")
    assert line.endpoint == f"127.0.0.1:{port_of(line)}/one"
    assert port_of(line) > 0
    await line.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
async def test_a_process_that_listens_everywhere_tells_the_address_of_its_host_name(monkeypatch, host: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "127.0.0.1")
    line = LivenessServer(f"{host}:0", "one")
    try:
        await line.open()
    except OSError:
        assert host == "[::]", "a machine without IPv6"
        return
    assert line.endpoint == f"127.0.0.1:{port_of(line)}/one"
    await line.close()


async def test_a_process_that_is_gone_without_a_word_has_died() -> None:
    line = await opened("one")
    holder = Holder(line.endpoint)
    await holder.met()
    await line.close()
    async with asyncio.timeout(WAIT_S):
        assert await holder.task


async def test_a_process_that_let_go_has_not_died() -> None:
    line = await opened("one")
    holder = Holder(line.endpoint)
    await holder.met()
    line.announce_shutdown()
    await line.close()
    async with asyncio.timeout(WAIT_S):
        assert not await holder.task


async def test_a_broken_connection_is_no_dead_process() -> None:
    line = await opened("one")
    holder = Holder(line.endpoint)
    for _ in range(3):
        await holder.met()
        broken(line)
    await holder.met()
    assert not holder.task.done()
    await line.close()
    async with asyncio.timeout(WAIT_S):
        assert await holder.task


async def test_another_life_at_the_same_port_means_that_the_first_is_dead() -> None:
    line = await opened("one")
    holder = Holder(line.endpoint)
    await holder.met()
    line._stop_listening()
    second = await opened("two", port_of(line))
    broken(line)
    async with asyncio.timeout(WAIT_S):
        assert await holder.task
    await second.close()


async def test_who_was_never_greeted_takes_a_refusal_for_no_death(looks: Looks) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        name = f"127.0.0.1:{free.getsockname()[1]}/one"
        holder = asyncio.create_task(wait_for_disconnect(name))
        await looks.more(3)
        assert not holder.done()
    line = await opened("another", int(name.partition("/")[0].rpartition(":")[2]))
    await looks.more(3)
    await line.close()
    await looks.more(3)
    assert not holder.done()
    holder.cancel()


async def test_a_name_that_makes_no_sense_is_never_dead() -> None:
    for name in ("nonsense", "127.0.0.1/one", "127.0.0.1:port/one", "127.0.0.1:80/", "/"):
        holder = asyncio.create_task(wait_for_disconnect(name))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not holder.done(), name
        holder.cancel()


async def test_holders_beyond_the_bound_are_turned_away(monkeypatch: pytest.MonkeyPatch, looks: Looks) -> None:
    monkeypatch.setattr(liveness_sockets, "MAX_CONNECTIONS", 2)
    line = await opened("one")
    holders = [asyncio.create_task(wait_for_disconnect(line.endpoint)) for _ in range(4)]
    await looks.more(5)  # only the two that are turned away come back
    assert len(line._connections) == 2
    for holder in holders:
        holder.cancel()
    await line.close()


async def test_an_address_that_is_taken_is_named_with_its_setting() -> None:
    line = await opened("one")
    with pytest.raises(OSError, match="LOOMLOG_STANDBY_ADDR"):
        await opened("two", port_of(line))
    await line.close()


# --- asking for a partition -------------------------------------------------------------------------------------------


async def test_who_asks_for_a_partition_is_answered_when_it_is_given_up() -> None:
    line, given_up, asked = await opened("one"), asyncio.Event(), []

    async def give_up(number: int) -> None:
        asked.append(number)
        await given_up.wait()

    line.on_handover_request = give_up
    asking = asyncio.create_task(request_handover(line.endpoint, 3, timeout_s=WAIT_S))
    async with asyncio.timeout(WAIT_S):
        while not asked:
            await asyncio.sleep(0)
    assert asked == [3]
    assert not asking.done()
    given_up.set()
    assert await asking == "yielded"
    await line.close()


async def test_who_is_not_there_or_another_now_is_gone() -> None:
    line = await opened("one")
    name, port = line.endpoint, port_of(line)
    assert await request_handover(name.replace("/one", "/two"), 3, timeout_s=WAIT_S) == "gone"
    await line.close()
    assert await request_handover(name, 3, timeout_s=WAIT_S) == "gone"
    other = await opened("two", port)
    assert await request_handover(name, 3, timeout_s=WAIT_S) == "gone"
    await other.close()


@pytest.mark.parametrize("name", ["", "one", "127.0.0.1/one", "127.0.0.1:x/one", ":1/one", "127.0.0.1:1/"])
async def test_what_is_no_name_is_asked_for_nothing(name: str) -> None:
    assert await request_handover(name, 3, timeout_s=WAIT_S) == "silent"


async def test_who_dies_while_asked_is_gone() -> None:
    line, asked = await opened("one"), asyncio.Event()

    async def never(number: int) -> None:
        asked.set()
        await asyncio.Event().wait()

    line.on_handover_request = never
    asking = asyncio.create_task(request_handover(line.endpoint, 3, timeout_s=WAIT_S))
    async with asyncio.timeout(WAIT_S):
        await asked.wait()
        broken(line)
        assert await asking == "gone"
    await line.close()


async def test_who_does_not_give_it_up_in_time_is_late() -> None:
    line = await opened("one")

    async def never(number: int) -> None:
        await asyncio.Event().wait()

    line.on_handover_request = never
    assert await request_handover(line.endpoint, 3, timeout_s=0.05) == "late"
    await line.close()


async def test_who_accepts_and_does_not_greet_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness_sockets, "GREETING_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        name = f"127.0.0.1:{stopped.getsockname()[1]}/one"
        assert await request_handover(name, 3, timeout_s=WAIT_S) == "silent"


@pytest.mark.parametrize("line_sent", [b"yield\n", b"yield 99999999999\n", b"hello\n" * 100, b"\x00\xff\n"])
async def test_what_is_no_question_is_not_answered(line_sent: bytes) -> None:
    line, asked = await opened("one"), []

    async def give_up(number: int) -> None:
        asked.append(number)

    line.on_handover_request = give_up
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(line))
    assert await reader.readline() == b"one\n"
    writer.write(line_sent)
    line.announce_shutdown()
    async with asyncio.timeout(WAIT_S):
        assert await reader.readline() == b"released\n"
    assert asked == []
    writer.close()
    await line.close()
