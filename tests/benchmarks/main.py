"""`make bench`: runs against a running stack, as clients send them, and what they cost.

    python -m tests.benchmarks.main [--in-flight 1,16,64] [--seconds 6] [--repetitions 3]
                                    [--paths topic,http,writes,put,get]
                                    [--figures rows,speed] [--json FILE]

    topic     A3x2 through the commands topic, with users
    grpc      A3x2 over gRPC; needs LOOMLOG_GRPC_ADDR (protocols.py)
    http      A3x2 over HTTP + SSE, with the ids that clients of the original send: agent_id and user_id
    writes    the same with the original's own script: Memory.set, Channel.publish, end
    put, get  keys of memory over HTTP
    one turn  a run of one model turn, with ids
    plain     A3x2 over HTTP without ids, for comparison; plain turn the same of one turn

Then first tokens, many streams at once and cancels (speed.py). `--figures` leaves one of the two out.

The stack is started for the purpose in a folder of its own, with everything on: projector, insights, hash chain, fsync
for each flush (the topics' flush.messages=1). Client, broker, Postgres and services share this machine's cores. Rows of
the two paths are interleaved, so that a slow minute of the machine hits both; each row is the median of the
repetitions, and the spread is printed. CPU-seconds are what each process used while the row was measured, warm-up
included, divided by all runs that were ended meanwhile.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from loomlog.services.cli.stack.ports import pick_port
from tests.benchmarks.machine import machine
from tests.benchmarks.speed import measure_speed
from tests.benchmarks.speed_workload import SPEED_CONFIGURATION
from tests.benchmarks.workload import ENVIRONMENT, SINGLE, WRITER

CACHE = Path(__file__).parents[2] / ".loomlog" / "cache"
WARM_UP_S = 2.0
JIT_WARM_UP_S = 60.0
"""Of load before anything is measured: until then the compiler of the broker's Java machine takes half a core."""
UP_TIMEOUT_S = 120.0
PATHS: dict[str, tuple[str, dict[str, str]]] = {
    "topic": ("topic", {}),
    "http": ("http", {}),
    "grpc": ("grpc", {}),
    "writes": ("http", {"BENCH_AGENT": WRITER}),
    "one turn": ("http", {"BENCH_AGENT": SINGLE}),
    "plain": ("http", {"BENCH_USERS": "0"}),
    "plain turn": ("http", {"BENCH_AGENT": SINGLE, "BENCH_USERS": "0"}),
    "put": ("memory_http", {"BENCH_OPERATION": "put"}),
    "get": ("memory_http", {"BENCH_OPERATION": "get"}),
}
"""The client of each path, and what it finds in its environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A running stack: where it is and which processes it has."""

    kafka: str
    postgres: str
    api: str
    home: Path
    pids: dict[str, int]


def main() -> int:
    """The exit code: 0 when every row was measured."""
    parser = options_parser(__doc__)
    parser.add_argument("--in-flight", default="1,16,64")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--paths", default="topic,http,writes,put,get")
    parser.add_argument("--figures", default="rows,speed")
    options = parser.parse_args()
    figures = options.figures.split(",")
    rows = [int(text) for text in options.in_flight.split(",")]
    paths = options.paths.split(",")
    report = new_report("bench")
    with own_stack(SPEED_CONFIGURATION) as (stack, environment):
        warm_up(stack, environment, paths)
        results = (
            measure_all(stack, environment, rows, paths, options.seconds, options.repetitions)
            if "rows" in figures
            else []
        )
        speed = measure_speed(stack, environment, options.seconds, options.repetitions) if "speed" in figures else {}
    report |= {"rows": results, "speed": speed}
    if results:
        print_report(report)
    write_report(report, options.json)
    return 0


def options_parser(documentation: str | None) -> argparse.ArgumentParser:
    """The parser of a command that measures and may write its raw results."""
    parser = argparse.ArgumentParser(description=(documentation or "").split("\n", 1)[0])
    parser.add_argument("--json", type=Path, help="write the raw results here")
    return parser


