"""The raw Postgres floor: six commits a run, one INSERT each, every one waited for, and nothing else.

What any agent that commits each step to Postgres has to pay at least: the run's beginning and five results of 1,000
characters. Commits are not grouped by us: Postgres groups the fsyncs of concurrent commits itself. Autocommit,
prepared statements, synchronous_commit=on asked for on every connection, at most CONNECTIONS of them (more were not
faster on two cores, and the local Postgres allows 60).

    python -m tests.benchmarks.peers.postgres_floor DSN IN_FLIGHT WARM_UP_S SECONDS
"""

import asyncio
import json
import os
import sys
from importlib.metadata import version
from typing import Any

import psycopg
import uvloop

from tests.benchmarks.closed_loop import measure, tell
from tests.benchmarks.workload import PROMPT, STEPS, step_text

CONNECTIONS = 16
RUN_TIMEOUT_S = 30.0
TABLE = """
CREATE TABLE IF NOT EXISTS floor (
    run text NOT NULL, step integer NOT NULL, body text NOT NULL, PRIMARY KEY (run, step)
)
"""
INSERT = "INSERT INTO floor (run, step, body) VALUES (%s, %s, %s)"


class PostgresFloor:
    """Runs that are six commits."""

    def __init__(self, connections: list[psycopg.AsyncConnection[Any]]) -> None:
        self._idle: asyncio.LifoQueue[psycopg.AsyncConnection[Any]] = asyncio.LifoQueue()
        for connection in connections:
            self._idle.put_nowait(connection)

    async def run_once(self) -> None:
        run = os.urandom(16).hex()
        async with asyncio.timeout(RUN_TIMEOUT_S):
            await self._durable(run, 0, PROMPT)
            for step in range(1, STEPS + 1):
                await self._durable(run, step, step_text())

    async def _durable(self, run: str, step: int, text: str) -> None:
        connection = await self._idle.get()
        try:
            await connection.execute(INSERT, (run, step, text), prepare=True)
        finally:
            self._idle.put_nowait(connection)


async def main(dsn: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    options = "-c synchronous_commit=on"
    connections = [
        await psycopg.AsyncConnection.connect(dsn, autocommit=True, options=options)
        for _ in range(min(in_flight, CONNECTIONS))
    ]
    await connections[0].execute(TABLE)
    floor = PostgresFloor(connections)
    measured = await measure(floor.run_once, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    for connection in connections:
        await connection.close()
    print(json.dumps(measured.as_json() | {"versions": {"psycopg": version("psycopg")}}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
