import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from loomlog.services.cli.stack.processes import (
    ProcessIdentity,
    find_process,
    find_processes_by_arguments,
    identify,
    stop_process,
)
from tests.services.cli.stack.programs import IGNORES_SIGTERM, RUNS_ON, python


@pytest.fixture
def runner() -> Iterator["subprocess.Popen[str]"]:
    code = f"print('up', flush=True)\n{RUNS_ON}"
    argv = python(code, "a marked argument")
    with subprocess.Popen(argv, text=True, start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # between its exec and its first instruction a process has no arguments to be seen
        yield process
        process.kill()


def identity_of(process: "subprocess.Popen[str]") -> ProcessIdentity:
    identity = identify(process.pid)
    assert identity is not None
    return identity


def test_a_process_is_found_by_its_identity(runner: "subprocess.Popen[str]") -> None:
    process = find_process(identity_of(runner))
    assert process is not None
    assert process.pid == runner.pid


def test_a_reused_pid_is_a_stranger(runner: "subprocess.Popen[str]") -> None:
    identity = identity_of(runner)
    assert find_process(replace(identity, started_s=identity.started_s - 100)) is None
    assert find_process(replace(identity, command=("other", "command"))) is None


def test_a_command_behind_its_launcher_is_the_same_command(runner: "subprocess.Popen[str]") -> None:
    identity = identity_of(runner)
    assert find_process(replace(identity, command=identity.command[2:])) is not None


def test_a_dead_process_is_not_found(runner: "subprocess.Popen[str]") -> None:
    identity = identity_of(runner)
    runner.kill()
    runner.wait(timeout=30)
    assert find_process(identity) is None
    assert identify(runner.pid) is None


def test_a_zombie_is_not_found(runner: "subprocess.Popen[str]") -> None:
    identity = identity_of(runner)
    runner.kill()
    os.waitid(os.P_PID, runner.pid, os.WEXITED | os.WNOWAIT)  # it has ended and nobody has asked how
    assert find_process(identity) is None


def test_a_process_is_found_by_its_arguments(runner: "subprocess.Popen[str]") -> None:
    (identity,) = find_processes_by_arguments(lambda arguments: "a marked argument" in arguments)
    assert identity.pid == runner.pid
    assert find_processes_by_arguments(lambda arguments: list(arguments) == [sys.executable, "no such argument"]) == []


async def test_a_process_is_stopped_with_its_own_signal(runner: "subprocess.Popen[str]") -> None:
    assert await stop_process(identity_of(runner), stop_signal=signal.SIGTERM, timeout_s=30) == "SIGTERM"
    assert runner.wait(timeout=30) == -signal.SIGTERM


async def test_a_stopped_process_is_woken_so_that_it_can_end(runner: "subprocess.Popen[str]") -> None:
    os.kill(runner.pid, signal.SIGSTOP)
    assert await stop_process(identity_of(runner), stop_signal=signal.SIGTERM, timeout_s=30) == "SIGTERM"


async def test_a_deaf_process_is_killed_after_its_time() -> None:
    with subprocess.Popen(
        python(IGNORES_SIGTERM), text=True, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "deaf\n"
        result = await stop_process(identity_of(process), stop_signal=signal.SIGTERM, timeout_s=0.2)
        assert result == "SIGKILL, SIGTERM had no effect for 0.2 s"
        assert process.wait(timeout=30) == -signal.SIGKILL


async def test_a_stranger_is_never_signalled(runner: "subprocess.Popen[str]") -> None:
    stranger = replace(identity_of(runner), started_s=1.0)
    assert await stop_process(stranger, stop_signal=signal.SIGKILL, timeout_s=1) is None
    assert runner.poll() is None


def test_a_process_that_is_just_becoming_its_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    me = identify(os.getpid())
    assert me is not None
    real = psutil.Process.cmdline
    answers: list[list[str]] = [[], []]
    monkeypatch.setattr(psutil.Process, "cmdline", lambda self: answers.pop() if answers else real(self))
    assert find_process(me) is not None
    assert answers == []


def test_whoever_is_identified_while_it_becomes_its_program_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    real = psutil.Process.cmdline
    answers: list[list[str]] = [[]] * 20
    monkeypatch.setattr(psutil.Process, "cmdline", lambda self: answers.pop() if answers else real(self))
    me = identify(os.getpid())
    assert me is not None
    assert me.command == tuple(real(psutil.Process()))
    assert find_process(me) is not None