def new_report(kind: str) -> dict[str, Any]:
    """What every report begins with; the machine is measured now, before there is any load, and printed."""
    facts = machine(Path(tempfile.gettempdir()))
    print(f"  {facts}", flush=True)
    return {"kind": kind, "at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": facts}


def write_report(report: dict[str, Any], file: Path | None) -> None:
    """Write the raw results, if a file is asked for."""
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(report, indent=1) + "\n")


@contextmanager
def own_stack(
    configuration: str, *, runtimes: int = 1, spares: int = 0, **settings: str
) -> Iterator[tuple[Stack, dict[str, str]]]:
    """A stack in a folder of its own and its environment, with these settings; taken down at the end."""
    folder = Path(tempfile.mkdtemp(prefix="loomlog-bench-"))
    environment = environment_in(folder, configuration) | settings
    try:
        yield up(environment, runtimes=runtimes, spares=spares), environment
    finally:
        try:
            loomlog("down", environment)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def environment_in(folder: Path, configuration: str) -> dict[str, str]:
    """The environment of a stack that keeps everything in the folder, with ports of its own."""
    (folder / "loomlog.yaml").write_text(configuration)
    home = folder / "home"
    home.mkdir()
    if CACHE.exists():
        (home / "cache").symlink_to(CACHE)  # the broker's jars; everything else is made as for the first time
    return {
        **os.environ,
        **ENVIRONMENT,
        "LOOMLOG_HOME": str(home),
        "LOOMLOG_CONFIG_FILES": str(folder / "loomlog.yaml"),
        "LOOMLOG_KAFKA_PORT": "0",
        "LOOMLOG_POSTGRES_PORT": "0",
        "LOOMLOG_LISTEN_ADDR": f"127.0.0.1:{pick_port()}",
        "LOOMLOG_INSIGHTS_PORT": str(pick_port()),
    }


def loomlog(command: str, environment: dict[str, str], *, timeout_s: float = UP_TIMEOUT_S) -> str:
    """Run one `loomlog` command; its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "loomlog.services.cli.main", *command.split()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout + done.stderr)
        raise SystemExit(f"loomlog {command} ended with {done.returncode}")
    return done.stdout


def up(environment: dict[str, str], *, runtimes: int = 1, spares: int = 0) -> Stack:
    """A stack of our own, ready; without spares, because what is measured is one process."""
    loomlog(f"up --detach --runtimes {runtimes} --spares {spares}", environment)
    status = json.loads(loomlog("status --json", environment))
    return Stack(
        kafka=status["kafka"],
        postgres=next(child["url"] for child in status["children"] if child["name"] == "postgres"),
        api=environment["LOOMLOG_LISTEN_ADDR"],
        home=Path(environment["LOOMLOG_HOME"]),
        pids={child["name"]: child["pid"] for child in status["children"]},
    )


def warm_up(stack: Stack, environment: dict[str, str], paths: list[str]) -> None:
    """Load until the broker's compiler has done its work."""
    for path in paths:
        client(path, stack, environment, 16, JIT_WARM_UP_S / len(paths), 1.0)


def measure_all(
    stack: Stack, environment: dict[str, str], rows: list[int], paths: list[str], seconds: float, repetitions: int
) -> list[dict[str, Any]]:
    """Every row, interleaved; the medians with everything measured."""
    result: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for repetition in range(repetitions):
        for in_flight in rows:
            for path in paths:
                row = one_row(path, stack, environment, in_flight, seconds)
                result.setdefault((path, in_flight), []).append(row)
                print(
                    f"  {repetition + 1}/{repetitions} {path:6} C={in_flight:<4} {row['runs_per_s']:7.0f} runs/s  "
                    f"p50 {row['p50_ms']:6.1f}  p99 {row['p99_ms']:6.1f} ms",
                    flush=True,
                )
    return [{"path": path, "in_flight": n, **median_of(taken), "taken": taken} for (path, n), taken in result.items()]


