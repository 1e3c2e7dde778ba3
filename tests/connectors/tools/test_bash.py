import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from loomlog.connectors.protocols import EffectClass, ToolResult
from loomlog.connectors.tools import bash
from loomlog.connectors.tools.bash import OUTPUT_BYTES, BashTool
from loomlog.connectors.tools.thread_pool import ThreadPool
from tests.connectors.tools.given import binding, context
from tests.waiting import until

PATIENCE_S = 30.0


@pytest.fixture
def mark() -> Iterator[str]:
    """A number of seconds that no other process sleeps; whatever still sleeps it after the test is ended."""
    word = f"600.{uuid4().int}"
    yield word
    for process in marked(word):
        process.kill()


def marked(word: str) -> list[psutil.Process]:
    actual = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and any(word in part for part in process.cmdline()):
                actual.append(process)
        except psutil.NoSuchProcess:
            continue
    return actual


def tool(grace_s: float = 0.2, **options: Any) -> BashTool:
    return BashTool(
        ThreadPool(),
        environment={"PATH": os.environ["PATH"], "SECRET": "s3cret", "LANG": "C"},
        grace_s=grace_s,
        **options,
    )


async def called(
    folder: Path, command: str, *, bash: BashTool | None = None, mode: str = "rw", **more: Any
) -> ToolResult:
    async with asyncio.timeout(30):
        volumes = (binding(folder, mode=mode),)
        return await (bash or tool()).call({"command": command, **more}, context(volumes=volumes))


async def until_sleeping(word: str, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await until(lambda: sum(process.name() == "sleep" for process in marked(word)) >= count)


async def test_output_and_error_come_together_in_order_with_the_exit_status(tmp_path: Path) -> None:
    result = await called(tmp_path, "echo one; echo two >&2; printf three")
    assert (result.text, result.is_error) == ("one\ntwo\nthree\n[exit status 0]", False)


async def test_a_status_other_than_zero_is_an_error_result(tmp_path: Path) -> None:
    result = await called(tmp_path, "exit 3")
    assert (result.text, result.is_error) == ("[exit status 3]", True)
    assert (await called(tmp_path, "kill -9 $$")).text == "[exit status 137]"


async def test_a_command_works_in_the_root_of_the_volume(tmp_path: Path) -> None:
    await called(tmp_path, "echo x > f")
    assert (tmp_path / "f").read_text() == "x\n"


async def test_a_read_only_volume_is_refused(tmp_path: Path) -> None:
    result = await called(tmp_path, "echo x > f", mode="ro")
    assert result.is_error
    assert "read-only" in result.text
    assert list(tmp_path.iterdir()) == []


async def test_without_a_volume_nothing_runs() -> None:
    result = await tool().call({"command": "true"}, context())
    assert result.is_error
    assert "No volume is granted" in result.text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"command": ""}, "is empty"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x" * 100_001}, "100000 bytes"),
        ({"command": "\ud800"}, "surrogate"),
        ({"command": "true", "timeout_seconds": 301}, "at most 300"),
        ({"command": "true", "timeout_seconds": 0}, "at least 1"),
        ({"cmd": "true"}, '"cmd" is unknown'),
    ],
)
async def test_unusable_arguments_are_an_error_result(tmp_path: Path, arguments: dict[str, Any], problem: str) -> None:
    result = await tool().call(arguments, context(volumes=(binding(tmp_path),)))
    assert result.is_error
    assert problem in result.text


# --- environment -----------------------------------------------------------------------------------------------------


async def test_a_command_sees_only_what_the_operator_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "s3cret")
    seen = (await called(tmp_path, "/usr/bin/env")).text.splitlines()
    assert sorted(line.split("=")[0] for line in seen[:-1]) == ["PATH", "PWD"]
    named = await called(tmp_path, "/usr/bin/env", bash=tool(allowed_names=("LANG", "ABSENT")))
    assert sorted(line.split("=")[0] for line in named.text.splitlines()[:-1]) == ["LANG", "PATH", "PWD"]


async def test_the_process_above_a_command_has_no_more_environment_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "s3cret")
    assert "s3cret" not in (await called(tmp_path, "cat /proc/$PPID/environ /proc/self/environ")).text


async def test_no_open_file_of_this_process_reaches_a_command(tmp_path: Path) -> None:
    with (tmp_path / "private").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        text = (await called(tmp_path, "ls -l /proc/self/fd")).text
    assert "private" not in text


async def test_standard_input_is_empty(tmp_path: Path) -> None:
    assert (await called(tmp_path, "cat")).text == "[exit status 0]"


