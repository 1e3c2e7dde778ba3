"""Who waits for whom in Postgres, so that a test can wait for that instead of for a time."""

import asyncio

from psycopg import AsyncConnection

WAIT_S = 10.0


async def is_held_up(connection: AsyncConnection, who: AsyncConnection) -> bool:
    """Whether a statement of `who` waits for a lock, as `connection` sees it, also inside a transaction."""
    # The view of activities would be frozen for the whole transaction; locks are not.
    found = await connection.execute(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s", (who.info.backend_pid,)
    )
    row = await found.fetchone()
    return bool(row and row[0])


async def until_held_up(connection: AsyncConnection, who: AsyncConnection) -> None:
    """Until a statement of `who` waits for a lock."""
    async with asyncio.timeout(WAIT_S):
        while not await is_held_up(connection, who):
            pass
