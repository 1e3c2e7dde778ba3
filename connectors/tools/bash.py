"""Bash: a shell command in a writable volume. Off unless the operator enables it.

Three guarantees: the command sees only the environment that the operator allowed; its result is bounded, whatever it
prints; and when the call ends, in whatever way, no process it started remains. The last one cannot be guaranteed from
here: a process that made itself a new session is in no group that could be signalled, and this process may be killed
itself. So the shell runs under bash_supervisor.py, a small process that adopts whatever the command leaves behind and
ends all of it, also when this process dies.

It is no sandbox: the command runs as the user of this process and may read what that user may read.

Output is collected by a subprocess protocol and not through streams: a protocol is notified of the exit even while a
pipe is still open, and has no buffer that would stall a command whose output is not read.

Before: registry.py. After: bash_supervisor.py.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.connectors.tools.arguments import check_arguments
from loomlog.connectors.tools.bash_supervisor import ENVIRONMENT_PREFIX, kill_session
from loomlog.connectors.tools.file_tool import VOLUME_PROPERTY
from loomlog.connectors.tools.results import ToolCallRefused, decode_text, encode_text, error_result
from loomlog.connectors.tools.thread_pool import ThreadPool
from loomlog.connectors.tools.volumes import Volume, choose_volume

OUTPUT_BYTES = 1024 * 1024
"""Maximum bytes shown, of standard output and error together."""
OUTPUT_KILL_BYTES = 64 * 1024 * 1024
"""A command that prints more than this is ended: its output is not used, and reading it costs a processor."""
DEFAULT_TIMEOUT_S = 30
MAX_TIMEOUT_S = 300
GRACE_S = 2.0
"""Time from SIGTERM to SIGKILL: enough to remove a lock file."""
SUPERVISOR_GRACE_S = 8.0
"""Time the supervisor may take in addition to the grace: its own limit for killing is 5 s."""
OUTPUT_DRAIN_S = 1.0
"""Time to read what is still in the pipe when all processes have ended."""
COMMAND_BYTES = 100_000
"""Maximum length of a command; Linux takes 131,072 bytes in one argument."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SUPERVISOR_PATH = str(Path(__file__).with_name("bash_supervisor.py"))


