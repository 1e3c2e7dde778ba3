"""The role of a runtime, from its own metrics, whichever of its ports has them."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from loomlog.services.cli.stack import readiness
from loomlog.services.cli.stack.readiness import role_probe
from loomlog.services.cli.stack.record import build_stack_record, save_record
from loomlog.services.cli.stack.runtime_role import RuntimeRole, parse_role, read_role
from tests.services.cli.places import child
from tests.services.cli.stack.programs import RUNS_ON, python

PAGE = "HTTP/1.1 200 OK\r\n\r\n# TYPE loomlog_partitions_owned gauge\nloomlog_partitions_owned {owned}\n{rest}"
SERVES = (
    "import socket, threading\n"
    "sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(2)]\n"
    "print('listens', flush=True)\n"
    "def greet():\n"
    "    held = []\n"
    "    while True:\n"
    "        held.append(sockets[0].accept()[0]); held[-1].sendall(b'incarnation\\n')\n"
    "threading.Thread(target=greet, daemon=True).start()\n"
    "page = b'HTTP/1.1 200 OK\\r\\n\\r\\nloomlog_partitions_owned 0.0\\nloomlog_partitions_watched 4.0\\n'\n"
    "while True:\n"
    "    one = sockets[1].accept()[0]; one.recv(4096); one.sendall(page); one.close()\n" + RUNS_ON
)


@pytest.fixture
async def process() -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(*python(SERVES), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"listens\n"
    yield process
    if process.returncode is None:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("owned", "rest", "expected"),
    [
        ("4.0", "loomlog_partitions_watched 0.0\n", RuntimeRole(name="owner", partitions=4)),
        ("0.0", "loomlog_partitions_watched 3.0\n", RuntimeRole(name="spare", partitions=3)),
        ("0.0", "loomlog_partitions_watched 0.0\n", RuntimeRole(name="idle", partitions=0)),
        ("2.0", "", RuntimeRole(name="owner", partitions=2)),
        (
            "2.0",
            "loomlog_ingress_lag_records 1.2e+06\n",
            RuntimeRole(name="owner", partitions=2, ingress_lag=1_200_000),
        ),
        (
            "0.0",
            "loomlog_clock_believed 0.0\nloomlog_clock_offset_seconds -3600.25\n",
            RuntimeRole(name="idle", partitions=0, clock_offset_s=-3600.25),
        ),
        (
            "4.0",
            "loomlog_clock_believed 1.0\nloomlog_clock_offset_seconds 1.2e-05\n",
            RuntimeRole(name="owner", partitions=4),
        ),
    ],
)
def test_the_role_follows_from_what_is_owned_and_watched(owned: str, rest: str, expected: RuntimeRole) -> None:
    assert parse_role(PAGE.format(owned=owned, rest=rest).encode()) == expected


@pytest.mark.parametrize(
    ("offset_s", "expected"),
    [
        (None, ""),
        (86_400.4, "its clock is 86,400 s ahead of the broker's, so it decides nothing"),
        (-61.0, "its clock is 61 s behind the broker's, so it decides nothing"),
        (0.0, "its clock could not be compared with the broker's yet; its log says why"),
    ],
)
def test_a_clock_that_is_not_believed_is_the_problem_of_a_runtime(offset_s: float | None, expected: str) -> None:
    assert RuntimeRole(name="idle", partitions=0, clock_offset_s=offset_s).clock_problem == expected


def test_another_page_tells_no_role() -> None:
    assert parse_role(b"HTTP/1.1 404 Not Found\r\n\r\nthere is only /metrics here\n") is None


async def test_the_port_with_the_metrics_is_found_beside_a_liveness_socket(process: asyncio.subprocess.Process) -> None:
    assert await read_role(process.pid) == RuntimeRole(name="spare", partitions=4)


async def test_a_process_that_has_ended_has_no_role(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()
    assert await read_role(process.pid) is None


async def test_a_spare_is_ready_once_it_watches(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = SimpleNamespace(now=None)

    async def given(pid: int) -> RuntimeRole | None:
        return roles.now

    monkeypatch.setattr(readiness, "read_role", given)
    ready = role_probe(tmp_path / "stack.json", "runtime-2")
    unready = "it neither owns partitions nor watches an owner"
    assert await ready() == unready
    save_record(tmp_path / "stack.json", build_stack_record("k", "p", (child("runtime"), child("runtime-2"))))
    assert await ready() == unready
    roles.now = RuntimeRole(name="idle", partitions=0)
    assert await ready() == unready
    roles.now = RuntimeRole(name="idle", partitions=0, clock_offset_s=90.0)
    assert await ready() == "its clock is 90 s ahead of the broker's, so it decides nothing"
    for name in ("spare", "owner"):
        roles.now = RuntimeRole(name=name, partitions=1)
        assert await ready() is None
