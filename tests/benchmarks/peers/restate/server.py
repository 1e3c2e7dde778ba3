"""A Restate server of one node and the service it calls, both with a folder and ports of their own, while a block runs.

The server runs with its own defaults (its log is fsynced: rocksdb-disable-wal-fsync is false, 24 partitions), but for
addresses, folder, and telemetry, which is off because nothing here leaves the machine. The service runs under Hypercorn
with the configuration its documentation gives for production and a worker for each core.
"""

import contextlib
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loomlog.services.cli.stack.ports import pick_port
from tests.benchmarks.slot import SlotFailed

START_TIMEOUT_S = 60.0
LOOK_S = 0.1
STOP_TIMEOUT_S = 10.0
HYPERCORN = """\
bind = "127.0.0.1:{port}"
h2_max_concurrent_streams = 2147483647
keep_alive_max_requests = 2147483647
keep_alive_timeout = 2147483647
workers = {workers}
worker_class = "uvloop"
loglevel = "WARNING"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restate:
    """A running server: HOST:PORT of its ingress, and who is running."""

    ingress: str
    server: int
    service: int


@contextmanager
def running(program: Path, python: Path, folder: Path) -> Iterator[Restate]:
    """Server and service, the service registered. Raises SlotFailed when they do not come up."""
    ingress, admin, node, port = (pick_port() for _ in range(4))
    (folder / "hypercorn.toml").write_text(HYPERCORN.format(port=port, workers=os.cpu_count() or 1))
    environment = {
        **os.environ,
        "RESTATE_BASE_DIR": str(folder / "data"),
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_DISABLE_TELEMETRY": "true",
    }
    serve = [str(python), "-m", "hypercorn", "--config", str(folder / "hypercorn.toml")]
    with (
        (folder / "server.log").open("w") as server_log,
        (folder / "service.log").open("w") as service_log,
        _child([str(program)], environment, server_log) as server,
        _child([*serve, "tests.benchmarks.peers.restate.service:app"], {**os.environ}, service_log) as service,
    ):
        try:
            _until(lambda: _asked(f"http://127.0.0.1:{admin}/health"))
            _until(lambda: _asked(f"http://127.0.0.1:{admin}/deployments", {"uri": f"http://127.0.0.1:{port}"}))
            _until(lambda: _asked(f"http://127.0.0.1:{ingress}/Agent/run", "warm"))
        except TimeoutError as error:
            text = (folder / "server.log").read_text()[-1000:] + (folder / "service.log").read_text()[-1000:]
            raise SlotFailed(f"Restate is not ready after {START_TIMEOUT_S:g} s:\n{text}") from error
        yield Restate(ingress=f"127.0.0.1:{ingress}", server=server.pid, service=service.pid)


@contextmanager
def _child(command: list[str], environment: dict[str, str], log: object) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(LOOK_S)


def _asked(url: str, body: object = None) -> bool:
    """Whether it answered with a 2xx."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(200 <= answer.status < 300)
    return False
