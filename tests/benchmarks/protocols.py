"""`make bench-protocols`: what runs cost over each protocol, on one running stack.

    python -m tests.benchmarks.protocols [--in-flight 16,64] [--seconds 6] [--repetitions 3] [--json FILE]

    http   A3x2 over HTTP + SSE
    grpc   the same over gRPC

As in main.py: rows are interleaved, each is the median of the repetitions, and all share the cores of this machine.
"""

import sys

from loomlog.services.cli.stack.ports import pick_port
from tests.benchmarks.main import (
    measure_all,
    new_report,
    options_parser,
    own_stack,
    print_report,
    warm_up,
    write_report,
)
from tests.benchmarks.workload import CONFIGURATION

PATHS = ["http", "grpc"]


def main() -> int:
    """The exit code: 0 when every row was measured."""
    parser = options_parser(__doc__)
    parser.add_argument("--in-flight", default="16,64")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    rows = [int(text) for text in options.in_flight.split(",")]
    report = new_report("protocols")
    with own_stack(CONFIGURATION, LOOMLOG_GRPC_ADDR=f"127.0.0.1:{pick_port()}") as (stack, environment):
        warm_up(stack, environment, PATHS)
        results = measure_all(stack, environment, rows, PATHS, options.seconds, options.repetitions)
    report["rows"] = results
    print_report(report)
    by_row = {(row["path"], row["in_flight"]): row["runs_per_s"] for row in results}
    for in_flight in rows:
        print(f"C={in_flight}: grpc has {by_row['grpc', in_flight] / by_row['http', in_flight]:.0%} of http's runs/s")
    write_report(report, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
