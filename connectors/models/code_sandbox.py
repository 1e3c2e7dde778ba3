"""Runs one script of a code agent in a process of its own and hands back what it came to.

The keeper process is started with the first script and again when it is gone. The event loop never waits for a script:
orders go out and the answer comes back over a socket of the loop. However the caller leaves, by cancellation too, the
child is killed; a script that is still running when its time is over was killed by its own timer.

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
"""Of a script's own values. Scripts steer tools; what is large stays in volumes and documents."""
MAX_CONCURRENT_SCRIPTS = 16
"""Of one process: together at most a gigabyte of scripts' memory, and more would only share the same cores."""
ANSWER_BYTES = 512 * 1024
"""A final text or the arguments of a call, as JSON. They become an event, and a batch of events has 900,000 bytes."""
JOB_BYTES = 16 * 1024 * 1024
"""Everything a script is told, its recorded results above all; they have to fit its memory, some of them twice."""
READ_BYTES = 65_536
TIMEOUT_GRACE_S = 2.0
"""After a script's time is over: for the kernel to end it and for the keeper to tell. Then the keeper is not well."""


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
    """The first call that has no recorded result; `index` counts the calls of the script from 0."""

    name: str
    input: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptResult:
    """The script is done."""

    text: str


class CodeSandbox:
    """The keeper process and the scripts under way in it."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._supervisor: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._start_lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_SCRIPTS)
        self._job_ids = itertools.count(1)

    async def run(self, job: ScriptJob) -> ScriptCall | ScriptResult:
        """What the script came to. Raises Permanent with a code_agent_* kind, Transient when its process was lost."""
        told = self._encode_job(job)
        async with self._slots:
            answered = await self._execute(told, job.time_limit_s)
            if answered is None:  # the keeper is gone; executing again is safe, for a script has no effects
                answered = await self._execute(told, job.time_limit_s)
        if answered is None:
            raise Transient(f"{self._provider}: the keeper of scripts was lost twice", kind="unavailable")
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
        raise AssertionError(f"the keeper answered {data[:200]!r}")

    async def close(self) -> None:
        """Ends the keeper, and with it every script."""
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
        told = json.dumps(values).encode()
        if len(told) > JOB_BYTES:
            message = f"the script and its recorded results have {len(told)} bytes; at most {JOB_BYTES} are taken"
            raise self._failure("code_agent_threw", message)
        return told

    async def _ensure_supervisor(self) -> socket.socket:
        """The control socket of a keeper that lives. Raises Transient when none can be started."""
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
                    raise Transient(f"{self._provider}: the keeper of scripts: {error}", kind="unavailable") from error
            self._control = ours
            return ours

    async def _execute(self, payload: bytes, time_limit_s: float) -> tuple[bytes, int] | None:
        """The child's answer and its exit status; None when the keeper was lost."""
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
            raise Transient(f"{self._provider}: the keeper of scripts does not answer", kind="unavailable") from error
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
        """A keeper that is lost is not asked again."""
        async with self._start_lock:
            if self._control is control:
                await self.close()

    def _stop(self, control: socket.socket, job: int) -> None:
        with contextlib.suppress(OSError):  # the keeper is gone, and its children with it
            control.send(FRAME.pack(STOP, job))

    def _failure(self, code: str, message: str) -> Permanent:
        return Permanent(f"{self._provider} {code}: {message}", kind=code)


async def _exchange(channel: socket.socket, payload: bytes) -> bytes:
    """Says all of it, and hears everything until the other side is gone. Raises OSError, and when it says too much."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):  # it ended before it had read everything
        await loop.sock_sendall(channel, payload)
        channel.shutdown(socket.SHUT_WR)
    heard = bytearray()
    while piece := await loop.sock_recv(channel, READ_BYTES):
        heard += piece
        if len(heard) > ANSWER_BYTES + READ_BYTES:
            raise OSError(f"an answer of more than {ANSWER_BYTES} bytes")
    return bytes(heard)


def _engine_folder() -> str:
    """The folder that the keeper finds the engine in: its interpreter looks nowhere by itself."""
    found = find_spec("_quickjs")
    assert found is not None, "the package quickjs-ng is not installed"
    assert found.origin is not None, "the package quickjs-ng is not installed"
    return os.path.dirname(found.origin)
