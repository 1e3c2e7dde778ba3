"""What the figures of speed run: agents whose model streams, answers after 50 ms, or does not answer at all.

typist    A3x2, and each text comes in four pieces, the first after 50 ms, the last after 200
busy      A3x2, each turn takes 50 ms
sleeper   one turn that does not end by itself
"""

from tests.benchmarks.workload import CONFIGURATION

TYPIST, BUSY, SLEEPER, CHATTER = "typist", "busy", "sleeper", "chatter"
FIRST_PIECE_MS = 50.0
"""A quarter of the typist's latency: the mock streams a text in four pieces."""
_PROVIDERS = """\
  typist: { driver: mock, options: { enabled: true, latency_ms: 200, latency_jitter_ms: 0 } }
  busy: { driver: mock, options: { enabled: true, latency_ms: 50, latency_jitter_ms: 0 } }
  asleep: { driver: mock, options: { enabled: true, latency_ms: 600000 } }
"""
_AGENTS = "".join(
    f"  {name}: {{ provider: {provider}, model: {model}, tools: [Bench], disable_context: true, "
    'system_prompt: "You are measured." }\n'
    for name, provider, model in (
        (TYPIST, "typist", "mock-a3x2"),
        (BUSY, "busy", "mock-a3x2"),
        (SLEEPER, "asleep", "mock-generic"),
        (CHATTER, "mock", "mock-generic"),
    )
)
SPEED_CONFIGURATION = (
    "concurrency: { max_concurrent_runs: 20000 }\n"
    + CONFIGURATION.replace("agents:\n", _PROVIDERS + "agents:\n")
    + _AGENTS
)
"""The configuration of a stack that can be measured in every way; the bound is above what any figure starts."""
