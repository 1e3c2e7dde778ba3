"""Many runs that wait for a message: what they cost while nothing happens, and how soon a new owner delivers.

The runtime is killed; a message is published at once for one run on each of so many channels. Told is the time from the
first Claim after the kill to the last of these deliveries in the log.

Before: channels.py. After: parked.py has the same for runs that wait for a person.
"""

import asyncio
import json
import os
import signal
import time
from typing import Any

from loomlog.schemas.generated.run_events import CallWaiting, ToolReturned
from loomlog.schemas.generated.stream_events import Claim
from tests.benchmarks.channels_log import CHANNELS, RUNS, open_log, publish, subscribers
from tests.benchmarks.channels_publish import AGENT, has_delivery
from tests.benchmarks.main import Stack, loomlog
from tests.benchmarks.parked import SETTLE_S, idle_cpu, memory_of

PARK_CHANNELS = 100
"""A queue has at most 1,000 waiting calls."""
WAVE = 500
WAIT_MS = 1_800_000
GOAL_IDLE_PERCENT, GOAL_TAKEOVER_S = 3.0, 2.0


def parked_channels() -> str:
    """What the block `channels` has for this part."""
    return "".join(
        f"  waits/p{number}: {{ scope: global, semantic: queue, default_ttl: 3600 }}\n"
        for number in range(PARK_CHANNELS)
    )


async def measure_parked(stack: Stack, environment: dict[str, str], runs: int, idle_s: float) -> dict[str, Any]:
    """Park the runs; memory and idle CPU before and after, and a take-over."""
    names = [f"waits/p{number % PARK_CHANNELS}" for number in range(runs)]
    async with open_log(stack.kafka) as log:
        await asyncio.sleep(SETTLE_S)
        before, idle_before = memory_of(stack), await idle_cpu(stack, idle_s)
        for first in range(0, runs, WAVE):
            wave = names[first : first + WAVE]
            start = await log.ends(RUNS.events)
            await log.append(RUNS.commands, subscribers(AGENT, wave, WAIT_MS))
            await log.until(RUNS.events, start, len(wave), CallWaiting)
        await asyncio.sleep(SETTLE_S)
        after, idle_after = memory_of(stack), await idle_cpu(stack, idle_s)
        start = await log.ends(RUNS.events)
        served = min(runs, PARK_CHANNELS)
        os.kill(stack.pids["runtime"], signal.SIGKILL)
        killed_s = time.time()
        await log.append(CHANNELS.commands, (publish(name, "go on") for name in names[:served]))
        returned = await log.until(RUNS.events, start, served, ToolReturned, has_delivery)
        claims = await log.read(RUNS.events, start, Claim)
    stack.pids.update(
        {child["name"]: child["pid"] for child in json.loads(loomlog("status --json", environment))["children"]}
    )
    claimed_s = min(one.at_ms for one in claims) / 1000
    times_s = sorted(one.at_ms / 1000 - claimed_s for one in returned)
    return {
        "runs": runs,
        "uss_bytes": {name: [before[name], after[name]] for name in before},
        "idle_cpu_percent": {name: [idle_before[name], idle_after[name]] for name in before},
        "claimed_after_kill_s": claimed_s - killed_s,
        "delivered_first_s": times_s[0],
        "delivered_last_s": times_s[-1],
    }


def print_parked(figures: dict[str, Any]) -> None:
    """The figures for people."""
    idle = {name: percent for name, (_, percent) in figures["idle_cpu_percent"].items()}
    a_run = (figures["uss_bytes"]["runtime"][1] - figures["uss_bytes"]["runtime"][0]) / figures["runs"]
    print(
        f"  {figures['runs']} parked subscribers: the runtime takes {idle['runtime']:.1f} % of a core while nothing "
        f"happens (goal {GOAL_IDLE_PERCENT:.0f}; before {figures['idle_cpu_percent']['runtime'][0]:.1f}), "
        f"{a_run:.0f} bytes a run; all: {', '.join(f'{name} {percent:.1f}' for name, percent in idle.items())}\n"
        f"  killed: claimed after {figures['claimed_after_kill_s']:.2f} s, then deliveries after "
        f"{figures['delivered_first_s']:.2f} to {figures['delivered_last_s']:.2f} s (goal {GOAL_TAKEOVER_S:.0f})",
        flush=True,
    )
