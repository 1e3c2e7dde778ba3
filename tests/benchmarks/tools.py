"""What tools of MCP servers cost: `make bench-tools`.

    python -m tests.benchmarks.tools [--seconds 5] [--in-flight 64] [--json FILE]

    stdio   calls a second over one process
    http    calls a second over one address
    turn    milliseconds that a turn pays for 20 external tools: what its model is shown, and which it may call
    call    milliseconds of the checks around one call, without the server

Goals: 200 calls/s and 500 calls/s at 64 in flight; under 1 ms a turn. The servers are those of the tests, and
the one over HTTP shares this process: their cost is in the figures.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import uvloop

from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.services.families.mcp.tools import McpTools
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.connectors.mcp.peer_server import ECHO, PeerServer
from tests.connectors.mcp.test_sessions import SCRIPT
from tests.services.families.mcp.world import World, context

TOOLS = 20
TURNS = 2_000
GRANTED = ("mcp__crm__*",)
GOALS = {"stdio_calls_per_s": 200.0, "http_calls_per_s": 500.0}
TURN_GOAL_MS = 1.0


async def calls_per_s(call: Callable[[int], Awaitable[None]], *, seconds: float, in_flight: int) -> float:
    """Return how many calls a second end, with so many under way."""
    numbers, done = count(), 0
    until = time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal done
        while time.perf_counter() < until:
            await call(next(numbers))
            done += 1

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return done / seconds


def milliseconds_of(work: Callable[[], object]) -> float:
    """Return the time of one repetition."""
    began = time.perf_counter()
    for _ in range(TURNS):
        work()
    return (time.perf_counter() - began) * 1_000 / TURNS


async def measure(seconds: float, in_flight: int) -> dict[str, float]:
    """Return the figures by name."""
    async with PeerServer() as peer:
        listed = [{**ECHO, "name": f"echo{number}"} for number in range(TOOLS)]
        peer.answers["tools/list"] = lambda request: {"tools": listed}
        world = World(
            {"PATH": os.environ["PATH"]},
            crm=McpServerBlock(transport="http", url=peer.url),
            local=McpServerBlock(transport="stdio", command=sys.executable, args=(SCRIPT, "good")),
        )
        for name in ("crm", "local"):
            await world.servers.discover(world.server(name), "start")
        shelf = ProcessToolset({}, tenant_tools=McpTools(world.servers))
        figures = {}
        for transport, name in (("stdio", "mcp__local__echo"), ("http", "mcp__crm__echo1")):
            tool = shelf.for_principal("acme", "ann").find(name)
            assert tool is not None

            async def call(number: int, tool=tool) -> None:
                result = await tool.call({"text": str(number)}, context())
                assert result.text == str(number), result.text

            figures[f"{transport}_calls_per_s"] = await calls_per_s(call, seconds=seconds, in_flight=in_flight)
        figures["turn_ms"] = milliseconds_of(lambda: _turn(shelf))
        figures["call_ms"] = milliseconds_of(lambda: _call_checks(shelf))
        await world.servers.close()
    return figures


def _turn(shelf: ProcessToolset) -> object:
    tools = shelf.for_principal("acme", "ann")
    specs = tools.specs(GRANTED)
    assert len(specs) == TOOLS
    return tools.shown_lists(specs)


def _call_checks(shelf: ProcessToolset) -> object:
    tools = shelf.for_principal("acme", "ann")
    tools.effect_class("mcp__crm__echo1", '{"text": "a"}')
    return tools.grants(GRANTED, "mcp__crm__echo1"), tools.find("mcp__crm__echo1")


def main() -> int:
    """Measure, print, and fail when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = uvloop.run(measure(options.seconds, options.in_flight))
    for name, value in figures.items():
        print(f"{name:20} {value:10.3f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))
    missed = [name for name, goal in GOALS.items() if figures[name] < goal]
    missed += ["turn_ms"] if figures["turn_ms"] > TURN_GOAL_MS else []
    print(f"missed: {', '.join(missed)}" if missed else "all goals are met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
