"""Messages to a process of this machine: a line each, on its standard input and output.

The process gets the environment that it is configured with, and nothing of ours besides PATH, HOME and the like; it is
the leader of its own process group, so its own children end with it; it ends when this process does. What it writes to
standard error is read and its end kept for messages: an unread pipe would stop it.

Its answers may come in any order. A line that is not a message, an answer to a request that was not made, or a line
that is too long means that it does not speak the protocol: it is ended.

Before: session.py. After: stdio_launcher.py.
"""

import asyncio
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.mcp.frames import (
    FRAME_BYTES_MAX,
    STATELESS_META,
    STATELESS_REVISION,
    Answer,
    Params,
    encode_notification,
    encode_request,
    parse_frame,
)
from loomlog.connectors.mcp.peer import IncomingMessages, NotSent

PASSED_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
"""Variables of this process that a server gets: what programs need to start, and no secrets."""
STOP_GRACE_S = 2.0
"""Seconds from the end of its input to SIGTERM, and from there to SIGKILL."""
ERRORS_BYTES_MAX = 4_096
"""Bytes of standard error that are kept for messages."""
STRAY_LINES_MAX = 100
"""Lines that are no messages: some servers print a greeting."""
LINES_PER_YIELD = 50
"""Lines of a server between two turns of others: one that floods slows no other call."""
CANCELLED_MAX = 1_000
"""Ids of cancelled requests whose answers may still come."""
_LAUNCHER = str(Path(__file__).with_name("stdio_launcher.py"))


def server_environment(environment: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server."""
    return {**{name: environment[name] for name in PASSED_ENVIRONMENT if name in environment}, **configured}


class StdioConnection:
    """A process that is a server (protocol Connection)."""

    def __init__(self, process: asyncio.subprocess.Process, command: str, incoming: IncomingMessages) -> None:
        self.revision = ""
        self.is_closed = False
        self._process = process
        self._command = command
        self._incoming = incoming
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._cancelled: OrderedDict[int, None] = OrderedDict()
        self._errors = b""
        self._failure = ""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read_messages()), loop.create_task(self._read_errors())]
        self._writing = asyncio.Lock()

    @classmethod
    async def open(
        cls, command: str, arguments: Sequence[str], environment: Mapping[str, str], incoming: IncomingMessages
    ) -> "StdioConnection":
        """Start the process. Raises NotSent."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", _LAUNCHER, str(os.getpid()), command, *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(environment),
                start_new_session=True,
                limit=FRAME_BYTES_MAX + 1,
            )
        except (OSError, ValueError) as error:
            raise NotSent(f"{command} could not be started: {error}") from error
        return cls(process, command, incoming)

    async def request(self, method: str, params: Params, *, timeout_s: float) -> dict[str, Any]:
        """Return the result. Raises ServerRefused, Transient and Permanent."""
        request_id = next(self._ids)
        if self.revision == STATELESS_REVISION:
            params = {**params, "_meta": {**STATELESS_META, **(params.get("_meta") or {})}}
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        await self._write(encode_request(request_id, method, params), request_id, answer)
        try:
            async with asyncio.timeout(timeout_s):
                return (await answer).require_result(method)
        except TimeoutError as error:
            raise Transient(f"the server did not answer within {timeout_s:g} s", kind="timeout") from error
        finally:
            if self._waiting.pop(request_id, None) is not None:
                await self._cancel(request_id)

    async def notify(self, method: str, params: Params) -> None:
        """Send a notification; that it is not taken does not matter."""
        with suppress(ConnectorError):
            await self._write(encode_notification(method, params))

    async def answer(self, frame: bytes) -> None:
        """Send the answer to a request of the server. Raises Transient and Permanent."""
        await self._write(frame)

    async def close(self) -> None:
        """End the process and its children."""
        self._fail("it was stopped")
        if self._process.stdin is not None:
            self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_GRACE_S):
                    await self._process.wait()
            # Also when it has ended: its group may have children that have not.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
        await self._process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, frame: bytes, request_id: int = 0, answer: "asyncio.Future[Answer] | None" = None) -> None:
        if self.is_closed:
            raise NotSent(self._describe())
        if len(frame) > FRAME_BYTES_MAX:
            raise Permanent(f"the request has {len(frame)} bytes; at most {FRAME_BYTES_MAX} are sent", kind="invalid")
        assert self._process.stdin is not None
        if answer is not None:
            self._waiting[request_id] = answer
        try:
            async with self._writing:
                self._process.stdin.write(frame + b"\n")
                await self._process.stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            self._waiting.pop(request_id, None)
            self._fail("it no longer reads")
            raise Transient(self._describe(), kind="broken_off") from error

    async def _cancel(self, request_id: int) -> None:
        self._cancelled[request_id] = None
        if len(self._cancelled) > CANCELLED_MAX:
            self._cancelled.popitem(last=False)
        await self.notify("notifications/cancelled", {"requestId": request_id, "reason": "timeout"})

    async def _read_messages(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        strays = lines = 0
        try:
            while line := await stdout.readline():
                lines += 1
                if lines % LINES_PER_YIELD == 0:  # lines that are there already are read without a pause
                    await asyncio.sleep(0)
                strays += not await self._take(line.strip())
                if strays > STRAY_LINES_MAX:
                    raise Permanent("it prints what is no message", kind="invalid")
            self._fail("it has ended")
        except ValueError:
            self._fail(f"it sent a line of more than {FRAME_BYTES_MAX} bytes")
        except ConnectorError as error:
            self._fail(str(error))
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _take(self, line: bytes) -> bool:
        """Handle one line; return whether it was a message."""
        if not line.startswith(b"{"):
            return not line
        message = parse_frame(line)
        if not isinstance(message, Answer):
            reply = self._incoming.take(message)
            if reply is not None:
                await self._write(reply)
            return True
        waiting = self._waiting.pop(message.id, None) if isinstance(message.id, int) else None
        if waiting is not None:
            waiting.set_result(message)
        elif message.id not in self._cancelled:
            raise Permanent(f"it answered request {str(message.id)[:40]}, which was not made", kind="invalid")
        return True

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(65_536):
            self._errors = (self._errors + chunk)[-ERRORS_BYTES_MAX:]

    def _fail(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed, self._failure = True, reason
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Transient(self._describe(), kind="broken_off"))
        self._waiting.clear()

    def _describe(self) -> str:
        last = self._errors.decode(errors="replace").strip().splitlines()[-1:]
        return f"{self._command} cannot answer: {self._failure}" + (f" ({last[0][:300]})" if last else "")