def one_row(path: str, stack: Stack, environment: dict[str, str], in_flight: int, seconds: float) -> dict[str, Any]:
    """One measurement with the cost of every process."""
    bytes_before, cpu_before = log_bytes(stack), cpu_seconds(stack)
    row = client(path, stack, environment, in_flight, WARM_UP_S, seconds)
    cpu_after, bytes_after = cpu_seconds(stack), log_bytes(stack)
    # The warm-up's runs are not in `runs`, but they cost: scale by the whole time.
    runs = max(1.0, row["runs_per_s"] * (seconds + WARM_UP_S))
    row["log_bytes_per_run"] = (bytes_after - bytes_before) / runs
    row["cpu_ms_per_run"] = {
        **{name: (cpu_after[name] - cpu_before[name]) * 1000 / runs for name in cpu_before},
        "client": row.pop("client_cpu_s") * 1000 / runs,
    }
    return row


def client(
    path: str, stack: Stack, environment: dict[str, str], in_flight: int, warm_up_s: float, seconds: float
) -> dict[str, Any]:
    """Run a client process; its row and its CPU-seconds."""
    kind, changes = PATHS[path]
    where = stack.kafka if kind == "topic" else stack.api
    done = subprocess.run(
        [sys.executable, "-m", f"tests.benchmarks.{kind}_client", where, str(in_flight), str(warm_up_s), str(seconds)],
        env={**environment, **changes},
        stdout=subprocess.PIPE,
        text=True,
        timeout=warm_up_s + seconds + 60,
        check=True,
    )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def cpu_seconds(stack: Stack) -> dict[str, float]:
    """CPU-seconds so far of every process of the stack, its own children included."""
    result = {}
    for name, pid in stack.pids.items():
        process = psutil.Process(pid)
        total = 0.0
        for one in (process, *process.children(recursive=True)):
            times = one.cpu_times()
            total += times.user + times.system
        result[name] = total
    return result


def log_bytes(stack: Stack) -> int:
    """Bytes of the commands and events topics on disk, segments only."""
    folders = [
        p for p in stack.home.rglob("loom.run.*-*") if p.name.rpartition("-")[0].endswith((".commands", ".events"))
    ]
    return sum(segment.stat().st_size for folder in folders for segment in folder.glob("*.log"))


def median_of(taken: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of the figures, and the spread of the throughput."""
    names = ("runs_per_s", "p50_ms", "p99_ms", "log_bytes_per_run", "errors")
    median: dict[str, Any] = {name: statistics.median(row[name] for row in taken) for name in names}
    median["runs_per_s_range"] = [min(r["runs_per_s"] for r in taken), max(r["runs_per_s"] for r in taken)]
    processes = taken[0]["cpu_ms_per_run"]
    median["cpu_ms_per_run"] = {
        name: statistics.median(row["cpu_ms_per_run"].get(name, 0.0) for row in taken) for name in processes
    }
    return median


def print_report(report: dict[str, Any]) -> None:
    """The table for people."""
    print(f"\nfsync for each flush, everything on; {report['machine']}, {report['at']}")
    print(f"{'path':7}{'C':>5}{'runs/s':>9}{'range':>15}{'p50 ms':>9}{'p99 ms':>9}{'log B/run':>11}{'errors':>8}")
    for row in report["rows"]:
        low, high = row["runs_per_s_range"]
        print(
            f"{row['path']:7}{row['in_flight']:>5}{row['runs_per_s']:>9.0f}{f'{low:.0f}-{high:.0f}':>15}"
            f"{row['p50_ms']:>9.1f}{row['p99_ms']:>9.1f}{row['log_bytes_per_run']:>11.0f}{row['errors']:>8.0f}"
        )
    print("\nCPU milliseconds per run and process")
    names = list(report["rows"][0]["cpu_ms_per_run"])
    print(f"{'path':7}{'C':>5}" + "".join(f"{name:>12}" for name in names))
    for row in report["rows"]:
        cells = "".join(f"{row['cpu_ms_per_run'].get(name, 0.0):>12.2f}" for name in names)
        print(f"{row['path']:7}{row['in_flight']:>5}{cells}")


if __name__ == "__main__":
    sys.exit(main())
