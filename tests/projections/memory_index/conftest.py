"""An index of memory in the session's Postgres."""

from collections.abc import AsyncIterator

import pytest_asyncio

from loomlog.connectors.storage.postgres import open_pool
from loomlog.projections.memory_index.reads import SESSION
from tests.projections.memory_index.world import World


@pytest_asyncio.fixture(loop_scope="session")
async def world(connection, options, prefix: str) -> AsyncIterator[World]:
    """An empty index."""
    pool = await open_pool(options, max_connections=3, session=SESSION)
    world = World(connection, pool, prefix)
    await world.prepare()
    yield world
    await pool.close()
