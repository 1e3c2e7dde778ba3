"""One row: a client is run, and meters are read exactly where its counted time begins and ends.

The client says "counting" and "counted" on its standard output (closed_loop.tell) and ends with a line of JSON. What
came before "counting" (imports, connections, warm-up) is therefore in no figure. A client of several processes shares
the runs in flight out among them; meters are then read while all of them count.
"""

import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import psutil

from tests.benchmarks.closed_loop import percentile

CLOSING_S = 240.0
"""For connecting, waves that are longer than asked (closed_loop.WAVE_MOST_S), and the runs open at the end."""
CLIENT = "client"


class SlotFailed(Exception):
    """A client that ended otherwise than with its row; the message has the end of what it said."""


def run_slot(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    in_flight: int,
    warm_up_s: float,
    seconds: float,
    processes: int = 1,
    groups: Mapping[str, Sequence[int]],
    meters: Mapping[str, Callable[[], float]],
) -> dict[str, Any]:
    """The row, with `cpu_ms_per_run` of every group of processes and `<meter>_per_run` of every meter.

    `command` is called with IN_FLIGHT WARM_UP_S SECONDS behind it. The client itself is the group CLIENT. Raises
    SlotFailed.
    """
    with ExitStack() as stack:
        complaints = stack.enter_context(tempfile.TemporaryFile("w+"))
        clients = [
            stack.enter_context(_client([*command, str(share), str(warm_up_s), str(seconds)], environment, complaints))
            for share in shares(in_flight, processes)
        ]
        everybody = {**groups, CLIENT: [client.pid for client in clients]}

        def read() -> dict[str, float]:
            cpu = {f"cpu {name}": cpu_seconds(pids) for name, pids in everybody.items()}
            return {"time": time.perf_counter(), **cpu, **{name: meter() for name, meter in meters.items()}}

        timer = threading.Timer(
            warm_up_s + seconds + CLOSING_S,
            lambda: [client.kill() for client in clients],  # type: ignore[func-returns-value]
        )
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        counting = counted = 0
        began: dict[str, float] = {}
        ended: dict[str, float] = {}
        lines: list[str] = []
        for line in _lines(clients):
            match line:
                case "counting":
                    counting += 1
                    began = read()  # the last one counts
                case "counted":
                    counted += 1
                    ended = ended or read()  # the first one counts
                case _:
                    lines.append(line)
        codes = [client.wait() for client in clients]
        complaints.seek(0)
        text = complaints.read()[-2000:]
    if any(codes) or counting != len(clients) or counted != len(clients) or len(lines) < len(clients):
        raise SlotFailed(f"{' '.join(command[-3:])} ended with {codes}, {counted} of {len(clients)} counted:\n{text}")
    row = combined([json.loads(line) for line in lines[-len(clients) :]])
    used = {name: ended[name] - began[name] for name in began}
    if used["time"] <= 0:
        raise SlotFailed(f"{' '.join(command[-3:])}: its processes never counted at the same time; count for longer")
    return {**row, **per_run(used, row["runs_per_s"] * used.pop("time"))}


def shares(in_flight: int, processes: int) -> list[int]:
    """The runs in flight shared out, as evenly as can be; no process without any."""
    each, more = divmod(in_flight, processes)
    return [share for share in (each + (number < more) for number in range(processes)) if share]


def combined(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of several processes that counted at the same time as one; `took_ms` of each is needed then."""
    if len(rows) == 1:
        return {name: value for name, value in rows[0].items() if name != "took_ms"}
    took_ms = sorted(one for row in rows for one in row["took_ms"])
    added = {
        name: sum(row[name] for row in rows) for name in ("in_flight", "runs", "runs_per_s", "errors", "client_cpu_s")
    }
    kept = {name: value for name, value in rows[0].items() if name != "took_ms"}
    latencies = {"p50_ms": percentile(took_ms, 0.50), "p99_ms": percentile(took_ms, 0.99)}
    return {**kept, **added, **latencies, "processes": len(rows)}


def per_run(used: Mapping[str, float], runs: float) -> dict[str, Any]:
    """What was used, divided by the runs that ended; seconds of CPU become milliseconds. Without a run: zeros."""
    share = 1 / runs if runs else 0.0
    cpu = {name.removeprefix("cpu "): value * 1000 * share for name, value in used.items() if name.startswith("cpu ")}
    others = {f"{name}_per_run": value * share for name, value in used.items() if not name.startswith("cpu ")}
    return {"cpu_ms_per_run": cpu, **others}


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU-seconds of these processes, their living children, and the children they have already waited for."""
    total = 0.0
    for pid in pids:
        try:
            process = psutil.Process(pid)
            family = (process, *process.children(recursive=True))
        except psutil.NoSuchProcess:
            continue
        for one in family:
            try:
                times = one.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
            # Postgres has a process a connection: those that are gone are counted with the one that waited for them.
            total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


@contextmanager
def _client(
    command: Sequence[str], environment: Mapping[str, str], complaints: IO[str]
) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(list(command), env={**environment}, stdout=subprocess.PIPE, stderr=complaints, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _lines(clients: "Sequence[subprocess.Popen[str]]") -> Iterator[str]:
    """Lines of all clients as they come, until every one has closed its output."""
    values: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def follow(client: "subprocess.Popen[str]") -> None:
        assert client.stdout is not None
        for line in client.stdout:
            values.put(line.strip())
        values.put(None)

    for client in clients:
        threading.Thread(target=follow, args=(client,), daemon=True).start()
    left = len(clients)
    while left:
        line = values.get()
        if line is None:
            left -= 1
        else:
            yield line
