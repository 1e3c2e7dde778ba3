import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from loomlog.services.cli.stack import child as child_module
from loomlog.services.cli.stack import supervisor as children
from loomlog.services.cli.stack.child import ChildExit
from loomlog.services.cli.stack.errors import DiskFull, StackError
from loomlog.services.cli.stack.processes import find_process
from loomlog.services.cli.stack.record import ChildRecord
from loomlog.services.cli.stack.supervisor import Supervisor
from tests.services.cli.stack.programs import IGNORES_SIGTERM, RUNS_ON, child
from tests.services.cli.stack.watcher import Disk, Watcher
from tests.sleeps import noted_sleeps
from tests.waiting import until

Supervise = Callable[..., AbstractAsyncContextManager[tuple[Supervisor, Watcher]]]


@pytest.fixture
def supervise(tmp_path: Path) -> Supervise:
    @asynccontextmanager
    async def running(**more: float) -> AsyncIterator[tuple[Supervisor, Watcher]]:
        watcher = Watcher()
        async with Supervisor(
            logs=tmp_path,
            record=watcher.record,
            report=watcher.say,
            **{"initial_backoff_s": 0.01, **more},  # type: ignore[arg-type] # any
        ) as supervisor:
            yield supervisor, watcher

    return running


def pid_of(watcher: Watcher, name: str) -> int:
    pid = watcher.children[name].pid
    assert pid is not None
    return pid


def alive(record: ChildRecord) -> bool:
    return record.identity is not None and find_process(record.identity) is not None


async def test_a_group_is_ready_when_all_of_it_is(supervise: Supervise) -> None:
    answers = iter(["not yet", "not yet either", None])

    async def ready() -> str | None:
        return next(answers)

    async with supervise() as (supervisor, watcher):
        await supervisor.start(child("slow", ready=ready), child("quick"))
        assert {record.state for record in supervisor.child_records()} == {"ready"}
        assert all(alive(record) for record in watcher.children.values())
        assert next(answers, "all asked") == "all asked"
    assert {record.state for record in watcher.children.values()} == {"stopped"}


async def test_groups_are_stopped_last_first(supervise: Supervise) -> None:
    async with supervise() as (supervisor, watcher):
        await supervisor.start(child("broker"))
        await supervisor.start(child("runtime"))
        await supervisor.start(child("api"))
    stopped = [name for name, state in watcher.history if state == "stopped"]
    assert stopped == ["api", "runtime", "broker"]


async def test_a_child_that_dies_is_started_again(supervise: Supervise) -> None:
    async with supervise() as (supervisor, watcher):
        await supervisor.start(child("api"))
        first = pid_of(watcher, "api")
        os.kill(first, signal.SIGKILL)
        await watcher.until(lambda children: children["api"].restarts == 1 and children["api"].state == "ready")
        assert pid_of(watcher, "api") != first
    assert watcher.said == ["api ended with signal SIGKILL; starting it again in 0.01 s (restart 1)"]


async def test_pauses_grow_and_restarts_end_with_the_last_lines_of_the_log(
    supervise: Supervise, tmp_path: Path
) -> None:
    marker = tmp_path / "ran before"
    code = (
        "import pathlib, sys, time\nmarker = pathlib.Path(sys.argv[1])\n"
        "if marker.exists(): sys.exit('the port is taken')\nmarker.touch()\n" + RUNS_ON
    )
    async with supervise(max_restarts=3) as (supervisor, watcher):

        async def ready() -> str | None:
            return None if marker.exists() else "it has not begun"

        await supervisor.start(child("api", code, str(marker), ready=ready))
        os.kill(pid_of(watcher, "api"), signal.SIGKILL)
        async with asyncio.timeout(30):
            with pytest.raises(
                StackError, match=r"(?s)api ended with exit code 1, 4 times in a row.*the port is taken"
            ):
                await supervisor.wait()
    assert [text.split(" in ")[1].split(" s ")[0] for text in watcher.said] == ["0.01", "0.02", "0.04"]
    assert ("api", "failed") in watcher.history


async def test_a_first_start_that_fails_is_a_message_and_no_loop(supervise: Supervise) -> None:
    async with supervise() as (supervisor, watcher):
        with pytest.raises(
            StackError, match=r"(?s)api ended with exit code 1\. Its log .*api\.log ends with:\nbad setting"
        ):
            await supervisor.start(child("api", "import sys; sys.exit('bad setting')", ready=never), child("other"))
    assert watcher.said == []
    assert not any(alive(record) for record in watcher.children.values())


