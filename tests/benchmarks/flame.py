"""`make flame`: where runtime and api spend their time under load, as flame graphs and as shares of named areas.

    python -m tests.benchmarks.flame [--seconds 20] [--rate 200] [--folder docs/figures]

A stack with everything on runs A3x2 over HTTP and SSE, 16 in flight, warmed up; py-spy samples both processes at once.
Only samples in which a thread computes are counted. What a process does in C (sockets, compression, hashing) is counted
where Python called it. Writes flame-runtime.svg, flame-api.svg and profile.json.

py-spy reads another process's memory: root may, and on Linux with kernel.yama.ptrace_scope=0 its owner.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks.main import Stack, client, new_report, own_stack, warm_up, write_report
from tests.benchmarks.peers.main import commit
from tests.benchmarks.stacks import Stack as Sampled
from tests.benchmarks.stacks import flame_svg, leaves, parse, shares
from tests.benchmarks.workload import CONFIGURATION

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
PROCESSES = ("runtime", "api")
IN_FLIGHT = 16
LOAD_BEFORE_S, LOAD_AFTER_S = 3.0, 4.0
"""The load begins before and ends after the samples, however slowly py-spy starts."""
FUNCTIONS = 15
MOST_BYTES = 300_000


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rate", type=int, default=200, help="samples a second")
    parser.add_argument("--folder", type=Path, default=FIGURES)
    options = parser.parse_args()
    # So that a time limit outside leaves no stack behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options.folder.mkdir(parents=True, exist_ok=True)
    report = new_report("profile")
    with own_stack(CONFIGURATION) as (stack, environment):
        warm_up(stack, environment, ["http"])
        row, sampled = sample(stack, environment, options.seconds, options.rate)
    report |= {
        "commit": commit(),
        "in_flight": IN_FLIGHT,
        "seconds": options.seconds,
        "rate": options.rate,
        "runs_per_s": row["runs_per_s"],
        "errors": row["errors"],
        "processes": {},
    }
    for name, stacks in sampled.items():
        samples = stacks.total()
        report["processes"][name] = {
            "samples": samples,
            "busy_percent": round(100 * samples / options.seconds / options.rate, 1),
            "areas": shares(stacks),
            "functions": leaves(stacks, FUNCTIONS),
        }
        note = (
            f"A3x2 over HTTP and SSE, {IN_FLIGHT} in flight, {row['runs_per_s']:.0f} runs/s, {report['at'][:10]}; "
            f"{samples} samples in {options.seconds} s. Width: share of busy samples; colour: area; outermost below."
        )
        drawn = flame_svg(stacks, f"loomlog {name} under load", note)
        assert len(drawn.encode()) < MOST_BYTES, f"the flame graph of {name} has {len(drawn)} characters"
        (options.folder / f"flame-{name}.svg").write_text(drawn)
        print(f"\n{name}: busy {report['processes'][name]['busy_percent']} % of a core, {samples} samples")
        for area, percent in report["processes"][name]["areas"].items():
            print(f"  {percent:5.1f} %  {area}")
    write_report(report, options.folder / "profile.json")
    return 0


def sample(
    stack: Stack, environment: dict[str, str], seconds: int, rate: int
) -> tuple[dict[str, Any], dict[str, Counter[Sampled]]]:
    """The load's row and the stacks of each process. Raises SystemExit when py-spy may not or cannot look."""
    with ThreadPoolExecutor(1 + len(PROCESSES)) as pool:
        load = pool.submit(client, "http", stack, environment, IN_FLIGHT, LOAD_BEFORE_S, float(seconds) + LOAD_AFTER_S)
        time.sleep(LOAD_BEFORE_S)
        files = {name: stack.home / f"{name}.raw" for name in PROCESSES}
        spying = {name: pool.submit(record, stack.pids[name], seconds, rate, file) for name, file in files.items()}
        for name, done in spying.items():
            if problem := done.result():
                raise SystemExit(f"py-spy cannot look at the {name}: {problem}")
        row = load.result()
    return row, {name: parse(file.read_text(), root=str(ROOT)) for name, file in files.items()}


def record(pid: int, seconds: int, rate: int, file: Path) -> str:
    """Samples of one process into the file, a line a stack; the problem when there is one."""
    program = Path(sys.executable).with_name("py-spy")
    command = [str(program), "record", "--pid", str(pid), "--duration", str(seconds), "--rate", str(rate)]
    command += ["--format", "raw", "--function", "--output", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    return "" if done.returncode == 0 and file.exists() else (done.stdout + done.stderr)[-500:] or "no samples"


if __name__ == "__main__":
    sys.exit(main())
