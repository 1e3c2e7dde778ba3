import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil
import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from loomlog.redpanda.apply import apply
from loomlog.redpanda.cluster import ask
from loomlog.services.cli.stack import local
from loomlog.services.cli.stack.errors import StackAlreadyRunning, StackError
from loomlog.services.cli.stack.home import Home, open_home
from loomlog.services.cli.stack.local import LocalStack, cancel_on_signals, local_stack
from loomlog.services.cli.stack.ports import pick_port
from loomlog.services.cli.stack.shutdown import stop_stack
from loomlog.services.cli.stack.status import read_stack_status
from tests.conftest import CACHE
from tests.services.cli.stack.programs import child

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[4]
EVENTS = TopicPartition("loom.run.events", 0)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return open_home(tmp_path / "state", cache=CACHE)


def stack_in(
    home: Home, *, kafka: str | None = None, postgres: str | None = None, say: Callable[[str], None] = print
) -> AbstractAsyncContextManager[LocalStack]:
    return local_stack(
        home, report=say, environ=os.environ, kafka=kafka, postgres=postgres, kafka_port=0, postgres_port=0
    )


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Asks until it holds: servers tell nobody when they are back. Bounded."""
    async with asyncio.timeout(30):
        while not await holds():
            await asyncio.sleep(0.05)


def pid_of(home: Home, name: str) -> int:
    record = read_stack_status(home).record
    assert record is not None
    pid = next(one.pid for one in record.children if one.name == name)
    assert pid is not None
    return pid


async def append(bootstrap: str, value: bytes) -> int:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        metadata = await producer.send_and_wait(EVENTS.topic, value, partition=EVENTS.partition)
        return int(metadata.offset)
    finally:
        await producer.stop()


async def everything(bootstrap: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([EVENTS])
        end = (await consumer.end_offsets([EVENTS]))[EVENTS]
        values: list[bytes] = []
        async with asyncio.timeout(30):
            while len(values) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


async def restarted(stack: LocalStack, home: Home, name: str) -> None:
    """Kill -9 a server and wait until its supervisor has it back."""
    before = next(one for one in stack.supervisor.child_records() if one.name == name)
    os.kill(pid_of(home, name), signal.SIGKILL)

    async def back() -> bool:
        now = next(one for one in stack.supervisor.child_records() if one.name == name)
        return now.restarts > before.restarts and now.state == "ready"

    await until(back)


async def test_what_was_accepted_survives_kill_9_and_a_stop(home: Home) -> None:
    async with stack_in(home) as stack:
        assert {change.kind for change in await apply(stack.kafka)} == {"create"}
        assert await apply(stack.kafka) == []
        assert await append(stack.kafka, b"before the kill") == 0
        async with await psycopg.AsyncConnection.connect(stack.postgres) as connection:
            await connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        await restarted(stack, home, "kafka")
        await restarted(stack, home, "postgres")
        assert await append(stack.kafka, b"after the kill") == 1
        first_cluster = (await ask(stack.kafka, timeout_s=30)).cluster_id
        addresses = (stack.kafka, stack.postgres)
    assert not read_stack_status(home).running_children
    assert not home.record.exists()

    async with stack_in(home) as stack:
        assert (stack.kafka, stack.postgres) == addresses
        assert (await ask(stack.kafka, timeout_s=30)).cluster_id == first_cluster
        assert await apply(stack.kafka) == []
        assert await everything(stack.kafka) == [b"before the kill", b"after the kill"]
        async with await psycopg.AsyncConnection.connect(stack.postgres) as connection:
            assert await (await connection.execute("SELECT one FROM kept")).fetchone() == (1,)


async def test_services_start_after_the_servers_and_stop_before_them(home: Home) -> None:
    async with stack_in(home) as stack:
        await stack.start(child("runtime"), child("api"))
        status = read_stack_status(home)
        assert status.is_supervised
        assert [one.name for one in status.running_children] == ["kafka", "postgres", "runtime", "api"]
        assert [one.group for one in status.running_children] == [1, 1, 2, 2]
        with pytest.raises(StackAlreadyRunning, match=f"supervised by process {os.getpid()}"):
            async with stack_in(home):
                pytest.fail("a second stack in one folder")


async def test_servers_from_outside_are_asked_and_not_started(kafka: str, postgres: str, home: Home) -> None:
    async with stack_in(home, kafka=kafka, postgres=postgres) as stack:
        assert (stack.kafka, stack.postgres) == (kafka, postgres)
        assert stack.supervisor.child_records() == ()
    assert not home.kafka_data.exists()
    assert not home.postgres_data.exists()


async def test_a_server_from_outside_that_is_not_there_is_said_with_its_setting(
    monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    monkeypatch.setattr(local, "EXTERNAL_TIMEOUT_S", 0.5)
    nowhere = f"127.0.0.1:{pick_port()}"
    with pytest.raises(StackError, match=f"LOOMLOG_KAFKA says that .* is at {nowhere}.*no broker listens.*unset"):
        async with stack_in(home, kafka=nowhere):
            pytest.fail("there is no broker")
    with pytest.raises(StackError, match="LOOMLOG_POSTGRES says that a Postgres is at") as problem:
        async with stack_in(home, kafka=None, postgres=f"postgresql://me:hush@{nowhere}/x"):
            pytest.fail("there is no Postgres")
    assert "hush" not in str(problem.value)
    assert not read_stack_status(home).running_children


UP = """
import asyncio, os, pathlib, sys
from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.local import cancel_on_signals, local_stack

