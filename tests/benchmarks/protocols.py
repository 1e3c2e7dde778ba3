"""`make bench-protocols`: what runs cost over each protocol, on one running stack.

    python -m tests.benchmarks.protocols [--in-flight 16,64] [--seconds 6] [--repetitions 3] [--json FILE]

    http   A3x2 over HTTP + SSE
    grpc   the same over gRPC

As in main.py: rows are interleaved, each is the median of the repetitions, and all share the cores of this machine.
"""

import argparse
import json
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from loomlog.services.cli.stack.ports import pick_port
from tests.benchmarks.machine import machine
from tests.benchmarks.main import environment_in, loomlog, measure_all, print_report, up, warm_up
from tests.benchmarks.workload import CONFIGURATION

PATHS = ["http", "grpc"]


def main() -> int:
    """The exit code: 0 when every row was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--in-flight", default="16,64")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the raw results here")
    options = parser.parse_args()
    rows = [int(text) for text in options.in_flight.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="loomlog-bench-"))
    environment = environment_in(folder, CONFIGURATION) | {"LOOMLOG_GRPC_ADDR": f"127.0.0.1:{pick_port()}"}
    facts = machine(folder)
    print(f"  {facts}", flush=True)
    try:
        stack = up(environment)
        warm_up(stack, environment, PATHS)
        results = measure_all(stack, environment, rows, PATHS, options.seconds, options.repetitions)
    finally:
        loomlog("down", environment)
        shutil.rmtree(folder, ignore_errors=True)
    report = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": facts, "rows": results}
    print_report(report)
    by_row = {(row["path"], row["in_flight"]): row["runs_per_s"] for row in results}
    for in_flight in rows:
        print(f"C={in_flight}: grpc has {by_row['grpc', in_flight] / by_row['http', in_flight]:.0%} of http's runs/s")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