async def test_a_pipe_that_nobody_reads_ends_its_writer(tmp_path: Path) -> None:
    assert (await called(tmp_path, "yes | head -1")).text == "y\n[exit status 0]"


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_output_beyond_the_bound_is_cut_and_the_command_may_finish(tmp_path: Path) -> None:
    result = await called(tmp_path, f"head -c {OUTPUT_BYTES + 5} /dev/zero | tr '\\0' x; exit 4")
    assert result.text.startswith(
        "x" * OUTPUT_BYTES + f"\n[output cut: the first {OUTPUT_BYTES} of {OUTPUT_BYTES + 5} bytes]"
    )
    assert result.text.endswith("\n[exit status 4]")
    assert len(result.text) < OUTPUT_BYTES + 200


async def test_runaway_output_ends_the_command(tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bash, "OUTPUT_KILL_BYTES", 4 * OUTPUT_BYTES)
    result = await called(tmp_path, f"yes {mark}")
    assert result.is_error
    assert result.text.endswith("[killed: it printed more than 4194304 bytes]")
    assert marked(mark) == []


async def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    assert (await called(tmp_path, "printf 'a\\000\\377b'")).text == "a��b\n[exit status 0]"


# --- nothing is left -------------------------------------------------------------------------------------------------


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path, mark: str) -> None:
    stubborn = f"trap '' TERM; sleep {mark} & setsid sleep {mark} & echo begun; sleep {mark}"
    result = await called(tmp_path, stubborn, timeout_seconds=1)
    assert (result.text, result.is_error) == ("begun\n[killed: it did not end within 1 s]", True)
    assert marked(mark) == []


async def test_a_command_may_clean_up_before_it_is_ended(tmp_path: Path, mark: str) -> None:
    command = f"trap 'echo cleaned > f; exit 0' TERM; sleep {mark} & wait"
    call = asyncio.create_task(called(tmp_path, command, bash=tool(grace_s=PATIENCE_S)))
    await until_sleeping(mark, 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (tmp_path / "f").read_text() == "cleaned\n"


async def test_background_processes_end_with_the_command(tmp_path: Path, mark: str) -> None:
    started = time.monotonic()
    command = f"sleep {mark} & setsid sleep {mark} & (setsid sleep {mark} >/dev/null 2>&1 &) ; echo done"
    result = await called(tmp_path, command)
    assert (result.text, result.is_error) == ("done\n[exit status 0]", False)
    assert marked(mark) == []
    assert time.monotonic() - started < PATIENCE_S


async def test_a_cancelled_call_ends_everything_before_it_returns(tmp_path: Path, mark: str) -> None:
    call = asyncio.create_task(called(tmp_path, f"setsid sleep {mark} & sleep {mark}"))
    await until_sleeping(mark, 2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert marked(mark) == []


async def test_a_call_that_is_cancelled_twice_still_ends_everything(tmp_path: Path, mark: str) -> None:
    call = asyncio.create_task(called(tmp_path, f"trap '' TERM; sleep {mark}"))
    await until_sleeping(mark, 1)
    call.cancel()
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(PATIENCE_S):
        await until(lambda: not (marked(mark)))


async def test_a_command_that_kills_its_keeper_gains_nothing(tmp_path: Path, mark: str) -> None:
    result = await called(tmp_path, f"sleep {mark} & kill -9 $PPID; sleep {mark}")
    assert result.is_error
    assert result.text.endswith("[killed: the process that watches over commands was killed]")
    assert marked(mark) == []


RUNTIME = """
import asyncio, sys
from loomlog.connectors.tools.bash import BashTool
from loomlog.connectors.tools.thread_pool import ThreadPool
from tests.connectors.tools.given import binding, context
from pathlib import Path

tool = BashTool(ThreadPool(), environment={}, grace_s=0.2)
call = tool.call({"command": sys.argv[2]}, context(volumes=(binding(Path(sys.argv[1])),)))
if sys.argv[3] == "uvloop":
    import uvloop
    print(uvloop.run(call).text, end="")
else:
    asyncio.run(call)
"""


async def test_a_killed_runtime_leaves_no_command_behind(tmp_path: Path, mark: str) -> None:
    command = f"setsid sleep {mark} & sleep {mark}"
    runtime = subprocess.Popen([sys.executable, "-c", RUNTIME, str(tmp_path), command, "asyncio"])
    try:
        await until_sleeping(mark, 2)
        runtime.send_signal(signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: not (marked(mark)))
    finally:
        runtime.kill()
        runtime.wait()


def test_commands_run_the_same_under_uvloop(tmp_path: Path, mark: str) -> None:
    command = f"echo one; echo two >&2; setsid sleep {mark} & exit 3"
    done = subprocess.run(
        [sys.executable, "-c", RUNTIME, str(tmp_path), command, "uvloop"],
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.stdout == "one\ntwo\n[exit status 3]"
    assert marked(mark) == []


def test_a_command_is_never_run_again_unasked() -> None:
    assert tool().effect_class({"command": "true"}) is EffectClass.UNSAFE
    assert tool().timeout_s > bash.MAX_TIMEOUT_S + bash.GRACE_S + bash.SUPERVISOR_GRACE_S
