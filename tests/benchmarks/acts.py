"""What the list of acts costs when it is long: `make bench-access`.

    python -m tests.benchmarks.acts [--acts 1000000] [--pages 400]

A Postgres of its own with so many acts of 20 tenants, 200 people and 40 operations. Then pages of 50 by each filter of
GET /v1/_audit, the first ones and those behind a cursor, one after the other: milliseconds of the read and its rows.

Goal: 100 ms at p99 over a million acts.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from loomlog.connectors.storage.postgres import PostgresOptions, connect, open_reader
from loomlog.projections.acts import ActFilter, ActRow, SqlActReads, acts_schema, prepare_acts
from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.local import local_stack
from tests.benchmarks.closed_loop import percentile
from tests.benchmarks.machine import machine

CACHE = Path(__file__).parent.parent.parent / ".loomlog" / "cache"
PREFIX = "bench"
TENANTS, PEOPLE, FAMILIES, OPERATIONS = 20, 200, 8, 5
BEGAN_MS = 1_790_000_000_000
EVERY_MS = 30_000
PAGE = 50
GOAL_MS = 100.0
DETAIL = '{"name":"review","phase":"pre","callback_url":"https://hooks.example.com/review","agents":["helper"]}'


def rows(count: int) -> Iterable[ActRow]:
    """Acts in the order of their time, as different as those of an installation of some years."""
    chosen = random.Random(7)
    for number in range(count):
        family = f"family{chosen.randrange(FAMILIES)}"
        refused = chosen.random() < 0.05
        at_ms = BEGAN_MS + number * EVERY_MS
        yield ActRow(
            act_id=f"{chosen.getrandbits(128):032x}",
            tenant=f"tenant{chosen.randrange(TENANTS)}",
            at_ms=at_ms,
            who=f"person{chosen.randrange(PEOPLE)}",
            token="ci",
            token_id="",
            operation=f"{family}.operation{chosen.randrange(OPERATIONS)}",
            family=family,
            transport=chosen.choice(("http", "web", "cli", "mcp")),
            request_id=f"q_{number:016x}",
            target=f"target{number % 1_000}",
            request=DETAIL,
            outcome="refused" if refused else "done",
            code="insufficient_scope" if refused else "",
            ended_at_ms=at_ms + 12,
            after="" if refused else DETAIL,
        )


async def fill(connection: psycopg.AsyncConnection[Any], count: int) -> float:
    """Return the seconds that it took."""
    began = time.perf_counter()
    await prepare_acts(connection, PREFIX)
    copy = sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(acts_schema(PREFIX), "acts"))
    async with connection.transaction(), connection.cursor() as cursor, cursor.copy(copy) as target:
        for row in rows(count):
            await target.write_row(row)
    await connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(acts_schema(PREFIX), "acts")))
    return time.perf_counter() - began


def filters(count: int) -> dict[str, list[ActFilter]]:
    """The questions that are asked, by their kind."""
    chosen = random.Random(11)

    def times() -> dict[str, int]:
        since = BEGAN_MS + chosen.randrange(count) * EVERY_MS
        return {"since_ms": since, "until_ms": since + 7 * 86_400_000}

    def tenant() -> str:
        return f"tenant{chosen.randrange(TENANTS)}"

    def who() -> str:
        return f"person{chosen.randrange(PEOPLE)}"

    def what(*, is_family: bool = False) -> str:
        family = f"family{chosen.randrange(FAMILIES)}"
        return family if is_family else f"{family}.operation{chosen.randrange(OPERATIONS)}"

    each = range(50)
    return {
        "all tenants": [ActFilter() for _ in each],
        "a tenant": [ActFilter(tenant=tenant()) for _ in each],
        "who": [ActFilter(who=who()) for _ in each],
        "an operation": [ActFilter(what=what()) for _ in each],
        "a family of a tenant": [ActFilter(tenant=tenant(), what=what(is_family=True)) for _ in each],
        "who and an operation, of a tenant": [ActFilter(tenant=tenant(), who=who(), what=what()) for _ in each],
        "a week of a tenant": [ActFilter(tenant=tenant(), **times()) for _ in each],
        "who in a week": [ActFilter(who=who(), **times()) for _ in each],
        "nobody": [ActFilter(tenant=tenant(), who="nobody") for _ in each],
    }


async def ask(reads: SqlActReads, chosen: list[ActFilter], pages: int) -> list[float]:
    """Return the milliseconds of so many pages, each list read a few pages deep."""
    taken: list[float] = []
    cursors = dict.fromkeys(range(len(chosen)), "")
    for number in range(pages):
        place = number % len(chosen)
        began = time.perf_counter()
        page = await reads.list(chosen[place], limit=PAGE, after=cursors[place])
        taken.append((time.perf_counter() - began) * 1_000)
        cursors[place] = page.next
    return sorted(taken)


async def run(count: int, pages: int) -> None:
    print(machine())
    with tempfile.TemporaryDirectory(prefix="loomlog-bench-acts-") as folder:
        home = open_home(Path(folder), cache=CACHE)
        async with local_stack(home, report=print, environ=os.environ, kafka_port=0, postgres_port=0) as stack:
            options = PostgresOptions(dsn=stack.postgres)
            async with await connect(options) as connection:
                print(f"{count:,} acts written in {await fill(connection, count):.0f} s")
            reader = await open_reader(options, schema=PREFIX, max_connections=2)
            reads = SqlActReads(reader, acts_schema(PREFIX))
            print(f"{'acts by':<36}{'p50 ms':>10}{'p99 ms':>10}{'worst':>10}")
            worst = 0.0
            for name, chosen in filters(count).items():
                taken = await ask(reads, chosen, pages)
                worst = max(worst, percentile(taken, 0.99))
                print(f"{name:<36}{percentile(taken, 0.5):>10.2f}{percentile(taken, 0.99):>10.2f}{taken[-1]:>10.2f}")
            await reader.close()
    print(f"p99 of the slowest kind {worst:.1f} ms; goal {GOAL_MS:g} ms: {'met' if worst <= GOAL_MS else 'MISSED'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acts", type=int, default=1_000_000)
    parser.add_argument("--pages", type=int, default=400)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.acts, arguments.pages))
