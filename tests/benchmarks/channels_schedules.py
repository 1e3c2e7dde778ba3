"""Many schedules of the files that are due in one second: whether each fires once, and how late.

A stack of its own, whose files have the schedules; they are for a minute that is far enough away to arm them all. The
lateness is that of the decision (ScheduleFired.late_ms); when the last run has started is told as well.

Before: channels.py. After: channels_log.py.
"""

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.generated.schedule_events import ScheduleArmed, ScheduleFired
from loomlog.schemas.ids import partition_key
from tests.benchmarks.channels_log import ENTITIES, RUNS, open_log
from tests.benchmarks.closed_loop import percentile
from tests.benchmarks.main import Stack

AGENT_TEXT = """\
  ticker: { provider: mock, model: mock-generic, disable_context: true, system_prompt: "A time has come." }
"""
SCHEDULES_PER_FILE = 2_500
"""A configuration file has at most 100,000 values and 1 MiB."""
ARM_PER_S = 100
"""Schedules that are armed a second, at the least; with LEAD_S, how far away the minute is."""
LEAD_S = 150
GOAL_P99_S = 3.0


def due_at(schedules: int) -> datetime:
    """The minute for which the schedules are."""
    minute = (time.time() + LEAD_S + schedules / ARM_PER_S) // 60 + 1
    return datetime.fromtimestamp(minute * 60, UTC)


def schedules_blocks(schedules: int, due: datetime) -> list[str]:
    """The blocks `scheduled_runs` of files below the size limit of a file."""
    terms = (
        f'agent: ticker, schedule: "{due.minute} {due.hour} {due.day} {due.month} *", enabled: true, '
        "prompt: [{ role: user, content: [{ type: trusted-text, text: tick }] }]"
    )
    return [
        "scheduled_runs:\n"
        + "".join(
            f"  due-{number}: {{ {terms} }}\n" for number in range(first, min(first + SCHEDULES_PER_FILE, schedules))
        )
        for first in range(0, schedules, SCHEDULES_PER_FILE)
    ]


async def measure_schedules(stack: Stack, schedules: int, due: datetime) -> dict[str, Any]:
    """How often and how late each has fired."""
    beginning = dict.fromkeys(range(10_000), 0)
    async with open_log(stack.kafka) as log:
        armed = await log.until(ENTITIES.events, beginning, schedules, ScheduleArmed)
        left_s = due.timestamp() - max(one.at_ms for one in armed) / 1000
        print(f"  {schedules} schedules are armed, {left_s:.0f} s before they are due", flush=True)
        if left_s < 1:
            raise SystemExit("the schedules were armed too late")
        await asyncio.sleep(max(0.0, due.timestamp() - time.time()))
        fired = await log.until(ENTITIES.events, beginning, schedules, ScheduleFired)
        started = await log.until(RUNS.events, beginning, schedules, RunStarted)
        await asyncio.sleep(2.0)  # for what would fire or start twice
        fired = await log.read(ENTITIES.events, beginning, ScheduleFired)
        starts = Counter(one.key for one in await log.read(RUNS.events, beginning, RunStarted))
    runs = Counter(one.event.run_id for one in fired)
    instants = Counter((one.key, one.event.instant_ms) for one in fired)
    late_s = sorted(one.event.late_ms / 1000 for one in fired)
    return {
        "schedules": schedules,
        "fires": len(fired),
        "fired_twice": sum(count > 1 for count in instants.values()),
        "runs_started": sum(starts[partition_key(run_id)] == 1 for run_id in runs),
        "late_p50_s": percentile(late_s, 0.5),
        "late_p99_s": percentile(late_s, 0.99),
        "last_start_s": max(one.at_ms for one in started) / 1000 - due.timestamp(),
    }


def print_schedules(figures: dict[str, Any]) -> None:
    """The figures for people."""
    print(
        f"  {figures['schedules']} schedules due in one second: {figures['fires']} fires, {figures['fired_twice']} "
        f"twice, {figures['runs_started']} runs started once; late by p50 {figures['late_p50_s']:.2f} s, p99 "
        f"{figures['late_p99_s']:.2f} s (goal {GOAL_P99_S:.0f}); the last run started after "
        f"{figures['last_start_s']:.1f} s",
        flush=True,
    )
