"""`make bench-peers`: A3x2 on ours, on the raw floors and on what a user would pick instead, in one run.

    python -m tests.benchmarks.peers.main [--in-flight 1,16,64,256] [--seconds 8] [--warm-up 4] [--repetitions 3]
                                          [--systems topic,http,...] [--json docs/figures/peers.json]

One machine, one stack of ours with everything on, client and servers on the same cores. For each repetition and each
number in flight every system gets its turn, so that a slow minute of the machine hits all of them; the order turns
round by one with each repetition. Rows are medians of the repetitions with their spread. A peer that cannot be
installed or run here is named with the reason and left out. `python -m tests.benchmarks.peers.page` makes
docs/BENCHMARKS.md of the result.
"""

import argparse
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import machine
from tests.benchmarks.main import JIT_WARM_UP_S, client, environment_in, loomlog, up
from tests.benchmarks.peers.environments import NotInstalled, python_of, restate_server
from tests.benchmarks.peers.systems import SYSTEMS, Bench, System, kafka_version, opened
from tests.benchmarks.slot import SlotFailed, run_slot
from tests.benchmarks.workload import CONFIGURATION, PAYLOAD_BYTES

ROOT = Path(__file__).parents[3]


def main() -> int:
    """The exit code: 0 when every system that could be measured was, 1 when none of ours could."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--in-flight", default="1,16,64,256")
    parser.add_argument("--seconds", type=float, default=8.0, help="counted, for each row")
    parser.add_argument("--warm-up", type=float, default=4.0, help="before each row is counted, and until C runs ended")
    parser.add_argument("--jit-warm-up", type=float, default=JIT_WARM_UP_S, help="of our broker, once")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--systems", default=",".join(system.name for system in SYSTEMS))
    parser.add_argument("--json", type=Path, help="write the raw results here")
    options = parser.parse_args()
    # So that a time limit outside (timeout, a CI job) leaves no stack behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    levels = [int(text) for text in options.in_flight.split(",")]
    systems = chosen(options.systems.split(","))
    left_out = install(systems)
    systems = [system for system in systems if system.name not in left_out]
    folder = Path(tempfile.mkdtemp(prefix="loomlog-peers-"))
    environment = environment_in(folder, CONFIGURATION)
    facts = machine(folder)
    try:
        stack = up(environment)
        bench = Bench(stack, environment)
        try:
            if options.jit_warm_up:
                client("topic", stack, environment, 16, options.jit_warm_up, 1.0)
            settings = bench.postgres_settings()
            taken, failed = measure_all(bench, systems, levels, options.warm_up, options.seconds, options.repetitions)
        finally:
            bench.close()
    finally:
        loomlog("down", environment)
        shutil.rmtree(folder, ignore_errors=True)
    report = {
        "kind": "peers",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": facts,
        "seconds": options.seconds,
        "warm_up_s": options.warm_up,
        "repetitions": options.repetitions,
        "payload_bytes": PAYLOAD_BYTES,
        "kafka": {"version": kafka_version(), "flush.messages": "1", "acks": "all", "brokers": "1"},
        "postgres": settings,
        "loomlog": {name: version(name) for name in ("loomlog", "aiokafka", "uvloop", "uvicorn", "psycopg")},
        "systems": [asdict(system) for system in systems],
        "left_out": [{"title": title_of(name), "reason": reason} for name, reason in (left_out | failed).items()],
        "rows": [
            {"system": name, "in_flight": in_flight, **summary(rows), "taken": rows}
            for (name, in_flight), rows in taken.items()
        ],
    }
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if any(row["system"] in ("topic", "http") for row in report["rows"]) else 1


def chosen(names: Sequence[str]) -> list[System]:
    """The systems with these names, in the catalogue's order."""
    unknown = set(names) - {system.name for system in SYSTEMS}
    if unknown:
        raise SystemExit(f"unknown systems {sorted(unknown)}; there are {[system.name for system in SYSTEMS]}")
    return [system for system in SYSTEMS if system.name in names]


def title_of(name: str) -> str:
    return next(system.title for system in SYSTEMS if system.name == name)


def install(systems: Sequence[System]) -> dict[str, str]:
    """Makes the environments of the peers; which could not be made, and why."""
    refused = {}
    for system in systems:
        if system.kind != "peer":
            continue
        print(f"  {system.title}: its environment", flush=True)
        try:
            python_of(system.name)
            if system.name == "restate":
                restate_server()
        except NotInstalled as error:
            refused[system.name] = f"not installed: {error}"
            print(f"  left out, {refused[system.name]}", flush=True)
    return refused


def measure_all(
    bench: Bench, systems: Sequence[System], levels: Sequence[int], warm_up_s: float, seconds: float, repetitions: int
) -> tuple[dict[tuple[str, int], list[dict[str, Any]]], dict[str, str]]:
    """Every row of every system, interleaved; and which systems failed, and how. A failed system gets no more turns."""
    taken: dict[tuple[str, int], list[dict[str, Any]]] = {}
    failed: dict[str, str] = {}
    for repetition in range(repetitions):
        for in_flight in levels:
            for system in turned(systems, repetition):
                if system.name in failed:
                    continue
                try:
                    row = one_row(system, bench, in_flight, warm_up_s, seconds)
                except SlotFailed as error:
                    failed[system.name] = f"failed with {in_flight} in flight: {error}"
                    print(f"  {system.title}: {failed[system.name]}", flush=True)
                    continue
                taken.setdefault((system.name, in_flight), []).append(row)
                print(
                    f"  {repetition + 1}/{repetitions} {system.name:15} C={in_flight:<4} {row['runs_per_s']:7.0f} "
                    f"runs/s  p50 {row['p50_ms']:7.1f}  p99 {row['p99_ms']:7.1f} ms  errors {row['errors']:.0f}",
                    flush=True,
                )
    ordered = {
        (system.name, in_flight): taken[system.name, in_flight]
        for in_flight in levels
        for system in systems
        if (system.name, in_flight) in taken and system.name not in failed
    }
    return ordered, failed


def turned(systems: Sequence[System], by: int) -> list[System]:
    """The same systems, beginning with another one each time."""
    start = by % len(systems)
    return [*systems[start:], *systems[:start]]


def one_row(system: System, bench: Bench, in_flight: int, warm_up_s: float, seconds: float) -> dict[str, Any]:
    """One measurement. Raises SlotFailed."""
    with opened(system, bench) as ready:
        row = run_slot(
            ready.command,
            bench.environment,
            in_flight=in_flight,
            warm_up_s=warm_up_s,
            seconds=seconds,
            processes=ready.processes,
            groups=ready.groups,
            meters=ready.meters,
        )
    return {"versions": ready.versions, **row}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians of what was taken, and the spread of the throughput and of p99."""
    plain = [name for name in rows[0] if name.endswith("_per_run") and name != "cpu_ms_per_run"]
    names = ["runs_per_s", "p50_ms", "p99_ms", "errors", *plain]
    result: dict[str, Any] = {name: statistics.median(row[name] for row in rows) for name in names}
    for name in ("runs_per_s", "p50_ms", "p99_ms"):
        result[f"{name}_range"] = [min(row[name] for row in rows), max(row[name] for row in rows)]
    groups = rows[0]["cpu_ms_per_run"]
    result["cpu_ms_per_run"] = {name: statistics.median(row["cpu_ms_per_run"][name] for row in rows) for name in groups}
    result["versions"] = rows[0].get("versions", {})
    return result


def commit() -> str:
    """The commit that was measured; with a plus when files differ from it."""
    asked = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
