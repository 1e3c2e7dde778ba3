"""A3x2: three model turns and two tool calls, each returning 1,000 random characters at once (reference peers.md C1).

The model is the mock `mock-a3x2`, the tool is `Bench`; both run in the owner without waiting, so what is measured is
loomlog and its log. Every step is durable (fsync for each flush) before the next begins.
"""

AGENT = "bench"
PROMPT = "measure"
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