class BashTool:
    name = "Bash"
    description = (
        "Runs a command with /bin/sh in the root of a writable volume and returns what it prints, standard output and "
        "error together, at most 1 MiB, then its exit status. Standard input is empty. Every process the command "
        "started is ended when the command ends or its time is over, also those in the background."
    )
    side_effect_class = "privileged"
    usage_hint = "For commands that no other tool covers; quote file names."
    timeout_s: float = MAX_TIMEOUT_S + GRACE_S + SUPERVISOR_GRACE_S + 5
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command, for /bin/sh -c.", "minLength": 1},
            "timeout_seconds": {
                "type": "integer",
                "description": f"Seconds after which the command is ended. Default: {DEFAULT_TIMEOUT_S}.",
                "minimum": 1,
                "maximum": MAX_TIMEOUT_S,
            },
            "volume": VOLUME_PROPERTY,
        },
        "required": ["command"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        threads: ThreadPool,
        *,
        environment: Mapping[str, str],
        allowed_names: Sequence[str] = (),
        grace_s: float = GRACE_S,
    ) -> None:
        """`environment` is the source of PATH and the allowed names; missing names are left out."""
        self._threads = threads
        allowed = {"PATH": environment.get("PATH", DEFAULT_PATH)}
        allowed |= {name: environment[name] for name in allowed_names if name in environment}
        self._environment = {ENVIRONMENT_PREFIX + name: value for name, value in allowed.items()}
        self._grace_s = grace_s
        self._running: set[asyncio.Task[ToolResult]] = set()
        """Keeps the tasks of calls that were cancelled twice until they have ended their commands."""

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.UNSAFE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            good = check_arguments(self.name, arguments, self.input_schema)
            command = encode_text(good["command"], "The command")
            if b"\0" in command or len(command) > COMMAND_BYTES:
                raise ToolCallRefused(
                    f"The command holds a NUL or is over {COMMAND_BYTES} bytes. Put long scripts into a file."
                )
            binding = choose_volume(good.get("volume"), context.volumes)
            volume = await self._threads.run(lambda _: Volume.from_binding(binding))
            volume.require_writable()
        except ToolCallRefused as reason:
            return error_result(reason)
        cancelled = asyncio.Event()
        timeout_s = good.get("timeout_seconds", DEFAULT_TIMEOUT_S)
        task = asyncio.create_task(self._run_command(command.decode(), volume.path, timeout_s, cancelled))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # The call ends only when everything the command started has ended.
            cancelled.set()
            await asyncio.shield(task)
            raise

    async def _run_command(self, command: str, folder: str, timeout_s: int, cancelled: asyncio.Event) -> ToolResult:
        keeper = [sys.executable, "-I", "-S", _SUPERVISOR_PATH, str(os.getpid()), str(self._grace_s), command]
        try:
            transport, output = await asyncio.get_running_loop().subprocess_exec(
                _CommandOutput,
                *keeper,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            return error_result(ToolCallRefused(f"The command could not be started: {error.strerror}."))
        try:
            ended = "" if await _wait_for_any(timeout_s, output.exited, output.overflowed, cancelled) else "timeout"
            if not output.exited.is_set():
                await self._terminate(transport, output)
                ended = ended or ("runaway" if output.overflowed.is_set() else "cancelled")
            status = transport.get_returncode()
            if status is None or status < 0:
                # The supervisor was killed, perhaps by the command itself.
                await self._threads.run(lambda _: kill_session(transport.get_pid()))
            await _wait_for_any(OUTPUT_DRAIN_S, output.closed)
            return _build_result(output, status, ended, timeout_s)
        finally:
            transport.close()

    async def _terminate(self, transport: asyncio.SubprocessTransport, output: "_CommandOutput") -> None:
        """Ask the supervisor to end everything; kill the supervisor if it does not respond."""
        for signal, patience_s in ((transport.terminate, self._grace_s + SUPERVISOR_GRACE_S), (transport.kill, 1.0)):
            try:
                signal()
            except ProcessLookupError:
                pass  # it ended in between
            if await _wait_for_any(patience_s, output.exited):
                return


class _CommandOutput(asyncio.SubprocessProtocol):
    """The bounded output of the command; whether its supervisor has ended, and whether the output is complete."""

    def __init__(self) -> None:
        self.shown = bytearray()
        self.size = 0
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()
        self.overflowed = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.size += len(data)
        self.shown += data[: OUTPUT_BYTES - len(self.shown)]
        if self.size > OUTPUT_KILL_BYTES:
            self.overflowed.set()

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def _wait_for_any(timeout_s: float, *events: asyncio.Event) -> bool:
    """Wait until one of the events is set; return False on timeout."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()


def _build_result(output: _CommandOutput, status: int | None, kill_reason: str, timeout_s: int) -> ToolResult:
    cut = output.size > len(output.shown)
    text = decode_text(bytes(output.shown), complete=not cut)
    footers = []
    if cut:
        footers.append(f"[output cut: the first {len(output.shown)} of {output.size} bytes]")
    match kill_reason:
        case "timeout":
            footers.append(f"[killed: it did not end within {timeout_s} s]")
        case "runaway":
            footers.append(f"[killed: it printed more than {OUTPUT_KILL_BYTES} bytes]")
        case "cancelled":
            footers.append("[killed: the call was cancelled]")
        case _ if status is None or status < 0:
            footers.append("[killed: the process that watches over commands was killed]")
        case _:
            footers.append(f"[exit status {status}]")
    separator = "" if not text or text.endswith("\n") else "\n"
    return ToolResult(text=text + separator + "\n".join(footers), is_error=bool(kill_reason) or status != 0)
