"""A3x2: three model turns and two tool calls, each returning 1,000 random characters at once.

The model is the mock `mock-a3x2`, the tool is `BenchTool`; both run in the owner without waiting, so what is measured
is loomlog and its log. Every step is durable (fsync for each flush) before the next begins.
"""

import base64
import json
import os
import time

AGENT = os.environ.get("BENCH_AGENT", "bench")
PROMPT = os.environ.get("BENCH_PROMPT", "measure c1")
USERS = int(os.environ.get("BENCH_USERS", "1000"))
"""Users that the runs are spread over; 0: they have none, and no handle over HTTP: not what clients send."""
WRITER = "writer"
"""The agent with the script of the original's own load: Memory.set, Channel.publish, end. `c1` in the prompt names the
circuit, and so the key and the channel."""
SINGLE = "soaker"
"""The agent of one model turn."""
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
  writer:
    provider: mock
    model: mock-researcher
    tools: [Memory, Channel]
    memory_scopes: [user]
    channels: { publish: ["research-done/*"], subscribe: [] }
    disable_context: true
    system_prompt: "You are measured."
  soaker:
    provider: mock
    model: mock-hello
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


def request_body(number: int, agent: str = AGENT, *, users: int = USERS) -> bytes:
    """The body of POST /v1/runs as the clients of the original send it: a handle of the client's own that no other run
    has, a user, and the prompt as a segment. Without users: a prompt alone.
    """
    if not users:
        return json.dumps({"agent": agent, "prompt": PROMPT}).encode()
    content = [{"type": "trusted-text", "text": PROMPT}]
    return json.dumps(
        {
            "agent": agent,
            "agent_id": f"bench-{os.getpid()}-{time.time_ns():x}-{number}",
            "user_id": f"user-{number % users}",
            "segments": [{"role": "user", "content": content}],
        }
    ).encode()


def step_text() -> str:
    """What a model turn or a tool call of a system that is not ours returns: as random as ours, made as cheaply."""
    return base64.b64encode(os.urandom(STEP_CHARACTERS * 3 // 4)).decode("ascii")
