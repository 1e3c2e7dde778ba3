"""Webhooks of 2 KB to a channel at 32 connections: those that are in the channel a second, and bad signatures a second.

Before: channels.py. After: channels_webhook_client.py.
"""

import json
import subprocess
import sys
from typing import Any

from loomlog.schemas.generated.channel_events import MessagePublished
from tests.benchmarks.channels_log import CHANNELS, open_log
from tests.benchmarks.main import WARM_UP_S, Stack

NAME, CHANNEL, SECRET = "bench-feed", "bench-webhooks", "secret-of-the-benchmark"
SECRET_ENV = "LOOMLOG_BENCH_HOOK_SECRET"
CONNECTIONS = 32
GOAL_DELIVERIES_PER_S, GOAL_BAD_PER_S = 600, 2_000
CHANNELS_TEXT = f"  {CHANNEL}: {{ scope: global, semantic: queue, default_ttl: 3600 }}\n"
WEBHOOKS_TEXT = f"""\
webhooks:
  {NAME}:
    enabled: true
    delivery: channel
    channel: {CHANNEL}
    auth: {{ kind: hmac, signing_secret_env: {SECRET_ENV}, delivery_id_header: X-Delivery-Id }}
    rate_limit: {{ requests_per_minute: 10000000, burst: 10000000 }}
"""


async def measure_webhooks(stack: Stack, environment: dict[str, str], seconds: float) -> dict[str, Any]:
    """Both rates. SystemExit when a delivery that was acknowledged is not in the channel."""
    async with open_log(stack.kafka) as log:
        start = await log.ends(CHANNELS.events)
        good = sent(stack, environment, seconds)
        accepted = sum(count for status, count in good["statuses"].items() if status in ("200", "202", "pending"))
        await log.until(CHANNELS.events, start, accepted, MessagePublished)
    return {"good": good, "bad": sent(stack, environment, seconds, "bad"), "in_the_channel": accepted}


def sent(stack: Stack, environment: dict[str, str], seconds: float, *more: str) -> dict[str, Any]:
    """What a client tells."""
    module, numbers = "tests.benchmarks.channels_webhook_client", (CONNECTIONS, WARM_UP_S, seconds)
    done = subprocess.run(
        [sys.executable, "-m", module, stack.api, NAME, SECRET, *map(str, numbers), *more],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=seconds + 120,
        check=True,
    )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def print_webhooks(figures: dict[str, Any]) -> None:
    """The figures for people."""
    for what, row, goal in (
        ("deliveries to a channel", figures["good"], GOAL_DELIVERIES_PER_S),
        ("bad signatures", figures["bad"], GOAL_BAD_PER_S),
    ):
        print(
            f"  {what}: {row['runs_per_s']:.0f}/s (goal {goal}) at {CONNECTIONS} connections, p50 {row['p50_ms']:.1f} "
            f"ms, p99 {row['p99_ms']:.1f} ms, errors {row['errors']}, {row['statuses']}",
            flush=True,
        )