async def test_without_a_child_that_is_not_needed_the_rest_goes_on(
    supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "OPTIONAL_RETRY_S", 0.05)
    broken = replace(child("insights", "import sys; sys.exit('no broker')", ready=never), required="never")
    async with supervise() as (supervisor, watcher):
        assert await supervisor.start(child("api"), broken) == ("api",)
        await watcher.until(lambda children: children["insights"].restarts >= 3)
        assert alive(watcher.children["api"])
    assert watcher.said[0].startswith("insights ended with exit code 1; the rest goes on without it. Its log ")
    assert watcher.said[0].endswith("no broker")
    assert watcher.said[1] == "insights ended with exit code 1; starting it again in 0.05 s (restart 1)"


async def test_what_is_needed_to_begin_ends_everything_only_then(
    supervise: Supervise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "OPTIONAL_RETRY_S", 0.05)
    marker = tmp_path / "ran before"
    code = "import pathlib, sys\nif pathlib.Path(sys.argv[1]).exists(): sys.exit('the key is gone')\n" + RUNS_ON
    async with supervise(max_restarts=1) as (supervisor, watcher):
        await supervisor.start(replace(child("auditor", code, str(marker)), required="to begin"))
        marker.touch()
        os.kill(pid_of(watcher, "auditor"), signal.SIGKILL)
        await watcher.until(lambda children: children["auditor"].restarts >= 4)
    async with supervise() as (supervisor, watcher):
        with pytest.raises(StackError, match="the key is gone"):
            await supervisor.start(replace(child("auditor", code, str(marker), ready=never), required="to begin"))


async def never() -> str | None:
    return "it says no"


async def test_a_child_that_is_not_ready_in_time_is_killed_and_the_last_reason_given(
    supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "is_busy", lambda: False)
    async with supervise() as (supervisor, watcher):
        with pytest.raises(StackError, match=r"api was not ready within \d\.\d s \(it says no\)\. Its log .* is empty"):
            await supervisor.start(child("api", ready=never, ready_timeout_s=0.2))
        assert not alive(watcher.children["api"])


WORKS_ON = "import time\nwhile True:\n    print('at work', flush=True)\n    time.sleep(0.01)"


async def test_on_a_busy_machine_a_child_is_waited_for_while_it_makes_progress(
    supervise: Supervise, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child_module, "is_busy", lambda: True)
    late = tmp_path / "late"

    async def slow() -> str | None:
        if (tmp_path / "api.log").read_text().count("at work") > 40:  # several times the limit
            late.touch()
        return None if late.exists() else "it still starts"

    async with supervise() as (supervisor, _):
        assert await supervisor.start(child("api", WORKS_ON, ready=slow, ready_timeout_s=0.1)) == ("api",)


async def test_on_a_busy_machine_a_child_that_only_waits_is_given_up(
    supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "is_busy", lambda: True)
    async with supervise() as (supervisor, _):
        with pytest.raises(StackError, match="api was not ready"):
            await supervisor.start(child("api", ready=never, ready_timeout_s=0.5))


async def test_the_wait_on_a_busy_machine_has_an_end(supervise: Supervise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "is_busy", lambda: True)
    monkeypatch.setattr(child_module, "BUSY_READY_TIMEOUT_S", 0.5)
    async with supervise() as (supervisor, _):
        with pytest.raises(StackError, match="api was not ready"):
            await supervisor.start(child("api", WORKS_ON, ready=never, ready_timeout_s=0.1))


async def test_a_failure_shows_what_this_process_logged_not_an_earlier_one(
    supervise: Supervise, tmp_path: Path
) -> None:
    (tmp_path / "api.log").write_text("words of yesterday\n")
    async with supervise() as (supervisor, _):
        with pytest.raises(StackError) as problem:
            await supervisor.start(child("api", "import sys; sys.exit('bad setting')", ready=never))
    assert "bad setting" in str(problem.value)
    assert "yesterday" not in str(problem.value)


async def test_a_program_that_does_not_exist_is_said(supervise: Supervise) -> None:
    async with supervise() as (supervisor, _):
        with pytest.raises(StackError, match=r"(?s)exit code 127.*cannot start /absent"):
            await supervisor.start(replace(child("api"), argv=("/absent",), ready=never))


async def test_a_deaf_child_is_killed_after_its_time(supervise: Supervise, tmp_path: Path) -> None:
    async def deaf() -> str | None:
        return None if "deaf" in (tmp_path / "api.log").read_text() else "it hears"

    async with supervise() as (supervisor, watcher):
        await supervisor.start(child("api", IGNORES_SIGTERM, ready=deaf, stop_timeout_s=0.2))
        pid = pid_of(watcher, "api")
    assert watcher.said == ["api did not stop within 0.2 s of SIGTERM and was killed"]
    assert not psutil.pid_exists(pid)


