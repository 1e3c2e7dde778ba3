"""A3x2: three model turns and two tool calls, each returning 1,000 random characters at once.

The model is the mock `mock-a3x2`, the tool is `BenchTool`; both run in the owner without waiting, so what is measured
is loomlog and its log. Every step is durable (fsync for each flush) before the next begins.
"""

import base64
import os

AGENT = os.environ.get("BENCH_AGENT", "bench")
PROMPT = os.environ.get("BENCH_PROMPT", "measure")
USERS = int(os.environ.get("BENCH_USERS", "0"))
"""Users that the runs of topic_client.py are spread over; 0: they have none."""
CONFIGURATION = """\
providers:
  mock: { driver: mock, options: { enabled: true } }
agents:
  bench:
    provider: mock
    model: mock-a3x2
    tools: [Bench]
    disable_context: true
    system_prompt: "You are measured."
"""
ENVIRONMENT = {
    "LOOMLOG_BENCH_ENABLED": "1",
    "LOOMLOG_MOCK_ENABLED": "1",
    "LOOMLOG_MOCK_LATENCY_MS": "0",
    "LOOMLOG_MOCK_LATENCY_JITTER_MS": "0",
    "LOOMLOG_LOG_LEVEL": "warning",
}
STEPS = 5
"""Three model turns and two tool calls."""
STEP_CHARACTERS = 1_000
PAYLOAD_BYTES = STEPS * STEP_CHARACTERS
"""What the steps of one run return; every system stores at least that."""


def step_text() -> str:
    """What a model turn or a tool call of a system that is not ours returns: as random as ours, made as cheaply."""
    return base64.b64encode(os.urandom(STEP_CHARACTERS * 3 // 4)).decode("ascii")
