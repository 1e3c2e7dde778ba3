"""A3x2 on DBOS Transact: an async workflow of five steps, every step's output committed to Postgres before the next.

As its documentation recommends for asyncio: DBOS is a library, so the application that starts a workflow also runs it,
and awaits it in its own event loop. Client and worker are therefore one process; several share the database, each an
executor with an id of its own. Seven commits a run: the workflow's row, five steps, the outcome.

    python -m tests.benchmarks.peers.dbos.agent DSN IN_FLIGHT WARM_UP_S SECONDS       in its own environment
"""

import json
import os
import sys
from importlib.metadata import version

import uvloop
from dbos import DBOS, DBOSConfig

from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.workload import PROMPT, step_text


@DBOS.step()
async def model(turn: int) -> str:
    return step_text()


@DBOS.step()
async def tool(turn: int) -> str:
    return step_text()


@DBOS.workflow()
async def agent(prompt: str) -> str:
    """Three model turns with two tool calls between them; the last turn's text."""
    await model(1)
    await tool(1)
    await model(2)
    await tool(2)
    return await model(3)


async def run_once() -> None:
    await agent(PROMPT)


async def main(dsn: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": dsn,
        "executor_id": f"bench-{os.getpid()}",
        "log_level": "WARNING",
    }
    DBOS(config=config)
    DBOS.launch()
    measured = await measure(run_once, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    DBOS.destroy()
    versions = {name: version(name) for name in ("dbos", "sqlalchemy", "psycopg", "uvloop")}
    print(json.dumps(measured.as_json() | {"versions": versions, "took_ms": measured.took_ms}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
