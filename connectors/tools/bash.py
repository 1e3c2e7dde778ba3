"""Bash: a shell command in a writable volume. Off unless the operator enables it.

Three promises: the command sees no more environment than the operator allowed; its answer is bounded, whatever it
prints; and when the call ends, in whatever way, nothing it started is left. The last one cannot be kept from here: a
process that made itself a new session is in no group that could be signalled, and this process may be killed itself.
So the shell runs under bash_supervisor.py, a small process that inherits whatever the command leaves behind and ends
all of it, also when this process dies.

It is no sandbox: the command runs as the user of this process and may read what that user may read.

Output is collected by a subprocess protocol and not through streams: a protocol is told when the process ended even
while a pipe is still open, and has no buffer that would stall a command nobody reads from.

Before: registry.py. After: bash_supervisor.py.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.connectors.tools.answers import Refusal, encoded, readable, refused
from loomlog.connectors.tools.arguments import checked
from loomlog.connectors.tools.bash_supervisor import ENVIRONMENT_PREFIX, end_session
from loomlog.connectors.tools.file_tool import VOLUME_PROPERTY
from loomlog.connectors.tools.threads import Threads
from loomlog.connectors.tools.volumes import Volume, chosen

OUTPUT_BYTES = 1024 * 1024
"""Shown, of standard output and error together."""
RUNAWAY_BYTES = 64 * 1024 * 1024
"""A command that prints more than this is ended: nobody reads it, and carrying it here costs a processor."""
DEFAULT_TIMEOUT_S = 30
LONGEST_TIMEOUT_S = 300
GRACE_S = 2.0
"""From SIGTERM to SIGKILL: enough to remove a lock file."""
KEEPER_SLACK_S = 8.0
"""What the keeper may take on top of the grace: its own bound for killing is 5 s."""
LAST_OUTPUT_S = 1.0
"""For what is still in the pipe when everything has ended."""
COMMAND_BYTES = 100_000
"""Linux takes 131,072 bytes in one argument."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_KEEPER = str(Path(__file__).with_name("bash_supervisor.py"))


class Bash:
    name = "Bash"
    description = (
        "Runs a command with /bin/sh in the root of a writable volume and returns what it prints, standard output and "
        "error together, at most 1 MiB, then its exit status. Standard input is empty. Every process the command "
        "started is ended when the command ends or its time is over, also those in the background."
    )
    side_effect_class = "privileged"
    timeout_s: float = LONGEST_TIMEOUT_S + GRACE_S + KEEPER_SLACK_S + 5
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command, for /bin/sh -c.", "minLength": 1},
            "timeout_seconds": {
                "type": "integer",
                "description": f"Seconds after which the command is ended. Default: {DEFAULT_TIMEOUT_S}.",
                "minimum": 1,
                "maximum": LONGEST_TIMEOUT_S,
            },
            "volume": VOLUME_PROPERTY,
        },
        "required": ["command"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        threads: Threads,
        *,
        environment: Mapping[str, str],
        allowed_names: Sequence[str] = (),
        grace_s: float = GRACE_S,
    ) -> None:
        """`environment` is where PATH and the allowed names are taken from; names it lacks are left out."""
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
            good = checked(self.name, arguments, self.input_schema)
            command = encoded(good["command"], "The command")
            if b"\0" in command or len(command) > COMMAND_BYTES:
                raise Refusal(
                    f"The command holds a NUL or is over {COMMAND_BYTES} bytes. Put long scripts into a file."
                )
            binding = chosen(good.get("volume"), context.volumes)
            volume = await self._threads.run(lambda _: Volume.of(binding))
            volume.require_write()
        except Refusal as reason:
            return refused(reason)
        cancelled = asyncio.Event()
        timeout_s = good.get("timeout_seconds", DEFAULT_TIMEOUT_S)
        task = asyncio.create_task(self._run(command.decode(), volume.path, timeout_s, cancelled))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # The call is over, but not before everything the command started is.
            cancelled.set()
            await asyncio.shield(task)
            raise

    async def _run(self, command: str, folder: str, timeout_s: int, cancelled: asyncio.Event) -> ToolResult:
        keeper = [sys.executable, "-I", "-S", _KEEPER, str(os.getpid()), str(self._grace_s), command]
        try:
            transport, output = await asyncio.get_running_loop().subprocess_exec(
                _Output,
                *keeper,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:
            return refused(Refusal(f"The command could not be started: {error.strerror}."))
        try:
            ended = "" if await _first(timeout_s, output.exited, output.overflowed, cancelled) else "timeout"
            if not output.exited.is_set():
                await self._end(transport, output)
                ended = ended or ("runaway" if output.overflowed.is_set() else "cancelled")
            status = transport.get_returncode()
            if status is None or status < 0:
                # The keeper was killed, perhaps by the command itself.
                await self._threads.run(lambda _: end_session(transport.get_pid()))
            await _first(LAST_OUTPUT_S, output.complete)
            return _result(output, status, ended, timeout_s)
        finally:
            transport.close()

    async def _end(self, transport: asyncio.SubprocessTransport, output: "_Output") -> None:
        """Asks the keeper to end everything; ends the keeper if it does not answer."""
        for signal, patience_s in ((transport.terminate, self._grace_s + KEEPER_SLACK_S), (transport.kill, 1.0)):
            try:
                signal()
            except ProcessLookupError:
                pass  # It ended by itself in between.
            if await _first(patience_s, output.exited):
                return


class _Output(asyncio.SubprocessProtocol):
    """What the command printed, bounded; whether its keeper has ended, and whether all of the output has come."""

    def __init__(self) -> None:
        self.shown = bytearray()
        self.size = 0
        self.exited = asyncio.Event()
        self.complete = asyncio.Event()
        self.overflowed = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.size += len(data)
        self.shown += data[: OUTPUT_BYTES - len(self.shown)]
        if self.size > RUNAWAY_BYTES:
            self.overflowed.set()

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.complete.set()


async def _first(timeout_s: float, *events: asyncio.Event) -> bool:
    """Waits until one of the events is set; False when the time was over first."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()


def _result(output: _Output, status: int | None, ended: str, timeout_s: int) -> ToolResult:
    cut = output.size > len(output.shown)
    text = readable(bytes(output.shown), complete=not cut)
    footers = []
    if cut:
        footers.append(f"[output cut: the first {len(output.shown)} of {output.size} bytes]")
    match ended:
        case "timeout":
            footers.append(f"[killed: it did not end within {timeout_s} s]")
        case "runaway":
            footers.append(f"[killed: it printed more than {RUNAWAY_BYTES} bytes]")
        case "cancelled":
            footers.append("[killed: the call was cancelled]")
        case _ if status is None or status < 0:
            footers.append("[killed: the process that watches over commands was killed]")
        case _:
            footers.append(f"[exit status {status}]")
    separator = "" if not text or text.endswith("\n") else "\n"
    return ToolResult(text=text + separator + "\n".join(footers), is_error=bool(ended) or status != 0)
