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
from collections import deque
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
        self._idle = connections
        self._waiting: deque[asyncio.Future[psycopg.AsyncConnection[Any]]] = deque()

    async def run_once(self) -> None:
        run = os.urandom(16).hex()
        async with asyncio.timeout(RUN_TIMEOUT_S):
            await self._durable(run, 0, PROMPT)
            for step in range(1, STEPS + 1):
                await self._durable(run, step, step_text())

    async def _durable(self, run: str, step: int, text: str) -> None:
        connection = await self._take()
        try:
            await connection.execute(INSERT, (run, step, text), prepare=True)
        finally:
            self._give(connection)

    async def _take(self) -> psycopg.AsyncConnection[Any]:
        """Who waited longest is served first: with a plain queue a few runs take all turns and the others none."""
        if self._idle:
            return self._idle.pop()
        waiter: asyncio.Future[psycopg.AsyncConnection[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return await waiter

    def _give(self, connection: psycopg.AsyncConnection[Any]) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self._idle.append(connection)


async def main(dsn: str, in_flight: int, warm_up_s: float, seconds: float) -> None:
    options = "-c synchronous_commit=on"
    connections = [
        await psycopg.AsyncConnection.connect(dsn, autocommit=True, options=options)
        for _ in range(min(in_flight, CONNECTIONS))
    ]
    await connections[0].execute(TABLE)
    floor = PostgresFloor([*connections])
    measured = await measure(floor.run_once, in_flight=in_flight, warm_up_s=warm_up_s, seconds=seconds, mark=tell)
    for connection in connections:
        await connection.close()
    print(json.dumps(measured.as_json() | {"versions": {"psycopg": version("psycopg")}}), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