async def test_a_stopped_child_is_woken_so_that_it_can_end(supervise: Supervise) -> None:
    async with supervise() as (supervisor, watcher):
        await supervisor.start(child("api"))
        os.kill(pid_of(watcher, "api"), signal.SIGSTOP)
    assert watcher.said == []


async def test_what_a_child_started_in_its_group_ends_with_it(supervise: Supervise, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        f"tool = subprocess.Popen([sys.executable, '-I', '-S', '-c', {RUNS_ON!r}])\nprint(tool.pid, flush=True)\n"
        + RUNS_ON
    )
    log = tmp_path / "runtime.log"

    async def ready() -> str | None:
        started = len(log.read_text().splitlines())
        return None if started > watcher.children["runtime"].restarts else "no tool yet"

    async with supervise() as (supervisor, watcher):
        await supervisor.start(child("runtime", code, ready=ready))
        tool = psutil.Process(int(log.read_text()))
        os.kill(pid_of(watcher, "runtime"), signal.SIGKILL)
        await watcher.until(lambda children: children["runtime"].restarts == 1 and children["runtime"].state == "ready")
        await asyncio.to_thread(tool.wait, 10)
        second = psutil.Process(int(log.read_text().split()[1]))
    assert second.pid != tool.pid
    await asyncio.to_thread(second.wait, 10)


async def test_what_is_done_before_a_start_gives_its_arguments_each_time(supervise: Supervise) -> None:
    starts = 0
    exits: list[ChildExit] = []

    async def before_start() -> tuple[str, ...]:
        nonlocal starts
        starts += 1
        return (*child("x").argv, f"start {starts}")

    async def after_exit(exit_: ChildExit) -> bool:
        exits.append(exit_)
        return False

    async with supervise() as (supervisor, watcher):
        await supervisor.start(child("api", before_start=before_start, after_exit=after_exit))
        os.kill(pid_of(watcher, "api"), signal.SIGKILL)
        await watcher.until(lambda children: children["api"].restarts == 1 and children["api"].state == "ready")
        assert watcher.children["api"].command[-1] == "start 2"
        # Ready without a probe means started; it is the program itself only after its launcher's exec.
        async with asyncio.timeout(30):
            await until(lambda: alive(watcher.children["api"]))
    assert exits == [
        ChildExit(code=-signal.SIGKILL, was_ready=True, stop_requested=False),
        ChildExit(code=-signal.SIGTERM, was_ready=True, stop_requested=True),
    ]


async def test_a_cause_that_was_removed_allows_a_second_first_start(supervise: Supervise) -> None:
    codes = iter(["import sys; sys.exit(1)", RUNS_ON])

    async def before_start() -> tuple[str, ...]:
        return child("x", next(codes)).argv

    async def after_exit(exit_: ChildExit) -> bool:
        return not exit_.stop_requested

    answers = 0

    async def ready() -> str | None:
        nonlocal answers
        answers += 1
        return None if psutil.pid_exists(pid_of(watcher, "api")) and answers > 20 else "wait"

    async with supervise() as (supervisor, watcher):
        await supervisor.start(child("api", before_start=before_start, after_exit=after_exit, ready=ready))
        assert supervisor.child_records()[0].state == "ready"


async def test_a_problem_before_a_start_is_the_message(supervise: Supervise) -> None:
    async def before_start() -> tuple[str, ...]:
        raise StackError("no Java")

    async with supervise() as (supervisor, _):
        with pytest.raises(StackError, match=r"^no Java$"):
            await supervisor.start(child("kafka", before_start=before_start))


async def test_a_bug_in_a_hook_is_not_swallowed(supervise: Supervise) -> None:
    async def before_start() -> tuple[str, ...]:
        raise KeyError("a bug")

    async with supervise() as (supervisor, _):
        with pytest.raises(KeyError):
            await supervisor.start(child("kafka", before_start=before_start))


async def test_a_failure_nobody_waited_for_is_raised_at_the_end(supervise: Supervise) -> None:
    async def unheard() -> None:
        async with supervise(max_restarts=0) as (supervisor, watcher):
            await supervisor.start(child("api"))
            os.kill(pid_of(watcher, "api"), signal.SIGKILL)
            await watcher.until(lambda children: children["api"].state == "failed")

    with pytest.raises(StackError, match="api ended"):
        await unheard()


