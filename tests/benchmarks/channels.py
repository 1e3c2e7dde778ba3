"""What channels, schedules and webhooks do a second: `make bench-channels`.

    python -m tests.benchmarks.channels [--parts circuits,publish,webhooks,parked,schedules] [--scales 1,10,100,1000]
                                        [--warm-up 300] [--poll-ms 0] [--messages 20000] [--seconds 10]
                                        [--subscribers 10000] [--idle 30] [--schedules 10000] [--profile FOLDER]
                                        [--json FILE]

A stack of its own, with everything on, and another one for schedules.

    circuits    three runs each, which hand a piece of work on (channels_circuits.py), at these scales; the last one
                profiled with --profile
    publish     into one queue, and to runs that wait, beside 100 runs/s (channels_publish.py)
    webhooks    to a channel, and bad signatures (channels_webhooks.py)
    parked      runs that wait for a message: idle CPU, a take-over (channels_parked.py)
    schedules   so many due in one second (channels_schedules.py)

Goals: 40 circuits/s, all complete at x1000; 1,500 publishes/s of one queue, 12 ms at p50 and 50 ms at p99 from publish
to delivery; 600 deliveries and 2,000 bad signatures a second; 3 % of a core idle and 2 s of a take-over with 10,000
parked subscribers; each of 10,000 schedules fired once, at p99 within 3 s.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks import channels_publish, channels_schedules, channels_webhooks
from tests.benchmarks.channels_circuits import AGENTS, ENVIRONMENT, LIMITS, channels_block, measure_circuits, print_row
from tests.benchmarks.channels_parked import measure_parked, parked_channels, print_parked
from tests.benchmarks.channels_publish import measure_publish, print_publish, publish_channels
from tests.benchmarks.channels_schedules import due_at, measure_schedules, print_schedules, schedules_blocks
from tests.benchmarks.channels_webhooks import measure_webhooks, print_webhooks
from tests.benchmarks.main import Stack, client, new_report, options_parser, own_stack, write_report
from tests.benchmarks.memory import BROKER_WARM_UP_S, IN_FLIGHT
from tests.benchmarks.workload import CONFIGURATION

PARTS = ("circuits", "publish", "webhooks", "parked", "schedules")
PRINTERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "publish": print_publish,
    "webhooks": print_webhooks,
    "parked": print_parked,
    "schedules": print_schedules,
}


def main() -> int:
    """The exit code."""
    options = parse()
    parts = options.parts.split(",")
    scales = [int(text) for text in options.scales.split(",")]
    report = new_report("channels")
    if set(parts) - {"schedules"}:
        with stack_of(configuration(options.warm_up + sum(scales))) as (stack, environment):
            measure(report, options, parts, stack, environment)
    if "schedules" in parts:
        due = due_at(options.schedules)
        text = LIMITS + CONFIGURATION + channels_schedules.AGENT_TEXT
        with stack_of(text, schedules_blocks(options.schedules, due)) as (stack, _):
            report["schedules"] = asyncio.run(measure_schedules(stack, options.schedules, due))
    print_report(report)
    write_report(report, options.json)
    return 0


def parse() -> argparse.Namespace:
    parser = options_parser(__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--scales", default="1,10,100,1000", help="numbers of circuits")
    parser.add_argument("--warm-up", type=int, default=300, help="circuits before anything is measured")
    parser.add_argument("--poll-ms", type=int, default=0, help="ask for each run so often, as the reference's driver")
    parser.add_argument("--messages", type=int, default=20_000, help="publishes into one queue")
    parser.add_argument("--seconds", type=float, default=10.0, help="of webhooks")
    parser.add_argument("--subscribers", type=int, default=10_000, help="runs that wait")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds in which the idle CPU is measured")
    parser.add_argument("--schedules", type=int, default=10_000, help="schedules due in one second")
    parser.add_argument("--profile", type=Path, help="sample the last scale and write flame graphs here")
    options = parser.parse_args()
    if unknown := set(options.parts.split(",")) - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is unknown; expected some of {', '.join(PARTS)}")
    return options


def configuration(circuits: int) -> str:
    """The files of the stack for everything but schedules."""
    providers = CONFIGURATION.replace("agents:\n", channels_publish.PROVIDER + "agents:\n")
    channels = channels_block(circuits) + publish_channels() + parked_channels() + channels_webhooks.CHANNELS_TEXT
    agents = AGENTS + channels_publish.AGENT_TEXT
    return f"{LIMITS}{providers}{agents}channels:\n{channels}{channels_webhooks.WEBHOOKS_TEXT}"


@contextmanager
def stack_of(text: str, more: Sequence[str] = ()) -> Iterator[tuple[Stack, dict[str, str]]]:
    """A stack with this configuration and further files, and its environment."""
    settings = ENVIRONMENT
    if channels_webhooks.SECRET_ENV in text:  # a name that nothing refers to is refused
        settings = settings | {channels_webhooks.SECRET_ENV: channels_webhooks.SECRET}
    with tempfile.TemporaryDirectory() as folder:
        for number, block in enumerate(more):
            (Path(folder) / f"more-{number}.yaml").write_text(block)
        with own_stack(text, LOOMLOG_CONFIG_DIR=folder, **settings) as stack:
            yield stack


def measure(
    report: dict[str, Any], options: argparse.Namespace, parts: list[str], stack: Stack, environment: dict[str, str]
) -> None:
    """Everything but schedules."""
    if "circuits" in parts:
        scales = [int(text) for text in options.scales.split(",")]
        report["circuits"] = measure_circuits(
            stack, environment, scales, warm_up=options.warm_up, poll_ms=options.poll_ms, profile=options.profile
        )
    elif options.warm_up:
        client("topic", stack, environment, IN_FLIGHT, BROKER_WARM_UP_S, 1.0)
    if "publish" in parts:
        report["publish"] = asyncio.run(measure_publish(stack, options.messages))
        print_publish(report["publish"])
    if "webhooks" in parts:
        report["webhooks"] = asyncio.run(measure_webhooks(stack, environment, options.seconds))
        print_webhooks(report["webhooks"])
    if "parked" in parts:
        report["parked"] = asyncio.run(measure_parked(stack, environment, options.subscribers, options.idle))
        print_parked(report["parked"])


def print_report(report: dict[str, Any]) -> None:
    """The figures for people, with the goals."""
    print(f"\nChannels; {report['machine']}, {report['at']}")
    for row in report.get("circuits", []):
        print_row(row)
    for part, show in PRINTERS.items():
        if part in report:
            show(report[part])


if __name__ == "__main__":
    sys.exit(main())
