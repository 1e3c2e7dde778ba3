"""Process that runs the scripts of code agents: one child per execution, and none that outlives its call.

    code_supervisor.py FOLDER_OF_THE_ENGINE      (its standard input is the control socket)

It imports the engine once and forks for every job, which costs a millisecond instead of the thirty of a new
interpreter. The child makes the sandbox safe whatever the script does:

    time      an interval timer ends it with a signal that cannot be caught, also inside a regular expression
    memory    the engine's own limit, and a limit of the address space behind it
    the rest  no file can be opened, no socket, no process; nothing of the runtime's memory was ever in this process

A call without a recorded result ends the child at once (`os._exit` inside the call), so a script cannot catch the stop,
continue in a `finally` or retry in a loop. Frames on the control socket: one byte for the operation and eight for the
job's number; a job comes with a socket of its own, from which the child reads its job and to which it writes its
answer. After the child has exited its wait status follows as four bytes: a reader of it knows that no process is left.

When the control socket ends, or when this process dies, the children are killed. Standard library and the engine only;
started with -I -S.

Before: code_sandbox.py. After: the engine, with code_prelude.js around the script.
"""

import contextlib
import ctypes
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

RUN = b"R"
STOP = b"S"
FRAME = struct.Struct("!cQ")
STATUS = struct.Struct("!ci")
STATUS_MARK = b"\n"
"""Marker before the status of a child, never part of its answer; without it the supervisor's reply is incomplete."""
PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
OVERHEAD_BYTES = 256 * 1024 * 1024
"""Address space of a child in addition to the script's own memory: the interpreter, the job and the answer as text."""
STACK_BYTES = 1024 * 1024
"""Stack of the engine; well below the 8 MiB of a thread, so that a deep recursion is an exception and not a crash."""
NICENESS = 10
"""Niceness of the scripts, which yield to the process that waits for them."""
READ_BYTES = 1 << 20
OPEN_FILES_MAX = 1024
"""File descriptors that a child closes; the supervisor has one per script and a handful of its own."""


def main(engine_folder: str) -> int:
    sys.path.append(engine_folder)
    # Only the compiled part: the package's own module starts a thread, and a forking process should have none.
    import _quickjs

    prelude = Path(__file__).with_name("code_prelude.js").read_text(encoding="utf-8")
    libc = ctypes.CDLL(None, use_errno=True)
    control = socket.socket(fileno=0)
    with contextlib.suppress(AttributeError):  # Linux only; elsewhere the end of the socket has to suffice
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    os.nice(NICENESS)
    running: dict[int, tuple[int, int]] = {}
    """Process id -> (number of the job, supervisor's end of its socket)."""
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if woken in ready:
                os.read(woken, 4096)
                _reap_children(running)
            if control.fileno() not in ready:
                continue
            frame, ends, _, _ = socket.recv_fds(control, FRAME.size, 1)
            if len(frame) < FRAME.size:
                for process in running:
                    os.kill(process, signal.SIGKILL)
                return 0
            order, job = FRAME.unpack(frame)
            if order == RUN:
                process = os.fork()
                if process == 0:
                    _run_child(_quickjs, prelude, ends[0], libc)
                running[process] = (job, ends[0])
            else:
                for process, (number, _) in running.items():
                    if number == job:
                        os.kill(process, signal.SIGKILL)


def _reap_children(running: dict[int, tuple[int, int]]) -> None:
    """Send the status of each ended child on its socket."""
    while running:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            return
        _, end = running.pop(process)
        with socket.socket(fileno=end) as answer_socket, contextlib.suppress(OSError):  # the reader may have gone
            answer_socket.sendall(STATUS.pack(STATUS_MARK, os.waitstatus_to_exitcode(status)))


