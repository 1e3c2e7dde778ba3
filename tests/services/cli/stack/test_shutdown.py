import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loomlog.services.cli.stack import shutdown
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.home import Home, open_home
from loomlog.services.cli.stack.processes import identify
from loomlog.services.cli.stack.record import ChildRecord, build_stack_record, save_record, supervisor_lock
from loomlog.services.cli.stack.shutdown import find_leftovers, stop_leftovers, stop_stack
from loomlog.services.cli.stack.status import read_stack_status
from tests.services.cli.stack.programs import RUNS_ON, python

ROOT = Path(__file__).parents[4]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return open_home(tmp_path)


@pytest.fixture
def orphan() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(python(RUNS_ON, "orphan"), text=True, start_new_session=True) as process:
        yield process
        process.kill()


def recorded(process: "subprocess.Popen[str]", *, group: int = 1) -> ChildRecord:
    identity = identify(process.pid)
    assert identity is not None
    return ChildRecord(
        name="api", group=group, state="ready", restarts=0, pid=identity.pid, started_s=identity.started_s,
        command=identity.command, stop_signal="SIGTERM", stop_timeout_s=5.0, log="", url="",
    )  # fmt: skip


async def test_stopping_nothing_is_fine_and_says_so(home: Home) -> None:
    assert not await stop_stack(home, pytest.fail)
    assert not await stop_stack(home, pytest.fail)


async def test_orphans_in_the_record_are_stopped_and_forgotten(home: Home, orphan: "subprocess.Popen[str]") -> None:
    save_record(home.record, build_stack_record("", "", [recorded(orphan)]))
    assert read_stack_status(home).has_orphans
    output: list[str] = []
    assert await stop_stack(home, output.append)
    assert orphan.wait(timeout=30) == -signal.SIGTERM
    assert output == [f"Stopped api (process {orphan.pid}), left over from an earlier stack: SIGTERM"]
    assert not home.record.exists()
    assert not await stop_stack(home, pytest.fail)


async def test_a_stranger_with_a_recorded_pid_lives(home: Home, orphan: "subprocess.Popen[str]") -> None:
    stranger = replace(recorded(orphan), started_s=1.0)
    save_record(home.record, build_stack_record("", "", [stranger]))
    assert not read_stack_status(home).has_orphans
    assert not await stop_stack(home, pytest.fail)
    assert orphan.poll() is None


async def test_broker_and_postgres_are_found_without_any_record(home: Home) -> None:
    home.record.write_text("{half")
    kafka = subprocess.Popen(python(RUNS_ON, "kafka.Kafka", str(home.kafka_settings)), start_new_session=True)
    argv = ["postgres", *python(RUNS_ON, "-D", str(home.postgres_data))[1:]]
    postgres = subprocess.Popen(argv, executable=sys.executable, start_new_session=True)
    with kafka, postgres:
        try:
            output: list[str] = []
            names = {leftover.name: leftover.stop_signal for leftover in find_leftovers(home, output.append)}
            assert names == {"kafka": signal.SIGTERM, "postgres": signal.SIGINT}
            assert "is damaged" in output[0]
            assert await stop_leftovers(home, output.append) == 2
            assert kafka.wait(timeout=30) == -signal.SIGTERM
            postgres.wait(timeout=30)
        finally:
            kafka.kill()
            postgres.kill()


SUPERVISOR = """
import pathlib, sys, time
from loomlog.services.cli.stack.record import supervisor_lock
with supervisor_lock(pathlib.Path(sys.argv[1])):
    print("holds", flush=True)
    while True:
        time.sleep(60)
"""


@pytest.fixture
def supervisor(home: Home) -> Iterator["subprocess.Popen[str]"]:
    argv = [sys.executable, "-c", SUPERVISOR, str(home.lock)]
    with subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        yield process
        process.kill()


async def test_a_living_supervisor_is_asked_to_stop(home: Home, supervisor: "subprocess.Popen[str]") -> None:
    assert read_stack_status(home).is_supervised
    assert await stop_stack(home, pytest.fail)
    assert supervisor.wait(timeout=30) == -signal.SIGTERM
    assert not read_stack_status(home).is_supervised


async def test_a_frozen_supervisor_is_stopped_too(home: Home, supervisor: "subprocess.Popen[str]") -> None:
    os.kill(supervisor.pid, signal.SIGSTOP)
    assert await stop_stack(home, pytest.fail)
    assert supervisor.wait(timeout=30) == -signal.SIGTERM


async def test_a_supervisor_whose_lock_file_is_damaged_is_found_in_the_record(
    home: Home, supervisor: "subprocess.Popen[str]"
) -> None:
    identity = identify(supervisor.pid)
    assert identity is not None
    home.lock.write_text("x")
    save_record(home.record, replace(build_stack_record("", "", []), supervisor=identity))
    assert await stop_stack(home, pytest.fail)


async def test_a_supervisor_that_nothing_names_is_said(home: Home, supervisor: "subprocess.Popen[str]") -> None:
    home.lock.write_text("x")
    home.record.write_text(json.dumps({}))
    with pytest.raises(StackError, match=r"neither that file nor stack\.json says which\. `fuser "):
        await stop_stack(home, pytest.fail)
    assert supervisor.poll() is None


STOPS = """
import asyncio, pathlib, sys
from loomlog.services.cli.stack import shutdown
from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.shutdown import stop_stack
print(asyncio.run(stop_stack(open_home(pathlib.Path(sys.argv[1])), print)))
"""
ENDS_SLOWLY = """
import signal, sys, time
def end(*_):
    time.sleep(0.5)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


async def test_a_stack_can_be_stopped_from_two_terminals_at_once(home: Home) -> None:
    argv = python(ENDS_SLOWLY, "orphan")
    with subprocess.Popen(argv, text=True, stdout=subprocess.PIPE, start_new_session=True) as orphan:
        assert orphan.stdout is not None
        assert orphan.stdout.readline() == "ready\n"
        save_record(home.record, build_stack_record("", "", [recorded(orphan)]))
        terminals = [
            subprocess.Popen([sys.executable, "-c", STOPS, str(home.root)], text=True, stdout=subprocess.PIPE, cwd=ROOT)
            for _ in range(2)
        ]
        said = [await asyncio.to_thread(terminal.communicate, timeout=30) for terminal in terminals]
        assert [terminal.returncode for terminal in terminals] == [0, 0]
        assert orphan.poll() == 0
    assert sum(output.count("left over from an earlier stack: SIGTERM") for output, _ in said) == 1
    assert any(output.endswith("True\n") for output, _ in said)


async def test_a_stack_that_starts_again_at_once_is_not_stopped_twice(
    home: Home, supervisor: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    async def in_vain(*_: object) -> None:
        """As if another supervisor had taken the lock before we could."""

    monkeypatch.setattr(shutdown, "_stop_supervisor", in_vain)
    with pytest.raises(StackError, match="Another stack was started in"):
        await stop_stack(home, pytest.fail)
    assert supervisor.poll() is None


def test_a_status_of_nothing_is_nothing(home: Home) -> None:
    status = read_stack_status(home)
    assert (status.is_supervised, status.supervisor, status.record, status.record_error, status.running_children) == (
        False, None, None, "", ()
    )  # fmt: skip
    assert not status.has_orphans


def test_a_damaged_record_is_part_of_the_status(home: Home) -> None:
    home.record.write_text("[]")
    with supervisor_lock(home.lock):
        status = read_stack_status(home)
    assert status.is_supervised
    assert "ValidationError" in status.record_error