async def up():
    home = open_home(pathlib.Path(sys.argv[1]), cache=pathlib.Path(sys.argv[2]))
    with cancel_on_signals():
        async with local_stack(home, report=print, environ=os.environ, kafka_port=0, postgres_port=0) as stack:
            print("up", flush=True)
            await stack.wait()
    print("down", flush=True)

asyncio.run(up())
"""


@pytest.fixture
async def supervisor(home: Home) -> AsyncIterator[asyncio.subprocess.Process]:
    """A stack that another process supervises."""
    argv = (sys.executable, "-c", UP, str(home.root), str(home.cache))
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        await process.stdout.readuntil(b"up\n")
    yield process
    if process.returncode is None:
        process.kill()
    await process.communicate()


def servers(home: Home) -> list[int]:
    return [pid_of(home, "kafka"), pid_of(home, "postgres")]


async def test_down_from_another_terminal_stops_all_of_it_cleanly(
    home: Home, supervisor: asyncio.subprocess.Process
) -> None:
    pids = servers(home)
    async with asyncio.timeout(30):
        assert await stop_stack(home, pytest.fail)
        assert await supervisor.wait() == 0
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not await stop_stack(home, pytest.fail)


async def test_nothing_outlives_a_killed_supervisor_and_the_next_stack_starts(
    home: Home, supervisor: asyncio.subprocess.Process
) -> None:
    processes = [psutil.Process(pid) for pid in servers(home)]
    supervisor.kill()
    gone, _ = await asyncio.to_thread(psutil.wait_procs, processes, 60)
    assert len(gone) == 2
    assert home.record.exists()
    said: list[str] = []
    async with stack_in(home, say=said.append) as stack:
        assert (await ask(stack.kafka, timeout_s=30)).brokers == (stack.kafka,)
        assert said == []


async def test_a_signal_ends_the_block_and_is_no_error() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def supervised() -> str:
        with cancel_on_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return "stopped cleanly"

    assert await asyncio.create_task(supervised()) == "stopped cleanly"
    assert signal.getsignal(signal.SIGTERM) == before


async def test_another_cancellation_is_not_taken_for_a_signal() -> None:
    inside = asyncio.Event()

    async def supervised() -> None:
        with cancel_on_signals():
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(supervised())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