def _run_child(engine: Any, prelude: str, channel: int, libc: Any) -> NoReturn:
    """Read the job, run the script, write the answer and exit. Never returns."""
    with contextlib.suppress(AttributeError):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(0, channel)
    os.closerange(channel + 1, OPEN_FILES_MAX)
    pieces = []
    while piece := os.read(channel, READ_BYTES):
        pieces.append(piece)
    orders = json.loads(b"".join(pieces))
    for what, most in (
        (resource.RLIMIT_AS, orders["memory_bytes"] + OVERHEAD_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(what, (most, most))
    signal.setitimer(signal.ITIMER_REAL, orders["time_limit_s"])
    try:
        ScriptExecution(engine, prelude, channel, orders).run()
    finally:
        os._exit(1)  # reached only through a bug: run() has exited with the answer


class ScriptExecution:
    """One execution from the start: recorded results are returned in order, and the first call
    beyond them is reported.
    """

    def __init__(self, engine: Any, prelude: str, channel: int, job: dict[str, Any]) -> None:
        self._engine = engine
        self._prelude = prelude
        self._channel = channel
        self._job = job
        self._position = 0

    def run(self) -> None:
        """Write one answer: {call}, {text} or {error}."""
        orders = self._job
        context = self._engine.Context()
        context.set_memory_limit(orders["memory_bytes"])
        context.set_max_stack_size(STACK_BYTES)
        context.add_callable("__ask", self._call_tool)
        names = context.parse_json(json.dumps(orders["tools"]))
        host = context.eval(self._prelude)(
            context.get("__ask"), float(orders["seed"]), float(orders["epoch_ms"]), names
        )
        context.eval("delete globalThis.__ask")
        context.set("__host", host)
        begin, end = context.eval("__host.begin"), context.eval("__host.end")
        context.eval("delete globalThis.__host")
        try:
            context.eval(orders["body"])
            run = context.eval("typeof run === 'function' ? run : null")
        except (self._engine.JSException, self._engine.StackOverflow) as error:
            self._exit_with(error={"code": "code_agent_load", "message": str(error).strip()})
        except ValueError:  # the engine accepts sources that end with their first NUL
            self._exit_with(error={"code": "code_agent_load", "message": "the script holds a NUL: write it as \\u0000"})
        if run is None:
            self._exit_with(error={"code": "code_agent_load", "message": "the script has no function run(input)"})
        try:
            if begin(run, orders["input"]):
                while context.execute_pending_job():
                    pass
            outcome = json.loads(end())
        except (self._engine.JSException, self._engine.StackOverflow) as error:
            outcome = {"error": str(error)}
        if "text" in outcome:
            self._exit_with(text=outcome["text"])
        message = outcome["error"].strip()
        text = "it threw null, as it does when there is no memory left" if message in ("", "null") else message
        self._exit_with(error={"code": "code_agent_threw", "message": text})

    def _call_tool(self, name: str, text: str) -> str:
        recorded = self._job["recorded"]
        position = self._position
        if position == len(recorded):
            self._exit_with(call={"name": name, "input": text, "index": position})
        self._position += 1
        known = recorded[position]
        if name != known["name"] or _canonical_json(text) != _canonical_json(known["input"]):
            message = (
                f"call {position} is {name} {text[:500]}, but the record has {known['name']} {known['input'][:500]}: "
                "the script does not repeat its recorded calls"
            )
            self._exit_with(error={"code": "code_agent_replay_divergence", "message": message})
        return json.dumps({"text": known["text"], "is_error": known["is_error"]})

    def _exit_with(self, **answer: object) -> NoReturn:
        """Write the answer and exit the process, so that no more of the script runs."""
        data = json.dumps(answer).encode()
        most = self._job["answer_bytes"]
        if len(data) > most:
            message = f"the script returns {len(data)} bytes at once; at most {most} are accepted"
            data = json.dumps({"error": {"code": "code_agent_threw", "message": message}}).encode()
        view = memoryview(data)
        while view:
            view = view[os.write(self._channel, view) :]
        os._exit(0)


def _canonical_json(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
