"""Circuits at several scales, each with the mock's latency: what they took, and what they cost.

Before: channels.py. After: channels_circuit_client.py.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks.flame import FUNCTIONS, ROOT, record
from tests.benchmarks.main import Stack, cpu_seconds
from tests.benchmarks.stacks import Stack as Sampled
from tests.benchmarks.stacks import flame_svg, leaves, parse, shares

AT_ONCE = 500
"""Circuits that the driver has at once."""
TIMEOUT_S = 1_800.0
GOAL_PER_S, GOAL_SCALE = 40.0, 1_000
PROFILED = ("runtime", "api")
RATE = 200
"""Samples a second."""
SPY_MIN_S = 3
ENVIRONMENT = {
    "LOOMLOG_MOCK_LATENCY_MS": "50",
    "LOOMLOG_MOCK_LATENCY_JITTER_MS": "25",
    "LOOMLOG_CHANNELS_LONGPOLL_CAP_MS": "1800000",
}
LIMITS = "concurrency: { max_concurrent_runs: 2000, max_queue_depth: 30000, queue_timeout_ms: 600000 }\n"
AGENTS = """\
  researcher:
    provider: mock
    model: mock-researcher
    system_prompt: "You are the first stage of the circuit."
    tools: [Memory, Channel, Context]
    memory_scopes: [user]
    channels: { publish: ["research-done/*"], subscribe: [] }
  editor:
    provider: mock
    model: mock-editor
    system_prompt: "You are the second stage of the circuit."
    tools: [Memory, Channel, Context]
    memory_scopes: [user]
    channels: { publish: ["editing-done/*"], subscribe: ["research-done/*"] }
  evaluator:
    provider: mock
    model: mock-evaluator
    system_prompt: "You are the third stage of the circuit."
    tools: [Memory, Channel, Context, Evaluation]
    memory_scopes: [user]
    evaluation_scopes: [submit_any, read_any]
    channels: { publish: [], subscribe: ["editing-done/*"] }
"""


def channels_block(circuits: int) -> str:
    """The block `channels` with those of circuits c1 and on."""
    terms = "{ scope: global, semantic: queue, default_ttl: 3600, max_messages: 100 }"
    names = [f"{stage}/c{n}" for n in range(1, circuits + 1) for stage in ("research-done", "editing-done")]
    return "".join(f"  {name}: {terms}\n" for name in names)


def measure_circuits(
    stack: Stack, environment: dict[str, str], scales: list[int], *, warm_up: int, poll_ms: int, profile: Path | None
) -> list[dict[str, Any]]:
    """A row for each scale; the last one is profiled into a folder, if there is one."""
    first, rows = 1, list[dict[str, Any]]()
    if warm_up:
        drive(stack, environment, first, warm_up, poll_ms)
        first += warm_up
    for scale in scales:
        spied = profile if profile is not None and scale == scales[-1] else None
        row = one_row(stack, environment, first, scale, poll_ms, spied)
        first += scale
        rows.append(row)
        print_row(row)
    return rows


def one_row(
    stack: Stack, environment: dict[str, str], first: int, scale: int, poll_ms: int, profile: Path | None
) -> dict[str, Any]:
    """So many circuits, with the CPU of every process."""
    before = cpu_seconds(stack)
    if profile is None:
        row = drive(stack, environment, first, scale, poll_ms)
    else:
        row = profiled(stack, environment, first, scale, poll_ms, profile)
    after = cpu_seconds(stack)
    row["cpu_ms_per_circuit"] = {
        **{name: (after[name] - before[name]) * 1000 / scale for name in before},
        "client": row.pop("client_cpu_s") * 1000 / scale,
    }
    return row


def drive(stack: Stack, environment: dict[str, str], first: int, count: int, poll_ms: int) -> dict[str, Any]:
    """What the driver tells."""
    module = "tests.benchmarks.channels_circuit_client"
    done = subprocess.run(
        [sys.executable, "-m", module, stack.api, *map(str, (first, count, AT_ONCE, poll_ms))],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def profiled(
    stack: Stack, environment: dict[str, str], first: int, count: int, poll_ms: int, folder: Path
) -> dict[str, Any]:
    """As `drive`, with samples of runtime and api of part of the time: flame graphs and shares in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    seconds = max(SPY_MIN_S, round(count / GOAL_PER_S))
    with ThreadPoolExecutor(1 + len(PROFILED)) as pool:
        load = pool.submit(drive, stack, environment, first, count, poll_ms)
        time.sleep(0.5)  # until the driver has begun
        files = {name: folder / f"{name}.raw" for name in PROFILED}
        spies = {name: pool.submit(record, stack.pids[name], seconds, RATE, file) for name, file in files.items()}
        for name, spy in spies.items():
            if problem := spy.result():
                raise SystemExit(f"py-spy cannot look at the {name}: {problem}")
        row = load.result()
    row["profile"] = {}
    for name, file in files.items():
        stacks = parse(file.read_text(), root=str(ROOT))
        row["profile"][name] = profile_of(stacks, seconds)
        (folder / f"circuits-{name}.svg").write_text(
            flame_svg(stacks, f"loomlog {name}: circuits", f"{count} circuits")
        )
    return row


def profile_of(stacks: Counter[Sampled], seconds: int) -> dict[str, Any]:
    return {
        "busy_percent": round(100 * stacks.total() / seconds / RATE, 1),
        "areas": shares(stacks),
        "functions": leaves(stacks, FUNCTIONS),
    }


def print_row(row: dict[str, Any]) -> None:
    """A row for people."""
    goal = f" (goal {GOAL_PER_S:.0f})" if row["circuits"] >= GOAL_SCALE else ""
    print(
        f"  x{row['circuits']:<5} {row['circuits_per_s']:6.1f} circuits/s{goal}  p50 {row['p50_ms']:.0f}  p95 "
        f"{row['p95_ms']:.0f}  p99 {row['p99_ms']:.0f} ms  complete {row['complete']}/{row['circuits']}"
    )
    cells = "  ".join(f"{name} {ms:.1f}" for name, ms in row["cpu_ms_per_circuit"].items())
    print(f"         CPU ms a circuit: {cells}", flush=True)
    for problem in row["problems"]:
        print(f"         {problem}")
    for name, profile in row.get("profile", {}).items():
        print(f"    {name}: busy {profile['busy_percent']} % of a core")
        for area, percent in profile["areas"].items():
            print(f"      {percent:5.1f} %  {area}")
