"""One row: a client process is run, and meters are read exactly where its counted time begins and ends.

The client says "counting" and "counted" on its standard output (closed_loop.tell) and ends with a line of JSON. What
came before "counting" (imports, connections, warm-up) is therefore in no figure.
"""

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil

CLOSING_S = 90.0
"""For connecting, a warm-up that is longer than asked, and the runs that are open at the end."""
CLIENT = "client"


class SlotFailed(Exception):
    """A client that ended otherwise than with its row; the message has the end of what it said."""


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


def run_slot(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    groups: Mapping[str, Sequence[int]],
    meters: Mapping[str, Callable[[], float]],
    timeout_s: float,
) -> dict[str, Any]:
    """The client's row, with `cpu_ms_per_run` of every group of processes and `<meter>_per_run` of every meter.

    The client itself is the group CLIENT. Raises SlotFailed.
    """
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            list(command), env={**environment}, stdout=subprocess.PIPE, stderr=complaints, text=True
        )
        everybody = {**groups, CLIENT: [process.pid]}

        def read() -> dict[str, float]:
            cpu = {f"cpu {name}": cpu_seconds(pids) for name, pids in everybody.items()}
            return cpu | {name: meter() for name, meter in meters.items()}

        killer = threading.Timer(timeout_s + CLOSING_S, process.kill)
        killer.start()
        marks: dict[str, dict[str, float]] = {}
        last = ""
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() in ("counting", "counted"):
                    marks[line.strip()] = read()
                else:
                    last = line
            code = process.wait()
        finally:
            killer.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
        complaints.seek(0)
        said = complaints.read()[-2000:]
    if code != 0 or set(marks) != {"counting", "counted"}:
        raise SlotFailed(f"{' '.join(command[-6:])} ended with {code} after {sorted(marks)}:\n{said}")
    row: dict[str, Any] = json.loads(last)
    used = {name: marks["counted"][name] - marks["counting"][name] for name in marks["counted"]}
    return {**row, **per_run(used, row["runs"])}


def per_run(used: Mapping[str, float], runs: int) -> dict[str, Any]:
    """What was used, divided by the runs that ended; seconds of CPU become milliseconds. Without a run: zeros."""
    share = 1 / runs if runs else 0.0
    cpu = {name.removeprefix("cpu "): value * 1000 * share for name, value in used.items() if name.startswith("cpu ")}
    others = {f"{name}_per_run": value * share for name, value in used.items() if not name.startswith("cpu ")}
    return {"cpu_ms_per_run": cpu, **others}
