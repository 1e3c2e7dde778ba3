"""The figures of speed that a person notices, inside `make bench` (issue 5):

    first token      what the start of a run adds to its provider's first token, at 16 in flight: at most 15 ms p50
    many streams     1,000 runs that stream at the same time, 50 ms a turn: all finish, none stalls
    cancel           from the request to its reply and to the end frame, other runs working: p99 under 20 ms

Each runs a client of its own (stream_client.py, cancel_client.py) against the stack of main.py.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.event_to_client import of_file
from tests.benchmarks.speed_workload import BUSY, FIRST_PIECE_MS, SLEEPER, TYPIST
from tests.benchmarks.stream_client import spread
from tests.benchmarks.workload import AGENT

if TYPE_CHECKING:
    from tests.benchmarks.main import Stack

IN_FLIGHT = 16
STREAMS = 1_000
CANCELS = 300
CANCEL_EVERY_S = 0.05
LOADS = ((25.0, 256), (100.0, 256), (0.0, 16))
"""Runs a second beside the cancels and the most in flight: few, many, and (0: as many as go) all it can do."""
WARM_UP_S = 2.0
CLIENT_TIMEOUT_S = 240.0
FIRST_TOKEN_GOAL_MS = 15.0
CANCEL_GOAL_MS = 20.0


def measure_speed(stack: "Stack", environment: Mapping[str, str], seconds: float, repetitions: int) -> dict[str, Any]:
    """All three, one after the other, so many times."""
    result: dict[str, list[dict[str, Any]]] = {"first_token": [], "streams": [], "cancels": []}
    for _ in range(repetitions):
        result["first_token"] += [first_token(stack, environment, agent, seconds) for agent in (AGENT, TYPIST)]
        result["streams"].append(many_streams(stack, environment, STREAMS, 2 * seconds))
        result["cancels"] += [cancels(stack, environment, *load) for load in LOADS]
    return result


def first_token(stack: "Stack", environment: Mapping[str, str], agent: str, seconds: float) -> dict[str, Any]:
    """What is added to the provider's own first token; its time is taken off."""
    row = run_client("stream_client", environment, stack.api, agent, IN_FLIGHT, WARM_UP_S, seconds)
    provider_ms = FIRST_PIECE_MS if agent == TYPIST else 0.0
    added = {name: round(value - provider_ms, 2) for name, value in row["first_text_ms"].items()}
    print(
        f"  first token, {agent}, C={IN_FLIGHT}: p50 {added['p50']} (goal {FIRST_TOKEN_GOAL_MS:g}), "
        f"p99 {added['p99']} ms over the provider; {row['runs_per_s']:.0f} runs/s, {row['errors']} errors",
        flush=True,
    )
    return {**row, "provider_ms": provider_ms, "added_ms": added}


def many_streams(stack: "Stack", environment: Mapping[str, str], streams: int, seconds: float) -> dict[str, Any]:
    """So many runs at a time, begun at once; with the time from the record of an event to its frame at the client."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "frames"
        row = run_client("stream_client", environment, stack.api, BUSY, streams, 0.0, seconds, file)
        row["event_to_client_ms"] = spread(asyncio.run(of_file(stack.kafka, file)))
    print(
        f"  {streams} streams, 50 ms a turn: {row['runs']} runs, {row['errors']} errors, "
        f"{row['runs_per_s']:.0f} runs/s; end p50 {row['end_ms']['p50']} max {row['end_ms']['max']} ms; "
        f"longest silence p50 {row['longest_silence_ms']['p50']} max {row['longest_silence_ms']['max']} ms; "
        f"event to client p50 {row['event_to_client_ms']['p50']} p99 {row['event_to_client_ms']['p99']} ms",
        flush=True,
    )
    return row


def cancels(stack: "Stack", environment: Mapping[str, str], per_s: float, in_flight: int) -> dict[str, Any]:
    """Runs that wait for their model are cancelled one after the other while A3x2 runs beside them."""
    row = run_client("cancel_client", environment, stack.api, SLEEPER, CANCELS, CANCEL_EVERY_S, per_s, in_flight)
    print(
        f"  cancel beside {row['load_runs_per_s']:.0f} runs/s, machine {row['machine_busy_percent']:.0f} % busy: "
        f"reply p50 {row['reply_ms']['p50']} p99 "
        f"{row['reply_ms']['p99']} ms, end frame p50 {row['end_ms']['p50']} p99 {row['end_ms']['p99']} ms "
        f"(goal {CANCEL_GOAL_MS:g}), {row['errors']} errors",
        flush=True,
    )
    return row


def run_client(name: str, environment: Mapping[str, str], *arguments: object) -> dict[str, Any]:
    """The JSON line of a client process."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.benchmarks.{name}", *map(str, arguments)],
        env=dict(environment),
        stdout=subprocess.PIPE,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        check=True,
    )
    row: dict[str, Any] = json.loads(done.stdout)
    return row
