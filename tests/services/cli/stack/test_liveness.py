import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator

import psutil
import pytest

from loomlog.services.cli.stack import liveness
from loomlog.services.cli.stack.liveness import find_stall, is_suspended
from tests.services.cli.stack.programs import RUNS_ON, python
from tests.waiting import until

LISTENS = (
    "import socket, sys\nlistening = socket.create_server(('127.0.0.1', 0))\nprint('listens', flush=True)\n"
    "while sys.argv[1] == 'answers': listening.accept()[0].sendall(b'life\\n')\n" + RUNS_ON
)


@pytest.fixture
async def process(request: pytest.FixtureRequest) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(*python(LISTENS, request.param), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"listens\n"
    yield process
    process.kill()
    await process.wait()


@pytest.mark.parametrize("process", ["answers"], indirect=True)
async def test_who_says_anything_moves(process: asyncio.subprocess.Process) -> None:
    assert await find_stall(process.pid, listens=True) is None


@pytest.mark.parametrize("process", ["hangs"], indirect=True)
async def test_a_loop_that_stands_still_is_silent(
    process: asyncio.subprocess.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "RESPONSE_TIMEOUT_S", 0.2)
    assert await find_stall(process.pid, listens=True) == "silent"
    assert await find_stall(process.pid, listens=False) is None, "its ports are not asked"


@pytest.mark.parametrize("process", ["answers"], indirect=True)
async def test_a_stopped_process_is_suspended(process: asyncio.subprocess.Process) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    async with asyncio.timeout(30):
        await until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    assert await find_stall(process.pid, listens=True) == "suspended"


async def test_nothing_is_said_of_who_is_gone_or_listens_nowhere() -> None:
    gone = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", "")
    await gone.wait()
    assert await find_stall(gone.pid, listens=True) is None
    assert not is_suspended(gone.pid)


async def test_a_port_nobody_accepts_at_is_not_taken_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "RESPONSE_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert not await liveness._responds(*listening.getsockname())
