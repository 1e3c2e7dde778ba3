"""What channels, schedules and webhooks do a second: `make bench-channels`.

    python -m tests.benchmarks.channels [--parts circuits] [--scales 1,10,100,1000] [--warm-up 300] [--poll-ms 0]
                                        [--profile FOLDER] [--json FILE]

A stack of its own, with everything on.

    circuits    three runs each, which hand a piece of work on (channels_circuit_client.py), at these scales; the last
                one profiled with --profile

Goals: 40 circuits/s, all complete at x1000.
"""

import argparse
import json
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.channels_circuits import AGENTS, ENVIRONMENT, LIMITS, channels_block, measure_circuits, print_row
from tests.benchmarks.machine import machine
from tests.benchmarks.main import environment_in, loomlog, up
from tests.benchmarks.workload import CONFIGURATION

PARTS = ("circuits",)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--scales", default="1,10,100,1000", help="numbers of circuits")
    parser.add_argument("--warm-up", type=int, default=300, help="circuits before anything is measured")
    parser.add_argument("--poll-ms", type=int, default=0, help="ask for each run so often, as the reference's driver")
    parser.add_argument("--profile", type=Path, help="sample the last scale and write flame graphs here")
    parser.add_argument("--json", type=Path, help="write the raw results here")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is unknown; expected some of {', '.join(PARTS)}")
    scales = [int(text) for text in options.scales.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="loomlog-channels-"))
    facts = machine(folder)
    print(f"  {facts}", flush=True)
    report: dict[str, Any] = {"kind": "channels", "machine": facts}
    channels = channels_block(options.warm_up + sum(scales))
    environment = environment_in(folder, f"{LIMITS}{CONFIGURATION}{AGENTS}channels:\n{channels}") | ENVIRONMENT
    try:
        stack = up(environment)
        if "circuits" in parts:
            report["circuits"] = measure_circuits(
                stack,
                environment,
                scales,
                warm_up=options.warm_up,
                poll_ms=options.poll_ms,
                profile=options.profile,
            )
    finally:
        loomlog("down", environment)
        shutil.rmtree(folder, ignore_errors=True)
    report["at"] = datetime.now(UTC).isoformat(timespec="seconds")
    print_report(report)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


def print_report(report: dict[str, Any]) -> None:
    """The figures for people, with the goals."""
    print(f"\nChannels; {report['machine']}, {report['at']}")
    for row in report.get("circuits", []):
        print_row(row)


if __name__ == "__main__":
    sys.exit(main())
