"""Runs a program to its end: with a timeout, its output as text, and killed when we are cancelled.

Before: java, broker, postgres.  After: launch, the program.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loomlog.services.cli.stack.launch import LAUNCHER

NOT_FOUND = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """The result: exit code (negative: the signal), standard output and error together."""

    exit_code: int
    output: str


def launcher_argv(
    argv: Sequence[str], *, parent_death_signal: signal.Signals, options: Sequence[str] = ()
) -> tuple[str, ...]:
    """Prefix `argv` with the launcher: the program gets `orphan_signal` when this process dies."""
    parent = f"{os.getpid()}:{int(parent_death_signal)}"
    return (sys.executable, "-I", "-S", LAUNCHER, *options, "--parent", parent, "--", *argv)


async def run_program(
    argv: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    stdin_text: str = "",
    launch_options: Sequence[str] = (),
    cwd: Path | None = None,
) -> ProcessResult:
    """Run it with `text` as its input. Raises TimeoutError after `timeout_s`; then it was killed with its group."""
    process = await asyncio.create_subprocess_exec(
        *launcher_argv(argv, parent_death_signal=signal.SIGKILL, options=launch_options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=None if environment is None else dict(environment),
        cwd=cwd,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate(stdin_text.encode())
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode is not None
    return ProcessResult(exit_code=process.returncode, output=output.decode(errors="replace"))
