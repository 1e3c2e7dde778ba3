"""Execution of one script of a code agent in its own process.

The supervisor process is started with the first script and again when it has exited. The event loop never blocks on a
script: jobs are sent and answers received over a socket of the loop. When the caller leaves, also by cancellation, the
child is killed; a script that exceeds its time limit is killed by its own timer.

Before: code_js.py. After: code_supervisor.py.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.models.code_replay import RecordedCall
from loomlog.connectors.models.code_supervisor import FRAME, RUN, STATUS, STATUS_MARK, STOP

MEMORY_BYTES = 64 * 1024 * 1024
"""Memory limit of a script's own values. Scripts control tools; large data stays in volumes and documents."""
MAX_CONCURRENT_SCRIPTS = 16
"""Scripts executed at once by a process: together at most a gigabyte of memory; more would share the same cores."""
ANSWER_BYTES = 512 * 1024
"""Limit in bytes of a final text or the arguments of a call, as JSON. They become an event, and a batch of events has
900,000 bytes.
"""
JOB_BYTES = 16 * 1024 * 1024
"""Limit in bytes of all input to a script, mostly its recorded results; it must fit the script's
memory, partly twice.
"""
READ_BYTES = 65_536
TIMEOUT_GRACE_S = 2.0
"""Seconds after a script's time limit for the kernel to end it and the supervisor to report; later the supervisor
counts as failed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """One execution. `input` and the inputs of `recorded` are JSON text."""

    body: str
    input: str
    recorded: Sequence[RecordedCall]
    tools: Sequence[str]
    seed: int
    """0 to 2**32 - 1."""
    epoch_ms: int
    time_limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCall:
    """The first call without a recorded result; `index` counts the calls of the script from 0."""

    name: str
    input: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptResult:
    """The final text of a script that has ended."""

    text: str


class CodeSandbox:
    """The supervisor process and the scripts running in it."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._supervisor: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._start_lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_SCRIPTS)
        self._job_ids = itertools.count(1)

    async def run(self, job: ScriptJob) -> ScriptCall | ScriptResult:
        """Return the script's next call or its result. Raises Permanent with a code_agent_* kind, Transient when its
        process was lost.
        """
        payload = self._encode_job(job)
        async with self._slots:
            answered = await self._execute(payload, job.time_limit_s)
            if answered is None:  # the supervisor was lost; executing again is safe, as a script has no effects
                answered = await self._execute(payload, job.time_limit_s)
        if answered is None:
            raise Transient(f"{self._provider}: the script supervisor was lost twice", kind="unavailable")
        data, status = answered
        if status == -signal.SIGALRM:
            raise self._failure("code_agent_timeout", f"the script was stopped after {job.time_limit_s:.1f} s")
        if status == -signal.SIGKILL:
            raise self._failure("code_agent_cancelled", "the script was killed from outside")
        if status != 0:
            raise self._failure("code_agent_threw", f"the process of the script ended with status {status}")
        answer = json.loads(data)
        match answer:
            case {"call": call}:
                return ScriptCall(**call)
            case {"text": text}:
                return ScriptResult(text=text)
            case {"error": error}:
                raise self._failure(error["code"], error["message"])
        raise AssertionError(f"the script supervisor answered {data[:200]!r}")

    async def close(self) -> None:
        """End the supervisor, and with it every script."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._supervisor is not None:
            keeper, self._supervisor = self._supervisor, None
            await keeper.wait()

    def _encode_job(self, job: ScriptJob) -> bytes:
        values: Mapping[str, object] = {
            **asdict(job),
            "memory_bytes": MEMORY_BYTES,
            "answer_bytes": ANSWER_BYTES,
        }
        encoded = json.dumps(values).encode()
        if len(encoded) > JOB_BYTES:
            message = f"the script and its recorded results have {len(encoded)} bytes; at most {JOB_BYTES} are accepted"
            raise self._failure("code_agent_threw", message)
        return encoded

    async def _ensure_supervisor(self) -> socket.socket:
        """Return the control socket of a running supervisor. Raises Transient when none can be started."""
        async with self._start_lock:
            if self._control is not None and self._supervisor is not None and self._supervisor.returncode is None:
                return self._control
            await self.close()
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    self._supervisor = await asyncio.create_subprocess_exec(
                        sys.executable,
                        *("-I", "-S", str(Path(__file__).with_name("code_supervisor.py")), _engine_folder()),
                        stdin=theirs.fileno(),
                        stdout=asyncio.subprocess.DEVNULL,
                        env={"TZ": "UTC", "LC_ALL": "C.UTF-8"},
                        cwd="/",
                    )
                except OSError as error:
                    ours.close()
                    raise Transient(f"{self._provider}: the script supervisor: {error}", kind="unavailable") from error
            self._control = ours
            return ours

    async def _execute(self, payload: bytes, time_limit_s: float) -> tuple[bytes, int] | None:
        """Return the child's answer and its exit status; None when the supervisor was lost."""
        control = await self._ensure_supervisor()
        job = next(self._job_ids)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        data = b""
        try:
            with theirs:
                socket.send_fds(control, [FRAME.pack(RUN, job)], [theirs.fileno()])
            async with asyncio.timeout(time_limit_s + TIMEOUT_GRACE_S):
                data = await _exchange(ours, payload)
        except TimeoutError as error:
            raise Transient(f"{self._provider}: the script supervisor does not answer", kind="unavailable") from error
        except OSError:
            data = b""
        finally:
            ours.close()
            if not data:
                self._stop(control, job)
        end, status = STATUS.unpack(data[-STATUS.size :]) if len(data) >= STATUS.size else (b"", 0)
        if end != STATUS_MARK:
            await self._discard(control)
            return None
        return data[: -STATUS.size], status

    async def _discard(self, control: socket.socket) -> None:
        """Drop a lost supervisor, so that it receives no more jobs."""
        async with self._start_lock:
            if self._control is control:
                await self.close()

    def _stop(self, control: socket.socket, job: int) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone, and its children with it
            control.send(FRAME.pack(STOP, job))

    def _failure(self, code: str, message: str) -> Permanent:
        return Permanent(f"{self._provider} {code}: {message}", kind=code)


async def _exchange(channel: socket.socket, payload: bytes) -> bytes:
    """Send the whole payload and read until the other side closes. Raises OSError, also when the
    answer is too large.
    """
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):  # it exited before reading everything
        await loop.sock_sendall(channel, payload)
        channel.shutdown(socket.SHUT_WR)
    heard = bytearray()
    with contextlib.suppress(ConnectionResetError):  # an end like another: the child died with a part of its job unread
        while piece := await loop.sock_recv(channel, READ_BYTES):
            heard += piece
            if len(heard) > ANSWER_BYTES + READ_BYTES:
                raise OSError(f"an answer of more than {ANSWER_BYTES} bytes")
    return bytes(heard)


def _engine_folder() -> str:
    """Return the folder with the engine, for the supervisor: its interpreter has no search path."""
    spec = find_spec("_quickjs")
    assert spec is not None, "the package quickjs-ng is not installed"
    assert spec.origin is not None, "the package quickjs-ng is not installed"
    return os.path.dirname(spec.origin)
