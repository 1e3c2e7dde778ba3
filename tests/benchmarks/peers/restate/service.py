"""A3x2 on Restate: a service of five durable steps (`ctx.run_typed`), served by Hypercorn over HTTP/2.

As its documentation recommends for production: Hypercorn with a configuration file, HTTP/2 streams without a limit, a
worker for each core (server.py writes the file). Each step's result is in Restate's log, fsynced, before the next.
Runs in its own environment; the Restate server calls it.
"""

import restate

from tests.benchmarks.workload import step_text

agent = restate.Service("Agent")


async def model() -> str:
    return step_text()


async def tool() -> str:
    return step_text()


@agent.handler()
async def run(ctx: restate.Context, prompt: str) -> str:
    """Three model turns with two tool calls between them; the last turn's text."""
    await ctx.run_typed("model 1", model)
    await ctx.run_typed("tool 1", tool)
    await ctx.run_typed("model 2", model)
    await ctx.run_typed("tool 2", tool)
    return await ctx.run_typed("model 3", model)


app = restate.app(services=[agent])