async def test_a_cancelled_start_stops_what_had_begun(supervise: Supervise) -> None:
    async with asyncio.timeout(30):
        async with supervise() as (supervisor, watcher):
            task = asyncio.create_task(supervisor.start(child("api", ready=never)))
            await watcher.until(lambda children: "api" in children and children["api"].pid is not None)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert watcher.children["api"].state == "stopped"
    assert watcher.children["api"].pid is None


async def test_a_record_that_cannot_be_written_ends_the_stack_but_not_its_stopping(tmp_path: Path) -> None:
    watcher = Watcher()
    disk = Disk(watcher, problem=StackError)

    async with Supervisor(logs=tmp_path, record=disk.record, report=watcher.say, initial_backoff_s=0.01) as supervisor:
        await supervisor.start(child("kafka"), child("postgres"))
        pid = pid_of(watcher, "postgres")
        disk.is_full = True
        os.kill(pid_of(watcher, "kafka"), signal.SIGKILL)
        async with asyncio.timeout(30):
            with pytest.raises(StackError, match="the disk is full"):
                await supervisor.wait()
    assert not psutil.pid_exists(pid)
    assert watcher.said.count("the disk is full") == 1


async def test_a_full_disk_is_waited_for_and_said_once(supervise: Supervise, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    noted_sleeps(monkeypatch, children.__name__, pauses.append)
    refusals = iter([])

    async def before_start() -> tuple[str, ...]:
        for free in refusals:
            raise DiskFull(f"The disk has {free} MiB free.")
        return child("kafka").argv

    async with supervise(initial_backoff_s=2.0) as (supervisor, watcher):
        await supervisor.start(child("kafka", before_start=before_start))
        refusals = iter(range(20))
        os.kill(pid_of(watcher, "kafka"), signal.SIGKILL)
        await watcher.until(lambda found: found["kafka"].state == "ready" and found["kafka"].restarts == 1)
    assert watcher.said[1:] == [
        "kafka waits for space on the disk and then goes on by itself. The disk has 0 MiB free.",
        "kafka: there is space again; it is started",
    ]
    of_refusals = [pause for pause in pauses if pause != children.LOG_CHECK_INTERVAL_S][1:]
    assert of_refusals == [2.0, 4.0, 8.0] + 17 * [10.0]


async def test_a_first_start_does_not_wait_for_space(supervise: Supervise) -> None:
    async def before_start() -> tuple[str, ...]:
        raise DiskFull("The disk is full.")

    async with supervise() as (supervisor, _):
        with pytest.raises(DiskFull):
            await supervisor.start(child("kafka", before_start=before_start))


async def test_states_that_found_no_space_are_recorded_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "LOG_CHECK_INTERVAL_S", 0.02)
    watcher = Watcher()
    disk = Disk(watcher)

    async with Supervisor(logs=tmp_path, record=disk.record, report=watcher.say, initial_backoff_s=0.01) as supervisor:
        await supervisor.start(child("kafka"))
        disk.is_full = True
        os.kill(pid_of(watcher, "kafka"), signal.SIGKILL)
        async with asyncio.timeout(30):
            await until(
                lambda: supervisor.child_records()[0].restarts == 1 and supervisor.child_records()[0].state == "ready"
            )
        assert watcher.said.count("the disk is full") == 1
        disk.is_full = False
        await watcher.until(lambda found: found["kafka"].restarts == 1)
        assert watcher.children["kafka"].state == "ready"


async def test_a_full_disk_ends_nothing_because_of_a_child_that_is_not_needed_and_never_came_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "OPTIONAL_RETRY_S", 0.02)
    watcher = Watcher()
    disk = Disk(watcher)

    broken = replace(child("insights", "import sys; sys.exit('no broker')", ready=never), required="never")
    async with Supervisor(logs=tmp_path, record=disk.record, report=watcher.say, initial_backoff_s=0.01) as supervisor:
        assert await supervisor.start(child("kafka"), broken) == ("kafka",)
        disk.is_full = True
        before = supervisor.child_records()[1].restarts
        async with asyncio.timeout(30):
            await until(lambda: supervisor.child_records()[1].restarts >= before + 3)
        disk.is_full = False
        assert supervisor.child_records()[0].state == "ready"


async def test_two_children_of_one_name_are_a_bug(supervise: Supervise) -> None:
    async with supervise() as (supervisor, _):
        await supervisor.start(child("api"))
        with pytest.raises(ValueError, match="a child named 'api' is there already"):
            await supervisor.start(child("api"))
