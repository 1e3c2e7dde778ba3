"""Publishing: into one queue as fast as it goes, and to runs that wait, beside other runs.

    one queue    PublishMessage commands appended to the commands topic in batches; the rate is that of their
                 MessagePublished, by the timestamps of the log
    delivery     so many runs wait, each for two messages of a channel of its own, and these are published one after the
                 other, while runs of A3x2 start at a steady rate; milliseconds from MessagePublished to the
                 ToolReturned that has the message, both by their timestamps in the log

Before: channels.py. After: channels_log.py.
"""

import asyncio
import time
from typing import Any

from loomlog.schemas.generated.channel_events import MessagePublished
from loomlog.schemas.generated.run_events import CallWaiting, ToolReturned
from tests.benchmarks.channels_log import CHANNELS, RUNS, Log, open_log, publish, subscribers
from tests.benchmarks.closed_loop import percentile
from tests.benchmarks.main import Stack
from tests.benchmarks.topic_client import TopicClient, open_client

QUEUE = "bench-queue"
AGENT = "waiting"
AGENT_TEXT = """\
  waiting:
    provider: idle
    model: mock-a3x2-calls
    tools: [Channel]
    disable_context: true
    channels: { publish: [], subscribe: ["waits/*"] }
    system_prompt: "You wait."
"""
PROVIDER = "  idle: { driver: mock, options: { enabled: true, latency_ms: 0, latency_jitter_ms: 0 } }\n"
"""The latency of the circuits' model is none of what is measured here."""
WAITING_RUNS = 200
WAIT_MS = 600_000
RUNS_PER_S = 100.0
RUNNING_MAX = 64
"""Runs beside at once: a machine that does not keep the rate is not measured with an ever longer queue."""
PUBLISH_EVERY_S = 0.05
GOAL_PUBLISHES_PER_S, GOAL_P50_MS, GOAL_P99_MS = 1_500, 12, 50


def publish_channels() -> str:
    """What the block `channels` has for this part."""
    names = [QUEUE, *map(waited, range(WAITING_RUNS))]
    return "".join(f"  {name}: {{ scope: global, semantic: queue, default_ttl: 3600 }}\n" for name in names)


def waited(number: int) -> str:
    return f"waits/{number}"


async def measure_publish(stack: Stack, messages: int) -> dict[str, Any]:
    """Both figures."""
    async with open_log(stack.kafka) as log:
        return {"publishes_per_s": await one_queue(log, messages), **await deliveries(log, stack)}


async def one_queue(log: Log, messages: int) -> float:
    """Publishes a second of one queue; the first half warms it up."""
    start = await log.ends(CHANNELS.events)
    await log.append(CHANNELS.commands, (publish(QUEUE, {"number": number}) for number in range(messages)))
    published = await log.until(CHANNELS.events, start, messages, MessagePublished)
    times_ms = sorted(one.at_ms for one in published)
    half = times_ms[len(times_ms) // 2 :]
    return len(half) / max(0.001, (half[-1] - half[0]) / 1000)


async def deliveries(log: Log, stack: Stack) -> dict[str, float]:
    """Milliseconds until a message is in the log of the run that waits for it."""
    names = list(map(waited, range(WAITING_RUNS)))
    start = {topic: await log.ends(topic) for topic in (RUNS.events, CHANNELS.events)}
    await log.append(RUNS.commands, subscribers(AGENT, names, WAIT_MS))
    await log.until(RUNS.events, start[RUNS.events], WAITING_RUNS, CallWaiting)
    over = asyncio.Event()
    async with open_client(stack.kafka) as client:
        load = asyncio.create_task(steady_runs(client, over))
        for turn in range(2):
            for name in names:
                await log.append(CHANNELS.commands, [publish(name, {"turn": turn})])
                await asyncio.sleep(PUBLISH_EVERY_S)
        returned = await log.until(RUNS.events, start[RUNS.events], 2 * WAITING_RUNS, ToolReturned, has_delivery)
        over.set()
        beside_per_s = await load
    messages = await log.read(CHANNELS.events, start[CHANNELS.events], MessagePublished)
    published = {one.event.message_id: one.at_ms for one in messages}
    took = sorted(
        float(one.at_ms - published[use.message_id]) for one in returned for use in one.event.details.channels
    )
    return {
        "deliveries": len(took),
        "p50_ms": percentile(took, 0.5),
        "p99_ms": percentile(took, 0.99),
        "runs_per_s_beside": beside_per_s,
    }


def has_delivery(returned: ToolReturned) -> bool:
    return returned.details is not None and bool(returned.details.channels)


async def steady_runs(client: TopicClient, over: asyncio.Event) -> float:
    """Start runs at a steady rate; how many ended a second."""
    began_s, ended, running = time.monotonic(), 0, set[asyncio.Task[None]]()
    loop = asyncio.get_running_loop()
    next_s = loop.time()

    def count(task: asyncio.Task[None]) -> None:
        nonlocal ended
        running.discard(task)
        ended += not task.cancelled() and task.exception() is None

    while not over.is_set():
        if len(running) < RUNNING_MAX:
            task = asyncio.create_task(client.run_once())
            running.add(task)
            task.add_done_callback(count)
        next_s += 1 / RUNS_PER_S
        await asyncio.sleep(max(0.0, next_s - loop.time()))
    rate = ended / (time.monotonic() - began_s)
    await asyncio.gather(*running, return_exceptions=True)
    return rate


def print_publish(figures: dict[str, Any]) -> None:
    """The figures for people."""
    print(
        f"  one queue takes {figures['publishes_per_s']:.0f} publishes/s (goal {GOAL_PUBLISHES_PER_S})\n"
        f"  from a publish to its delivery in a waiting run, beside {figures['runs_per_s_beside']:.0f} runs/s: p50 "
        f"{figures['p50_ms']:.0f} ms (goal {GOAL_P50_MS}), p99 {figures['p99_ms']:.0f} ms (goal {GOAL_P99_MS}) of "
        f"{figures['deliveries']}",
        flush=True,
    )
