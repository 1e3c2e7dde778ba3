import asyncio
import os

import psutil
import pytest

from loomlog.services.cli.stack.oneshot import NOT_FOUND, run_program
from tests.services.cli.stack.programs import RUNS_ON, python
from tests.waiting import until


async def test_output_and_exit_code_come_back() -> None:
    code = "import sys\nprint(sys.stdin.read())\nsys.stderr.write('err')\nsys.exit(3)"
    ended = await run_program(python(code), timeout_s=30, stdin_text="in")
    assert ended.exit_code == 3
    assert {"in", "err"} <= set(ended.output.split())


async def test_a_program_that_is_not_there_says_so() -> None:
    ended = await run_program(("/absent/program",), timeout_s=30)
    assert ended.exit_code == NOT_FOUND
    assert "cannot start /absent/program: [Errno 2]" in ended.output


async def test_a_program_over_its_time_is_killed_with_all_it_started() -> None:
    before = set(psutil.Process().children(recursive=True))
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {RUNS_ON!r}])"
    with pytest.raises(TimeoutError):
        await run_program(python(code), timeout_s=0.5)
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_a_cancelled_run_kills_the_program() -> None:
    before = set(psutil.Process().children(recursive=True))
    task = asyncio.create_task(run_program(python(RUNS_ON), timeout_s=60))
    async with asyncio.timeout(30):
        await until(lambda: not set(psutil.Process().children()) <= before)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(psutil.Process().children(recursive=True)) <= before


async def test_the_environment_is_exactly_the_given_one() -> None:
    ended = await run_program(
        python("import os\nprint(sorted(os.environ))"), timeout_s=30, environment={"ONLY": "this"}
    )
    assert set(ended.output.strip("[]\n").replace("'", "").split(", ")) <= {"ONLY", "LC_CTYPE"}
    assert "ONLY" in ended.output
    assert os.environ["PATH"] not in ended.output
