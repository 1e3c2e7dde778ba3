"""Lock waits in Postgres, so that a test can wait for them instead of for a time."""

import asyncio

from psycopg import AsyncConnection

WAIT_S = 30.0


async def is_held_up(connection: AsyncConnection, blocked: AsyncConnection) -> bool:
    """Whether a statement of `blocked` waits for a lock, as `connection` sees it, also inside a transaction."""
    # The view of activities would be frozen for the whole transaction; locks are not.
    result = await connection.execute(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s", (blocked.info.backend_pid,)
    )
    row = await result.fetchone()
    return bool(row and row[0])


async def until_held_up(connection: AsyncConnection, blocked: AsyncConnection) -> None:
    """Waits until a statement of `blocked` waits for a lock."""
    async with asyncio.timeout(WAIT_S):
        while not await is_held_up(connection, blocked):
            pass
