"""Builds of the projections under a unique prefix, and connections to them."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.storage.postgres import PostgresOptions, PostgresReader, connect, open_reader
from loomlog.projections.engine.builds import Builds
from loomlog.projections.engine.run_projection import RunProjection
from tests.projections.entity_fixtures import entity_builds, entity_prefix, entity_reader, project_entities
from tests.projections.stories import TOPIC, Partition

__all__ = ["entity_builds", "entity_prefix", "entity_reader", "project_entities"]

Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
def options(postgres: str) -> PostgresOptions:
    return PostgresOptions(dsn=postgres, application_name="tests")


@pytest_asyncio.fixture(loop_scope="session")
async def prefix(options: PostgresOptions) -> AsyncIterator[str]:
    """First part of the names of schemas; all of them are dropped afterwards."""
    name = f"t{uuid.uuid4().hex[:10]}"
    yield name
    async with await connect(options) as connection:
        result = await connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname = %s OR nspname LIKE %s", (name, name + r"\_%")
        )
        for (schema,) in await result.fetchall():
            await connection.execute(f'DROP SCHEMA "{schema}" CASCADE')


@pytest_asyncio.fixture(loop_scope="session")
async def connection(options: PostgresOptions) -> AsyncIterator[Connection]:
    async with await connect(options) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def builds(connection: Connection, prefix: str) -> Builds:
    """The list of builds, with build 1 created and live."""
    builds = Builds(connection, prefix)
    await builds.prepare()
    return builds


@pytest_asyncio.fixture(loop_scope="session")
async def reader(options: PostgresOptions, prefix: str, builds: Builds) -> AsyncIterator[PostgresReader]:
    """Reads the live build."""
    opened = await open_reader(options, schema=prefix, max_connections=2)
    yield opened
    await opened.close()


@pytest.fixture
def connecting(options: PostgresOptions) -> Callable[[], Awaitable[Connection]]:
    return lambda: connect(options)


@pytest_asyncio.fixture(loop_scope="session")
async def project(connection: Connection, builds: Builds) -> Callable[..., Awaitable[RunProjection]]:
    """Projects whole partitions, numbered in their order, into build 1."""

    async def project(*partitions: Partition) -> RunProjection:
        log = MemoryLog({TOPIC: len(partitions)})
        for number, partition in enumerate(partitions):
            log.put(TOPIC, number, partition.outgoing())
        projection = RunProjection(connection, builds.build(1), TOPIC, owner="tests")
        await projection.claim(range(len(partitions)))
        await projection.apply({number: log.records[TOPIC, number] for number in range(len(partitions))})
        return projection

    return project
