"""How quick the MCP endpoint is beside HTTP: part of `make bench-protocols`.

    python -m tests.benchmarks.mcp_server [--seconds 6] [--json FILE]

    run        spawn_run of A3x2 over MCP, beside POST /v1/runs: runs a second with 16 in flight; goal 90 %
    list       tools/list, one at a time: p99, goal 5 ms
    cheap      a tools/call that reads nothing but its caller, one at a time: p50, goal 10 ms
    sessions   10,000 handshakes: what the api grows by

A stack of its own; figures of a machine that is busy otherwise say nothing. HTTP and MCP are measured in turns.
"""

import statistics
import sys
from typing import Any

import httpx
import psutil

from tests.benchmarks.main import PATHS, Stack, client, new_report, options_parser, own_stack, warm_up, write_report
from tests.benchmarks.speed_workload import SPEED_CONFIGURATION

IN_FLIGHT, REPETITIONS = 16, 3
SESSIONS = 10_000
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
for _call in ("run", "list", "cheap"):
    PATHS[f"mcp {_call}"] = ("mcp", {"BENCH_CALL": _call})


def main() -> int:
    """Return the exit code."""
    parser = options_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    report = new_report("protocols")
    with own_stack(SPEED_CONFIGURATION) as (stack, environment):
        warm_up(stack, environment, ["http"])
        report |= measure(stack, environment, options.seconds)
    write_report(report, options.json)
    return 0


def measure(stack: Stack, environment: dict[str, str], seconds: float) -> dict[str, Any]:
    """Return the figures, printed as they come."""
    rates: dict[str, list[float]] = {"http": [], "mcp run": []}
    for _ in range(REPETITIONS):
        for path, values in rates.items():
            values.append(client(path, stack, environment, IN_FLIGHT, 1.0, seconds)["runs_per_s"])
    http, mcp = (statistics.median(values) for values in rates.values())
    print(f"  A3x2 over HTTP {http:.1f} runs/s, spawn_run {mcp:.1f} runs/s: {100 * mcp / http:.0f} % (goal 90 %)")
    listed = client("mcp list", stack, environment, 1, 1.0, seconds)
    print(f"  tools/list p50 {listed['p50_ms']:.2f} ms, p99 {listed['p99_ms']:.2f} ms (goal 5 ms)")
    cheap = client("mcp cheap", stack, environment, 1, 1.0, seconds)
    print(f"  a cheap tools/call p50 {cheap['p50_ms']:.2f} ms (goal 10 ms), p99 {cheap['p99_ms']:.2f} ms", flush=True)
    grown = sessions_bytes(stack)
    print(f"  {SESSIONS:,} sessions: the api grew by {grown / 1024 / 1024:.1f} MiB")
    return {"http": rates["http"], "mcp": rates["mcp run"], "list": listed, "cheap": cheap, "sessions_bytes": grown}


def sessions_bytes(stack: Stack) -> int:
    """Return what the api's memory grew by over that many handshakes, after as many to warm it up as it has."""
    api = psutil.Process(stack.pids["api"])
    with httpx.Client(base_url=f"http://{stack.api}") as session:

        def begin(number: int) -> None:
            for _ in range(number):
                session.post("/v1/_mcp", json=HELLO).raise_for_status()

        begin(SESSIONS // 10)
        before = api.memory_info().rss
        begin(SESSIONS)
        return api.memory_info().rss - before


if __name__ == "__main__":
    sys.exit(main())
